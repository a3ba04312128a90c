"""Time for which something is waited for, but for that in which nothing could happen: the process was stopped, or frozen.

No clock of the system leaves that out. What was waited for was frozen too, or nobody looked at what it did.
"""

import time
from collections.abc import Callable

LOOK_SECONDS = 0.25
"""How often whoever has patience looks how much of it is left, at least."""

MOST_SECONDS = 2 * LOOK_SECONDS
"""As what a longer time between two looks counts."""


class Patience:
    """So many seconds from now on, of which those do not count in which this process did not run.

    Args:
        seconds: how many.
        clock: tells the time, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock = seconds, clock
        self._looked = clock()

    def left(self) -> float:
        """How many seconds are left, 0 if none. To be asked at least every `LOOK_SECONDS`."""
        now = self._clock()
        self._left = max(self._left - min(now - self._looked, MOST_SECONDS), 0.0)
        self._looked = now
        return self._left

    def pause(self) -> float:
        """For how many seconds to wait at most before it is asked again; 0 if none are left."""
        return min(self.left(), LOOK_SECONDS)
