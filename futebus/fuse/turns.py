"""What is not done at once: what takes long, and what has failed and must not.

One thread serves everybody. What one call of one client causes, thousands of answers or tens of thousands of lines to route,
would keep all others waiting. So it is done a millisecond's worth at a time, and between two such steps others are served.
"""

import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

import trio

from futebus.host.logs import tell_error

log = logging.getLogger(__name__)

REQUESTS_SHARE = 4
"""While there are requests, they get so many times as long as what was put off. A client's call is a few requests one after the
other, and others may have hundreds in front of each of them: with a step before each request, it would wait for hundreds."""

Step = Callable[[], bool]
"""Does a millisecond's worth of something. Returns whether there is more."""


class Turns:
    """What has been put off. Whoever has something in here has his turn, and with each turn one step of it is done.

    Args:
        is_waited_for: tells whether there are requests.
        hurry: is told whether something has been put off, when that changes.
        clock: tells the time, in seconds.
    """

    def __init__(
        self,
        is_waited_for: Callable[[], bool] = lambda: False,
        hurry: Callable[[bool], object] = lambda is_hurried: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_waited_for = is_waited_for
        self._hurry = hurry
        self._clock = clock
        self._steps: OrderedDict[Hashable, deque[Step]] = OrderedDict()
        """By whose they are; who is first has his turn next."""
        self._idle = trio.lowlevel.ParkingLot()
        self.is_finishing = False
        """Whether all is done at once: what fails then is not tried again."""

    def __len__(self) -> int:
        """How many things have been put off."""
        return sum(map(len, self._steps.values()))

    def put(self, step: Step, whose: Hashable = None) -> None:
        """Has something done in steps, the first of them later.

        Args:
            step: what.
            whose: who has his turn with it. Nobody has more of them because he has put off more.
        """
        if not self._steps:
            self._hurry(True)
        self._steps.setdefault(whose, deque()).append(step)
        self._idle.unpark_all()

    def take(self) -> None:
        """Does the next step. One that fails is logged and ends, and the others go on."""
        whose = next(iter(self._steps))
        steps = self._steps[whose]
        step = steps.popleft()
        has_more = False
        try:
            has_more = step()
        except Exception:
            tell_error(log, lambda: "internal error in what was put off")
        if has_more:
            steps.append(step)
        if steps:  # the step may have put off more
            self._steps.move_to_end(whose)
        else:
            del self._steps[whose]

    def finish(self) -> None:
        """Does everything at once: the bus ends."""
        self.is_finishing = True
        while self._steps:
            self.take()

    async def run(self) -> None:
        """Does all there ever is to do."""
        owed = 0.0
        while True:
            while not self._steps:
                self._hurry(False)
                owed = 0.0
                await self._idle.park()
            now = self._clock()
            # Requests come in runs of some milliseconds. After such a run, several short steps are due.
            while self._steps and owed <= 0:
                with contextlib.suppress(MemoryError):  # then again
                    self.take()
                before, now = now, self._clock()
                owed += REQUESTS_SHARE * (now - before)
            await trio.lowlevel.checkpoint()
            while (is_waited_for := self._is_waited_for()) and self._clock() - now < owed:
                await trio.lowlevel.checkpoint()
            owed = owed - (self._clock() - now) if is_waited_for else 0.0


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
