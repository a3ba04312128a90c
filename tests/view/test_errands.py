"""Buses that hang: nobody waits for them, and of the threads that do there are only so many."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.host.mounted import NoBus
from futebus.view import errands
from futebus.view.asking import Call, Question
from futebus.view.errands import MOST_HUNG, MOST_HUNG_NOWHERE, MOST_HUNG_OF_USER, NotAnswering
from futebus.view.looking import look, read
from futebus.view.tail import GONE, Tail

from ..helpers.hostile import Mislead, lie
from ..helpers.mounts import Mount
from ..helpers.waiting import DEADLINE, until

STAT = ("read", b"_stat.json")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not answer at once is said not to."""
    for module in ("errands", "asking"):
        monkeypatch.setattr(f"futebus.view.{module}.PATIENCE", 0.05)


def asked(mountpoint: Path) -> Question[bytes]:
    return Question(mountpoint, lambda: read(mountpoint))


def test_a_hostile_one_is_seen_as_it_says(hostile: Mislead) -> None:
    bus = hostile(lie("B_x", "A_y"))
    assert [channel.name for channel in look(bus.path).channels] == ["B_x", "A_y"]
    bus.files = {**lie("B_x/../../../../etc/shadow")}
    with pytest.raises(NoBus, match="a name is that of no channel"):
        look(bus.path)


def test_what_is_no_channel_is_not_listened_to(hostile: Mislead, place: Path) -> None:
    """Neither what a name leads out to, nor what a bus has that is no channel."""
    bus = hostile(lie("B_x"))
    bus.directories.add(b"+B_x")
    (place / "secret").write_text("root:x\n")
    names = (b"B_x", b"B_x/../../secret", b"B_none")
    tails = [Tail(bus.path, name, kept=10, is_patient=False) for name in names]
    until(lambda: all(tail.is_over for tail in tails), "they are refused")
    assert not any(tail.lines.heard for tail in tails)
    assert not any(bus.calls["read", name] for name in names)


def test_there_is_one_call_and_no_second(hostile: Mislead, impatient: None) -> None:
    bus = hostile(lie())
    bus.hangs.add(STAT)
    question = asked(bus.path)
    first = question.begin()
    until(lambda: first.waited and bus.calls[STAT], "it hangs")
    for _ in range(20):
        assert question.begin() is first
    assert bus.calls[STAT] == 1
    bus.close()
    until(lambda: first.is_over, "it is let go")
    with pytest.raises(NoBus, match="is dead"):
        assert first.answer


@pytest.mark.parametrize("is_linked", [False, True])
def test_what_hangs_and_is_replaced_is_left(hostile: Mislead, place: Path, impatient: None, is_linked: bool) -> None:
    bus = hostile(lie())
    bus.hangs.add(STAT)
    (place / "link").symlink_to(bus.path)
    question = asked(place / "link" if is_linked else bus.path)
    first = question.begin()
    until(lambda: first.waited and bus.calls[STAT], "it hangs")
    bus.detach()
    hostile(lie("B_new"), bus.path)

    def is_seen() -> bool:
        call = question.begin()
        call.wait(DEADLINE if call is not first else 0)
        return call is not first and b"B_new" in call.answer

    until(is_seen, "the new one is asked")
    assert not first.is_over


def test_what_is_mounted_over_one_that_hangs_is_seen(hostile: Mislead, impatient: None) -> None:
    bus = hostile(lie())
    bus.hangs.add(STAT)
    question = asked(bus.path)
    first = question.begin()
    until(lambda: first.waited and bus.calls[STAT], "it hangs")
    over = hostile(lie("B_over"), bus.path)
    until(lambda: question.begin() is not first, "the one above is asked")
    call = question.begin()
    call.wait(DEADLINE)
    assert b"B_over" in call.answer
    over.close()


def hangs(call: Call[bytes]) -> bool:
    """Also for who counts those that hang: that clock begins a moment later than the call's."""
    return bool(call.waited) and call.errand.is_hung


def calls_in(mountpoint: Path, count: int) -> list[Call[bytes]]:
    return [asked(mountpoint).begin() for _ in range(count)]


def test_so_many_hang_in_one_bus_and_no_more(hostile: Mislead, impatient: None) -> None:
    bus, other = hostile(lie(), owner=64001), hostile(lie(), owner=64001)
    bus.hangs.add(STAT)
    hung = calls_in(bus.path, MOST_HUNG)
    until(lambda: all(hangs(call) for call in hung) and bus.calls[STAT] == MOST_HUNG, "they hang")
    for call in calls_in(bus.path, 20):
        call.wait(DEADLINE)
        with pytest.raises(NotAnswering):
            assert call.answer
    assert bus.calls[STAT] == MOST_HUNG
    [call] = calls_in(other.path, 1)
    call.wait(DEADLINE)
    assert call.answer


def test_one_user_cannot_have_one_after_the_other_hang(hostile: Mislead, impatient: None, place: Path) -> None:
    """Mounted, looked at, unmounted while that hangs, and again: each time a thread is left."""
    theirs = place / "theirs"
    hung: list[Call[bytes]] = []

    def one_more() -> None:
        bus = hostile(lie(), theirs, owner=64001)
        bus.hangs.add(STAT)
        hung.extend(calls_in(theirs, 1))
        until(lambda: hangs(hung[-1]) and bus.calls[STAT], "it hangs")
        bus.detach()

    for _ in range(MOST_HUNG_OF_USER):
        one_more()
    bus = hostile(lie(), theirs, owner=64001)
    [call] = calls_in(theirs, 1)
    call.wait(DEADLINE)
    with pytest.raises(NoBus, match="too many of the same user do not answer"):
        assert call.answer
    assert not bus.calls[STAT]
    well = hostile(lie(), owner=64002)
    [call] = calls_in(well.path, 1)
    call.wait(DEADLINE)
    assert call.answer


def test_who_hangs_on_the_way_counts_for_whose_way_it_is(hostile: Mislead, impatient: None) -> None:
    """The path of a bus may lead through somebody's file system, and nobody gets further than that."""
    above = hostile({}, owner=64001)
    above.directories.add(b"x")
    bus = hostile(lie(), above.path / "x", owner=64002)
    above.hangs.add(("lookup", b"x"))
    hung = calls_in(bus.path, MOST_HUNG)
    until(lambda: all(hangs(call) for call in hung), "they hang")
    for call in calls_in(bus.path, 3):
        assert call.is_over
        with pytest.raises(NotAnswering):
            assert call.answer
    assert not any(call.is_over or call.errand.is_forlorn for call in hung)
    more: list[Call[bytes]] = []
    for number in range(MOST_HUNG_OF_USER):
        more.extend(calls_in(above.path / "x" / str(number), 1))
        until(lambda: hangs(more[-1]) or more[-1].is_over, "it hangs, or is not sent")
    assert sum(not call.is_over for call in [*hung, *more]) <= MOST_HUNG_OF_USER
    with pytest.raises(NoBus, match="too many of the same user do not answer"):
        assert more[-1].answer
    above.hangs.clear()
    bus.detach()
    until(lambda: hung[0].errand.is_forlorn, "it has gone from there")
    above.close()
    until(lambda: all(call.is_over for call in [*hung, *more]), "they are let go")


def test_who_hangs_nobody_knows_where(hostile: Mislead, impatient: None, place: Path) -> None:
    """Where a link leads is not known before one has gone there."""
    trap = hostile({}, owner=64001)
    trap.directories.add(b"x")
    trap.hangs.add(("lookup", b"x"))
    links = [place / f"link{number}" for number in range(MOST_HUNG_NOWHERE + 5)]
    for link in links:
        link.symlink_to(trap.path / "x")
    hung = [call for link in links[:MOST_HUNG_NOWHERE] for call in calls_in(link, 1)]
    until(lambda: all(hangs(call) for call in hung), "they hang")
    for link in links[MOST_HUNG_NOWHERE:]:
        [call] = calls_in(link, 1)
        assert call.is_over
        with pytest.raises(NoBus, match="too many do not answer"):
            assert call.answer
    well = hostile(lie(), owner=64002)
    [call] = calls_in(well.path, 1)
    call.wait(DEADLINE)
    assert call.answer
    trap.close()
    until(lambda: all(call.is_over for call in hung), "they are let go")


def test_where_there_can_be_no_more_threads(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(errands, "start", refuse)
    call = asked(bus.path).begin()
    assert call.is_over
    with pytest.raises(NoBus, match="cannot be looked at: can't start new thread"):
        assert call.answer
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=True)
    assert tail.is_over
    assert "can't start new thread" in tail.words
    tail.stop()


def test_what_fails_is_an_answer(bus: Mount) -> None:
    def fail() -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE) + "\x1b" * 1000)

    call = Question(bus.path, fail).begin()
    call.wait(DEADLINE)
    with pytest.raises(NoBus, match="Too many open files") as why:
        assert call.answer
    assert len(str(why.value)) < 500


def test_what_nobody_has_thought_of_is_told_once(bus: Mount, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ZeroDivisionError

    for _ in range(5):
        call = Question(bus.path, fail).begin()
        call.wait(DEADLINE)
        with pytest.raises(NoBus, match="ZeroDivisionError"):
            assert call.answer
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_what_has_been_answered_long_ago_is_no_answer(bus: Mount, impatient: None) -> None:
    question = asked(bus.path)
    first = question.begin()
    first.wait(DEADLINE)
    until(lambda: first.is_stale, "it is old")
    assert question.begin() is not first


def test_a_tail_that_hangs_is_left_and_counted(hostile: Mislead, impatient: None) -> None:
    bus = hostile(lie("B_x") | {b"+B_x": b""})
    bus.hangs.add(("open", b"+B_x"))
    tails = [Tail(bus.path, b"B_x", kept=10, is_patient=False) for _ in range(MOST_HUNG)]
    until(lambda: bus.calls["open", b"+B_x"] == MOST_HUNG, "they hang")
    for tail in tails:
        tail.stop()
    late = Tail(bus.path, b"B_x", kept=10, is_patient=False)

    def is_refused() -> bool:
        nonlocal late
        late.stop()
        late = Tail(bus.path, b"B_x", kept=10, is_patient=False)
        until(lambda: late.is_over or bus.calls["open", b"+B_x"] > MOST_HUNG, "it goes on")
        return late.is_over

    until(is_refused, "nobody goes there any more")
    assert late.words == errands.NOT_ANSWERING
    bus.hangs.clear()
    bus.close()
    until(lambda: all(tail.is_over for tail in tails), "they are let go")
    assert late.words != GONE
