r"""Whose lines a message has, and which of them: two headers, `Futebus-Origin` and `Futebus-Line`.

The one rule: a line that somebody says on a bus gets its number there, once, and keeps it on its whole way. So who gets it on two
ways knows it again, whoever has brought it, and who has missed some knows how many. A message without these headers is an
outsider's: its lines have no numbers.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..core.lines import end as end_of
from ..core.lines import lines

ORIGIN, LINE = "Futebus-Origin", "Futebus-Line"

HEADER_BYTES = 128
"""What the headers take of a server's `max_payload`, at most: they have 94 bytes when the number has nineteen digits."""

ORIGINS = 10_000
"""How many origins are remembered, those last heard of: one for each start of a link elsewhere."""

ORIGIN_SECONDS = 600.0
"""For so long after it was last heard of, an origin is not forgotten for another one."""

MOST_LINES = 10**18
"""The highest number that a line may have."""

_NAME = re.compile(r"[0-9a-f]{16,32}")
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Run:
    """Lines in a row that were said on one channel of one bus."""

    origin: str
    first: int
    """The number of the first line. They are counted from 1."""
    count: int
    """How many lines they are."""
    data: bytes
    r"""The lines, none of them empty, each with its `\n`."""

    @property
    def next(self) -> int:
        """The number of the line behind them."""
        return self.first + self.count


def new_origin() -> str:
    """A name that nobody else has."""
    return secrets.token_hex(12)


def headers(run: Run) -> dict[str, str]:
    """The headers of a message that has these lines and no others."""
    return {ORIGIN: run.origin, LINE: str(run.first)}


def read(told: Mapping[str, str] | None, payload: bytes) -> Run | None:
    """What a message says.

    Args:
        told: its headers.
        payload: what else is in it.

    Returns:
        Its lines; None if it is an outsider's, or not what a link would send.
    """
    if not told:
        return None
    origin, first = told.get(ORIGIN, ""), told.get(LINE, "")
    if not _NAME.fullmatch(origin) or not _NUMBER.fullmatch(first):
        return None
    count, end = lines(payload, 0, len(payload)) if payload else (0, 0)
    run = Run(origin, int(first), count, payload)
    return run if end == len(payload) and run.next <= MOST_LINES else None


def is_probe(told: Mapping[str, str] | None, payload: bytes) -> bool:
    """Whether a message is only to find out whether it may be sent."""
    return bool(told) and not payload and ORIGIN in (told or {})


def cut(run: Run, most: int) -> Iterator[Run]:
    """Cuts a run at whole lines.

    Args:
        run: of any length.
        most: bytes that a piece may have.

    Returns:
        The pieces. A line that is longer than `most` is a piece by itself.
    """
    data, start, first = run.data, 0, run.first
    if len(data) <= most:
        yield run
        return
    while start < len(data):
        stop = len(data) if len(data) - start <= most else data.rfind(b"\n", start, start + most) + 1
        stop = stop or data.index(b"\n", start + most) + 1
        count, _ = lines(data, start, stop)
        yield Run(run.origin, first, count, data[start:stop])
        start, first = stop, first + count


class Seen:
    """How far the lines of each origin have come here.

    Args:
        clock: tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[str, tuple[int, float]] = {}
        """The number of the next line of an origin, and when it was heard of. Who was heard of last is the last."""

    def take(self, run: Run) -> tuple[Run | None, int, bool]:
        """Notes that lines have come.

        Returns:
            Those among them that have not come before, if there are any; how many before them have never come; and whether they
            would be known again. If not, since more origins than there can be have been heard of lately, they must not be handed
            on: in a ring they would go round for ever.
        """
        now = self._clock()
        known = self._next.pop(run.origin, None)
        if known is None and len(self._next) >= ORIGINS:
            oldest, (_, heard) = next(iter(self._next.items()))
            if now - heard < ORIGIN_SECONDS:
                return (run if run.count else None), 0, False
            del self._next[oldest]
        expected = known[0] if known else run.first
        if not run.count:  # where an origin begins, which is of use once
            self._next[run.origin] = expected, now
            return None, 0, True
        self._next[run.origin] = max(expected, run.next), now
        missed = max(0, run.first - expected)
        if run.next <= expected:
            return None, missed, True
        if run.first >= expected:
            return run, missed, True
        old = expected - run.first
        return Run(run.origin, expected, run.count - old, run.data[end_of(run.data, 0, old) :]), 0, True
