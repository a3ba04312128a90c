"""Where to go on in a stream that may not be the one any more that was delivered.

The one rule: a number is not a message, and clocks step. A server that loses its power may lose its last messages and give their
numbers to others, and its clock may be behind then. So a message is the one that was written if it has its number and its exact
time. Which of two is earlier tells nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..core.text import counted, spanned
from ..nats.marks import Mark, Passed, kept
from ..nats.state import State
from ..nats.stream import Stream
from .progress import Progress, Reached


class Known(NamedTuple):
    """What is known of a stream before anything comes from it."""

    taken: int
    """The number of the last message that need not be delivered again."""
    told: int
    """Up to which number nothing needs to be said any more of messages that were removed."""
    is_new: bool = False
    """Whether nobody knows what it had behind the message that was taken last. So what it has not is nobody's loss."""


def removed(shown: str, count: int, subject: str | None) -> str:
    """What is said of messages that nobody can deliver any more.

    Args:
        shown: of which stream, for people.
        count: how many.
        subject: of which messages are delivered; None: all.
    """
    when = "they could be delivered" if subject is None else f"it was known whether they were of {subject}"
    return f"{counted(count, 'message')} of {shown} had been removed before {when}"


async def agreed(stream: Stream, state: State, reached: Reached, marks: tuple[Mark, ...] = ()) -> int:
    """The number up to which the stream has the messages that have been written, as far as is known; all behind may be others.

    Args:
        stream: which.
        state: what it has.
        reached: the last message that has been written.
        marks: some that have been written before it, the oldest first.

    Raises:
        NatsError: as for `Stream`.
    """
    # Where it is not known when the server had got that one, those before it tell; and if there are none, numbers alone.
    known_by = (*marks, Mark(reached.sequence, reached.time)) if reached.time else marks
    passed = Passed(reached.since, reached.latest, reached.subjects) if reached.since else None
    return await kept(stream, state, known_by, reached.sequence + 1, passed) - 1


async def known(stream: Stream, state: State, progress: Progress, warn: Callable[[str], object]) -> Known:
    """What need not be delivered again. Says what is another, and notes what is not there any more.

    What has become new must be begun anew: see `begin_anew`.

    Args:
        stream: which.
        state: what it has.
        progress: how far it has come.
        warn: says what goes wrong.

    Raises:
        NatsError: as for `Stream`.
    """
    reached = progress.reached if progress.reached.created == state.created else Reached()
    taken = reached.sequence
    if not progress.knows(state.created):
        if progress.has_known:
            warn(f"{stream.shown} is another stream than before: it is delivered from its beginning")
        return Known(taken, max(taken, state.first - 1), is_new=True)
    same = await agreed(stream, state, reached, progress.marks)
    if taken > state.last:
        warn(f"{stream.shown} has lost {spanned(state.last + 1, taken + 1, 'message')}, which had been delivered")
    if same < min(taken, state.last):
        warn(f"{stream.shown} has others than were delivered from message {same + 1} on: they are delivered")
    if same < taken:
        return Known(same, max(same, state.first - 1), is_new=True)
    progress.forget_behind(state.created, state.last)
    # What was removed before one that is being written was noted with it.
    seen = max(taken, progress.looked(state.created), min(reached.current - 1, state.last))
    progress.note(gone=range(seen + 1, state.first))
    told = max(seen, state.first - 1)
    progress.look(state.created, max(progress.looked(state.created), state.first - 1))  # which is noted once
    return Known(taken, told)


def begin_anew(state: State, taken: int, progress: Progress, subject: str | None, found: int = 0) -> int:
    """Notes what is known of a stream of which nothing was known behind some message.

    Of a first delivery, that is not to be done before something may come from it: one that is refused is none.

    Args:
        state: what it has.
        taken: the number of that message; 0: of all.
        progress: where it is noted.
        subject: of which messages are delivered; None: all.
        found: how many of these it has behind that message, as its server says; of no use if there is none.

    Returns:
        Up to which number nothing needs to be said of messages that were removed.
    """
    told, reached = max(taken, state.first - 1), progress.reached
    missing = state.removed
    if subject is not None:
        missing = 0  # what is missing between its messages is others', too, and not counted
    elif taken:  # what is missing before that message is in that number, too
        missing = min(missing, max(state.last - told - found, 0))
    if reached.created == state.created and taken < reached.sequence:  # what was written behind it is not there any more
        progress.look(state.created, told)
        progress.keep_known()
        time = next((mark.time for mark in progress.marks if mark.sequence == taken), 0)
        since = min(reached.since, taken + 1)
        progress.done(taken, time, since=since, missing=missing, missing_to=state.last, gone_from=0, gone_to=0)
    else:
        progress.note(missing=missing, missing_to=state.last, gone_from=0, gone_to=0)
    # Behind that note: as long as this one is not kept, another stream is not known, and is begun anew once more. Nor is anything
    # forgotten by which it is known that messages were lost, before one has gone back.
    progress.forget_behind(state.created, taken)
    progress.look(state.created, told)
    progress.keep_known()
    return told
