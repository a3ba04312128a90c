"""Node ids: a slave that writes has its kernel inode to itself, and nothing is kept that the kernel has forgotten."""

import errno
from array import array

import pytest

from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Access, Owner
from futebus.fuse.nodes import AlreadyTaken, Nodes

ME, OTHER, THIRD = 101, 102, 103


@pytest.fixture
def channel() -> Channel:
    client, _ = Bus().create(b".U_x", Access(True, True), Owner(0, 0, 1), 0o644, 0)
    return client.channel


def test_look_ups_share_a_node_until_a_slave_writes_by_it(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    first = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(first, ME, may_wait=False)
    assert nodes.offer(channel, bulk=False, thread=OTHER) is first
    nodes.open(first, OTHER, may_wait=True)
    second = nodes.offer(channel, bulk=False, thread=OTHER)
    assert second is not first
    assert second.number != first.number


def test_bulk_reading_is_another_node(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    assert nodes.offer(channel, bulk=True, thread=ME) is not nodes.offer(channel, bulk=False, thread=ME)


def test_who_never_waits_shares_with_everybody(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    nodes.open(node, OTHER, may_wait=False)
    nodes.open(node, OTHER, may_wait=False)


def test_the_second_slave_to_open_a_node_looks_again_and_gets_one_of_its_own(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    for thread in (OTHER, THIRD):
        nodes.offer(channel, bulk=False, thread=thread)
    nodes.open(node, ME, may_wait=True)
    for thread in (OTHER, THIRD):
        with pytest.raises(AlreadyTaken):
            nodes.open(node, thread, may_wait=True)
    # Both look again before either opens: were they given the same node, one would have to be sent back for good.
    theirs = {thread: nodes.offer(channel, bulk=False, thread=thread) for thread in (OTHER, THIRD)}
    assert len({node.number, *(own.number for own in theirs.values())}) == 3
    for thread, own in theirs.items():
        nodes.open(own, thread, may_wait=True)


def test_a_thread_that_comes_again_without_looking_is_let_in(channel: Channel) -> None:
    """That is /dev/fd: the kernel knows no name to look up."""
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, may_wait=True)
    nodes.open(node, ME, may_wait=True)
    assert (node.opens, node.writers) == (2, 2)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, may_wait=True)


def test_a_node_that_was_closed_is_offered_again(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    nodes.close(node, may_wait=True)
    assert nodes.offer(channel, bulk=False, thread=ME) is node


def test_a_node_lives_until_as_many_look_ups_are_forgotten_as_were_answered(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.offer(channel, bulk=False, thread=ME)
    nodes.forget(node.number, 1)
    assert nodes[node.number] is node
    nodes.forget(node.number, 1)
    assert len(nodes) == 0
    assert nodes.offer(channel, bulk=False, thread=ME).number != node.number, "numbers are never used again"


@pytest.mark.parametrize("may_wait", [False, True])
@pytest.mark.parametrize("forgotten_first", [False, True])
def test_an_open_node_outlives_being_forgotten(channel: Channel, forgotten_first: bool, may_wait: bool) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait)
    if forgotten_first:
        nodes.forget(node.number, 1)
        assert nodes[node.number] is node
        nodes.close(node, may_wait)
    else:
        nodes.close(node, may_wait)
        nodes.forget(node.number, 1)
    assert len(nodes) == 0
    assert nodes.offer(channel, bulk=False, thread=ME) is not node


def test_forgetting_what_is_unknown_does_no_harm() -> None:
    Nodes(lambda numbers: 0).forget(7, 1)


def test_threads_that_never_come_back_are_not_remembered_for_ever(channel: Channel) -> None:
    nodes = Nodes(lambda numbers: 0)
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    for thread in range(1000, 10_000):
        with pytest.raises(AlreadyTaken):
            nodes.open(node, thread, may_wait=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, 1000, may_wait=True)
    nodes.open(node, 9_999, may_wait=True)


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
    nodes, asked = Nodes(kernel), kernel.asked
    bus = Bus()
    for number in range(100):
        client, _ = bus.create(b".U_%d" % number, Access(True, True), Owner(0, 0, 1), 0o644, 0)
        node = nodes.offer(client.channel, bulk=False, thread=ME)
        nodes.open(node, ME, may_wait=False)
        nodes.prune()
        bus.close(client, 0)
        nodes.close(node, may_wait=False)
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


def test_what_is_open_is_not_forgotten(channel: Channel) -> None:
    kernel = Kernel()
    nodes, asked = Nodes(kernel), kernel.asked
    node = nodes.offer(channel, bulk=False, thread=ME)
    other = nodes.offer(channel, bulk=True, thread=ME)
    nodes.open(node, ME, may_wait=False)
    channel.is_named = False
    nodes.lose_name(channel)
    nodes.prune(everything=True)
    assert asked == [[other.number]]
    nodes.close(node, may_wait=False)
    nodes.prune(everything=True)
    assert sorted(asked[-1]) == sorted([node.number, other.number])


def test_a_kernel_that_cannot_forget_is_asked_once(channel: Channel) -> None:
    kernel = Kernel(errno.EINVAL)
    nodes = Nodes(kernel)
    nodes.offer(channel, bulk=False, thread=ME)
    channel.is_named = False
    nodes.lose_name(channel)
    nodes.prune(everything=True)
    nodes.prune(everything=True)
    assert len(kernel.asked) == 1
