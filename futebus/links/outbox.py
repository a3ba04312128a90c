"""What waits to be sent to a subject.

The one rule: it is bounded. When it is full, who reads the channel waits; and what cannot wait, or waits in vain, has the oldest
lines dropped for it, which are counted. What a server has been sent and has not confirmed stays too, and is sent again when
another connection is made.
"""

import threading
from collections import deque
from collections.abc import Callable

from .origin import Run, cut

WAITING_BYTES = 8 << 20
"""How much waits for a subject that is slow or away: as much as two queues of a bus mounted without options."""

ENTRY = 256
"""What a run takes in memory beside its bytes."""


class Outbox:
    """Runs of lines that wait for one subject. Threads may use it.

    Args:
        wake: is called, in whatever thread, when something is there again.
        freed: is called when there is place again.
        lost: is told how many lines were dropped.
        most: bytes that may wait.
    """

    def __init__(
        self, wake: Callable[[], object], freed: Callable[[], object], lost: Callable[[int], object], most: int = WAITING_BYTES
    ) -> None:
        self._wake = wake
        self._freed = freed
        self._lost = lost
        self._most = most
        self._lock = threading.Lock()
        self._runs: deque[Run] = deque()
        self._size = 0

    @property
    def has_place(self) -> bool:
        """Whether more can wait without anything being dropped."""
        return self._size < self._most

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._runs

    def put(self, run: Run) -> None:
        """Has lines wait. If there is place before, nothing is dropped, however much they are."""
        lost = 0
        with self._lock:
            was_empty, had_place = not self._runs, self.has_place
            self._runs.append(run)
            self._size += len(run.data) + ENTRY
            while self._size > self._most and not had_place:
                old = self._runs.popleft()
                self._size -= len(old.data) + ENTRY
                lost += old.count
        if lost:
            self._lost(lost)
        if was_empty:
            self._wake()

    def put_back(self, runs: list[Run]) -> None:
        """Has lines wait again in front of all others, which were taken before."""
        with self._lock:
            self._runs.extendleft(reversed(runs))
            self._size += sum(len(run.data) + ENTRY for run in runs)

    def take(self, most: int) -> Run | None:
        """Takes what waits longest: lines in a row of one origin, as many as one message may have.

        Args:
            most: bytes of a message.

        Returns:
            At most so many bytes, unless its one line is longer; None if nothing waits.
        """
        had_place = self.has_place
        run = self._take(most)
        if not had_place and self.has_place:
            self._freed()
        return run

    def _take(self, most: int) -> Run | None:
        with self._lock:
            if not self._runs:
                return None
            first = self._pop()
            if len(first.data) > most:
                pieces = list(cut(first, most))
                for piece in reversed(pieces[1:]):
                    self._runs.appendleft(piece)
                    self._size += len(piece.data) + ENTRY
                return pieces[0]
            together = [first]
            size, end = len(first.data), first.next
            while self._runs and self._runs[0].origin == first.origin and self._runs[0].first == end:
                if size + len(self._runs[0].data) > most:
                    break
                together.append(run := self._pop())
                size += len(run.data)
                end = run.next
        if len(together) == 1:
            return first
        return Run(first.origin, first.first, end - first.first, b"".join(run.data for run in together))

    def _pop(self) -> Run:
        run = self._runs.popleft()
        self._size -= len(run.data) + ENTRY
        return run

    def clear(self) -> int:
        """Drops all that waits. Returns how many lines that was."""
        with self._lock:
            count = sum(run.count for run in self._runs)
            self._runs.clear()
            self._size = 0
        return count
