"""Somebody who writes to a channel for as long as that is accepted."""

import contextlib
import threading
import time
from pathlib import Path

from .waiting import DEADLINE

LINE = b"x" * 99 + b"\n"


class Insistent:
    """Writes to a U or S channel, in a thread, until its master takes no more.

    Args:
        channel: its path. It is open when this has been made.
        at_once: lines of one write(2).
        pause: seconds between two.
    """

    def __init__(self, channel: Path, at_once: int = 50, pause: float = 0.001) -> None:
        self._accepted, self._block, self._pause = 0, LINE * at_once, pause
        self._file = open(channel, "wb", buffering=0)  # noqa: SIM115 (the thread closes it)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._file, contextlib.suppress(ProcessLookupError):
            while True:
                self._accepted += self._file.write(self._block) // len(LINE)
                time.sleep(self._pause)

    def wait(self) -> int:
        """Waits until no more is taken. Returns how many lines were accepted."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        return self._accepted
