"""What all trials share: a bus that must be as it was when they are done."""

import contextlib
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.helpers.mounts import SHOWN, Mount
from tests.helpers.waiting import until
from tests.helpers.watching import WATCH

Show = Callable[[str], None]
Counts = Counter[str]

CREATE = os.O_RDWR | os.O_CREAT


def silent(words: str) -> None:
    """Shows nothing."""


class Bus(Mount):
    """A bus for a trial, on a directory of its own in `place`."""

    def __init__(self, place: Path, *options: str, patience: float = 3600.0, command: list[str] | None = None) -> None:
        path = place / f"bus{len(list(place.iterdir()))}"
        path.mkdir()
        commands = {"command": command} if command else {}
        super().__init__(path, path.with_suffix(".log"), *options, patience=patience, **commands)
        self.before = self.first_look()

    def first_look(self) -> Mapping[str, int]:
        """What the daemon keeps at the beginning. Nothing is left mounted if it does not say."""
        try:
            return self.inside()
        except BaseException:
            self.discard()
            raise

    def memory(self, what: str = "VmRSS") -> int:
        """What /proc/PID/status tells of the daemon's memory, in bytes."""
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(status.partition(f"\n{what}:")[2].split(None, 1)[0]) * 1024

    def limit(self, what: int, value: int) -> None:
        """Sets a soft resource limit of the daemon; -1 for none."""
        resource.prlimit(self.daemon.pid, what, (value, resource.prlimit(self.daemon.pid, what)[1]))

    def wait_for_nobody(self) -> None:
        """Waits until all clients have closed."""
        until(lambda: not self.clients(), "all have closed")

    def remove_channels(self) -> None:
        """Removes all channels."""
        for name in os.listdir(self.path):
            if name not in SHOWN:
                with contextlib.suppress(OSError):
                    os.unlink(self / name)

    def expect_as_before(self) -> None:
        """Nothing is left of what was done: the daemon's own counts are what they were when it began."""
        self.remove_channels()
        last: Mapping[str, int] = {}

        def is_as_before() -> bool:
            nonlocal last
            # A name that is looked up in vain is forgotten by the kernel, which else keeps it while memory is plenty.
            for letter in "UASB":
                for name in (f"{letter}_x", f"{letter}_0", f"{letter}_1"):
                    for prefix in ("", "+", ".", "+."):
                        with contextlib.suppress(OSError):
                            os.stat(self / f"{prefix}{name}")
            last = self.inside()
            return last == self.before

        try:
            until(is_as_before)
        except AssertionError:
            raise AssertionError(f"left over: {last}; at the beginning it was {self.before}") from None


@contextlib.contextmanager
def mounted(place: Path, *options: str, command: list[str] | None = None) -> Iterator[Bus]:
    """A bus that must be as before at the end, and then go down in an orderly way. Nobody may have been stuck in it."""
    bus = Bus(place, *options, command=command)
    try:
        yield bus
        if not bus.was_killed:
            bus.expect_as_before()
            bus.unmount()
        WATCH.check()
    except Exception as error:
        # Whatever else went wrong comes of that.
        if found := WATCH.take():
            raise AssertionError("\n\n".join(found)) from error
        raise
    finally:
        bus.discard()


@contextlib.contextmanager
def programs() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts Python modules of this package, `start("stormy", ARGUMENTS...)`, and kills in the end those that are left."""
    running: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: object, **popen: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, "-m", f"tests.torture.{module}", *map(str, arguments)],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2], **popen},
        )
        running.append(process)
        return process  # type: ignore[no-any-return]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
