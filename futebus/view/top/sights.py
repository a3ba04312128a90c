"""Looking at buses again and again, each in threads of its own.

The one rule: nobody who looks waits for a bus. One that hangs has one thread waiting for it and no more, and the others go on.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.text import escape, printable
from ...host.mounted import NoBus
from ..asking import Question
from ..errands import NotAnswering
from ..looking import read
from ..shares import Shares
from ..there import There
from ..told import NAMED, Bounds, Look, parsed
from ..watching import Compared, Watch

STEP_BACK = 10
"""By how much looking is nicer than what is looked at (nice(2)): of a large bus there are megabytes to be understood."""

FORBIDDEN = (errno.EACCES, errno.EPERM)
"""How a bus answers that is for others."""


_NICE = os.getpriority(os.PRIO_PROCESS, 0)


def step_back() -> None:
    """Has this thread, and those that it starts, let others go first, who are what is looked at."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE + STEP_BACK)


class Sight:
    """A bus that is looked at.

    Args:
        mountpoint: where it is mounted, or will be.
        on_done: is called when a look has come to its end, in another thread.
    """

    def __init__(self, mountpoint: Path, on_done: Callable[[], object] = lambda: None) -> None:
        self.mountpoint = mountpoint
        self.name = escape(os.fsencode(mountpoint))
        """The mount point, fit to be shown. No other bus has it."""
        self.watch = Watch()
        self.look: Look | None = None
        """What was seen last; None if there is no bus now."""
        self.bounds = NAMED
        """How much it may have."""
        self.shares: Shares | None = None
        """What it may take of our time, with the others of its user."""
        self.keeps_text = False
        """Whether what the bus has told is kept as it is."""
        self.text = b""
        """That."""
        self.error: NoBus | None = None
        """Why there is nothing to be seen."""
        self.looks = 0
        """How many there have been."""
        self._question = Question(mountpoint, self._see, on_done)

    def hold_to(self, bounds: Bounds, shares: Shares | None) -> None:
        """From the next look on, it may have so much."""
        self.bounds, self.watch.most_past, self.shares = bounds, bounds.past, shares

    def begin(self) -> None:
        """Begins to look, unless the last look has not come to an end, or was not settled. Does not wait."""
        self._question.begin()

    def _see(self) -> tuple[bytes, Look, Compared]:
        step_back()
        text = read(self.mountpoint, most=self.bounds.bytes)
        with self.shares.looks.taken() if self.shares else contextlib.nullcontext():
            look = parsed(text, self.mountpoint, self.bounds)
        return text if self.keeps_text else b"", look, self.watch.compare(look)

    def settle(self) -> bool:
        """Takes what the last look has seen, if it has come to its end. Returns whether it has."""
        call = self._question.take()
        if call is None:
            return False
        try:
            self.text, self.look, compared = call.answer
            self.error = None
            self.watch.show(compared)
        except NotAnswering:
            self.text, self.look, self.error = b"", None, NoBus(f"the bus on {self.mountpoint} does not answer", None)
        except NoBus as error:
            self.text, self.look, self.error = b"", None, error
        self.looks += 1
        return True

    def wait(self, end: float) -> None:
        """Waits until the look has come to its end, until this time of the monotonic clock at most."""
        if call := self._question.call:
            call.wait(end - time.monotonic())

    @property
    def overdue(self) -> float:
        """For how many seconds the bus does not answer; 0 as long as that is nothing to speak of."""
        call = self._question.call
        return call.waited if call else 0.0

    @property
    def is_forbidden(self) -> bool:
        """Whether the bus is for others."""
        return self.error is not None and self.error.number in FORBIDDEN

    @property
    def words(self) -> str:
        """What is wrong with the bus, in a sentence fit to be shown; nothing if it can be seen."""
        if self.overdue:
            return f"the bus on {self.name} has not answered for {self.overdue:.0f} seconds"
        return printable(str(self.error)) if self.error else ""


class Sights:
    """The buses that are looked at: those that are named, or all that are in the mount table.

    Args:
        mountpoints: where buses are or will be; without any, what is in the mount table counts.
        on_done: is called when a look has come to its end, in another thread.
    """

    def __init__(self, mountpoints: Sequence[Path], on_done: Callable[[], object] = lambda: None) -> None:
        self.on_done = on_done
        self.are_named = bool(mountpoints)
        self.keep_text = False
        """Whether what buses tell is kept as it is: megabytes of each."""
        self._all = {path: Sight(path, self._tell) for path in mountpoints}
        self._there = There()

    def _tell(self) -> None:
        self.on_done()

    def begin(self, kept: Sight | None = None) -> None:
        """Looks at all buses. Does not wait for them.

        Args:
            kept: one that stays, whatever has become of it.
        """
        if not self.are_named:
            there = self._there.find()
            for path in there:
                if path not in self._all:
                    self._all[path] = Sight(path, self._tell)
                self._all[path].hold_to(self._there.bounds(path), self._there.shares(path))
            for path in self._all.keys() - there:
                if self._all[path] is not kept:
                    del self._all[path]
        for path, sight in self._all.items():
            self._there.note(path, is_refused=sight.is_forbidden)
            if self.are_named or self._there.is_due(path):
                sight.keeps_text = self.keep_text
                sight.begin()

    @property
    def left_out(self) -> int:
        """How many buses there are beside those that are looked at."""
        return self._there.left_out

    def settle(self) -> list[Sight]:
        """Takes what has been seen. Returns which buses were."""
        return [sight for sight in self._all.values() if sight.settle()]

    def wait(self, seconds: float) -> None:
        """Waits until all have answered, for so long at most; not for those of which it is known that they do not."""
        end = time.monotonic() + seconds
        for sight in self._all.values():
            if not sight.overdue:
                sight.wait(end)

    @property
    def shown(self) -> list[Sight]:
        """Those that are to be shown: those that were named, else those that one may enter, in the order of their names."""
        if self.are_named:
            return list(self._all.values())
        seen = [sight for sight in self._all.values() if (sight.looks or sight.overdue) and not sight.is_forbidden]
        return sorted(seen, key=lambda sight: sight.mountpoint)
