"""A stream on three servers, of which one after the other is killed while it is read and added to."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.reader import Reader

from ..helpers.clusters import Cluster, cluster
from ..helpers.streams import NAME, Filled, Filling, filling

__all__ = ["cluster", "filling"]


@pytest.fixture
def filled(cluster: Cluster, filling: Filling) -> Filled:
    """A stream that all three have."""
    return filling(cluster.url, num_replicas=3)


def test_leaders_are_killed_while_a_stream_is_read(cluster: Cluster, filled: Filled, request: pytest.FixtureRequest) -> None:
    """Each message comes once, in order, also what was added in the meantime."""
    assert filled.state.replicas == 3
    rounds, each = 3, 60

    def add() -> None:
        for _ in range(rounds):
            filled.fill(each)
            leader = cluster.leader(NAME)
            leader.kill()
            filled.fill(each)
            leader.begin()
            leader.wait_until_current()

    adding = ThreadPoolExecutor(1).submit(add)
    reader = Reader(address.read_servers(cluster.url), Access(), NAME, "a test")
    request.addfinalizer(reader.close)
    end = 1
    found: list[tuple[int, bytes]] = []
    while len(found) < 2 * rounds * each:
        if not reader.wait_for(end, 1.0):
            if adding.done():
                adding.result()
            continue
        last = reader.state().last + 1
        found.extend((message.sequence, message.data.split()[1]) for message in reader.messages(end, last))
        numbers = [sequence for sequence, _ in found]
        assert numbers == list(range(1, last)), f"nothing is left out, or comes twice: from {end} on, up to {last}"
        end = last
    adding.result()
    assert [sequence for sequence, _ in found] == list(range(1, 2 * rounds * each + 1))
    assert [int(number) for _, number in found] == list(range(0, 2 * rounds * each * 10, 10))
