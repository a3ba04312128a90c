"""`detach()`: who is given the descriptor has it alone, whoever does what with the channel meanwhile."""

import contextlib
import itertools
import os
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import futebus.client as client
import futebus.client.aio
import futebus.client.trio
from futebus.client.channel import Endpoint
from futebus.client.opening import Opening

from ..helpers.mounts import Mount
from ..helpers.signals import Interrupt, interrupted, interrupted_twice
from ..helpers.waiting import DEADLINE, until
from .threads import aside


@pytest.fixture(params=[client, futebus.client.aio, futebus.client.trio])
def doors(request: pytest.FixtureRequest) -> Any:
    return request.param


def _opened(channel: Any) -> Any:
    if not channel.is_open:
        channel.open_nowait()
    return channel


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_handler_may_leave_at_any_moment_what_is_given_away(bus: Mount, doors: Any, *, comes_back: bool) -> None:
    """What is given is open then, and not closed by the channel."""

    def leave(number: int, frame: FrameType | None) -> None:
        log.close()
        if comes_back:
            log.open_nowait()

    for place in itertools.count():
        log = _opened(doors.subscribe(bus / "B_x"))
        steps, given = itertools.count(), list[int]()
        with (
            interrupted(Endpoint.detach.__code__, lambda _: next(steps) == place, leave) as hits,  # noqa: B023
            contextlib.suppress(ValueError),
        ):
            given.append(log.detach())
        assert given or not log.is_open or comes_back
        log.close()
        for each in given:
            client.publish(bus / "B_x", "hello")
            assert os.read(each, 100) == b"hello\n"
            os.close(each)
        until(lambda: not bus.clients("B_x"), "nobody is there")
        if not hits:
            break
    assert place > 10


def test_what_has_just_gone_is_not_given_away_and_comes_again(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread has found that, which is about to open it again."""
    with client.collect(bus / "U_x"):
        slave = client.connect(bus / "U_x", again=True)
    opening, note = slave._now, slave._note_leaving

    def note_late(gone: Opening) -> None:
        note(gone)
        slave._now = Opening()

    with monkeypatch.context() as patch:
        patch.setattr(slave, "_note_leaving", note_late)
        with pytest.raises(ValueError, match="is not open"):
            slave.detach()
    slave._now = opening
    with slave, client.collect(bus / "U_x") as master:
        assert slave.send("text", timeout=DEADLINE) == 1
        assert master.read(timeout=DEADLINE) == "text"


def test_what_is_being_closed_is_not_given_away(bus: Mount, doors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who closes it has it already."""
    log = _opened(doors.subscribe(bus / "B_x"))

    def close(opening: Any) -> bool:
        aside(log.close).join(DEADLINE)
        return False

    monkeypatch.setattr(log, "_is_elsewhere", close)
    with contextlib.suppress(ValueError):
        given = log.detach()
        client.publish(bus / "B_x", "hello")
        assert os.read(given, 100) == b"hello\n"
        os.close(given)
    assert not log.is_open


def test_a_number_that_was_given_away_is_left_by_who_closes_the_channel(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """It may be another file's by then, of the caller."""
    (place / "file").write_text("")
    log = client.subscribe(bus / "B_x")

    def read() -> None:
        with contextlib.suppress(ValueError):
            log.read()

    reading, closing = aside(read), list[threading.Thread]()
    until(lambda: log._inside.readers, "it is read")
    is_in, goes, dup2, is_elsewhere = threading.Event(), threading.Event(), os.dup2, log._is_elsewhere

    def dup2_late(*what: Any, **how: Any) -> int:
        is_in.set()
        assert goes.wait(DEADLINE)
        return dup2(*what, **how)

    def close(opening: Opening) -> bool:
        closing.append(aside(log.close))
        until(lambda: is_in.is_set() or not closing[0].is_alive(), "it is closed")
        client.publish(bus / "B_x", "text")
        reading.join(DEADLINE)
        return is_elsewhere(opening)

    monkeypatch.setattr("os.dup2", dup2_late)
    monkeypatch.setattr(log, "_is_elsewhere", close)
    os.close(log.detach())
    files = [os.open(place / "file", os.O_RDONLY) for _ in range(3)]
    goes.set()
    closing[0].join(DEADLINE)
    for file in files:
        assert os.readlink(f"/proc/self/fd/{file}") == str(place / "file")
        os.close(file)
    until(lambda: not bus.clients("B_x"), "nobody is there")


def test_two_interrupts_of_giving_away_leave_nothing_open(bus: Mount) -> None:
    """While another thread reads, for whom there are two of it for a moment."""
    for place in itertools.count():
        log = client.subscribe(bus / "B_x")

        def read() -> None:
            with contextlib.suppress(ValueError):
                log.read()  # noqa: B023

        reading, given = aside(read), list[int]()
        until(lambda: log._inside.readers, "it is read")  # noqa: B023
        with contextlib.suppress(Interrupt), interrupted_twice(place, "futebus.client.") as hits:
            given += (log.detach(),)
        log.close()
        for each in given:
            os.close(each)
        reading.join(DEADLINE)
        assert not reading.is_alive()
        until(lambda: not bus.clients("B_x"), "nobody is there")
        if not hits:
            break
    assert place > 5


def test_who_reads_takes_nothing_of_what_is_given_away(bus: Mount) -> None:
    log = client.subscribe(bus / "B_x")
    got: list[str] = []

    def read() -> None:
        with pytest.raises(ValueError, match="is not open"):
            got.append(log.read())

    reading = aside(read)
    bus.wait_for_readers(1, "B_x")
    given = log.detach()
    reading.join(DEADLINE)
    assert not reading.is_alive()
    client.publish(bus / "B_x", "one", "two")
    assert os.read(given, 100) == b"one\ntwo\n"
    assert os.get_blocking(given)
    assert not os.get_inheritable(given)
    os.close(given)
    assert not got


def test_what_is_given_away_waits_though_another_thread_was_in_a_hurry(bus: Mount) -> None:
    log = client.subscribe(bus / "B_x")
    found: list[BaseException] = []

    def read() -> None:
        try:
            log.read(timeout=DEADLINE)
        except ValueError as error:
            found.append(error)

    reading = aside(read)
    until(lambda: log._now.hurry.calls and not os.get_blocking(log.fileno()), "it waits")
    given = log.detach()
    reading.join(DEADLINE)
    assert found
    assert os.get_blocking(given)
    os.close(given)


def test_what_was_taken_before_it_was_given_away_can_still_be_asked_for(bus: Mount) -> None:
    log = client.subscribe(bus / "B_x")
    client.publish(bus / "B_x", "one")
    client.publish(bus / "B_x", "two")
    assert log.read() == "one"
    pending = log.pending
    os.close(log.detach())
    assert [log.read() for _ in range(pending)] == ["two"] * pending
    with pytest.raises(ValueError, match="is not open"):
        log.read()


def test_what_is_given_away_waits_though_another_thread_comes_to_be_in_a_hurry(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is about to be given, and before that thread is out."""
    log = client.subscribe(bus / "B_x")
    is_in, goes = threading.Event(), threading.Event()
    hurry, give_away = log._hurry, log._give_away

    def hurry_late(*what: Any) -> Any:
        is_in.set()
        goes.wait(DEADLINE)
        return hurry(*what)

    def give_late(opening: Opening, *, is_copy: bool) -> None:
        goes.set()
        until(lambda: not os.get_blocking(opening.file), "it is in a hurry")
        give_away(opening, is_copy=is_copy)

    def read() -> None:
        with contextlib.suppress(ValueError):
            log.read(timeout=DEADLINE)

    monkeypatch.setattr(log, "_hurry", hurry_late)
    monkeypatch.setattr(log, "_give_away", give_late)
    reading = aside(read)
    assert is_in.wait(DEADLINE)
    given = log.detach()
    reading.join(DEADLINE)
    assert not reading.is_alive()
    assert os.get_blocking(given)
    os.close(given)
