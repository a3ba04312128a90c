"""Which messages a stream has no more, of those between its first and its last.

The one rule: a list is believed if it is as long as the stream says that it must be. Otherwise the numbers of what is there are
looked at, of the range alone that is asked for, once: nothing less can be relied on. Servers that leave out some in their list
also count those as there that a new consumer would get (measured with 2.9.10).
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .fetching import removed

if TYPE_CHECKING:
    from .reader import Reader


class _Moment(NamedTuple):
    """While this is the same, nothing has been removed."""

    connection: int
    created: str
    first: int
    removed: int


class Missing:
    """What of a stream is missing, for who asks range by range.

    Args:
        reader: of the stream.
    """

    def __init__(self, reader: "Reader") -> None:
        self._reader = reader
        self._moment = _Moment(0, "", 0, 0)
        self._last = 0
        """The number of the last message at that moment. Of what came later nothing is missing."""
        self._listed: list[int] = []
        self._is_listed = True
        """Whether that list is all. A server that has told less than all over a connection is not asked again."""
        self._seen = (0, 0)
        """From which number to which, without it, all have been seen since that moment."""

    def first(self, begin: int, end: int) -> int | None:
        """The first number from `begin` up to `end` whose message was removed; None if there is none.

        Args:
            begin: not before the first message of the stream.
            end: not behind its last.
        """
        self._look()
        if self._is_listed:
            place = bisect_left(self._listed, begin)
            return self._listed[place] if place < len(self._listed) and self._listed[place] < end else None
        low, high = self._seen
        if not low <= begin <= high:
            low = high = begin
        stop = min(end, self._last + 1)
        if high < stop:
            at = high
            for number in self._there(at, stop):
                if number > at:
                    return at
                at = number + 1
            self._seen = low, stop
        return None

    def _there(self, begin: int, end: int) -> Iterator[int]:
        for message in self._reader.messages(begin, end, headers_only=True):
            yield message.sequence
        yield end

    def _look(self) -> None:
        state = self._reader.state()
        now = _Moment(self._reader.connections, state.created, state.first, state.removed)
        before = self._moment
        if now == before:
            return
        is_same = (now.connection, now.created) == (before.connection, before.created)
        # What is gone stays so. So the same are missing if as many are, without those that retention has reached.
        known = [number for number in self._listed if number >= state.first] if is_same else []
        if len(known) == state.removed:
            self._listed, self._is_listed = known, True
        elif self._is_listed or not is_same:
            found = self._reader.do(removed)
            self._listed, self._is_listed = found or [], found is not None
        self._moment, self._last, self._seen = now, state.last, (0, 0)
