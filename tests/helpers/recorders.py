"""Fixtures: small disks, buses that come back, and recorders."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .mounts import Mount
from .programs import Start
from .waiting import DEADLINE, until

RECORD = [sys.executable, "-m", "futebus.commands.record"]

PATIENT = [
    sys.executable,
    "-c",
    f"""
import sys
from futebus.commands.record import main
from futebus.recorder import publishing
publishing.START_SECONDS = publishing.ANSWER_SECONDS = {DEADLINE}
sys.exit(main())
""",
]
"""A recorder that waits at its start as long for the stream as a test does. Who is refused late goes on recording otherwise."""

LASTING = [
    sys.executable,
    "-c",
    f"""
import sys
from futebus.commands.record import main
from futebus.recorder import holder, process, publishing
process.FINISH_SECONDS = publishing.END_SECONDS = holder.END_SECONDS = {DEADLINE}
sys.exit(main())
""",
]
"""A recorder that ends when the stream has all, though its machine stands still for a moment."""

TIRED = [
    sys.executable,
    "-c",
    """
import sys
from futebus.commands.record import main
from futebus.recorder.holder import Holder
made = Holder.__init__
def __init__(self, *given):
    made(self, *given)
    self._brief_lives = 100_000
Holder.__init__ = __init__
sys.exit(main())
""",
]
"""A recorder whose drains have died all night, each one at once."""

PUBLISHER = "futebus-publish"
"""What the process that publishes calls itself."""

Remounting = Callable[[Mount], Mount]


@contextlib.contextmanager
def disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of this size, as tmpfs(5) has it."""
    directory = place / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with disk(place, "8m") as directory:
        yield directory


@pytest.fixture
def remounting(place: Path) -> Iterator[Remounting]:
    """Kills the daemon of a bus outright, and mounts another one in its place."""
    mounts: list[Mount] = []

    def remount(bus: Mount) -> Mount:
        bus.daemon.kill()
        bus.daemon.wait()
        bus.was_killed = True
        mounts.append(Mount(bus.path, place / f"again{len(mounts)}.log", command=None))
        return mounts[-1]

    yield remount
    for mount in mounts:
        mount.unmount()
    for mount in mounts:
        mount.discard()


class Recorder:
    """A `futebus-record` that runs, and both of its processes."""

    def __init__(self, process: "subprocess.Popen[str]", spool: Path, log: Path) -> None:
        self.process = process
        self.spool = spool
        self._log = log

    @property
    def words(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.words, f"it says {words!r}")

    @property
    def holder(self) -> int:
        """The process that holds the channel."""
        return int((self.spool / "lock").read_text() or 0)

    def drain(self) -> int:
        """The process that takes the lines. Waits until there is one."""
        return self._child("the drain", lambda name: name != PUBLISHER)

    def publisher(self) -> int:
        """The process that publishes them. Waits until there is one."""
        return self._child("the publisher", lambda name: name == PUBLISHER)

    def _child(self, what: str, is_it: Callable[[str], bool]) -> int:
        found: list[int] = []

        def is_there() -> bool:
            found.clear()
            for entry in Path("/proc").iterdir():
                if entry.name.isdecimal() and parent_of(entry) == self.holder:
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        if is_it((entry / "comm").read_text().strip()):
                            found.append(int(entry.name))
            return len(found) == 1

        until(is_there, f"there is {what}")
        return found[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and sees that it ends as it should."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == 0, self.words
        assert "Traceback" not in self.words


def parent_of(entry: Path) -> int | None:
    """The parent of a process that lives, by its directory in /proc."""
    try:
        # Bytes: somebody else's process may be called anything.
        state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == b"Z" else int(parent)


def is_alive(pid: int) -> bool:
    return parent_of(Path("/proc") / str(pid)) is not None


Recording = Callable[..., Recorder]


@pytest.fixture
def recording(place: Path, start: Start) -> Recording:
    """Starts recorders: `recording(channel, "--sync", "0", ...)`. They are ready when they are returned."""
    count = 0

    def record(channel: Path, *options: str, spool: Path | None = None, command: list[str] = RECORD, **popen: Any) -> Recorder:
        nonlocal count
        count += 1
        log = place / f"record{count}.log"
        with log.open("w") as stream:
            recorder = Recorder(
                start(*command, *options, channel, spool or place / "spool", stderr=stream, **popen),
                spool or place / "spool",
                log,
            )
        until(lambda: recorder.process.poll() is not None or "recording " in recorder.words, "it records")
        assert recorder.process.poll() is None, recorder.words
        return recorder

    return record


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Kills a process, and waits until it is dead."""
    os.kill(pid, number)
    until(lambda: not is_alive(pid), f"process {pid} is dead")


def fill(ballast: Path) -> None:
    """Fills a disk."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
