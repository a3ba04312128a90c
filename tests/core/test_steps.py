"""A write that is taken in steps is the same as one that is taken at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.bus import Bus
from futebus.core.client import Client
from futebus.core.errors import BusError
from futebus.core.framing import RUN_BYTES
from futebus.core.lines import end

from .driver import ROOT, RW

LINE = st.sampled_from(
    [b"\n", b"text\n", b"{*}all\n", b"{2}two\n", b"{3}three\n", b"{9}nobody\n", b"{2}\n", b"no address\n", b"{*}"]
)


def bus_with(name: bytes) -> tuple[Bus, list[Client]]:
    """A bus with a master, or the first of the peers, and two more."""
    bus = Bus()
    first, _ = bus.create(name, RW, ROOT, 0o644, 0)
    return bus, [first, *(bus.open(first.channel, RW, ROOT, 0)[0] for _ in range(2))]


def contents(bus: Bus, clients: list[Client]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    for client in clients:
        found.append([])
        while client.mailbox:
            piece, _ = bus.read(client, 1 << 20, 0)
            assert piece
            found[-1].append(piece)
    return found


def written(bus: Bus, client: Client, data: bytes, work: int | None) -> int | type[BusError]:
    """How many bytes were taken, going on for as long as the bus says that there is more to do."""
    taken = 0
    try:
        while True:
            count, effects = bus.write(client, data[taken:], 0, work=work)
            assert count
            taken += count
            if not effects.is_unfinished:
                return taken
            assert taken < len(data)
    except BusError as error:
        return taken or type(error)


@pytest.mark.parametrize("name", [b".U_x", b"A_x", b".S_x", b"B_x"])
@given(lines=st.lists(LINE, min_size=1, max_size=12), writer=st.integers(0, 2), work=st.integers(1, 4))
def test_in_steps_or_at_once(name: bytes, lines: list[bytes], writer: int, work: int) -> None:
    data = b"".join(lines)
    results = []
    for bound in (None, work):
        bus, clients = bus_with(name)
        taken = written(bus, clients[writer], data, bound)
        results.append((taken, contents(bus, clients), bytes(clients[writer].wbuf.partial), clients[writer].sent))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("name", "data", "work", "most"),
    [
        (b"B_x", b"a\n\n", 10, 10),
        (b"A_x", b"{2}a\n{*}b\n", 10, 10),
        (b"B_x", b"a line\n", 1, RUN_BYTES // 7),
    ],
)
def test_a_step_is_bounded(name: bytes, data: bytes, work: int, most: int) -> None:
    bus, [writer, *_] = bus_with(name)
    count, effects = bus.write(writer, data * (4 * RUN_BYTES // len(data)), 0, work=work)
    assert effects.is_unfinished
    assert count
    assert 0 < writer.sent <= most


@given(st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=10), st.data())
def test_where_lines_end(lines: list[bytes], data: st.DataObject) -> None:
    before = data.draw(st.integers(0, len(lines)))
    count = data.draw(st.integers(0, len(lines) - before))
    text, start = b"".join(lines), len(b"".join(lines[:before]))
    assert end(text, start, count) == start + len(b"".join(lines[before : before + count]))
    with pytest.raises(ValueError, match="fewer"):
        end(text, start, len(lines) - before + 1)


def test_what_is_no_place_in_the_data() -> None:
    for start in (-1, 3):
        with pytest.raises(ValueError, match="not within"):
            end(b"a\n", start, 1)
    with pytest.raises(TypeError):
        end(bytearray(b"a\n"), 0, 1)  # type: ignore[arg-type]
