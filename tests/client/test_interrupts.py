"""Clients whose calls end by a signal's handler that raises: nothing is lost or doubled, and they know what was sent."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import futebus.client as client

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.waiting import DEADLINE, until
from .threads import aside


class Interrupt(Exception):
    """What a signal's handler raises."""


Handler = Callable[[], object]


@contextmanager
def _at_a_signal(bus: Mount, channel: str, waits: str, do: Handler) -> Iterator[None]:
    """Has a signal's handler do something as soon as somebody waits who reads or writes a channel."""

    def kill() -> None:
        bus.wait_for_clients(1, channel, waits=waits)
        os.kill(os.getpid(), signal.SIGUSR1)

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGUSR1, lambda *_: do())
    killing = aside(kill)
    try:
        yield
    finally:
        killing.join(DEADLINE)
        signal.signal(signal.SIGUSR1, before)


def _raise(error: BaseException) -> None:
    raise error


def test_who_is_interrupted_while_he_waits_knows_how_much_was_accepted(mounting: Mounting) -> None:
    bus = mounting("max_queue=8")
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(Interrupt())), pytest.raises(Interrupt):
            out.send(*map(str, range(100)))
        assert out.accepted == 8
        assert [master.read(timeout=60) for _ in range(8)] == [str(number) for number in range(8)]
        assert not master.inquire().queued


def test_the_half_of_a_long_message_is_completed_behind_an_interrupt(mounting: Mounting) -> None:
    bus = mounting("max_queue=2,max_message=8M")
    long = "x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(Interrupt())), pytest.raises(Interrupt):
            out.send(long, "never")
        assert (out.accepted, out.is_begun) == (1, True)
        got = [master.read(timeout=60) for _ in range(2)]
        writing = aside(lambda: out.send("last"))
        got += [master.read(timeout=60) for _ in range(2)]
        writing.join(DEADLINE)
        assert got == ["one", "two", long, "last"]


@pytest.mark.parametrize("error", [TimeoutError("mine"), BrokenPipeError(errno.EPIPE, "mine"), ValueError("mine")])
def test_what_a_handler_raises_is_no_word_of_the_bus(mounting: Mounting, error: Exception) -> None:
    bus = mounting("max_queue=8")
    with client.collect(bus / "U_x") as master, client.connect(bus / "U_x", again=True) as slave:
        with _at_a_signal(bus, "U_x", "read", lambda: _raise(error)), pytest.raises(type(error), match="mine"):
            slave.read()
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(error)), pytest.raises(type(error), match="mine"):
            slave.send(*map(str, range(20)))
        assert (slave.accepted, slave.joins) == (8, 1)
        assert [master.read(timeout=60) for _ in range(8)] == [str(number) for number in range(8)]
        slave.send("next")
        assert master.read(timeout=60) == "next"


def test_what_a_handler_meets_on_another_channel_is_no_word_of_this_one(bus: Mount) -> None:
    with client.publisher(bus / "B_x") as other, client.subscribe(bus / "B_y", again=True) as log:
        other.close()
        with _at_a_signal(bus, "B_y", "read", lambda: other.send("x")), pytest.raises(ValueError, match="B_x is not open"):
            log.read()
        assert log.joins == 1


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_handler_that_reads_what_is_being_read(bus: Mount, timeout: float | None) -> None:
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        got: list[str] = []

        def read() -> None:
            out.send(*map(str, range(9)))
            got.append(master.read(timeout))
            out.send("9")

        with _at_a_signal(bus, "U_x", "read", read):
            second = master.read()
        got += [second, *(master.read(timeout=60) for _ in range(8))]
        assert got == [str(number) for number in range(10)]
        assert not master.pending


def test_a_handler_that_sends_while_the_channel_is_opened_again(bus: Mount) -> None:
    """What it does in the middle of it, it may do."""
    said: list[str] = []
    with client.collect(bus / "U_x"):
        slave = client.connect(bus / "U_x", again=True, say=said.append)

    def come() -> None:
        master = client.collect(bus / "U_x")
        slave.send("from the handler")
        got.append(master.read(timeout=60))
        master.send("welcome")
        masters.append(master)

    def kill() -> None:
        until(lambda: said, "it waits")
        os.kill(os.getpid(), signal.SIGUSR1)

    got: list[str] = []
    masters: list[client.Collector[str]] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: come())
    try:
        killing = aside(kill)
        assert slave.read() == "welcome"
        killing.join(DEADLINE)
        assert (got, slave.joins) == (["from the handler"], 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
        slave.close()
        for master in masters:
            master.close()


def test_a_handler_may_shut_a_channel_that_is_away(bus: Mount) -> None:
    said: list[str] = []
    with client.collect(bus / "U_x", again=True, say=said.append) as jobs:
        bus.unmount()

        def kill() -> None:
            until(lambda: said, "it waits for the bus")
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, lambda *_: jobs.shut())
        try:
            killing = aside(kill)
            assert list(jobs) == []
            killing.join(DEADLINE)
        finally:
            signal.signal(signal.SIGUSR1, before)
        with pytest.raises(client.Ended, match="it was shut"):
            jobs.read()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["read", "send"])
def test_a_storm_of_interrupts(bus: Mount, what: str, seed: int) -> None:
    done = run(sys.executable, "-m", "tests.client.interrupted", what, bus.path, str(seed))
    assert done.returncode == 0, done.stderr
