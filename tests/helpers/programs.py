"""Programs that a test starts, and that do not outlive it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .forked import Forked
from .processes import kill_all, members, stat_of
from .waiting import until
from .watching import WATCH

Start = Callable[..., "subprocess.Popen[str]"]


@contextlib.contextmanager
def starting() -> Iterator[Start]:
    """Starts programs, with pipes for their input and output. In the end they are killed, and what they started."""
    running: list[subprocess.Popen[str]] = []

    def begin(*command: str | Path, **popen: Any) -> "subprocess.Popen[str]":
        pipes = {name: popen.pop(name, subprocess.PIPE) for name in ("stdin", "stdout", "stderr")}
        popen.setdefault("env", {**os.environ, "LC_ALL": "C"})
        process = subprocess.Popen([str(word) for word in command], text=True, start_new_session=True, **pipes, **popen)
        running.append(process)
        WATCH.sessions.add(process.pid)
        return process

    try:
        yield begin
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # What they started may be in process groups of its own.
        kill_all(members(*(process.pid for process in running)))
        for process in running:
            process.communicate()
            WATCH.sessions.discard(process.pid)


@contextlib.contextmanager
def stopped(process: "subprocess.Popen[Any] | Forked") -> Iterator[None]:
    """A program does nothing meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: (stat := stat_of(str(process.pid))) is None or stat.state in "TZ", "it is stopped")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def start(place: Path) -> Iterator[Start]:  # they write there, and it is removed when they have ended
    """Starts programs that do not outlive the test: see `starting`."""
    with starting() as begin:
        yield begin
