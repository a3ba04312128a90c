"""Node ids: a slave that writes has its kernel inode to itself, and nothing is kept that the kernel has forgotten."""

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
    nodes = Nodes()
    first = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(first, ME, may_wait=False)
    assert nodes.offer(channel, bulk=False, thread=OTHER) is first
    nodes.open(first, OTHER, may_wait=True)
    second = nodes.offer(channel, bulk=False, thread=OTHER)
    assert second is not first
    assert second.number != first.number


def test_bulk_reading_is_another_node(channel: Channel) -> None:
    nodes = Nodes()
    assert nodes.offer(channel, bulk=True, thread=ME) is not nodes.offer(channel, bulk=False, thread=ME)


def test_who_never_waits_shares_with_everybody(channel: Channel) -> None:
    nodes = Nodes()
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    nodes.open(node, OTHER, may_wait=False)
    nodes.open(node, OTHER, may_wait=False)


def test_the_second_slave_to_open_a_node_looks_again_and_gets_one_of_its_own(channel: Channel) -> None:
    nodes = Nodes()
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
    nodes = Nodes()
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, may_wait=True)
    nodes.open(node, ME, may_wait=True)
    assert (node.opens, node.writers) == (2, 2)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, ME, may_wait=True)


def test_a_node_that_was_closed_is_offered_again(channel: Channel) -> None:
    nodes = Nodes()
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    nodes.close(node, may_wait=True)
    assert nodes.offer(channel, bulk=False, thread=ME) is node


def test_a_node_lives_until_as_many_look_ups_are_forgotten_as_were_answered(channel: Channel) -> None:
    nodes = Nodes()
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
    nodes = Nodes()
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
    Nodes().forget(7, 1)


def test_threads_that_never_come_back_are_not_remembered_for_ever(channel: Channel) -> None:
    nodes = Nodes()
    node = nodes.offer(channel, bulk=False, thread=ME)
    nodes.open(node, ME, may_wait=True)
    for thread in range(1000, 10_000):
        with pytest.raises(AlreadyTaken):
            nodes.open(node, thread, may_wait=True)
    with pytest.raises(AlreadyTaken):
        nodes.open(node, 1000, may_wait=True)
    nodes.open(node, 9_999, may_wait=True)
