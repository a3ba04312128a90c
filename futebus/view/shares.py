"""How much of our time the buses of others may take.

The one rule: what one user's buses tell takes a share of a processor and no more, and one of them is understood at a time. Python
does one thing at a time: else whoever mounts as many as are looked at, each as large as one may be, leaves nothing for what shows
all the others.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

SHARE = 0.125
"""Seconds of a processor in a second, for the buses of one user."""

MOST_LEFT = 2.0
"""Seconds of a processor that a user may have left: so long, one has more. A bus of default limits that is full takes half a
second."""


class Share:
    """What one user's buses may take of one thing that is done with them."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._noted = MOST_LEFT, time.monotonic()

    @property
    def left(self) -> float:
        """Seconds of a processor. When it is no more than nothing, his buses are left in peace for a while."""
        left, at = self._noted
        return min(left + (time.monotonic() - at) * SHARE, MOST_LEFT)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it was taken lately."""
        return self.left >= MOST_LEFT

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """What this thread does meanwhile is taken from it. It waits for its turn, and must not wait for a bus."""
        with self._turn:
            begun = time.thread_time()
            try:
                yield
            finally:
                self._noted = self.left - (time.thread_time() - begun), time.monotonic()


class Shares:
    """Of one user: what is done again and again on its own, and what is done when somebody asks, do not take from each other."""

    def __init__(self) -> None:
        self.looks = Share()
        self.metrics = Share()

    @property
    def are_whole(self) -> bool:
        """Whether nothing was taken of them lately."""
        return self.looks.is_whole and self.metrics.is_whole
