"""What is done with lines that are in a spool: they get onto the disk in time, and old ones go, if no stream waits for them.

That there still is a spool is looked at each time, too: files that were removed take lines as before, and nobody would have them.

The one rule: who takes lines from the channel never waits for the disk. A thread does this.
"""

import math
import threading
import time

from ..host.troubles import Troubles
from ..spool import SpoolError, SpoolLock, SpoolWriter, remove_unopened
from ..spool.layout import IDENTITY
from .apart import begin
from .channel import Say
from .recording import Recording
from .target import kept_from

AGE_SECONDS = (1.0, 60.0)
"""How often, at most and at least, it is looked whether lines are too old."""


class Upkeep:
    """Has the spool's lines on the disk in time, and old ones removed.

    Args:
        spool: which one.
        lock: the right to write it.
        recording: how.
        say: is told what went wrong.

    Raises:
        OSError: the system has no room for a thread.
    """

    def __init__(self, spool: SpoolWriter, lock: SpoolLock, recording: Recording, say: Say) -> None:
        self._spool, self._lock, self._recording, self._say = spool, lock, recording, say
        # What the drain before has taken may not be on the disk yet: it is as new.
        self._end = self._first = -1
        self._looked = 0.0
        self._is_stopping = threading.Event()
        self._is_woken = threading.Event()
        self._is_woken.set()
        self._has_lines = True
        """Whether there are lines that may not be on the disk; it is woken with the first of them."""
        self._must_retain = False
        self._troubles = Troubles()
        self._failure: BaseException | None = None
        self._thread = begin(threading.Thread(target=self._work, daemon=True))

    def look(self) -> float | None:
        """Is called by the drain when there are lines, and when there are none. Returns in how many seconds to call it again."""
        if self._failure is not None:
            # Without upkeep the disk would fill up. The next drain begins anew.
            raise self._failure
        if self._spool.end != self._end:
            self._end = self._spool.end
            if not self._recording.sync:
                self._sync()
            elif not self._has_lines:
                self._has_lines = True
                self._is_woken.set()
        # With a stream, lines that were to go may go later, without anything new: when it has them.
        is_timed = self._recording.keep_age is not None or (
            self._recording.keep_bytes is not None and self._recording.to is not None
        )
        if self._spool.first != self._first or (is_timed and time.monotonic() - self._looked >= self._age_seconds):
            self._looked = time.monotonic()
            self._first = self._spool.first
            if self._recording.keep_age is not None:
                self._spool.end_old(self._recording.keep_age)
            self._must_retain = True
            self._is_woken.set()
        return self._age_seconds if is_timed else None

    def make_room(self) -> None:
        """Is called by the drain, again and again, while the spool has no room: what may go then goes at once."""
        if self._failure is not None:
            raise self._failure
        self._must_retain = True
        self._is_woken.set()

    @property
    def _age_seconds(self) -> float:
        least, most = AGE_SECONDS
        return min(max((self._recording.keep_age or 0) / 10, least), most)

    def _retain(self) -> None:
        if not _removes(self._recording):
            return
        try:
            self._spool.remove_old(
                size=self._recording.keep_bytes, age=self._recording.keep_age, until=_needed_from(self._recording, self._lock)
            )
            self._troubles.end()
        except (OSError, SpoolError) as error:
            words = f"{self._spool.path}: old lines cannot be removed: {_reason(error)}"
            if self._troubles.is_due(words):  # while the disk is full, it is tried each second
                self._say(words)

    def _work(self) -> None:
        # In a thread of its own: a slow disk should not make the channel wait.
        try:
            self._keep_up()
        except BaseException as error:
            self._failure = error

    def _keep_up(self) -> None:
        due = math.inf
        """When what was taken is to be on the disk."""
        while not self._is_stopping.is_set():
            self._is_woken.wait(None if due == math.inf else max(due - time.monotonic(), 0))
            self._is_woken.clear()
            if self._must_retain:
                self._must_retain = False
                self._retain()
            if self._recording.sync and self._has_lines and due == math.inf:
                due = time.monotonic() + self._recording.sync
            if time.monotonic() >= due:
                due = math.inf
                self._has_lines = False
                self._sync()

    def _sync(self) -> None:
        """Has everything on the disk, if that was asked for, and sees that the spool is there."""
        try:
            if self._recording.sync is not None:
                self._spool.sync()
        except (OSError, SpoolError) as error:
            self._say(f"{self._spool.path}: what was taken may not be on the disk: {_reason(error)}")
        self._lock.check()
        self._spool.check()
        if self._lock.keep():
            self._say(f"{self._spool.path / IDENTITY} was gone, or damaged; it is there again")

    def stop(self) -> None:
        """Has everything on the disk, unless that was not asked for.

        Raises:
            NotASpool: the spool is not there any more.
        """
        self._is_stopping.set()
        self._is_woken.set()
        self._thread.join()
        self._sync()


def make_room(recording: Recording, lock: SpoolLock) -> None:
    """Removes old lines from a spool that cannot be opened to write, since the disk is full.

    Args:
        recording: which one, and how.
        lock: the right to write it.

    Raises:
        OSError, SpoolError: as `SpoolWriter.remove_old`.
    """
    if _removes(recording):
        remove_unopened(
            recording.spool, lock, size=recording.keep_bytes, age=recording.keep_age, until=_needed_from(recording, lock)
        )


def _removes(recording: Recording) -> bool:
    """Whether lines go at all."""
    return recording.keep_bytes is not None or recording.keep_age is not None


def _needed_from(recording: Recording, lock: SpoolLock) -> int | None:
    """The number of the first line that is needed, whatever else is said: the stream may not have it."""
    return None if recording.to is None else kept_from(recording.spool, recording.to.place, lock.id)


def _reason(error: OSError | SpoolError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
