"""Reading: one message a read or as many as fit, in pieces or whole, now or after a wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.client import Client
from futebus.core.errors import NotOpenForThis, WouldBlock

from .driver import RO, WO, Driver


def broadcast(bus: Driver, *, bulk: bool = False) -> tuple[Client, Client]:
    """A writer and a reader."""
    return bus.create(b"B_x", WO), bus.create(b"+B_x" if bulk else b"B_x", RO)


@pytest.mark.parametrize(
    ("bulk", "sizes", "pieces"),
    [
        (False, [100] * 3, [b"one\n", b"three\n", b"x\n"]),
        (False, [4, 6, 2], [b"one\n", b"three\n", b"x\n"]),
        (False, [3] * 5, [b"one", b"\n", b"thr", b"ee\n", b"x\n"]),
        (False, [1] * 12, [b"o", b"n", b"e", b"\n", b"t", b"h", b"r", b"e", b"e", b"\n", b"x", b"\n"]),
        (False, [1, 100, 2, 1, 100, 1, 1], [b"o", b"ne\n", b"th", b"r", b"ee\n", b"x", b"\n"]),
        (True, [100], [b"one\nthree\nx\n"]),
        (True, [12], [b"one\nthree\nx\n"]),
        (True, [11, 11], [b"one\nthree\n", b"x\n"]),
        (True, [10, 2], [b"one\nthree\n", b"x\n"]),
        (True, [9, 9], [b"one\n", b"three\nx\n"]),
        (True, [5, 5, 5, 5], [b"one\n", b"three", b"\n", b"x\n"]),
        (True, [4, 4, 4, 4], [b"one\n", b"thre", b"e\n", b"x\n"]),
        (True, [3, 100, 100], [b"one", b"\n", b"three\nx\n"]),
        (True, [1, 1, 100, 100], [b"o", b"n", b"e\n", b"three\nx\n"]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["written at once", "written one by one"])
def test_pieces(bulk: bool, sizes: list[int], pieces: list[bytes], at_once: bool) -> None:
    bus = Driver()
    writer, reader = broadcast(bus, bulk=bulk)
    for data in [b"one\nthree\nx\n"] if at_once else [b"one\n", b"three\n", b"x\n"]:
        bus.write(writer, data)
    assert [bus.read(reader, size) for size in sizes] == pieces
    with pytest.raises(WouldBlock):
        bus.read(reader, 1)
    assert reader.received == reader.channel.messages_out == 3
    assert reader.channel.bytes_out == 12


def test_the_bus_can_be_mounted_for_bulk_reading() -> None:
    bus = Driver(bulk=True)
    writer, reader = broadcast(bus)
    assert reader.bulk
    bus.write(writer, b"a\nb\n")
    assert bus.read(reader) == b"a\nb\n"


def test_bulk_reading_is_for_the_client_that_asked() -> None:
    bus = Driver()
    writer, bulk = broadcast(bus, bulk=True)
    plain = bus.open(b"B_x")
    bus.write(writer, b"a\nb\n")
    assert bus.read_all(bulk) == [b"a\nb\n"]
    assert bus.read_all(plain) == [b"a\n", b"b\n"]


@given(
    st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.booleans(),
)
def test_nothing_is_lost_or_doubled_whatever_the_sizes(lines: list[bytes], sizes: list[int], bulk: bool) -> None:
    bus = Driver()
    writer, reader = broadcast(bus, bulk=bulk)
    text = b"".join(line + b"\n" for line in lines)
    bus.write(writer, text)
    messages = [line + b"\n" for line in lines if line]
    got = b""
    for turn in range(len(text) + 1):
        try:
            piece = bus.read(reader, sizes[turn % len(sizes)])
        except WouldBlock:
            break
        got += piece
        assert 0 < len(piece) <= sizes[turn % len(sizes)]
        assert bulk or piece.count(b"\n") <= 1
        assert piece.endswith(b"\n") or b"\n" not in piece
    assert got == b"".join(messages)


def test_a_read_with_nothing_to_read_waits_for_the_next_message() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    with pytest.raises(WouldBlock):
        bus.read(reader)
    bus.start_read(reader, "r")
    assert bus.bus.waiting == 1
    bus.write(writer, b"a\nb\n")
    assert bus.ended() == [("r", b"a\n")]
    assert bus.bus.waiting == 0
    assert bus.read_all(reader) == [b"b\n"]


def test_only_a_whole_message_ends_the_wait() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    bus.start_read(reader, "r")
    bus.write(writer, b"\n")
    bus.write(writer, b"hal")
    assert bus.ended() == []
    bus.write(writer, b"f\n")
    assert bus.ended() == [("r", b"half\n")]


def test_a_read_that_waits_keeps_its_size() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    bus.start_read(reader, "r", 3)
    bus.write(writer, b"abcdef\n")
    assert bus.ended() == [("r", b"abc")]
    assert bus.read(reader) == b"def\n"


def test_reads_that_wait_are_served_first_come_first_served() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    for token in "abc":
        bus.start_read(reader, token)
    bus.write(writer, b"1\n2\n")
    assert bus.ended() == [("a", b"1\n"), ("b", b"2\n")]
    bus.write(writer, b"3\n4\n")
    assert bus.ended() == [("c", b"3\n")]
    assert bus.read_all(reader) == [b"4\n"]


def test_a_message_may_end_many_waits() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    for token, size in (("a", 2), ("b", 1), ("c", 9), ("d", 9)):
        bus.start_read(reader, token, size)
    bus.write(writer, b"abcde\n")
    assert bus.ended() == [("a", b"ab"), ("b", b"c"), ("c", b"de\n")]
    assert bus.bus.waiting == 1


def test_a_bulk_read_that_waits_takes_what_comes_together() -> None:
    bus = Driver()
    writer, reader = broadcast(bus, bulk=True)
    bus.start_read(reader, "r", 5)
    bus.start_read(reader, "s", 5)
    bus.write(writer, b"a\nb\nc\n")
    assert bus.ended() == [("r", b"a\nb\n"), ("s", b"c\n")]


@pytest.mark.parametrize(
    ("first", "second", "written", "got"),
    [
        (b".U_x", b"+U_x", b"a\nb\nc\n", b"a\nb\nc\n"),
        (b"A_x", b"+A_x", b"{*}a\n{*}b\n{*}c\n", b"{1}a\n{1}b\n{1}c\n"),
        (b"A_x", b"+A_x", b"{2}a\n{2}b\n{2}c\n", b"{1}a\n{1}b\n{1}c\n"),
        (b".S_x", b"+S_x", b"{2}a\n{2}b\n{2}c\n", b"a\nb\nc\n"),
        (b"B_x", b"+B_x", b"a\nb\nc\n", b"a\nb\nc\n"),
    ],
)
def test_a_bulk_read_that_waits_takes_what_comes_together_from_anybody(
    first: bytes, second: bytes, written: bytes, got: bytes
) -> None:
    bus = Driver()
    writer, reader = bus.create(first), bus.create(second)
    bus.start_read(reader, "r")
    bus.write(writer, written)
    assert bus.ended() == [("r", got)]


@pytest.mark.parametrize(("name", "expected"), [(b"U_x", b"a\nb\nc\n"), (b"S_x", b"{2}a\n{2}b\n{2}c\n")], ids=["U", "S"])
def test_a_master_s_bulk_read_that_waits_takes_what_comes_together(name: bytes, expected: bytes) -> None:
    bus = Driver()
    master = bus.create(b"+." + name)
    slave = bus.open(name)
    bus.read_all(master)
    bus.start_read(master, "r")
    bus.write(slave, b"a\nb\nc\n")
    assert bus.ended() == [("r", expected)]


def test_every_reader_s_wait_ends() -> None:
    bus = Driver()
    writer = bus.create(b"B_x")
    readers = [bus.create(b"B_x") for _ in range(3)]
    for reader in [*readers, writer]:
        bus.start_read(reader, reader.id)
    bus.write(writer, b"a\n")
    assert sorted(bus.ended(), key=str) == [(reader.id, b"a\n") for reader in readers]


def test_no_message_is_lost_by_a_cancelled_read() -> None:
    bus = Driver()
    writer, reader = broadcast(bus)
    for token in "abc":
        bus.start_read(reader, token)
    assert bus.cancel("a")
    assert not bus.cancel("a")
    bus.write(writer, b"1\n")
    assert bus.ended() == [("b", b"1\n")]
    assert not bus.cancel("b")
    assert bus.cancel("c")
    assert bus.ended() == []
    bus.write(writer, b"2\n")
    assert bus.ended() == []
    assert bus.read_all(reader) == [b"2\n"]


def test_a_read_that_waits_does_not_stop_the_same_client_from_writing() -> None:
    bus = Driver()
    client = bus.create(b"A_x")
    bus.start_read(client, "r")
    bus.write(client, b"{1}note to self\n")
    assert bus.ended() == [("r", b"{1}note to self\n")]


def test_later_openers_never_see_an_earlier_message() -> None:
    bus = Driver()
    writer, early = broadcast(bus)
    bus.write(writer, b"early\n")
    late = bus.open(b"B_x")
    bus.write(writer, b"late\n")
    assert bus.read_all(early) == [b"early\n", b"late\n"]
    assert bus.read_all(late) == [b"late\n"]


def test_whoever_did_not_open_for_reading_does_not_read() -> None:
    bus = Driver()
    writer, _ = broadcast(bus)
    with pytest.raises(NotOpenForThis):
        bus.read(writer)
    with pytest.raises(NotOpenForThis):
        bus.bus.read(writer, 1, bus.tick(), "token")
    assert bus.bus.waiting == 0


def test_a_client_that_does_not_read_has_no_rlist() -> None:
    bus = Driver()
    master = bus.create(b".S_x", WO)
    slaves = [bus.open(b"S_x", WO), bus.open(b"S_x")]
    bus.write(master, b"{*}x\n")
    assert [bool(client.mailbox) for client in (master, *slaves)] == [False, False, True]
    bus.close(slaves[0])
    assert master.channel.lost == 0


@pytest.mark.parametrize(("is_bulk", "name"), [(False, b"B_x"), (True, b"+B_x")])
def test_the_rest_of_a_read_that_was_filled_begins_no_message(is_bulk: bool, name: bytes) -> None:
    """Nor does it wait: something has been read."""
    bus = Driver()
    writer = bus.create(b"B_x", WO)
    reader = bus.open(name, RO)

    def rest(size: int) -> bytes | None:
        piece, effects = bus.bus.read(reader, size, bus.tick(), "r", is_rest=True)
        assert not effects
        return piece

    assert rest(8) == b""
    bus.write(writer, b"one\ntwo\nlong one\n")
    assert bus.read(reader, 4) == b"one\n"
    assert rest(3) == b""
    assert rest(4) == (b"two\n" if is_bulk else b"")
    assert bus.read_all(reader)[-1].endswith(b"long one\n")
    bus.write(writer, b"longer one\nlast\n")
    assert bus.read(reader, 4) == b"long"
    assert rest(4) == b"er o"
    assert rest(4) == b"ne\n"
    assert rest(4) == b""
    assert bus.read(reader) == b"last\n"
    assert bus.bus.waiting == 0
