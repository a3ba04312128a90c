"""Node ids: who writes has a kernel inode alone, and nothing is kept that the kernel has forgotten."""

import errno
from array import array
from collections.abc import Callable

import pytest

from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Access, Owner
from futebus.fuse.nodes import FOREIGN, OPEN_SIZE, STAT_FILES, AlreadyTaken, Nodes

ME, OTHER, THIRD = 101, 102, 103


def nodes_of(ask: Callable[["array[int]"], int] = lambda numbers: 0, outdated: list[int] | None = None) -> Nodes:
    def outdate(number: int) -> int:
        if outdated is not None:
            outdated.append(number)
        return 0

    return Nodes(ask, lambda number, size: 0, outdate)


@pytest.fixture
def channel() -> Channel:
    client, _ = Bus().create(b".U_x", Access(True, True), Owner(0, 0, 1), 0o644, 0)
    return client.channel


def test_look_ups_share_a_node_until_somebody_opens_it(channel: Channel) -> None:
    nodes = nodes_of()
    first = nodes.offer(channel, bulk=False, thread=ME, user=0)
    assert nodes.offer(channel, bulk=False, thread=OTHER, user=0) is first
    nodes.open(first, OTHER, writes=False)
    second = nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    assert second is not first
    assert second.number != first.number


def test_bulk_reading_is_another_node(channel: Channel) -> None:
    nodes = nodes_of()
    assert nodes.offer(channel, bulk=True, thread=ME, user=0) is not nodes.offer(channel, bulk=False, thread=ME, user=0)


def test_readers_who_found_the_same_node_share_it(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    nodes.open(node, ME, writes=False)
    nodes.open(node, OTHER, writes=False)
    assert node.opens == 2


def test_a_writer_shares_with_nobody(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=False)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, OTHER, writes=True)


def test_a_writer_does_not_take_what_somebody_else_has_found_and_may_lock(channel: Channel) -> None:
    """It is looked up by `rm`, which takes the inode's lock next, with the directory's in its hands."""
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    assert nodes.offer(channel, bulk=False, thread=ME, user=0) is node
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, writes=True)
    own = nodes.offer(channel, bulk=False, thread=ME, user=0)
    assert own is not node
    nodes.open(own, ME, writes=True)
    third = nodes.offer(channel, bulk=False, thread=THIRD, user=0)
    assert third not in (node, own), "the next one is not sent back for it too"


def test_who_has_done_something_else_locks_nothing_any_more(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    nodes.settle(OTHER)
    nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)


def test_who_has_looked_up_another_name_locks_the_first_no_more(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    nodes.offer(channel, bulk=True, thread=OTHER, user=0)
    nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)


def test_an_open_node_is_long_for_the_kernel_before_anybody_writes(channel: Channel) -> None:
    lengthened: list[tuple[int, int]] = []

    def lengthen(number: int, size: int) -> int:
        lengthened.append((number, size))
        return 0

    nodes = Nodes(lambda numbers: 0, lengthen, lambda number: 0)
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.offer(channel, bulk=False, thread=OTHER, user=0)
    nodes.open(node, ME, writes=False)
    assert lengthened == [(node.number, OPEN_SIZE)]
    nodes.open(node, OTHER, writes=False)
    assert len(lengthened) == 1, "the kernel could wait for us"


def test_what_readers_are_shown_is_not_believed_but_new_permissions_are(channel: Channel) -> None:
    outdated: list[int] = []
    nodes = nodes_of(outdated=outdated)
    written, read, changed = (nodes.offer(channel, bulk=False, thread=None, user=user) for user in (1, 2, 3))
    assert [nodes.size_shown(node, ME) for node in (written, read, changed)] == [0, 0, 0]
    assert not outdated, "nobody has them open"
    nodes.open(written, ME, writes=True)
    nodes.open(read, OTHER, writes=False)
    assert outdated == [written.number, read.number], "whoever has asked before is told too late"
    assert nodes.size_shown(written, ME) == OPEN_SIZE
    assert len(outdated) == 2, "the kernel knows that size"
    assert nodes.size_shown(read, OTHER) == 0
    assert outdated[2:] == [read.number]
    channel.mode = 0o600
    nodes.change(changed)
    for _ in range(2):
        assert nodes.size_shown(read, OTHER) == OPEN_SIZE, "it must be believed"
    channel.mode = 0o644
    assert nodes.size_shown(read, OTHER) == OPEN_SIZE, "nobody knows which answer has come last"
    assert len(outdated) == 3
    nodes.change(read)
    assert nodes.size_shown(read, OTHER) == 0
    nodes.close(read, writes=False)
    assert nodes.size_shown(read, OTHER) == 0


def test_no_node_is_offered_again_that_the_kernel_knows_with_other_permissions(channel: Channel) -> None:
    nodes = nodes_of()
    own, closed, other = (nodes.offer(channel, bulk=False, thread=None, user=user) for user in (1, 2, 3))
    nodes.open(closed, ME, writes=False)
    channel.mode = 0o600
    nodes.change(own)
    nodes.close(closed, writes=False)
    assert nodes.offer(channel, bulk=False, thread=None, user=1) is own
    assert nodes.offer(channel, bulk=False, thread=None, user=2) is not closed
    new = nodes.offer(channel, bulk=False, thread=None, user=3)
    assert new is not other
    assert nodes.offer(channel, bulk=False, thread=None, user=3) is new


def test_only_others_do_not_change_the_size_of_stat() -> None:
    """For who has it open, its end is where it is shown to be: tail(1) looks for lines from there."""
    outdated: list[int] = []
    nodes = nodes_of(outdated=outdated)
    shown = STAT_FILES[b"_stat"]
    node = nodes.offer(shown, bulk=False, thread=ME, user=0)
    assert nodes.offer(shown, bulk=False, thread=OTHER, user=0) is node
    assert nodes.size_shown(node, OTHER) == 0
    assert not outdated
    nodes.open(node, ME, writes=False)
    assert len(outdated) == 1
    assert nodes.size_shown(node, ME) == 0
    assert len(outdated) == 1
    assert nodes.size_shown(node, OTHER) == 0
    assert len(outdated) == 2


def test_the_second_slave_to_open_a_node_looks_again_and_gets_one_of_its_own(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)
    for thread in (OTHER, THIRD):
        with pytest.raises(AlreadyTaken):
            nodes.open(node, thread, writes=True)
    # Both look again before either opens: were they given the same node, one would have to be sent back for good.
    theirs = {thread: nodes.offer(channel, bulk=False, thread=thread, user=0) for thread in (OTHER, THIRD)}
    assert len({node.number, *(own.number for own in theirs.values())}) == 3
    for thread, own in theirs.items():
        nodes.open(own, thread, writes=True)


def test_a_thread_that_comes_again_without_looking_is_let_in(channel: Channel) -> None:
    """That is /dev/fd: the kernel knows no name to look up."""
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, writes=True)
    nodes.open(node, ME, writes=True)
    assert (node.opens, node.writers) == (2, 2)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, writes=True)


def test_a_node_that_was_closed_is_offered_again(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)
    nodes.close(node, writes=True)
    assert nodes.offer(channel, bulk=False, thread=ME, user=0) is node


def test_a_node_lives_until_as_many_look_ups_are_forgotten_as_were_answered(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.forget(node.number, 1)
    assert nodes[node.number] is node
    nodes.forget(node.number, 1)
    assert len(nodes) == 0
    assert nodes.offer(channel, bulk=False, thread=ME, user=0).number != node.number, "numbers are never used again"


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("forgotten_first", [False, True])
def test_an_open_node_outlives_being_forgotten(channel: Channel, forgotten_first: bool, writes: bool) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes)
    if forgotten_first:
        nodes.forget(node.number, 1)
        assert nodes[node.number] is node
        nodes.close(node, writes)
    else:
        nodes.close(node, writes)
        nodes.forget(node.number, 1)
    assert len(nodes) == 0
    assert nodes.offer(channel, bulk=False, thread=ME, user=0) is not node


def test_forgetting_what_is_unknown_does_no_harm() -> None:
    nodes_of().forget(7, 1)


def test_threads_that_never_come_back_are_not_remembered_for_ever(channel: Channel) -> None:
    nodes = nodes_of()
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    nodes.open(node, ME, writes=True)
    for thread in range(1000, 10_000):
        with pytest.raises(AlreadyTaken):
            nodes.open(node, thread, writes=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, 1000, writes=True)
    nodes.open(node, 9_999, writes=True)


class Kernel:
    """Takes note of what it is asked to forget, and answers with an errno."""

    def __init__(self, answer: int = 0) -> None:
        self.asked: list[list[int]] = []
        self._answer = answer

    def __call__(self, numbers: "array[int]") -> int:
        self.asked.append(numbers.tolist())
        return self._answer


def test_the_kernel_is_asked_to_forget_what_nobody_can_find_any_more() -> None:
    kernel = Kernel()
    nodes, asked = nodes_of(kernel), kernel.asked
    bus = Bus()
    for number in range(100):
        client, _ = bus.create(b".U_%d" % number, Access(True, True), Owner(0, 0, 1), 0o644, 0)
        node = nodes.offer(client.channel, bulk=False, thread=ME, user=0)
        nodes.open(node, ME, writes=False)
        nodes.prune()
        bus.close(client, 0)
        nodes.close(node, writes=False)
        nodes.lose_name(client.channel)
        nodes.prune()
        for numbers in asked[-1:]:
            for each in numbers:
                nodes.forget(each, 1)
    assert 1 < len(asked) < 10, "many at once"
    nodes.prune(everything=True)
    assert len({number for numbers in asked for number in numbers}) == 100
    for number in asked[-1]:
        nodes.forget(number, 1)
    assert len(nodes) == 0


def test_what_the_kernel_does_not_forget_is_counted_and_costs_no_more_however_much_it_is() -> None:
    """open(O_PATH) keeps a node, and is no client."""
    kernel = Kernel()
    nodes, bus = nodes_of(kernel), Bus()
    for number in range(2000):
        client, _ = bus.create(b".U_%d" % number, Access(True, True), Owner(8, 0, 1), 0o644, 0)
        node = nodes.offer(client.channel, bulk=False, thread=ME, user=7)
        nodes.open(node, ME, writes=True)
        bus.close(client, 0)
        nodes.close(node, writes=True)
        nodes.lose_name(client.channel)
        nodes.prune()
    assert nodes.held_by(7) > 1900
    assert nodes.held_by(8) == 0
    asked = [numbers for numbers in kernel.asked if numbers]
    assert sum(map(len, asked)) <= 2000, "each once"
    for _ in range(20):
        nodes.prune(everything=True)
        assert len(kernel.asked[-1]) <= 256
    assert len({number for numbers in kernel.asked[-10:] for number in numbers}) == 2000, "each has its turn again"
    for number in list(kernel.asked[-1]):
        nodes.forget(number, 1)
    assert nodes.held_by(7) < 2000


def test_users_never_share_what_they_have_found(channel: Channel) -> None:
    """Or else somebody could be charged for what another does not let go of."""
    nodes = nodes_of(Kernel())
    mine, others = (nodes.offer(channel, bulk=False, thread=thread, user=user) for thread, user in ((ME, 1), (OTHER, 2)))
    assert mine is not others
    assert nodes.offer(channel, bulk=False, thread=THIRD, user=1) is mine
    assert nodes.offer(channel, bulk=False, thread=THIRD, user=2) is others


def test_what_is_open_is_not_forgotten(channel: Channel) -> None:
    kernel = Kernel()
    nodes, asked = nodes_of(kernel), kernel.asked
    node = nodes.offer(channel, bulk=False, thread=ME, user=0)
    other = nodes.offer(channel, bulk=True, thread=ME, user=0)
    nodes.open(node, ME, writes=False)
    channel.is_named = False
    nodes.lose_name(channel)
    nodes.prune(everything=True)
    assert asked == [[other.number]]
    nodes.close(node, writes=False)
    nodes.prune(everything=True)
    assert sorted(asked[-1]) == sorted([node.number, other.number])


def test_a_kernel_that_cannot_forget_is_asked_once(channel: Channel) -> None:
    kernel = Kernel(errno.EINVAL)
    nodes = nodes_of(kernel)
    nodes.offer(channel, bulk=False, thread=ME, user=0)
    channel.is_named = False
    nodes.lose_name(channel)
    nodes.prune(everything=True)
    nodes.prune(everything=True)
    assert len(kernel.asked) == 1


def test_a_thread_is_sent_back_once_and_strangers_never(channel: Channel) -> None:
    nodes = nodes_of()
    assert nodes.send_back(ME)
    assert not nodes.send_back(ME), "it has looked again, and found the same"
    assert nodes.send_back(ME)
    assert not nodes.send_back(FOREIGN)


def test_strangers_have_a_node_for_each_look(channel: Channel) -> None:
    """Threads of other PID namespaces are all the same to us."""
    nodes = nodes_of()
    first, second = (nodes.offer(channel, bulk=False, thread=FOREIGN, user=0) for _ in range(2))
    assert first is not second
    assert nodes.offer(channel, bulk=False, thread=ME, user=0) not in (first, second)
    nodes.open(first, FOREIGN, writes=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(first, FOREIGN, writes=True)
    nodes.open(first, FOREIGN, writes=True)
    nodes.open(second, FOREIGN, writes=True)
    assert nodes.offer(channel, bulk=False, thread=None, user=0) is nodes.offer(channel, bulk=False, thread=None, user=0)
