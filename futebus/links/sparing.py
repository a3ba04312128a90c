"""What is said of lines that others have sent, however many these are.

The one rule: each subject has so many sentences at a time, and the rest of its own is counted. So who sends nonsense neither
fills a log nor hides what is said of somebody else.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from ..core.text import counted, printable

FEW = 5
"""How many sentences on a subject are said at a time."""

SECONDS = 10.0
"""When more are."""

SUBJECTS = 200
"""On how many subjects at a time. Those that come then have one share together."""


class _Said(NamedTuple):
    begin: float
    sentences: int


class Sparing:
    """Says things of lines, sparingly. One thread has it.

    Args:
        warn: says a sentence.
        clock: a clock that never goes back.
    """

    def __init__(self, warn: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._warn, self._clock = warn, clock
        self._said: dict[str, _Said] = {}

    def warn(self, subject: str, words: str) -> None:
        """Says something of lines of a subject, or counts it."""
        if subject not in self._said and len(self._said) >= SUBJECTS:
            subject = ""
        said = self._said.get(subject) or _Said(self._clock(), 0)
        self._said[subject] = said._replace(sentences=said.sentences + 1)
        if said.sentences < FEW:
            self._warn(words)

    def tell(self, *, is_over: bool = False) -> None:
        """Says how many sentences were not said, of each subject for which it is time. To be called now and then.

        Args:
            is_over: whether nothing is said any more, and so it is time for all. Another thread may ask for that.
        """
        now = self._clock()
        for subject, said in [*self._said.items()]:
            if now - said.begin < SECONDS and not is_over:
                continue
            self._said.pop(subject, None)
            if said.sentences > FEW:
                where = printable(subject) if subject else "other subjects"
                self._warn(
                    f"{counted(said.sentences - FEW, 'more message')} of {where} had lines missing before, or that came again"
                )
