"""What a stream tells a query: how far it has come there, whether the stream has lost some of it, and what the stream takes.

The one rule: a stream that has fewer messages than it had confirmed, or another one in the place of ours, is not believed.
"""

import re
import socket
import sys
from typing import NamedTuple

from ...nats import runs, wanted
from ...nats.room import NoRoom, Room
from ...nats.state import Message, State
from ...nats.stream import Stream, placing
from .outlet import SinkError

BATCH, BEGIN, END = "Futebus-Batch", "Futebus-Batch-Begin", "Futebus-Batch-End"
"""Headers: of which batch of the query a message is; the number of the batch's first line; with the last message of a batch, that
of the line behind it."""

MOST = (1 << 63) - 1
"""The largest number of a batch or a line."""

QUERY_LETTERS = 36
"""How long the name is that Spark has for a query, a UUID."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Known(NamedTuple):
    """What the last message of a subject tells."""

    sequence: int
    """Its number; 0 if there is none."""
    is_ours: bool
    batch: int = -1
    begin: int = 0
    """The number of the first line of the batch."""
    next: int = 0
    """The number of the line behind the message."""
    is_whole: bool = False
    """Whether the batch is out."""
    is_marker: bool = False
    """Whether it is nobody's, but a sign that others have gone."""
    is_of_spool: bool = False
    """Whether it is of a recorder, or of another source that is no query."""


def _number(text: str) -> int | None:
    """A number that a header has; None if it is not one of ours, which the journal can have."""
    number = int(text) if _NUMBER.fullmatch(text) else MOST + 1
    return number if number <= MOST else None


def known_of(last: Message | None, query: str) -> Known:
    """What the last message of a subject tells a query."""
    where = runs.read(last.headers) if last is not None else None
    if last is None or where is None or where.spool != query:
        return Known(
            last.sequence if last is not None else 0,
            False,
            is_marker=last is not None and last.is_marker,
            is_of_spool=last is not None and where is not None and BATCH not in last.headers,
        )
    batch, begin = (_number(last.headers.get(name, "")) for name in (BATCH, BEGIN))
    if batch is None or begin is None or where.next > MOST:
        return Known(last.sequence, False)
    return Known(last.sequence, True, batch, begin, where.next, END in last.headers)


class Told(NamedTuple):
    """What a stream tells a query."""

    state: State
    known: Known
    most: int
    """Bytes that the next message may have beside its headers."""
    limit: str
    """What allows no longer ones."""


async def ask(stream: Stream, subject: str, query: str) -> Told:
    """Asks what a stream is and has, what the last message of a subject tells a query, and how long the next may be."""
    stream.room.expect(subject, _longest_headers(query, subject))
    state = await stream.state()
    stream.room.check(stream.shown)
    return Told(state, known_of(await stream.last(subject), query), stream.max_payload, stream.limit)


def _longest_headers(query: str, subject: str) -> dict[str, str]:
    """The headers of a message of a query, as long as they can be."""
    where = runs.longest(query, socket.gethostname(), subject)
    return {**runs.headers(where), BATCH: str(MOST), BEGIN: str(MOST), END: str(MOST)}


async def has_kept(stream: Stream, state: State, query: str, sequence: int, line: int) -> bool:
    """Whether a stream has lost no message that it had confirmed. Who removes some takes no numbers back.

    Args:
        stream: it.
        state: what it is now.
        query: who was told so.
        sequence: the number of the last such message.
        line: that of the line behind it.
    """
    if state.last < sequence:
        return False
    there = await stream.following(">", sequence)
    if there is None or there.sequence != sequence:
        return True
    found = known_of(there, query)
    return found.is_ours and found.next == line


def check_takes(shown: str, state: State, name: str, subject: str) -> None:
    """Sees that a stream takes what is published on a subject, and says so.

    Args:
        shown: where the stream is.
        state: what it is.
        name: its.
        subject: the subject.

    Raises:
        SinkError: it does not.
    """
    try:
        wanted.check_takes(shown, state)
        wanted.check_listens(shown, name, state, subject)
        room = Room(lambda: sys.maxsize, placing(name))
        room.expect(subject, _longest_headers("0" * QUERY_LETTERS, subject))
        room.limit(max_msg_size=state.max_message, max_bytes=state.max_bytes)
        room.check(shown)
    except (wanted.Unfit, NoRoom) as error:
        raise SinkError(str(error)) from None
