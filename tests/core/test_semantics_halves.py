"""Writes that a signal ends in the middle of a line: the beginning is theirs who are to write the rest."""

from unittest.mock import Mock

import pytest

from futebus.core import writes
from futebus.core.client import Client, Piece
from futebus.core.errors import MessageTooLong, WouldBlock
from futebus.core.halves import MOST, Halves
from futebus.core.limits import Limits

from .driver import Driver


class Shared:
    """A description by which threads of several processes write: `a1` and `a2` are of one. One line fills the master's queue."""

    def __init__(self, max_message: int = 100) -> None:
        self.bus = Driver(Limits(max_queue=1, max_message=max_message), process_of=lambda who: str(who)[0])
        self.master = self.bus.create(b".U_x")
        self.client: Client = self.bus.open(b"U_x")

    def write(self, who: str, data: bytes, *, is_last: bool = True) -> int | None:
        return self.bus.write_piece(self.client, data, Piece(who, 0, may_go_on=not is_last), who)

    def leave(self, who: str, half: bytes, *, begun: bytes = b"line\n") -> None:
        """A thread writes a line and the beginning of another, and a signal comes before the rest is taken."""
        assert self.write(who, begun + half, is_last=False) is not None
        token = who, "rest"
        assert self.bus.write_piece(self.client, b"rest\n", Piece(who, len(begun + half), may_go_on=False), token) is None
        assert self.bus.cancelled(token) == 0

    def heard(self) -> bytes:
        return b"".join(self.bus.read_all(self.master))


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_the_lines_of_others_are_whole_and_so_is_his(shared: Shared) -> None:
    shared.leave("a1", b"half, ")
    assert shared.write("b", b"other\n") is None
    assert shared.write("c", b"last\n") is None
    assert shared.heard() == b"line\nother\nlast\n"
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"
    assert shared.write("c", b"more\n") == 5
    assert shared.heard() == b"more\n"
    assert shared.client.halves is None


def test_of_who_has_been_killed_nothing_is_left(shared: Shared) -> None:
    shared.leave("a1", b"half")
    assert shared.heard() == b"line\n"
    for line in (b"other\n", b"last\n"):
        assert shared.write("b", line) == len(line)
        assert shared.heard() == line
    assert shared.client.wbuf.partial == b""


def test_those_who_waited_meanwhile(shared: Shared) -> None:
    assert shared.write("a1", b"line\nhalf, ", is_last=False) == 11
    assert shared.write("b", b"other\n") is None
    assert shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 11, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    assert shared.write("a1", b"rest\n") is None
    assert shared.heard() == b"line\nother\nhalf, rest\n"
    assert shared.bus.ended() == [("b", 6), ("a1", 5)]


def test_another_thread_of_the_process_may_write_the_rest(shared: Shared) -> None:
    shared.leave("a1", b"half, ")
    assert shared.heard() == b"line\n"
    assert shared.write("a2", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"


def test_a_thread_that_waited_does_not_write_the_rest_of_anothers(shared: Shared) -> None:
    assert shared.write("a1", b"line\nhalf, ", is_last=False) == 11
    assert shared.write("a2", b"other\n") is None
    assert shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 11, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    assert shared.write("a1", b"rest\n") is None
    assert shared.heard() == b"line\nother\nhalf, rest\n"


def test_a_thread_that_waited_does_so_with_no_piece_of_its_own(shared: Shared) -> None:
    for begun in (b"two\n", b"two\nbegun, "):
        assert shared.write("a1", b"line\nhalf, ", is_last=False) == 11
        assert shared.write("a2", begun, is_last=False) is None
        assert shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 11, may_go_on=False), "rest") is None
        assert shared.bus.cancelled("rest") == 0
        assert shared.heard() == b"line\ntwo\n"
        assert shared.bus.write_piece(shared.client, b"ended\n", Piece("a2", len(begun), may_go_on=False), "end") == 6
        assert shared.heard() == begun[4:] + b"ended\n"
        assert shared.write("a1", b"rest\n") == 5
        assert shared.heard() == b"half, rest\n"


@pytest.mark.parametrize(("waited", "heard"), [(True, b"line\nother\n"), (False, b"line\nhalf, other\n")])
def test_one_of_whom_nothing_is_known_does_not_either(shared: Shared, waited: bool, heard: bytes) -> None:
    """If it comes only then, it is taken for who goes on: it may be of another PID namespace, as all threads of its process."""
    assert shared.write("a1", b"line\nhalf, ", is_last=False) == 11
    if waited:
        shared.bus.start_write(shared.client, b"other\n", "other")
    assert shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 11, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    if not waited:
        shared.bus.start_write(shared.client, b"other\n", "other")
    assert shared.heard() == heard


def test_the_rest_that_waits_while_another_leaves_his(shared: Shared) -> None:
    shared.leave("a1", b"half of a, ")
    assert shared.heard() == b"line\n"
    assert shared.write("b", b"line\nhalf of b, ", is_last=False) == 16
    assert shared.write("a1", b"rest of a\n") is None
    assert shared.bus.write_piece(shared.client, b"rest of b\n", Piece("b", 16, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    assert shared.heard() == b"line\nhalf of a, rest of a\n"
    for who, line in (("b", b"half of b, rest of b\n"), ("a1", b"rest of a\n")):
        assert shared.write(who, b"rest of " + who[:1].encode() + b"\n") == 10
        assert shared.heard() == line


def test_two_threads_of_a_process_that_have_begun(shared: Shared) -> None:
    """Each goes on with its own."""
    assert shared.write("a1", b"line\nhalf of a1, ", is_last=False) == 17
    assert shared.write("a2", b"two\nhalf of a2, ", is_last=False) is None
    assert shared.bus.write_piece(shared.client, b"rest of a1\n", Piece("a1", 17, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    assert shared.bus.read(shared.master) == b"line\n"
    assert shared.bus.write_piece(shared.client, b"rest of a2\n", Piece("a2", 16, may_go_on=False), "rest") is None
    assert shared.bus.cancelled("rest") == 0
    assert shared.heard() == b"two\n"
    for who in ("a1", "a2"):
        assert shared.write(who, b"rest of " + who.encode() + b"\n") == 11
        assert shared.heard() == b"half of %b, rest of %b\n" % (who.encode(), who.encode())


@pytest.mark.parametrize("has_rest", [True, False], ids=["a piece", "an append"])
def test_a_further_piece_that_does_not_wait(shared: Shared, has_rest: bool) -> None:
    """Somebody may have set O_NONBLOCK meanwhile: then it is no signal that ends it, and the same follows."""
    assert shared.write("a1", b"line\nhalf, ", is_last=not has_rest) == 11
    with pytest.raises(WouldBlock):
        shared.bus.write_piece(
            shared.client, b"rest\n", Piece("a1", 11, may_go_on=False, continues=not has_rest), "rest", may_wait=False
        )
    assert shared.write("b", b"other\n") is None
    assert shared.heard() == b"line\nother\n"
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"


def test_a_further_piece_for_which_there_is_no_memory(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    assert shared.write("a1", b"line\nhalf, ", is_last=False) == 11
    with monkeypatch.context() as patch:
        patch.setattr(writes, "Write", fail)
        with pytest.raises(MemoryError):
            shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 11, may_go_on=False), "rest")
    shared.bus.end_rest(shared.client)
    assert shared.write("b", b"other\n") is None
    assert shared.heard() == b"line\nother\n"
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"


@pytest.mark.parametrize("how", ["a signal", "a signal in its turn", "no waiting"])
@pytest.mark.parametrize("other", ["a2", "b", None])
def test_what_stood_behind_a_rest_that_ended_with_nothing_is_not_the_rest(shared: Shared, how: str, other: str | None) -> None:
    """The half is left once more then."""
    shared.leave("a1", b"half, ")
    if how == "a signal":  # before it was its turn
        assert shared.write("d", b"d\n") is None
    if how != "no waiting":
        assert shared.write("a1", b"rest\n") is None
    else:
        assert shared.write("c", b"c\n") is None
    if other:
        assert shared.write(other, b"other\n") is None
    else:
        shared.bus.start_write(shared.client, b"other\n", "other")
    if how != "no waiting":
        assert shared.bus.cancelled("a1") == 0
    else:
        with pytest.raises(WouldBlock):
            shared.bus.write_piece(shared.client, b"rest\n", Piece("a1", 0, may_go_on=False), "a1", may_wait=False)
    assert shared.write("a1", b"rest\n") is None
    before = {"a signal": b"d\n", "no waiting": b"c\n"}.get(how, b"")
    assert shared.heard() == b"line\n" + before + b"other\nhalf, rest\n"


@pytest.mark.parametrize("in_turn", [True, False])
def test_what_another_thread_has_tried_in_vain_takes_no_half_away(shared: Shared, in_turn: bool) -> None:
    """It may have been a line of its own. The rest stood behind it already, or before it."""
    shared.leave("a1", b"half, ")
    rest = "a1"
    if not in_turn:
        assert shared.write("b", b"other\n") is None
        rest = "a2"
        assert shared.write("a2", b"rest\n") is None
    assert shared.write("a3", b"mine\n") is None
    if in_turn:
        assert shared.write("a1", b"rest\n") is None
    assert shared.bus.cancelled("a3") == 0
    assert shared.heard() == b"line\n" + (b"" if in_turn else b"other\n") + b"half, rest\n"
    assert (rest, 5) in shared.bus.ended()
    assert shared.write("a3", b"mine\n") == 5
    assert shared.heard() == b"mine\n"


def test_one_of_another_process_that_has_got_the_number_of_a_dead_one() -> None:
    bus = Driver(Limits(max_queue=1), process_of=lambda who: processes[str(who)])
    processes = {"7": "dead", "8": "b"}
    master = bus.create(b".U_x")
    client = bus.open(b"U_x")
    assert bus.write_piece(client, b"line\nhalf, ", Piece("7", 0, may_go_on=True), "7") == 11
    assert bus.write_piece(client, b"rest\n", Piece("7", 11, may_go_on=False), "7") is None
    assert bus.cancelled("7") == 0
    assert bus.read_all(master) == [b"line\n"]
    processes["7"] = "new"
    for who in ("7", "8", "7"):
        assert bus.write_piece(client, b"other\n", Piece(who, 0, may_go_on=False), who) == 6
        assert bus.read_all(master) == [b"other\n"]


def test_a_signal_that_comes_again(shared: Shared) -> None:
    """While it has written nothing of the rest."""
    shared.leave("a1", b"half, ")
    assert shared.write("a1", b"rest\n") is None
    assert shared.bus.cancelled("a1") == 0
    assert shared.write("b", b"other\n") is None
    assert shared.heard() == b"line\nother\n"
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"


def test_two_that_have_begun(shared: Shared) -> None:
    shared.leave("a1", b"half of a, ")
    assert shared.heard() == b"line\n"
    shared.leave("b", b"half of b, ")
    assert shared.heard() == b"line\n"
    assert shared.write("a1", b"rest of a\n") == 10
    assert shared.heard() == b"half of a, rest of a\n"
    assert shared.write("b", b"rest of b\n") == 10
    assert shared.heard() == b"half of b, rest of b\n"


def test_what_comes_behind_his_line_is_everybodys_again(shared: Shared) -> None:
    shared.leave("a1", b"half, ")
    assert shared.heard() == b"line\n"
    assert shared.write("a1", b"rest\nbegun, ") == 12
    assert shared.heard() == b"half, rest\n"
    assert shared.write("b", b"ended\n") == 6
    assert shared.heard() == b"begun, ended\n"


def test_who_comes_when_others_have_begun_a_line_ends_that(shared: Shared) -> None:
    """What he had begun is not put in front of a later line of his."""
    shared.leave("a1", b"half, ")
    assert shared.heard() == b"line\n"
    assert shared.write("b", b"begun, ") == 7
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"begun, rest\n"
    assert shared.write("a1", b"next\n") == 5
    assert shared.heard() == b"next\n"


def test_what_was_dropped_is_nobodys(shared: Shared) -> None:
    """Also if who writes then is not known."""
    shared.leave("a1", b"half, ")
    assert shared.heard() == b"line\n"
    with pytest.raises(MessageTooLong):
        shared.write("a1", b"x" * 200)
    assert shared.bus.write(shared.client, b"begun, ") == 7
    assert shared.write("b", b"ended\n") == 6
    assert shared.heard() == b"begun, ended\n"


def test_without_memory_others_are_served_later(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no line is torn apart."""
    shared.leave("a1", b"half, ")
    assert shared.write("c", b"other\n") is None
    assert shared.write("b", b"last\n") is None
    bus = shared.bus.bus
    cancelled = bus.cancel("c", 1)
    assert cancelled
    later = cancelled[1].later
    with monkeypatch.context() as patch:
        patch.setattr(Halves, "begin", Mock(side_effect=MemoryError))
        effects = bus.go_on(later.pop(0), 1)
    assert isinstance(effects.failure, MemoryError)
    effects = bus.go_on(effects.later.pop(0), 1)
    assert not effects
    assert shared.heard() == b"line\nlast\n"
    assert shared.write("a1", b"rest\n") == 5
    assert shared.heard() == b"half, rest\n"


def test_what_nobody_comes_for_is_bounded() -> None:
    shared = Shared(max_message=100)
    for who in "abc":
        shared.leave(f"{who}1", who.encode() * 40)
        assert shared.heard() == b"line\n"
    assert shared.write("d", b"other\n") == 6
    assert shared.heard() == b"other\n"
    for who, half in (("a", b""), ("b", b"b" * 40), ("c", b"c" * 40)):
        assert shared.write(f"{who}1", b"rest\n") == 5
        assert shared.heard() == half + b"rest\n"


def test_so_is_their_number() -> None:
    shared = Shared(max_message=2 * MOST)
    for number in range(MOST + 2):
        shared.leave(f"{chr(0x4E00 + number)}1", b"x")
        assert shared.heard() == b"line\n"
    for number in (MOST + 1, 1, 0):
        assert shared.write(f"{chr(0x4E00 + number)}1", b"rest\n") == 5
        assert shared.heard() == (b"xrest\n" if number else b"rest\n")


def test_what_was_written_without_a_signal_is_everybodys(shared: Shared) -> None:
    """A line may be begun by one process and ended by another."""
    assert shared.write("a1", b"one, ") == 5
    assert shared.write("b", b"two\n") == 4
    assert shared.heard() == b"one, two\n"
    assert shared.write("a1", b"line\nbegun, ") == 12
    assert shared.write("c", b"and ended\n") is None
    assert shared.bus.cancelled("c") == 0
    assert shared.heard() == b"line\n"
    assert shared.write("b", b"ended\n") == 6
    assert shared.heard() == b"begun, ended\n"
