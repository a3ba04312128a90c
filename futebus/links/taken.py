"""Lines that were taken from a stream."""

from typing import NamedTuple

from ..core.lines import end, lines
from ..nats import runs
from ..nats.handed import Handed
from ..nats.state import Message
from .progress import share_of, source_of


class Lines(NamedTuple):
    """Lines that wait for the channel."""

    created: str
    """When the stream was made that they are of."""
    sequence: int
    subject: str
    where: runs.Where | None
    source: str
    """Whose lines they are, by subject and spool, as `progress` knows it; "" if they have no numbers."""
    data: bytes
    handed: Handed
    removed: int = 0
    """How many messages are missing directly before."""

    @property
    def share(self) -> str:
        """What `progress` knows the subject by."""
        return share_of(self.subject)


def lines_of(created: str, message: Message, handed: Handed) -> Lines:
    """The lines of a message."""
    where = runs.read(message.headers)
    data = message.data
    if where and (not data.endswith(b"\n") or lines(data, 0, len(data)) != (where.lines, len(data))):
        where = None  # it says something else of its lines than is true
    if where is None:
        data = runs.outside(data)[1]
    source = source_of(message.subject, where.spool) if where else ""
    return Lines(created, message.sequence, message.subject, where, source, data, handed)


def offset(data: bytes, count: int) -> int:
    """Where the line begins behind so many."""
    return 0 if count <= 0 else end(data, 0, count)
