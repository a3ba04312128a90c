"""Messages by which a stream is known: some of those that it had, and when it got each of them, to the nanosecond.

The one rule: times are the same or are not. Which one is earlier tells nothing: clocks are put back, and another server's is
behind. So of a stream that has lost its last messages, and given their numbers to others, the latest message that still has its
time tells up to where it has what it had.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from .state import State
    from .stream import Stream


class Numbered(Protocol):
    """What has the number of a message."""

    @property
    def sequence(self) -> int:
        """It."""


N = TypeVar("N", bound=Numbered)


class Mark(NamedTuple):
    """A message that a stream had."""

    sequence: int
    time: int
    """When the stream got it, in nanoseconds."""


def thinned(marks: Sequence[N]) -> tuple[N, ...]:
    """As many marks as are needed: the older, the fewer.

    Args:
        marks: the oldest first.

    Returns:
        The first and the last of them, and so many between that from any message back to the mark before, it is at most twice as
        far as to the message itself.
    """
    kept = list(marks[-1:])
    for mark, older in zip(marks[-2:0:-1], marks[-3::-1], strict=False):
        if marks[-1].sequence - older.sequence > 2 * (marks[-1].sequence - kept[-1].sequence):
            kept.append(mark)
    return (*marks[: len(marks) > 1], *reversed(kept))


def _backwards(begin: int, end: int) -> Iterator[int]:
    """Some of the numbers from `begin` up to `end`, the last first: twice as far from each other each time."""
    step = 1
    while end - step >= begin:
        yield end - step
        step *= 2


async def marked(stream: "Stream", before: Iterable[Mark], begin: int, end: int) -> tuple[Mark, ...]:
    """Marks of the messages from `begin` up to `end`, behind those that there are of the messages before.

    Raises:
        NatsError: see `Stream.stored`.
    """
    found = {}
    for number in _backwards(begin, end):
        there = await stream.stored(number)
        if there is not None and there[0] < end:
            found[there[0]] = Mark(*there)
    return thinned((*(mark for mark in before if mark.sequence < begin), *(found[number] for number in sorted(found))))


class Passed(NamedTuple):
    """What is known of all messages that a stream had, between two numbers, of some subjects."""

    since: int
    """From which number on."""
    latest: int
    """When it got the latest of them, in nanoseconds."""
    subjects: str = ">"
    """Which they are, perhaps with wildcards."""


async def kept(stream: "Stream", state: "State", marks: tuple[Mark, ...], end: int, passed: Passed | None = None) -> int:
    """Up to where a stream has what it had.

    Args:
        stream: it.
        state: what it has.
        marks: of what it had, the oldest first. What has been removed since then tells nothing.
        end: the number behind the last message that it had.
        passed: what is known of all messages up to that, if it is. Where those that were marked last have been removed, one that
            came later than all of these tells that it is another. One that came earlier tells nothing.

    Returns:
        `end`; or, if it has lost messages, the number behind the latest mark that it still has, or that of the first message that
        came later than all of those. If it has no mark, that of its first message; if nothing was marked, what numbers tell.

    Raises:
        NatsError: see `Stream.stored`.
    """
    is_lost = state.last + 1 < end
    for mark in reversed(marks):
        if not state.first <= mark.sequence <= state.last:
            continue
        there = await stream.stored(mark.sequence)
        if there is None or there[0] != mark.sequence:
            continue
        if there[1] == mark.time:
            return mark.sequence + 1 if is_lost else await _first_later(stream, mark.sequence + 1, end, passed)
        is_lost = True
    if not is_lost:
        return await _first_later(stream, state.first, end, passed)
    return min(state.first if marks else state.last + 1, end)


async def _first_later(stream: "Stream", begin: int, end: int, passed: Passed | None) -> int:
    """The number of the first message from one on that came later than all that are known; `end` if there is none before that.

    Those that a stream has lost were its last ones: so all behind the first of these came later, too.
    """
    if passed is None:
        return end
    found = await _first_after(stream, max(begin, passed.since), end, passed)
    # When it is known that some are others, so are all before them that came later than what is known.
    return await _first_after(stream, begin, found, passed) if found < end else end


async def _first_after(stream: "Stream", begin: int, end: int, passed: Passed) -> int:
    found, high = end, end
    while begin < high:
        middle = (begin + high) // 2
        there = await stream.stored(middle, passed.subjects)
        if there is None or there[0] >= end:
            high = middle
        elif there[1] > passed.latest:
            found, high = there[0], middle
        else:
            begin = there[0] + 1
    return found


async def newest(stream: "Stream", state: "State") -> Mark | None:
    """The last message that a stream has. Its last ones may have been removed.

    Raises:
        NatsError: see `Stream.stored`.
    """
    found, low, high = None, state.first, state.last
    at = high
    while low <= high:
        if (there := await stream.stored(at)) is None:
            high = at - 1
        else:
            found = Mark(*there)
            low = found.sequence + 1
        at = (low + high + 1) // 2
    return found
