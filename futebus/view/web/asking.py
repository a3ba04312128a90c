"""A bus is asked, and trio waits.

The one rule: a bus that hangs has nobody who waits for it longer than `ANSWER_SECONDS`. All who ask at the same time get the same
answer.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import trio

from ...host.mounted import NoBus
from .. import asking
from ..errands import NOT_ANSWERING, PATIENCE, NotAnswering

__all__ = ["ANSWER_SECONDS", "NOT_ANSWERING", "NotAnswering", "Question"]

T = TypeVar("T")

ANSWER_SECONDS = PATIENCE


class Question(Generic[T]):
    """One call that may hang.

    Args:
        mountpoint: of the bus.
        ask: the call.
        keeps_last: whether what was answered last is kept.
    """

    def __init__(self, mountpoint: Path, ask: Callable[[], T], *, keeps_last: bool = False) -> None:
        self._keeps_last = keeps_last
        self._question = asking.Question(mountpoint, ask, self._tell)
        self._news = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._last: T | None = None

    def begin(self) -> asking.Call[T]:
        """Has it asked, unless it is being asked already."""
        self._token = trio.lowlevel.current_trio_token()
        return self._question.begin()

    @property
    def last(self) -> T | None:
        """What was answered last."""
        if call := self._question.take():
            self._keep(call)
        return self._last

    async def answer(self) -> T:
        """What is answered.

        Raises:
            NotAnswering: it has not come in time.
            NoBus: there is no bus.
        """
        await trio.lowlevel.checkpoint()
        call = self.begin()
        with trio.move_on_after(max(call.began + ANSWER_SECONDS - time.monotonic(), 0.0)):
            while not call.is_over:
                await self._news.wait()
        if not call.is_over:
            raise NotAnswering
        if self._question.call is call:
            self._question.take()
            self._keep(call)
        return call.answer

    def _keep(self, call: asking.Call[T]) -> None:
        self._last = None
        if not self._keeps_last:
            return
        with contextlib.suppress(NoBus):
            self._last = call.answer

    def _tell(self) -> None:
        """In the thread, or where there could be none."""
        assert self._token
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()
