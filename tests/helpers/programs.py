"""Programs that a test starts, and that do not outlive it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from futebus.client.leaving import LOOK_SECONDS

from . import forked
from .processes import kill_all, members, stat_of, state_of, tasks_of
from .waiting import until
from .watching import WATCH

Start = Callable[..., "subprocess.Popen[str]"]


@contextlib.contextmanager
def starting(*, are_copies: bool = False) -> Iterator[Start]:
    """Starts programs, with pipes for their input and output. In the end they are killed, and what they started.

    Args:
        are_copies: whether commands of ours begin as copies, where they can: see `forked`.
    """
    running: list[subprocess.Popen[str]] = []
    make = forked.begin if are_copies else subprocess.Popen

    def begin(*command: str | Path, **popen: Any) -> "subprocess.Popen[str]":
        pipes = {name: popen.pop(name, subprocess.PIPE) for name in ("stdin", "stdout", "stderr")}
        popen.setdefault("env", forked.environment())
        process = make([str(word) for word in command], text=True, start_new_session=True, **pipes, **popen)
        running.append(process)
        WATCH.sessions.add(process.pid)
        return process

    try:
        yield begin
    finally:
        # Who has the number of one that was waited for is somebody else, and nobody is left of that one's group.
        ours = [each.pid for each in running if each.returncode is None or not stat_of(each.pid)]
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        # What they started may be in process groups of its own.
        kill_all(members(*ours))
        for process in running:
            process.communicate()
            WATCH.sessions.discard(process.pid)


def stop(pid: int) -> None:
    """Stops a process, and waits until it is: who is only told to stop may be in a call that still gets something."""
    os.kill(pid, signal.SIGSTOP)

    def is_stopped() -> bool:
        stat = stat_of(pid)
        return stat is None or all(state_of(task) in "TZX" for task in tasks_of(pid, stat.threads))

    until(is_stopped, "it is stopped")


@contextlib.contextmanager
def stopped(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """A program does nothing meanwhile."""
    try:
        stop(process.pid)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def leave_behind(process: "subprocess.Popen[Any]", channel: Path, lines: bytes) -> None:
    """Has a program find that the channel which it reads was removed, and that lines wait for it there, as soon as it looks."""
    with stopped(process):
        file = os.open(channel, os.O_WRONLY)
        channel.unlink()
        assert os.write(file, lines) == len(lines)
        os.close(file)
        time.sleep(LOOK_SECONDS)  # it is time for that when it goes on


@pytest.fixture
def start(place: Path, request: pytest.FixtureRequest) -> Iterator[Start]:  # they write there, and it is removed at their end
    """Starts programs that do not outlive the test: see `starting`."""
    with starting(are_copies=not forked.is_about_starts(request.path)) as begin:
        yield begin
