"""Lines and addresses from any bytes at all, against the obvious way to take them apart.

`python -m tests.core.test_fuzz lines|addresses [LIBFUZZER ARGUMENTS...]` goes on for as long as one likes, with the coverage of
the code to guide it. It needs atheris, which the tests do not: they feed the same functions from Hypothesis.
"""

import itertools
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from futebus.core import stat
from futebus.core.errors import BadAddress, BusError, MessageTooLong, NobodyReads, NoSuchClient
from futebus.core.limits import Limits

from .driver import RW, WO, Driver
from .model import split_address

# ---------------------------------------------------------------------------------------------- lines


class NaiveLines:
    """What a writer's bytes come to: one byte after the other."""

    def __init__(self, max_message: int) -> None:
        self.max_message = max_message
        self.partial = b""
        self.messages: list[bytes] = []

    def write(self, data: bytes) -> int | type[BusError]:
        """How many bytes are accepted, or what is wrong with the first line."""
        accepted = 0
        line = self.partial
        for position, byte in enumerate(data):
            line += bytes([byte])
            is_whole = byte == 0x0A
            if len(line) > self.max_message or (len(line) == self.max_message and not is_whole):
                if accepted:
                    return accepted
                self.partial = b""
                return MessageTooLong
            if is_whole:
                if line != b"\n":
                    self.messages.append(line)
                line = b""
                self.partial = b""
                accepted = position + 1
        self.partial = line
        return len(data)


def check_lines(data: bytes) -> None:
    """The first byte says how long a message may be, the second how large the writes are, and the rest is written."""
    if len(data) < 2:
        return
    max_message, size, rest = 2 + data[0] % 40, 1 + data[1] % 60, data[2:]
    bus = Driver(Limits(max_message=max_message))
    writer, reader = bus.create(b"B_x", WO), bus.create(b"+B_x", RW)
    naive = NaiveLines(max_message)
    while rest:
        piece = rest[:size]
        expected = naive.write(piece)
        try:
            result: int | type[BusError] = bus.write(writer, piece)
        except BusError as error:
            result = type(error)
        assert result == expected, f"{piece!r} with {max_message} bytes a message"
        rest = rest[result if isinstance(result, int) else size :]
        assert bytes(writer.wbuf.partial) == naive.partial
    assert b"".join(bus.read_all(reader)) == b"".join(naive.messages)
    assert (writer.sent, reader.received) == (len(naive.messages),) * 2


# ---------------------------------------------------------------------------------------------- addresses


def check_addresses(data: bytes) -> None:
    """The first byte says who is there, the rest is a line to one of them, with others of its like behind it."""
    if len(data) < 2 or b"\n" in data:
        return
    count, times, line = 2 + data[0] % 18, 1 + data[0] % 3, data[1:] + b"\n"
    bus = Driver()
    clients = [bus.create(b"A_x", WO if number == 3 else RW) for number in range(count)]
    sender = clients[0]
    before = stat.take(bus.bus, bus.now)
    wrong: type[BusError] | None = None
    receivers = {client.id for client in clients if client.access.reads and client is not sender}
    try:
        to, text = split_address(line)
        if to != "*":
            receivers = {int(to, 16)}
            if int(to, 16) not in range(1, count + 1):
                wrong = NoSuchClient
            elif not clients[int(to, 16) - 1].access.reads:
                wrong = NobodyReads
    except BadAddress:
        wrong = BadAddress
    if wrong:
        with pytest.raises(wrong):
            bus.write(sender, line * times)
        assert stat.take(bus.bus, before.uptime) == before
        return
    assert bus.write(sender, line * times) == len(line) * times
    for client in clients:
        got = bus.read_all(client) if client.access.reads else []
        assert got == ([b"{1}" + text] * times if client.id in receivers else [])


# ---------------------------------------------------------------------------------------------- what feeds them

PIECES = st.lists(
    st.sampled_from([b"\n", b"\n\n", b"a", b"{", b"}", b"\0", b"\xff", b"x" * 9, b"x" * 39, b"y" * 41]), max_size=60
)


@given(
    st.builds(lambda head, pieces: head + b"".join(pieces), st.binary(min_size=2, max_size=2), PIECES) | st.binary(max_size=300)
)
@example(b"\x00\x00\n")
@example(b"\x00\x01a\na")
@example(b"\x00\x3b" + b"\n" * 70)
@example(b"\x02\x3baaa\naaaa\naaa\n")  # as long as may be, longer by one in the middle
@example(b"\x02\x00aaaa\nb\n")  # too long, byte by byte: what is left of it is a message
@example(b"\x02\x02\n\naaaaa")
def test_any_bytes_come_to_the_lines_that_are_in_them(data: bytes) -> None:
    check_lines(data)


ADDRESS = st.sampled_from(
    [b"{", b"}", b"*", b"1", b"2", b"4", b"F", b"0", b"00", b"g", b":o", b" ", b"+", b"_", b"{1}", b"{*}", b"-"]
)


@given(
    st.builds(lambda head, pieces: head + b"".join(pieces), st.binary(min_size=1, max_size=1), st.lists(ADDRESS, max_size=8))
    | st.binary(max_size=40)
)
@example(b"\x00{1_1}")  # int() would take it
@example(b"\x00{+1}")
@example(b"\x00{ 1}")
@example(b"\x00{0x1}")
@example(b"\x11{" + b"0" * 30 + b"f}text")
@example(b"\x11{100000000000000000000000000000001}")
@example(b"\x00{\xd9\xa1}")  # a digit, but not of ASCII
@example(b"\x02{*}{1}")
@example(b"\x02{}")
@example(b"\x02{1}")
def test_any_bytes_are_an_address_and_a_text_or_refused(data: bytes) -> None:
    check_addresses(data)


def test_every_address_of_up_to_three_bytes() -> None:
    for length in range(4):
        for inside in itertools.product(b"{}*019aAfFgG:+-_ \0\xff", repeat=length):
            check_addresses(b"\x0e{" + bytes(inside) + b"}x")


def fuzz() -> None:
    """See the top."""
    import importlib

    atheris = importlib.import_module("atheris")
    check = {"lines": check_lines, "addresses": check_addresses}[sys.argv.pop(1)]
    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz()
