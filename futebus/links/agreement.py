"""Where to go on in a stream that may not be the one any more that was delivered.

The one rule: a number is not a message, and clocks step. A server that loses its power may lose its last messages and give their
numbers to others, and its clock may be behind then. So a message is the one that was written if it has its number and its exact
time. Which of two is earlier tells nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from ..core.text import counted
from ..nats.consumer import Consumer
from ..nats.errors import NatsError
from ..nats.marks import Mark, kept
from ..nats.state import State
from ..nats.stream import Stream
from .progress import Progress, Reached

AROUND_SECONDS = 20.0
"""How often it is asked how far a stream has come with messages of other subjects."""


class Known(NamedTuple):
    """What is known of a stream before anything comes from it."""

    taken: int
    """The number of the last message that need not be delivered again."""
    told: int
    """Up to which number nothing needs to be said any more of messages that were removed."""


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
    # A version has noted it that did not know when the server had got it: then numbers alone tell.
    known_by = (*marks, Mark(reached.sequence, reached.time)) if reached.time else ()
    return await kept(stream, state, known_by, reached.sequence + 1) - 1


async def known(stream: Stream, state: State, progress: Progress, subject: str | None, warn: Callable[[str], object]) -> Known:
    """What need not be delivered again. Says what is not there any more, or is another.

    Args:
        stream: which.
        state: what it has.
        progress: how far it has come.
        subject: of which messages; None: all.
        warn: says what goes wrong.

    Raises:
        NatsError: as for `Stream`.
    """
    reached = progress.reached
    taken = reached.sequence
    if not reached.created:
        return Known(taken, _told(state))  # what was removed before one has ever been here is nobody's loss
    if reached.created != state.created:
        warn(f"{stream.shown} is another stream than before: it is delivered from its beginning")
        return Known(0, _told(state))
    same = await agreed(stream, state, reached, progress.marks)
    if taken > state.last:
        warn(f"{stream.shown} has lost the messages {state.last + 1} to {taken}, which had been delivered")
    if same < min(taken, state.last):
        warn(f"{stream.shown} has others than were delivered from message {same + 1} on: they are delivered")
    progress.look(state.created, min(progress.looked, state.last if same == taken else same))
    if same < taken:
        return Known(same, state.last)
    seen = max(taken, progress.looked)
    if state.first > seen + 1:
        count = state.first - seen - 1
        warn(removed(stream.shown, count, subject))
        progress.look(state.created, state.first - 1)  # which is said once
    return Known(taken, max(seen, state.first - 1))


def _told(state: State) -> int:
    """Up to where a message that is missing was missing before anybody wanted it, as far as can be told."""
    return state.last if state.removed else state.first - 1


async def look_around(stream: Stream, state: State, consumer: Consumer, progress: Progress) -> None:
    """Notes up to where a stream has nothing for us that has not been written, though it gets other messages, for good.

    That is as far as it had come a while ago: the server that has the consumer may be a little behind the others.

    Args:
        stream: which.
        state: what it had when the consumer was made.
        consumer: brings what is for us.
        progress: where it is noted.
    """
    while True:
        with contextlib.suppress(NatsError):  # who takes messages meets it too, if it matters
            if await consumer.is_done():
                progress.look(state.created, state.last)
        await asyncio.sleep(AROUND_SECONDS)
        with contextlib.suppress(NatsError):
            state = await stream.state()
