"""A bus is asked, again and again.

The one rule: there is never a second call before the first has come back, unless what that hangs in has gone.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from ..core.text import clipped
from ..host.mounted import NoBus
from .complaints import complain
from .errands import PATIENCE, Errand, NotAnswering

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_WORDS = 200
"""Characters of what is said of an error."""


class Call(Generic[T]):
    """One call, which is under way or has come back.

    Args:
        mountpoint: of the bus.
        ask: the call.
        on_end: called when it has come back, mostly in another thread.
    """

    def __init__(self, mountpoint: Path, ask: Callable[[], T], on_end: Callable[[], object]) -> None:
        self.began = time.monotonic()
        self._mountpoint, self._ask, self._on_end = mountpoint, ask, on_end
        self._answer: T | NoBus | None = None
        self._ended = 0.0
        self._is_over = threading.Event()
        self.errand = Errand(mountpoint)
        try:
            self.errand.send(self._run)
        except NoBus as error:
            self._end(error)

    @property
    def is_over(self) -> bool:
        """Whether it has come back."""
        return self._is_over.is_set()

    @property
    def is_stale(self) -> bool:
        """Whether it has come back so long ago that what was answered counts no more."""
        return self.is_over and time.monotonic() - self._ended > PATIENCE

    @property
    def waited(self) -> float:
        """For how many seconds the bus does not answer; 0 as long as that is nothing to speak of."""
        waited = 0.0 if self.is_over else time.monotonic() - self.began
        return waited if waited > PATIENCE else 0.0

    @property
    def answer(self) -> T:
        """What was answered.

        Raises:
            NoBus: there is no bus.
        """
        # A new one each time: several may ask, and each adds to the traceback of what is raised.
        if isinstance(self._answer, NotAnswering):
            raise NotAnswering
        if isinstance(self._answer, NoBus):
            raise NoBus(str(self._answer), self._answer.number)
        assert self._answer is not None
        return self._answer

    def wait(self, seconds: float) -> None:
        """Waits until it has come back, for so long at most."""
        self._is_over.wait(max(seconds, 0))

    def _run(self) -> None:
        try:
            self.errand.arrive()
            self._end(self._ask())
        except NoBus as error:
            self._end(error)
        except (OSError, MemoryError) as error:
            why = clipped(str(error) or type(error).__name__, MOST_WORDS)
            self._end(NoBus(f"the bus on {self._mountpoint} cannot be looked at: {why}", None))
        except Exception as error:
            complain(log, "internal error while a bus was looked at", error)
            self._end(NoBus(f"the bus on {self._mountpoint} cannot be looked at: {type(error).__name__}", None))

    def _end(self, answer: T | NoBus) -> None:
        self._answer, self._ended = answer, time.monotonic()
        self._is_over.set()
        self._on_end()


class Question(Generic[T]):
    """What a bus is asked, again and again.

    Args:
        mountpoint: of the bus.
        ask: the call. It may hang.
        on_end: called when one has come back, mostly in another thread.
    """

    def __init__(self, mountpoint: Path, ask: Callable[[], T], on_end: Callable[[], object] = lambda: None) -> None:
        self._mountpoint, self._ask, self._on_end = mountpoint, ask, on_end
        self.call: Call[T] | None = None
        """The last one."""

    def begin(self) -> Call[T]:
        """Has the bus asked, unless that is being done, or what was answered a moment ago has not been taken. Does not wait."""
        call = self.call
        if call is None or call.is_stale or (call.waited and call.errand.is_forlorn):
            self.call = call = Call(self._mountpoint, self._ask, self._on_end)
        return call

    def take(self) -> Call[T] | None:
        """Takes the call that has come back, if there is one that was not taken yet."""
        call = self.call
        if call is None or not call.is_over:
            return None
        self.call = None
        return call
