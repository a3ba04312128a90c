"""Messages in parts for tasks."""

import pytest

from futebus.nats.state import State
from futebus.spark.remote import RemoteOptions, parse_remote
from futebus.spark.source import ranges
from futebus.spark.source.ranges import cut_messages

MIB = 1 << 20


def options(partition_bytes: int) -> RemoteOptions:
    return parse_remote({"path": "nats://127.0.0.1/LINES", "partitionbytes": str(partition_bytes)})


def parts(state: State, begin: int, end: int, most: int) -> list[tuple[int, int]]:
    return [(part.first, part.end) for part in cut_messages(options(most), state, begin, end)]


def having(count: int) -> State:
    """What a stream with so many messages of 1 MiB says."""
    return State("then", ("lines",), 1, count, count * MIB, is_memory=False, replicas=1)


@pytest.mark.parametrize("processors", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 100, 257, 300])
def test_parts_are_as_large_as_each_other_and_no_processor_rests(
    monkeypatch: pytest.MonkeyPatch, processors: int, count: int
) -> None:
    monkeypatch.setattr(ranges, "PROCESSORS", processors)
    state = having(count)
    found = parts(state, 1, count + 1, 64 * MIB)
    assert [first for first, _ in found] == [1, *(end for _, end in found[:-1])]
    assert found[-1][1] == count + 1
    sizes = [end - first for first, end in found]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 64
    if len(sizes) > processors:
        assert len(sizes) % processors == 0
    if count >= 8 * processors:
        assert len(sizes) >= processors


def test_no_part_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PROCESSORS", 4)
    state = having(5)
    assert parts(state, 1, 6, 300) == [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert parts(state, 3, 3, 300) == []
