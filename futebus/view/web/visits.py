"""Threads that go where a user leads them: to a directory that he has named, to what the system says of his processes.

The one rule: each user has threads of his own, so where his hang, nobody else is kept waiting. There are only so many of them.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from .. import errands
from ..complaints import complain

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS = 1.0
"""How long one waits for what is found. What takes longer is there the next time."""

MOST_OF_USER = 8
"""How many threads may be under way for one user, in all buses together."""

MOST_OF_OTHERS = 24
"""How many may be under way for all users but root and who runs this. A user may have processes of thousands of others."""


class _Places:
    """How many threads are under way, and for whom."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Counter[int] = Counter()

    def take(self, user: int) -> bool:
        """Takes a place, if there is one."""
        with self._lock:
            others = sum(count for each, count in self._of.items() if is_other(each))
            if self._of[user] >= MOST_OF_USER or (is_other(user) and others >= MOST_OF_OTHERS):
                return False
            self._of[user] += 1
            return True

    def taken(self, user: int) -> int:
        """How many places a user has."""
        return self._of[user]

    def leave(self, user: int) -> None:
        """Gives it back."""
        with self._lock:
            self._of -= Counter({user: 1})


_places = _Places()


def is_other(user: int) -> bool:
    """Whether this is neither root nor who runs this."""
    return user not in (0, os.getuid())


class _Visit(Generic[T]):
    """One thread. The place for it has been taken.

    Args:
        user: for whom.
        ask: what it does.

    Raises:
        RuntimeError: there can be no more threads.
    """

    def __init__(self, user: int, ask: Callable[[], T]) -> None:
        self._user, self._ask = user, ask
        self._began = time.monotonic()
        self._is_over = threading.Event()
        self.found: T | None = None
        """What was found; None if it failed, or is not over."""
        errands.start(self._run)

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    @property
    def is_hung(self) -> bool:
        return not self.is_over and time.monotonic() > self._began + errands.PATIENCE

    def wait(self, seconds: float) -> None:
        self._is_over.wait(max(seconds, 0))

    def _run(self) -> None:
        try:
            self.found = self._ask()
        except Exception as error:
            complain(log, "internal error while it was looked at what a user has", error)
        finally:
            _places.leave(self._user)
            self._is_over.set()


class Visits(Generic[T]):
    """What is found of users, time after time. For each of them there is never a second thread before the first has come back."""

    def __init__(self) -> None:
        self._under_way: dict[int, _Visit[T]] = {}
        self._found: dict[int, T] = {}

    def find(self, asked: Mapping[int, Callable[[], T]]) -> Mapping[int, T]:
        """Looks again.

        Args:
            asked: by the users, what their threads do.

        Returns:
            What was found last of each; of one whose thread does not come back, nothing.
        """
        end = time.monotonic() + WAIT_SECONDS
        for user, ask in asked.items():
            if user not in self._under_way and _places.take(user):
                try:
                    self._under_way[user] = _Visit(user, ask)
                except (RuntimeError, MemoryError):
                    _places.leave(user)
        for visit in self._under_way.values():
            if not visit.is_hung:
                visit.wait(end - time.monotonic())
        for user, visit in [*self._under_way.items()]:
            if visit.is_over:
                del self._under_way[user]
            if visit.is_over or visit.is_hung:
                self._found.pop(user, None)
            if visit.found is not None:
                self._found[user] = visit.found
        self._found = {user: found for user, found in self._found.items() if user in asked}
        return self._found
