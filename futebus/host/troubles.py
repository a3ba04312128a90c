"""What keeps lines from getting on, and when that is said.

The one rule: who reads the log learns at once what is wrong now, and never gets a line for every try. So each sentence is said
when it is new, and then more and more seldom, and there are not many sentences that count as new.
"""

import time
from collections.abc import Callable

SAY_SECONDS = (60.0, 6 * 3600.0)
"""How soon, and later how seldom, the same is said again."""

MOST_SENTENCES = 8
"""How many are known apart until all is well again. The others share their time: somebody may put a number into each."""

MOST_RETURNS = 3
"""How often the same is new again that lasts for less than a minute, if all was well in between for less than that. Later it is
said each minute."""


class Troubles:
    """Troubles, from the first to the end of all.

    Args:
        clock: tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}
        """Sentences: when each is to be said again, and in how many seconds then."""
        self.is_well = True
        """Whether there is none."""
        self._since = 0.0
        """Since when that is so, or not."""
        self._returns = 0
        """How often all was well for a moment only, one after the other."""
        self._is_said = False
        """Whether one was said since all was well."""

    def is_due(self, sentence: str) -> bool:
        """Notes a trouble. Returns whether it is to be said now."""
        now = self._clock()
        if self.is_well:
            if now - self._since >= SAY_SECONDS[0]:
                self._known.clear()
                self._returns = 0
            self.is_well, self._since = False, now
        key = sentence if sentence in self._known or len(self._known) < MOST_SENTENCES else ""
        due, silence = self._known.get(key, (now, SAY_SECONDS[0]))
        if now < due:
            return False
        self._known[key] = now + silence, min(silence * 2, SAY_SECONDS[1])
        self._is_said = True
        return True

    def end(self) -> bool:
        """Notes that all is well. Returns whether that is to be said: what was wrong before was."""
        if not self.is_well:
            now, soon = self._clock(), SAY_SECONDS[0]
            self._returns = self._returns + 1 if now - self._since < soon else 0
            self._since = now
            if self._returns <= MOST_RETURNS:
                self._known.clear()
            self._known = {key: (min(due, now + soon), min(silence, soon)) for key, (due, silence) in self._known.items()}
        self.is_well, is_said, self._is_said = True, self._is_said, False
        return is_said
