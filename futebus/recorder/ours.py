"""Whose a message of the subject is: of the spool that is published, or of another.

The one rule: a name proves nothing. A message is of this spool if the spool has its lines, under their numbers: an old copy of it
has the same name, and whoever may publish on the subject may use it.
"""

from typing import NamedTuple

from ..core.text import printable
from ..nats import runs
from ..nats.errors import NatsError
from ..nats.state import Message, State
from ..nats.stream import Stream
from ..spool import Spool
from .outgoing import has
from .target import Mark


class Foreign(NatsError):
    """What the subject has is not of this spool."""


def owner(message: Message) -> str:
    """Whose a message says to be, for people."""
    where = runs.read(message.headers)
    return printable(f"the spool {where.spool} of {where.host}:{where.channel}" if where else "no recorder")


class Ours(NamedTuple):
    """What a subject has of a spool."""

    spool: Spool
    stream: Stream
    subject: str

    def is_named(self, message: Message) -> bool:
        """Whether a message says that it has lines of the spool."""
        where = runs.read(message.headers)
        return where is not None and where.spool == self.spool.id

    def foreign(self, message: Message, remedy: str) -> Foreign:
        """The error that a message of others is the last.

        Args:
            message: it.
            remedy: what would go on behind it.
        """
        return Foreign(
            f"{self.stream.shown} has lines of {owner(message)} on {self.subject}: one publisher a subject;"
            f" if that one is gone for good, {remedy} goes on behind it"
        )

    async def last_before(self, stop: int) -> Message | None:
        """The last message of the spool before one of others: it may have published there, and have no note of it."""
        found, at = None, 1
        # What has no lines, and so mostly is new, has published none; and the others' messages may be many.
        while self.spool.end and (message := await self.stream.following(self.subject, at)) and message.sequence < stop:
            if self.is_named(message):
                found = message
            at = message.sequence + 1
        return found

    async def has_lost(self, state: State, mark: Mark) -> bool:
        """Whether the stream has lost a message, or never had it: it did not go by its limits, and nobody has removed it.

        A server that has lost its last messages gives their numbers to others.

        Args:
            state: what the stream is and has.
            mark: the message; behind it, 0 is no number of a line, and not known.
        """
        if not state.first <= mark.sequence <= state.last:
            return mark.sequence > state.last
        found = await self.stream.following(">", mark.sequence)
        if found is None or found.sequence != mark.sequence:
            return False
        if found.subject != self.subject:
            return True
        where = runs.read(found.headers)
        return mark.next > 0 and (where is None or where.spool != self.spool.id or where.next != mark.next)

    async def there(self, state: State, marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
        """Marks, the oldest first, without the last of them that the stream has lost: see `has_lost`."""
        while marks and await self.has_lost(state, marks[-1]):
            marks = marks[:-1]
        return marks

    def check(self, message: Message, where: runs.Where) -> None:
        """Sees that a message that is named so has lines of the spool, as far as that goes.

        Raises:
            Foreign: it has others.
        """
        is_of_use = 0 < where.lines == message.data.count(b"\n") and message.data.endswith(b"\n")
        if not is_of_use or (where.next <= self.spool.end and not has(self.spool, where.line, message.data)):
            raise Foreign(
                f"{self.stream.shown} has other lines than {self.spool.path} under its name, in message {message.sequence} of"
                f" {self.subject}: this is an old copy of that spool, or somebody else says to be it;"
                " a new spool can go on behind it, with --take-over"
            )
