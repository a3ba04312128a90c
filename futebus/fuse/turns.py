"""What is not done at once: what takes long, and what has failed and must not.

One thread serves everybody. What one call of one client causes, thousands of answers or tens of thousands of lines to route,
would keep all others waiting. So it is done a millisecond's worth at a time, and between two such steps others are served.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

import trio

from futebus.host.logs import tell_error

log = logging.getLogger(__name__)

REQUESTS_SHARE = 4
"""While there are requests, they get so many times as long as each step took. A client's call is a few requests one after the
other, and others may have hundreds in front of each of them: with a step before each request, it would wait for hundreds."""

Step = Callable[[], bool]
"""Does a millisecond's worth of something. Returns whether there is more."""


class Turns:
    """What has been put off. Each gets its turn, one after the other.

    Args:
        is_waited_for: tells whether there are requests.
        hurry: is told whether something has been put off, when that changes.
    """

    def __init__(
        self, is_waited_for: Callable[[], bool] = lambda: False, hurry: Callable[[bool], object] = lambda is_hurried: None
    ) -> None:
        self._is_waited_for = is_waited_for
        self._hurry = hurry
        self._steps: deque[Step] = deque()
        self._idle = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        """How many things have been put off."""
        return len(self._steps)

    def put(self, step: Step) -> None:
        """Has something done in steps, the first of them later."""
        if not self._steps:
            self._hurry(True)
        self._steps.append(step)
        self._idle.unpark_all()

    def take(self) -> None:
        """Does the next step. One that fails is logged and ends, and the others go on."""
        step = self._steps.popleft()
        try:
            has_more = step()
        except Exception:
            tell_error(log, lambda: "internal error in what was put off")
        else:
            if has_more:
                self._steps.append(step)

    def finish(self) -> None:
        """Does everything at once: the bus ends."""
        while self._steps:
            self.take()

    async def run(self) -> None:
        """Does all there ever is to do."""
        while True:
            while not self._steps:
                self._hurry(False)
                await self._idle.park()
            begin = time.monotonic()
            self.take()
            end = time.monotonic()
            until = end + REQUESTS_SHARE * (end - begin)
            await trio.lowlevel.checkpoint()
            while self._is_waited_for() and time.monotonic() < until:
                await trio.lowlevel.checkpoint()


class Insisted:
    """What the kernel says once and never again: that a file is closed, that a node is forgotten.

    If something is wrong inside, with the memory that is left for example, it is tried again when the next such thing is done.
    """

    def __init__(self) -> None:
        self._failed: deque[Callable[[], object]] = deque()

    def do(self, what: Callable[[], object]) -> None:
        """Does something, and one of the things that have failed before."""
        try:
            what()
        except Exception:
            tell_error(log, lambda: "internal error in what must be done; it will be tried again")
            self._failed.append(what)
            return
        if self._failed:
            again = self._failed.popleft()
            try:
                again()
            except Exception:
                self._failed.append(again)
