"""Lines as they go by: in pieces, too many, too long, without an end."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.view import tail as tails
from futebus.view.tail import BURST_SECONDS, BYTES_PER_SECOND, READ_COST, SHOWN_BYTES, Line, Lines, Pace, Tail

from ..helpers.hostile import Mislead, lie
from ..helpers.mounts import Mount, Mounting
from ..helpers.waiting import until

BEGINNING = 1.0


def test_the_last_lines_are_kept() -> None:
    lines = Lines(200)
    lines.add(b"one\n\xff\n")
    lines.add(b"".join(b"%d\n" % number for number in range(199)))
    taken = lines.take()
    assert (taken.lines[:2], taken.lines[-1], len(taken.lines)) == ([Line(b"\xff", 0), Line(b"0", 0)], Line(b"198", 0), 200)
    assert (taken.skipped, lines.heard) == (1, 201)
    assert lines.take() == ([], 0)
    lines.add(b"x\n" * 600)
    assert lines.take() == ([Line(b"x", 0)] * 200, 400)


@given(st.lists(st.binary(min_size=1, max_size=5).filter(lambda line: b"\n" not in line)), st.data())
def test_pieces_of_any_size_are_the_same_lines(messages: list[bytes], data: st.DataObject) -> None:
    """A message that is longer than a read comes in several; it is one all the same."""
    lines = Lines(3)
    text = b"".join(message + b"\n" for message in messages)
    while text:
        size = data.draw(st.integers(1, len(text)))
        lines.add(text[:size])
        text = text[size:]
    taken = lines.take()
    assert [line.text for line in taken.lines] == messages[-3:]
    assert taken.skipped == len(messages) - len(taken.lines)
    assert lines.heard == len(messages)


def test_of_a_long_line_the_beginning_is_kept() -> None:
    lines = Lines(10)
    lines.add(b"y" * (SHOWN_BYTES + 7) + b"\n")
    for _ in range(1000):
        lines.add(b"z" * 4096)
        assert len(lines._begin) <= SHOWN_BYTES + 1, "what is not shown is not kept"
    lines.add(b"\n")
    lines.add("€".encode() * SHOWN_BYTES + b"\n")
    lines.add(b"\x80" * 2 * SHOWN_BYTES + b"\n")
    one, two, three, four = lines.take().lines
    assert one == Line(b"y" * SHOWN_BYTES, 7)
    assert two == Line(b"z" * SHOWN_BYTES, 4_096_000 - SHOWN_BYTES)
    assert three == Line("€".encode() * (SHOWN_BYTES // 3), (SHOWN_BYTES - SHOWN_BYTES // 3) * 3)
    assert len(four.text) + four.rest == 2 * SHOWN_BYTES
    lines.add(b"half")
    lines.forget()
    lines.add(b"whole\n")
    assert lines.take().lines == [Line(b"whole", 0)]


def test_so_many_bytes_a_second_and_so_many_reads() -> None:
    for size in (1, 1 << 20):
        now, reads = BEGINNING, 0
        pace = Pace(now)
        while now < BEGINNING + 10:
            now += pace.spend(size, now) + 1e-6
            reads += 1
        assert reads * (size + READ_COST) == pytest.approx(10 * BYTES_PER_SECOND, rel=0.05)
    pace = Pace(now)
    for _ in range(100):
        now += 0.1
        assert pace.spend(1 << 20, now) == 0, "who is slow is not made slower"


def test_a_message_of_any_length_is_one(mounting: Mounting) -> None:
    bus = mounting("max_message=4194304,max_queue_bytes=16777216")
    bus.touch("B_x")
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=False)
    until(lambda: tail.is_open, "it listens")
    with (bus / "B_x").open("wb") as file:
        file.write(b"x" * 3_000_000 + b"\n" + b"y\n")
    until(lambda: tail.lines.heard == 2, "both have come")
    assert tail.lines.take() == ([Line(b"x" * SHOWN_BYTES, 3_000_000 - SHOWN_BYTES), Line(b"y", 0)], 0)
    tail.stop()
    until(lambda: tail.is_over, "it ends")


class Rests:
    """Counts how often a tail rests, and has it go on at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        monkeypatch.setattr(Tail, "_pause", lambda tail, seconds: self.seconds.append(seconds))


def test_who_says_that_there_is_something_and_has_nothing(hostile: Mislead, monkeypatch: pytest.MonkeyPatch) -> None:
    rests = Rests(monkeypatch)
    bus = hostile(lie("B_x") | {b"+B_x": lambda size: errno.EAGAIN})
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=False)
    until(lambda: bus.calls["read", b"+B_x"] > 20, "it tries again")
    tail.stop()
    until(lambda: tail.is_over, "it ends")
    assert rests.seconds == [tails.AGAIN_SECONDS] * bus.calls["read", b"+B_x"], "it rests each time"


@pytest.mark.parametrize("said", [b"x", b"\n", b"x" * (1 << 20)])
def test_who_has_something_to_read_for_ever(hostile: Mislead, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """However fast it says it: the budget is that of no time at all here."""
    monkeypatch.setattr(tails, "time", SimpleNamespace(monotonic=lambda: BEGINNING))
    rests = Rests(monkeypatch)
    bus = hostile(lie("B_x") | {b"+B_x": lambda size: said[:size]})
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=False)
    until(lambda: rests.seconds, "it has read enough")
    until(lambda: len(rests.seconds) > 20, "it rests after each read")
    tail.stop()
    until(lambda: tail.is_over, "it ends")
    assert bus.calls["read", b"+B_x"] - len(rests.seconds) <= BYTES_PER_SECOND * BURST_SECONDS / READ_COST + 1


def test_what_is_lost_is_counted(mounting: Mounting, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = mounting("max_queue=4")
    bus.touch("B_x")
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=False)
    until(lambda: tail.is_open, "it listens")
    total = 5000
    with (bus / "B_x").open("wb") as file:
        file.write(b"x\n" * total)
    skipped = shown = 0

    def all_are_known() -> bool:
        nonlocal skipped, shown
        taken = tail.lines.take()
        skipped, shown = skipped + taken.skipped, shown + len(taken.lines)
        return skipped + shown == total

    until(all_are_known, "all are shown or counted")
    tail.stop()


def test_where_no_descriptor_is_left(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("futebus.view.tail.os.eventfd", refuse)
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=True)
    until(lambda: tail.is_over, "it ends")
    assert "Too many open files" in tail.words
    tail.stop()


def test_it_can_be_stopped_at_any_time(bus: Mount, place: Path) -> None:
    bus.touch("B_x")
    tails_ = [Tail(path, b"B_x", kept=10, is_patient=True) for path in (bus.path, place) for _ in range(20)]
    for tail in tails_:
        tail.stop()
        tail.stop()
    until(lambda: all(tail.is_over for tail in tails_), "they end")
    assert not bus.clients()


def test_a_channel_that_is_removed_and_made_again(bus: Mount) -> None:
    """What the old one still has is heard, and then the new one is."""
    bus.touch("B_x")
    tail = Tail(bus.path, b"B_x", kept=10, is_patient=False)
    until(lambda: tail.is_open, "it listens")
    with (bus / "B_x").open("wb") as file:
        os.unlink(bus / "B_x")
        file.write(b"old\n")
    until(lambda: tail.is_removed and tail.words.endswith("; its name was removed"), "it knows")
    bus.touch("B_x")
    until(lambda: not tail.is_removed and tail.is_open, "it is at the new one")
    (bus / "B_x").write_bytes(b"new\n")
    until(lambda: tail.lines.heard == 2, "both have come")
    assert tail.lines.take() == ([Line(b"old", 0), Line(b"new", 0)], 0)
    tail.stop()
    until(lambda: tail.is_over and not bus.clients(), "it ends")
