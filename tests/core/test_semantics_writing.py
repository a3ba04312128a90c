"""A write is taken line by line: what becomes a message, what a write returns, and what is left of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.client import Client
from futebus.core.errors import BadAddress, BusError, MessageTooLong, NobodyReads, NoSuchClient, NotOpenForThis, WouldBlock
from futebus.core.limits import Limits

from .driver import RO, WO, Driver

MAX = 8

Step = tuple[bytes, int | type[BusError]]
"""What is written, and what comes of the call."""


def play(bus: Driver, steps: Sequence[Step], writer: Client) -> None:
    for data, expected in steps:
        if isinstance(expected, int):
            assert bus.write(writer, data) == expected, data
        else:
            with pytest.raises(expected):
                bus.write(writer, data)


BROADCAST: dict[str, tuple[list[Step], list[bytes]]] = {
    "a line": ([(b"abc\n", 4)], [b"abc\n"]),
    "a line in pieces": ([(b"a", 1), (b"b", 1), (b"c\n", 2)], [b"abc\n"]),
    "a newline by itself ends what came before": ([(b"abc", 3), (b"\n", 1)], [b"abc\n"]),
    "lines": ([(b"a\nb\nc\n", 6)], [b"a\n", b"b\n", b"c\n"]),
    "lines and the beginning of one": ([(b"a\nb\nc", 5), (b"d\n", 2)], [b"a\n", b"b\n", b"cd\n"]),
    "the end of a line, and lines": ([(b"a", 1), (b"b\nc\nd\n", 6)], [b"ab\n", b"c\n", b"d\n"]),
    "nothing": ([(b"", 0), (b"a", 1), (b"", 0), (b"\n", 1)], [b"a\n"]),
    "an empty message": ([(b"\n", 1)], []),
    "empty messages everywhere": ([(b"\n\na\n\n\nb\n\n", 9), (b"\n", 1), (b"c\n", 2)], [b"a\n", b"b\n", b"c\n"]),
    "bytes": ([(b"\x00\xff\r\xc3\n", 5)], [b"\x00\xff\r\xc3\n"]),
    "as long as may be": ([(b"1234567\n", 8)], [b"1234567\n"]),
    "as long as may be, in pieces": ([(b"1234567", 7), (b"\n", 1)], [b"1234567\n"]),
    "as long as may be, in a row": ([(b"1234567\nabcdefg\nx\n", 18)], [b"1234567\n", b"abcdefg\n", b"x\n"]),
    "a byte too long": ([(b"12345678\n", MessageTooLong)], []),
    "a byte too long, in pieces": ([(b"1234567", 7), (b"8\n", MessageTooLong)], []),
    "too long before its newline comes": ([(b"12345678", MessageTooLong)], []),
    "too long before its newline comes, in pieces": ([(b"1234", 4), (b"5678", MessageTooLong)], []),
    "the error drops the partial message": ([(b"12", 2), (b"345678\n", MessageTooLong), (b"a\n", 2)], [b"a\n"]),
    "the error drops the partial message that would have grown too long": (
        [(b"12", 2), (b"345678", MessageTooLong), (b"a\n", 2)],
        [b"a\n"],
    ),
    "a line, then too long": (
        [(b"a\n12345678\nb\n", 2), (b"12345678\nb\n", MessageTooLong), (b"b\n", 2)],
        [b"a\n", b"b\n"],
    ),
    "lines, then too long": ([(b"a\nb\nc\n12345678\n", 6), (b"12345678\n", MessageTooLong)], [b"a\n", b"b\n", b"c\n"]),
    "lines, then too long without newline": ([(b"a\nb\n12345678", 4), (b"12345678", MessageTooLong)], [b"a\n", b"b\n"]),
    "an empty message, then too long": ([(b"\n12345678\n", 1), (b"12345678\n", MessageTooLong)], []),
    "the end of a line, then too long": ([(b"a", 1), (b"b\n12345678\n", 2)], [b"ab\n"]),
    "the short count does not drop what is written instead": ([(b"a\n12345678\n", 2), (b"b\n", 2)], [b"a\n", b"b\n"]),
    "long lines around a too long one": (
        [(b"1234567\n1\n1234567\n12345678\n1\n", 18), (b"12345678\n1\n", MessageTooLong), (b"1\n", 2)],
        [b"1234567\n", b"1\n", b"1234567\n", b"1\n"],
    ),
}


@pytest.mark.parametrize(("steps", "messages"), BROADCAST.values(), ids=BROADCAST.keys())
def test_writes_on_a_broadcast_channel(steps: list[Step], messages: list[bytes]) -> None:
    bus = Driver(Limits(max_message=MAX))
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    play(bus, steps, writer)
    assert bus.read_all(reader) == messages
    assert writer.sent == writer.channel.messages_in == len(messages)
    assert writer.channel.bytes_in == sum(map(len, messages))


ADDRESSED: dict[str, tuple[list[Step], list[bytes]]] = {
    "lines": ([(b"{2}a\n{*}b\n", 10)], [b"{1}a\n", b"{1}b\n"]),
    "a line in pieces": ([(b"{", 1), (b"2", 1), (b"}a", 2), (b"\n", 1)], [b"{1}a\n"]),
    "a bad address drops the partial message": ([(b"{2}", 3), (b"", 0), (b"a\nb\n", 2), (b"b\n", BadAddress)], [b"{1}a\n"]),
    "a bad address": ([(b"a\n", BadAddress), (b"{2}a\n", 5)], [b"{1}a\n"]),
    "a bad address at the end of a line": ([(b"a", 1), (b"b\n", BadAddress), (b"{2}a\n", 5)], [b"{1}a\n"]),
    "a line, then a bad address": (
        [(b"{2}a\nb\n{2}c\n", 5), (b"b\n{2}c\n", BadAddress), (b"{2}c\n", 5)],
        [b"{1}a\n", b"{1}c\n"],
    ),
    "lines to the same": ([(b"{2}a\n{2}b\n{2}{2}\n", 17)], [b"{1}a\n", b"{1}b\n", b"{1}{2}\n"]),
    "lines to the same, some without text": ([(b"{2}a\n{2}\n{2}b\n{2}\n", 18)], [b"{1}a\n", b"{1}\n", b"{1}b\n", b"{1}\n"]),
    "lines to the same in other letters": ([(b"{2}a\n{02}b\n{*}c\n", 16)], [b"{1}a\n", b"{1}b\n", b"{1}c\n"]),
    "lines to nobody": ([(b"{9}a\n{9}b\n", NoSuchClient), (b"{2}c\n", 5)], [b"{1}c\n"]),
    "lines to somebody who does not read": ([(b"{3}a\n{3}b\n", NobodyReads), (b"{2}c\n", 5)], [b"{1}c\n"]),
    "a line, then nobody": ([(b"{2}a\n{9}\n", 5), (b"{9}\n", NoSuchClient)], [b"{1}a\n"]),
    "a line, then somebody who does not read": ([(b"{2}a\n{3}\n", 5), (b"{3}\n", NobodyReads)], [b"{1}a\n"]),
    "empty messages need no address": ([(b"\n\n{2}a\n\n", 8)], [b"{1}a\n"]),
    "an empty message, then a bad address": ([(b"\nb\n", 1), (b"b\n", BadAddress)], []),
    "too long with its address": ([(b"{2}1234\n", 8), (b"{2}12345\n", MessageTooLong)], [b"{1}1234\n"]),
}


@pytest.mark.parametrize(("steps", "messages"), ADDRESSED.values(), ids=ADDRESSED.keys())
def test_writes_on_an_addressed_channel(steps: list[Step], messages: list[bytes]) -> None:
    bus = Driver(Limits(max_message=MAX))
    writer, reader, _ = bus.create(b"A_x"), bus.create(b"A_x"), bus.create(b"A_x", WO)
    play(bus, steps, writer)
    assert bus.read_all(reader) == messages
    assert writer.sent == writer.channel.messages_in == len(messages)


SERVED: dict[str, tuple[list[Step], list[bytes], int]] = {
    "lines": ([(b"{2}a\n{*}b\n", 10)], [b"a\n", b"b\n"], 2),
    "lines to the same": ([(b"{2}a\n{2}b\n{2}c\n", 15)], [b"a\n", b"b\n", b"c\n"], 3),
    "lines to all": ([(b"{*}a\n{*}b\n{*}c\n", 15)], [b"a\n", b"b\n", b"c\n"], 3),
    "empty messages": ([(b"{2}\n", 4), (b"{*}\n", 4), (b"{2}\n{2}\n{*}\n", 12)], [], 0),
    "an empty message first": ([(b"{2}\n{2}a\n", 9)], [b"a\n"], 1),
    "an empty message between": ([(b"{2}a\n{2}\n{2}b\n", 14)], [b"a\n", b"b\n"], 2),
    "an empty message last": ([(b"{*}a\n{*}\n", 9)], [b"a\n"], 1),
    "an empty message, then nobody": ([(b"{2}\n{9}\n", 4), (b"{9}\n", NoSuchClient)], [], 0),
    "an empty message, then a bad address": ([(b"{2}\nb\n", 4), (b"b\n", BadAddress)], [], 0),
    "lines to nobody": ([(b"{9}a\n{9}b\n", NoSuchClient)], [], 0),
}


@pytest.mark.parametrize(("steps", "messages", "count"), SERVED.values(), ids=SERVED.keys())
def test_writes_of_a_service_s_master(steps: list[Step], messages: list[bytes], count: int) -> None:
    bus = Driver(Limits(max_message=MAX))
    master, slave = bus.create(b".S_x"), bus.create(b"S_x")
    play(bus, steps, master)
    assert bus.read_all(slave) == messages
    assert master.sent == master.channel.messages_in == count


FULL: dict[str, tuple[list[Step], list[bytes], list[Step], list[bytes]]] = {
    "the short count, then nothing": ([(b"a\nb\nc\n", 4), (b"c\n", WouldBlock)], [b"a\n", b"b\n"], [(b"c\n", 2)], [b"c\n"]),
    "one place left": ([(b"a\n", 2), (b"b\nc\n", 2), (b"c\n", WouldBlock)], [b"a\n", b"b\n"], [(b"c\n", 2)], [b"c\n"]),
    "the partial message stays": (
        [(b"a\nb\nc", 5), (b"d\n", WouldBlock), (b"d\n", WouldBlock)],
        [b"a\n", b"b\n"],
        [(b"d\n", 2)],
        [b"cd\n"],
    ),
    "the partial message grows": (
        [(b"a\nb\n", 4), (b"c", 1), (b"d", 1), (b"e\n", WouldBlock)],
        [b"a\n", b"b\n"],
        [(b"f\n", 2)],
        [b"cdf\n"],
    ),
    "an empty message needs no place": ([(b"a\nb\n", 4), (b"\n", 1), (b"\nc\n", 1)], [b"a\n", b"b\n"], [(b"c\n", 2)], [b"c\n"]),
    "too long is too long, full or not": (
        [(b"a\nb\n", 4), (b"12345678\n", MessageTooLong)],
        [b"a\n", b"b\n"],
        [(b"c\n", 2)],
        [b"c\n"],
    ),
    "too long after the full rlist drops nothing that was accepted": (
        [(b"a\nb\nc\n12345678\n", 4), (b"c\n12345678\n", WouldBlock)],
        [b"a\n", b"b\n"],
        [(b"c\n12345678\n", 2), (b"12345678\n", MessageTooLong)],
        [b"c\n"],
    ),
}


@pytest.mark.parametrize(("before", "waiting", "after", "later"), FULL.values(), ids=FULL.keys())
def test_writes_to_a_master_with_two_places(
    before: list[Step], waiting: list[bytes], after: list[Step], later: list[bytes]
) -> None:
    bus = Driver(Limits(max_message=MAX, max_queue=2))
    master, slave = bus.create(b".U_x"), bus.create(b"U_x")
    play(bus, before, slave)
    assert bus.read_all(master) == waiting
    play(bus, after, slave)
    assert bus.read_all(master) == later
    assert slave.sent == len(waiting) + len(later)


def test_a_cancelled_wait_leaves_the_partial_message() -> None:
    bus = Driver(Limits(max_queue=1))
    master, slave = bus.create(b".U_x"), bus.create(b"U_x")
    bus.write(slave, b"a\nb")
    bus.start_write(slave, b"c\nd", "w")
    assert bus.cancel("w")
    assert bus.read_all(master) == [b"a\n"]
    assert bus.ended() == []
    assert bus.write(slave, b"c\nd") == 3
    assert bus.read_all(master) == [b"bc\n"]
    bus.write(slave, b"\n")
    assert bus.read_all(master) == [b"d\n"]


def test_a_write_that_waited_takes_the_partial_message_and_leaves_one() -> None:
    bus = Driver(Limits(max_queue=1))
    master, slave = bus.create(b".U_x"), bus.create(b"U_x")
    bus.write(slave, b"a\nb")
    bus.start_write(slave, b"c\nd", "w")
    assert bus.read(master) == b"a\n"
    assert bus.ended() == [("w", 3)]
    assert bus.read(master) == b"bc\n"
    bus.write(slave, b"\n")
    assert bus.read(master) == b"d\n"


def test_the_partial_message_is_lost_at_close() -> None:
    bus = Driver()
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    bus.write(writer, b"whole\nhalf")
    bus.close(writer)
    other = bus.create(b"B_x")
    bus.write(other, b"x\n")
    assert bus.read_all(reader) == [b"whole\n", b"x\n"]


def test_each_client_has_a_partial_message_of_its_own() -> None:
    bus = Driver()
    reader, one, two = (bus.create(b"B_x") for _ in range(3))
    for piece in (b"a", b"b", b"\n"):
        bus.write(one, piece)
        bus.write(two, piece.upper())
    assert bus.read_all(reader) == [b"ab\n", b"AB\n"]


def test_whoever_did_not_open_for_writing_does_not_write() -> None:
    bus = Driver()
    with pytest.raises(NotOpenForThis):
        bus.write(bus.create(b"B_x", RO), b"x\n")


LINES = st.lists(st.sampled_from([b"", b"a", b"bc", b"1234567", b"12345678", b"123456789012345678"]), max_size=12)


@given(LINES, st.data())
def test_however_it_is_cut_a_text_makes_the_same_messages(lines: list[bytes], data: st.DataObject) -> None:
    """As a program writes that goes on after each short count, and leaves out a line that fails."""
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bus = Driver(Limits(max_message=MAX))
    writer, reader = bus.create(b"B_x"), bus.create(b"B_x")
    skipping = False
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        piece = text[begin:end]
        while piece:
            if skipping:
                _, newline, piece = piece.partition(b"\n")
                skipping = not newline
                continue
            try:
                piece = piece[bus.write(writer, piece) :]
            except MessageTooLong:
                skipping = True
    assert bus.read_all(reader) == [line + b"\n" for line in lines if 0 < len(line) < MAX]
