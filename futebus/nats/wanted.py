"""A stream as it is wanted: made if it is missing, and checked if it is there.

The one rule: nothing of a stream that is there is changed. If it is of no use for what is wanted, that is said.
"""

from typing import Any, NamedTuple

from .address import is_within
from .errors import NatsError, NoStream
from .state import State
from .stream import MOST_SEQUENCE, Stream

NAMES_SECONDS = 60.0
"""How long a stream of several servers should know the names of messages at least. What was under way is tried again when they
have a new leader, which takes some ten seconds, and as long again if the next one dies."""


class Unfit(NatsError):
    """A stream is there, and is not what is wanted."""


class Wanted(NamedTuple):
    """What a stream is to be."""

    subject: str | None
    """What it must listen to; None: whatever it does, and then it must be there."""
    listens: str | None = None
    """What it listens to if it is made; None: that subject alone."""
    replicas: int | None = None
    """How many servers are to have it; None: one if it is made, and any number otherwise."""
    max_bytes: int | None = None
    """How many bytes of the newest messages it keeps if it is made."""
    max_age: float | None = None
    """How many seconds it keeps messages if it is made."""
    is_published: bool = False
    """Whether messages are to be published in it, which others may read as long as its limits let them."""

    async def have(self, stream: Stream) -> State:
        """Makes the stream if it is missing, and checks it if it is there.

        Raises:
            NoStream: it is missing, and nobody has said what it would listen to.
            Unfit: it is not as it must be, or would not be if it were made.
            Refused: the server does not make it.
            Denied, Away: it does not let us, or does not answer.
        """
        try:
            state = await stream.state()
        except NoStream:
            listens = self.listens or self.subject
            if listens is None:
                raise
            if self.subject is not None and not is_within(self.subject, [listens]):
                # Before it is made: what is there is never changed.
                raise Unfit(f"{stream.shown} is not made: it would listen to {listens}, and not to {self.subject}") from None
            limits: dict[str, Any] = {"num_replicas": self.replicas, "max_bytes": self.max_bytes, "max_age": self.max_age}
            state = await stream.make([listens], **{name: value for name, value in limits.items() if value is not None})
        self._check(stream, state)
        return state

    def _check(self, stream: Stream, state: State) -> None:
        if max(state.first, state.last) > MOST_SEQUENCE:
            raise Unfit(f"{stream.shown} has used up its numbers, as a purge up to a wrong one does: it must be made anew")
        if self.is_published:
            check_takes(stream.shown, state)
            _check_keeps(stream, state)
        if self.subject is not None and (self.is_published or not state.is_fed):
            check_listens(stream.shown, stream.name, state, self.subject)
        if state.is_memory:
            raise Unfit(f"{stream.shown} is kept in memory, and is lost with its servers: one with file storage is needed")
        if self.replicas is not None and state.replicas < self.replicas:
            raise Unfit(f"{stream.shown} is on {state.replicas} of {self.replicas} servers that are wanted")


def check_takes(shown: str, state: State) -> None:
    """Sees that a stream takes what is published, and says so.

    Args:
        shown: where it is, for people.
        state: what it is.

    Raises:
        Unfit: it does not.
    """
    if state.mirrors:
        raise Unfit(f"{shown} is a mirror of the stream {state.mirrors}, and takes nothing else: publish in that one")
    if state.is_sealed:
        raise Unfit(f"{shown} is sealed, and takes nothing any more")
    if state.is_renaming:
        raise Unfit(
            f"{shown} keeps messages under other subjects than they come on (subject_transform): publish in one that does not"
        )
    if not state.is_acknowledging:
        raise Unfit(f"{shown} acknowledges nothing (no_ack), so nobody knows what it has: nats stream edit changes that")


def doubt(shown: str, state: State) -> str:
    """Why a stream that takes what is published may have some of it twice; "" if there is no reason.

    Args:
        shown: where it is, for people.
        state: what it is.
    """
    if state.replicas == 1 or state.names_seconds >= NAMES_SECONDS:
        return ""
    return (
        f"{shown} forgets the names of messages after {state.names_seconds:g} seconds (duplicate_window),"
        " so it may have lines twice when its servers have changed their leader: nats stream edit --dupe-window=2m changes that"
    )


def check_listens(shown: str, name: str, state: State, subject: str) -> None:
    """Sees that a stream listens to a subject.

    Args:
        shown: where it is, for people.
        name: its.
        state: what it is.
        subject: perhaps with wildcards.

    Raises:
        Unfit: it does not.
    """
    if not is_within(subject, state.subjects):
        raise Unfit(
            f"{shown} does not listen to {subject}, but to {' and '.join(state.subjects) or 'nothing'}:"
            f" nats stream edit {name} --subjects changes that"
        )


def _check_keeps(stream: Stream, state: State) -> None:
    """Sees that the stream keeps what is published, whether or not anybody has read it."""
    if state.retention != "limits":
        raise Unfit(
            f"{stream.shown} drops what has been read, or what nobody waits for (retention {state.retention}):"
            " one with retention limits is needed"
        )
