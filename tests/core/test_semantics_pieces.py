"""Writes that come in pieces, while others write by the same description: no line of one comes into a line of another."""

import contextlib
import weakref
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.client import Client, Owner, Piece
from futebus.core.errors import MessageTooLong, NobodyReads, ShuttingDown, TooManyForUser, WouldBlock
from futebus.core.limits import Limits
from futebus.core.stat.taking import _client
from futebus.core.writes import Writes

from ..helpers.garbage import nothing_collected
from .driver import RO, ROOT, USER, WO, Driver

SIZE = 8
"""How long a piece is behind which more may come."""


def piece(who: str, begin: int, data: bytes) -> Piece:
    return Piece(who, begin, len(data) >= SIZE)


class Shared:
    """A description by which several write, and who reads it."""

    def __init__(self, limits: Limits | None = None, owner: Owner = ROOT) -> None:
        self.bus = Driver(limits)
        self.master = self.bus.create(b".U_x")
        self.client = self.bus.open(b"U_x", owner=owner)

    def write(self, who: str, begin: int, data: bytes, *, may_wait: bool = True) -> int | None:
        """Writes a piece, under a token that says whose it is."""
        return self.bus.write_piece(self.client, data, piece(who, begin, data), (who, begin), may_wait=may_wait)

    def heard(self) -> bytes:
        return b"".join(self.bus.read_all(self.master))


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_nobody_comes_between_two_pieces(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\nand t") == 9
    assert shared.write("b", 0, b"other\n") is None
    assert shared.bus.held == [shared.client]
    assert shared.heard() == b"one\n"
    assert shared.write("a", 9, b"wo and th") == 9
    assert shared.write("a", 18, b"ree\n") == 4
    assert shared.bus.ended() == [(("b", 0), 6)]
    assert shared.heard() == b"and two and three\nother\n"
    assert shared.bus.bus.waiting == 0
    assert not shared.client.writing


def test_who_waits_for_what_does_not_come_goes_on(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"three\n") is None
    assert shared.write("c", 0, b"four\n") is None
    shared.bus.end_rest(shared.client)
    assert shared.bus.ended() == [(("b", 0), 6), (("c", 0), 5)]
    assert shared.heard() == b"one\ntwo\nthree\nfour\n"
    shared.bus.end_rest(shared.client)
    assert shared.write("a", 8, b"five\n") == 5, "it comes late, but it comes"


def test_who_begins_anew_comes_behind_those_who_waited(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"three\n") is None
    taken, effects = shared.bus.bus.write(shared.client, b"four\n", 9, ("a", 0), piece=Piece("a", 0, may_go_on=False))
    assert taken is None
    assert effects.later == [("b", 0)]
    shared.bus._keep(effects)
    assert shared.bus.ended() == [(("b", 0), 6), (("a", 0), 5)]
    assert shared.heard() == b"one\ntwo\nthree\nfour\n"


def test_one_alone_waits_for_nobody(shared: Shared) -> None:
    for begin in (0, 0, 8, 0):
        assert shared.write("a", begin, b"one\ntwo\n") == 8
        assert shared.bus.arm(shared.client).writable
        assert _client(b"U_x", shared.client, 0).waits_to == ""
    assert shared.write("a", 0, b"three\n") == 6
    assert shared.bus.held == []
    assert not shared.client.writing


def test_the_rest_may_wait_for_the_master_before_the_others() -> None:
    shared = Shared(Limits(max_queue=1))
    assert shared.write("a", 0, b"long one") == 8
    assert shared.write("b", 0, b"other\n") is None
    assert shared.write("a", 8, b"\ntwo\nthr") is None
    assert shared.write("c", 0, b"last\n") is None
    assert shared.bus.bus.waiting == 3
    assert shared.heard() == b"long one\ntwo\n"
    assert shared.bus.ended() == [(("a", 8), 8)]
    assert shared.bus.held == [shared.client] * 2
    assert shared.write("a", 16, b"ee\n") == 3
    assert shared.heard() == b"three\nother\nlast\n"
    assert shared.bus.ended() == [(("b", 0), 6), (("c", 0), 5)]


def test_a_signal_ends_it_between_two_pieces() -> None:
    shared = Shared(Limits(max_queue=1))
    assert shared.write("a", 0, b"one\ntwo\n") is None
    assert shared.write("b", 0, b"other\n") is None
    assert shared.bus.cancelled(("a", 0)) == 4
    assert shared.heard() == b"one\nother\n"
    assert not shared.client.writing


def test_a_rest_that_is_refused_is_none() -> None:
    shared = Shared(Limits(max_message=10))
    assert shared.write("a", 0, b"one\ntwo t") == 9
    assert shared.write("b", 0, b"other\n") is None
    assert shared.write("a", 9, b"oo long a line\n") is None
    ended = shared.bus.ended()
    assert sorted(ended, key=str) == [(("a", 9), MessageTooLong), (("b", 0), 6)]
    assert shared.heard() == b"one\nother\n"


def test_without_waiting(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\nand t") == 9
    with pytest.raises(WouldBlock):
        shared.write("b", 0, b"other\n", may_wait=False)
    assert shared.client.rest
    assert not shared.bus.arm(shared.client).writable
    assert shared.write("a", 9, b"wo\n") == 3
    assert shared.bus.woken() == [shared.client]
    assert shared.write("b", 0, b"other\n", may_wait=False) == 6
    assert shared.heard() == b"one\nand two\nother\n"


def test_who_polls_while_nothing_comes_is_woken(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    with pytest.raises(WouldBlock):
        shared.write("b", 0, b"other\n", may_wait=False)
    assert not shared.bus.arm(shared.client).writable
    shared.bus.end_rest(shared.client)
    assert shared.bus.woken() == [shared.client]


def test_who_was_told_to_wait_for_a_piece_hears_of_its_rest() -> None:
    """And so it is looked whether that comes."""
    shared = Shared(Limits(max_queue=1))
    assert shared.write("a", 0, b"one\ntwo\n") is None
    assert not shared.bus.arm(shared.client).writable
    assert shared.heard() == b"one\ntwo\n"
    assert shared.bus.held == [shared.client]
    shared.bus.end_rest(shared.client)
    assert shared.bus.woken() == [shared.client]


def test_who_begins_anew_and_may_not_wait_keeps_nobody_waiting(shared: Shared) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"three\n") is None
    assert shared.write("a", 0, b"four\n", may_wait=False) is None
    assert sorted(shared.bus.ended(), key=str) == [(("a", 0), WouldBlock), (("b", 0), 6)]
    assert shared.heard() == b"one\ntwo\nthree\n"
    assert not shared.client.writing


def test_who_begins_anew_and_has_too_much_keeps_nobody_waiting() -> None:
    shared = Shared(Limits(max_clients_per_user=1), USER)
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"three\n") is None
    assert shared.write("a", 0, (b"x" * 99 + b"\n") * 1000) is None
    assert sorted(shared.bus.ended(), key=str) == [(("a", 0), TooManyForUser), (("b", 0), 6)]
    assert not shared.client.writing


def test_who_polls_is_woken_though_the_line_that_ends_the_waiting_finds_no_place() -> None:
    shared = Shared(Limits(max_queue=2))
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    with pytest.raises(WouldBlock):
        shared.write("b", 0, b"other\n", may_wait=False)
    assert not shared.bus.arm(shared.client).writable
    with pytest.raises(WouldBlock):
        shared.write("a", 0, b"three\n", may_wait=False)
    assert shared.heard() == b"one\ntwo\n"
    assert shared.bus.woken() == [shared.client]


def test_who_polls_is_woken_behind_all_that_came_before() -> None:
    """Also if the master was full when the write ended that was in the way, and was read while others waited."""
    shared = Shared(Limits(max_queue=1))
    assert shared.write("a", 0, b"one\n") == 4
    assert shared.write("a", 0, b"two\n") is None
    assert not shared.bus.arm(shared.client).writable
    assert shared.bus.read(shared.master) == b"one\n"
    assert shared.bus.ended() == [(("a", 0), 4)]
    assert shared.write("a", 0, b"3\n4\n5678") is None
    assert shared.write("b", 0, b"last\n") is None
    assert shared.heard() == b"two\n3\n4\n"
    assert shared.bus.woken() == []
    shared.bus.end_rest(shared.client)
    assert shared.heard() == b"5678last\n"
    assert shared.bus.woken() == [shared.client]


@pytest.mark.parametrize("how", ["the bus goes", "the description is closed", "the master closes"])
def test_the_end(shared: Shared, how: str) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"other\n") is None
    if how == "the bus goes":
        shared.bus._keep(shared.bus.bus.shut_down(99))
        assert shared.bus.ended() == [(("b", 0), ShuttingDown)]
    elif how == "the description is closed":
        shared.bus.close(shared.client)
        assert shared.bus.ended() == []
    else:
        shared.bus.close(shared.master)
        shared.bus.end_rest(shared.client)
        assert shared.bus.ended() == [(("b", 0), NobodyReads)]
    assert shared.bus.bus.waiting == 0
    assert not shared.client.writing


class Held:
    """A token of which it can be seen whether somebody has it still."""


@pytest.mark.parametrize("why", ["another writes", "no place", "no master", "too long"])
def test_who_is_refused_is_forgotten(why: str) -> None:
    """At once, and not when garbage is collected: a token is a call, and there may be many."""
    shared = Shared(Limits(max_queue=1, max_message=10))
    assert shared.write("a", 0, b"one\ntwo", may_wait=False) == 7
    if why == "another writes":
        assert shared.heard() == b"one\n"
        assert shared.write("a", 0, b"\nthree\nfour") is None
    elif why == "no master":
        shared.bus.close(shared.master)
    data = b"x" * 20 + b"\n" if why == "too long" else b"x\n"
    with nothing_collected():
        token = Held()
        seen = weakref.ref(token)
        with contextlib.suppress(WouldBlock, NobodyReads, MessageTooLong):
            pytest.fail(f"it is not refused: {shared.bus.bus.write(shared.client, data, 99, token, may_wait=False)}")
        del token
        assert seen() is None


def test_without_memory_in_the_rest_nobody_is_forgotten(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert shared.write("b", 0, b"three\n") is None

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Writes, "_leaves_rest", fail)
        with pytest.raises(MemoryError):
            shared.write("a", 8, b"four\n")
    assert shared.client.rest
    shared.bus.end_rest(shared.client)
    assert shared.bus.ended() == [(("b", 0), 6)]


def test_without_memory_nobody_is_waited_for(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("futebus.core.writes.Rest", fail)
    assert shared.write("a", 0, b"one\ntwo\n") == 8
    assert not shared.client.writing


LINES = st.lists(st.text("xyz", min_size=1, max_size=12), min_size=1, max_size=6)


@given(st.tuples(*[st.lists(LINES, min_size=1, max_size=3)] * 3), st.data(), st.sampled_from(["U", "B"]))
def test_whoever_comes_when(writes: tuple[list[list[str]], ...], data: st.DataObject, kind: str) -> None:
    """Threads that write by one description, each piece when its turn comes: the lines of each arrive whole, and in order."""
    bus = Driver(Limits(max_queue=3 if kind == "U" else 1000))
    if kind == "U":
        reader = bus.create(b".U_x")
        client: Client = bus.open(b"U_x", WO)
    else:
        client = bus.create(b"B_x", WO)
        reader = bus.open(b"B_x", RO)
    left = {who: [f"{who}{line}\n" for lines in each for line in lines] for who, each in zip("abc", writes, strict=True)}
    whole = {
        who: [b"".join(f"{who}{line}\n".encode() for line in lines) for lines in each]
        for who, each in zip("abc", writes, strict=True)
    }
    at, numbers, heard = dict.fromkeys("abc", 0), count(), b""
    waiting: dict[int, str] = {}

    def advance(who: str, taken: int) -> None:
        at[who] += taken
        if at[who] == len(whole[who][0]):
            whole[who].pop(0)
            at[who] = 0

    while any(whole.values()) or waiting:
        able = sorted({who for who in whole if whole[who]} - {*waiting.values()})
        what = data.draw(st.sampled_from([*able, "read", *(["look"] if client.rest else [])]))
        if what == "read":
            heard += b"".join(bus.read_all(reader))
        elif what == "look":
            # Nothing comes if nobody is between two pieces: that is looked for only where somebody waits.
            if not at[str(client.rest.piece.who)]:  # type: ignore[union-attr]
                bus.end_rest(client)
        else:
            some = whole[what][0][at[what] : at[what] + SIZE]
            number = next(numbers)
            taken = bus.write_piece(client, some, piece(what, at[what], some), number)
            if taken is None:
                waiting[number] = what
            else:
                advance(what, taken)
        for token, answer in bus.ended():
            assert isinstance(token, int)
            assert isinstance(answer, int)
            advance(waiting.pop(token), answer)
    heard += b"".join(bus.read_all(reader))
    found = heard.decode().splitlines(keepends=True)
    assert {who: [line for line in found if line[0] == who] for who in "abc"} == left
    assert bus.bus.waiting == 0
