"""The texts of `_stat` and its like: the bus as it is when somebody opens one, written down between the requests of others.

The one rule: one at a time. Who opens one while a text is being made waits for the next, with all others who have come
meanwhile, and they get the same. So whoever opens thousands makes nobody wait longer than for two.
"""

import gc
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping

import futebus
from futebus.core import stat
from futebus.core.bus import Bus
from futebus.host.logs import tell_error
from futebus.host.processes import told_of

from .files import OpenStat
from .turns import Turns

log = logging.getLogger(__name__)


LAST_SECONDS = 0.3
"""How long is still written when the bus ends."""

STEP_SECONDS = 0.0005
"""How long is written at once."""

WAYS = {b"_metrics": stat.as_metrics, b"_stat.json": stat.for_programs, b"_stat": stat.for_people}
"""How each of the files is written; first what takes least time."""


class Snapshots:
    """Makes the texts.

    Args:
        bus: the bus.
        turns: where the work is put.
        mountpoint: where the bus is mounted.
    """

    def __init__(self, bus: Bus, turns: Turns, mountpoint: str) -> None:
        self._bus = bus
        self._turns = turns
        self._mountpoint = mountpoint
        self._began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._next: dict[OpenStat, Callable[[], Mapping[str, int]]] = {}
        """Who waits for a snapshot that has not been begun, and tells what the daemon keeps."""
        self._now: dict[OpenStat, None] = {}
        """Who waits for the one that is being made."""
        self._work: Generator[None] | None = None
        """That."""
        self._taking: stat.Taking | None = None
        """The record that it is made from."""
        self._is_put_off = False
        """Whether it goes on in its turn."""
        self._is_ending = False

    def end(self) -> None:
        """The bus ends. What is not written down soon never is: who waits for it gets `EIO`."""
        end = time.monotonic() + LAST_SECONDS
        while (self._work or self._next) and time.monotonic() < end:
            self._go_on()
        self._is_ending = True
        self._stop()
        for file in [*self._now, *self._next]:
            file.fail()
        self._now.clear()
        self._next.clear()

    def take(self, file: OpenStat, counts: Callable[[], Mapping[str, int]]) -> None:
        """Has the text of a file made: of this moment, or of the one when the text that is being made is done.

        Args:
            file: which has just been opened.
            counts: tells what the daemon keeps.

        Raises:
            Exception: it cannot be made, for want of memory say.
        """
        if self._is_ending:
            file.fail()
            return
        self._next[file] = counts
        # What nobody waits for any more is not made.
        file.on_close = self._drop
        if self._work is None:
            try:
                self._begin()
            except BaseException:
                # Who opens it is told so by this. Others may have waited for the next one, and be without the first by now.
                self._next.pop(file, None)
                self._now.pop(file, None)
                self._end_now()
                raise
            if not self._is_put_off:
                self._is_put_off = True
                self._turns.put(self._go_on, "_stat")

    def _drop(self, file: OpenStat) -> None:
        self._next.pop(file, None)
        if file in self._now:
            del self._now[file]
            if not self._now:
                self._stop()

    def _stop(self) -> None:
        """Nobody waits for what is being made, or it cannot be made."""
        if self._taking:
            self._taking.end()
        self._taking = self._work = None

    def _begin(self) -> None:
        """Begins with the next snapshot: its moment is now."""
        self._now, counts = dict.fromkeys(self._next), [*self._next.values()]
        self._next.clear()
        self._taking = stat.Taking(self._bus, time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) - self._began)
        daemon = stat.Daemon(futebus.__version__, self._mountpoint, os.getpid(), counts[-1](), command_name)
        self._work = self._make(self._taking, daemon)

    def _make(self, taking: stat.Taking, daemon: stat.Daemon) -> Generator[None]:
        """Takes a snapshot and writes its texts, and comes back now and then."""
        record = yield from taking.steps()
        for name, write in WAYS.items():
            if any(file.name == name for file in self._now):
                text = bytearray()  # of one piece from the beginning: to join megabytes in the end would take too long at once
                for piece in write(record, daemon):
                    text += piece.encode()
                    yield
                for file in [file for file in self._now if file.name == name]:
                    file.finish(text)
                    while file.answer():
                        yield
                    self._now.pop(file, None)

    def _go_on(self) -> bool:
        """Does half a millisecond's worth. Returns whether there is more."""
        self._is_put_off = False  # should something come out of this
        try:
            self._is_put_off = self._step()
            return self._is_put_off
        finally:
            # To look for garbage among the thousands of young objects that this makes would take several milliseconds. By this
            # they are old ones, at no cost.
            gc.freeze()
            gc.unfreeze()

    def _step(self) -> bool:
        end = time.monotonic() + STEP_SECONDS
        try:
            if self._work:
                for _ in self._work:
                    if time.monotonic() > end:
                        return True
        except Exception:  # there is no memory for so much text, for example
            self._fail()
        self._stop()
        if self._next:
            try:
                self._begin()
            except Exception:
                self._fail()
        return self._work is not None

    def _fail(self) -> None:
        tell_error(log, lambda: "internal error in the text of _stat")
        self._end_now()

    def _end_now(self) -> None:
        """Those who wait for what is being made get no text."""
        self._stop()
        for file in self._now:
            file.fail()
        self._now.clear()


def command_name(pid: int) -> bytes:
    """The name of a process's command, as its process has set it; empty if it is gone or hidden from us."""
    return told_of(pid, "comm").removesuffix(b"\n")
