"""A stream of JetStream: what it is, what it has, and what is added to it.

The one rule: a message is added behind one that is known, `Nats-Expected-Last-Subject-Sequence`. So of what became doubtful when
a connection failed the stream tells whether it has it, nothing comes twice or out of order, and who adds to a subject that
another adds to as well is told so, not silently mixed with him.

Clusters need a second word: a server that leads a stream compares that number with what has been stored, not with what is under
way to the others (measured with 2.9.10). While a majority was missing, what was tried again behind the same message came twice.
So a message has a name, too, `Nats-Msg-Id`, which is the same when it is tried again: of what is under way with that name a
second is not taken.

To compare, a server loads the last message of the subject, which costs it more than to store the new one. So who has added the
last message of the whole stream himself names that one, `Nats-Expected-Last-Sequence`: the server has this number at hand. And it
has its name, `Nats-Expected-Last-Msg-Id`: the number alone may be another's, when a server has lost its last messages behind a
connection that lives on. If it is not so any more, nothing is stored, and the message is added as above. Clusters are not asked
for it: some would remember the name of what they did not store.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import nats.errors
from nats.js.api import StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from ..core.text import printable
from .address import is_within
from .connection import PATIENCE, Connection
from .errors import Away, Denied, NatsError, NoStream
from .room import Room
from .state import Message, State, message_of, moment, state_of
from .transport import Payload

log = logging.getLogger(__name__)

MOST_SEQUENCE = (1 << 63) - 1
"""The largest number of a message."""

LAST = "Nats-Expected-Last-Subject-Sequence"
LAST_OF_ALL = "Nats-Expected-Last-Sequence"
LAST_NAME = "Nats-Expected-Last-Msg-Id"
STREAM = "Nats-Expected-Stream"
NAME = "Nats-Msg-Id"

_WRONG_LAST = (10071, 10070)
"""The errors of a message that is not behind the one that it names by its number, or its name."""

_UNDER_WAY = 10158
"""The error of a message whose name another has that is not stored yet, of servers from 2.10 on."""

NO_STREAM = 10059
"""The error of what is asked of a stream that is not there."""

_IN_USE = 10058
"""The error of a stream that is there already, and is another."""

_MOST_REMOVED = 5
"""How many of the same message may have been added before, and be gone: more, one after the other, are somebody's doing."""

_NEVER = (10052, 10074)
"""The errors of what no server does, though they say that it has failed (500): a stream that cannot be, and one on more servers
than there can be."""


class Overtaken(NatsError):
    """A message is not behind the one that it was to be behind: what is last of its subject is something else."""


class NotThere(Overtaken):
    """A message is not there that was confirmed: who listens to the subject can do that in the stream's place."""


class UnderWay(Away):
    """The same message was added before, and may not be stored yet: the stream tells, now or in a moment."""


class _Removed(UnderWay):
    """The same message was added before, and has been removed since.

    Args:
        words: as for `UnderWay`.
        sequence: the number that it had.
    """

    def __init__(self, words: str, sequence: int) -> None:
        super().__init__(words)
        self.sequence = sequence


class Refused(NatsError):
    """A server does not do what is wanted, and would not do it a second time."""


class Stream:
    """A stream, as a connection reaches it.

    Args:
        connection: to a server that has it.
        name: its.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.jetstream = connection.client.jetstream(timeout=PATIENCE)
        """It, as nats-py has it."""
        self._is_one_server = False
        """Whether one server alone keeps it."""
        self._is_refusing = False
        """Whether it refuses what it has no room for."""
        self.room = Room(lambda: connection.max_payload, placing(name))
        """What a message has room for. What the stream itself allows counts when its state was asked for."""
        self._created = ""
        """When it was made, as far as is known."""
        self._last = 0
        """The number of the last message that it is known to have, of whatever subject: the next one's is higher."""
        self._newest, self._newest_name = 0, ""
        """Number and name of the message that was sent last, if it came, or will come, directly behind the one before; else 0."""

    @property
    def max_payload(self) -> int:
        """Bytes that a message may have beside its headers."""
        return self.room.bytes

    @property
    def limit(self) -> str:
        """What allows no longer messages, for people."""
        return self.room.shown

    @property
    def shown(self) -> str:
        """Where it is, for people."""
        return f"{self.connection.server.shown}/{self.name}"

    async def state(self) -> State:
        """Asks what it is and has.

        Raises:
            NoStream: it is not there.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.sorted():
            return self._known(await self.jetstream.stream_info(self.name))

    def _known(self, info: StreamInfo) -> State:
        state = state_of(info)
        self._is_one_server, self._created, self._last = state.replicas == 1, state.created, state.last
        self._is_refusing = state.is_refusing
        self.room.limit(max_msg_size=state.max_message, max_bytes=state.max_bytes)
        return state

    async def make(self, subjects: list[str], **limits: Any) -> State:
        """Makes it, on disk, unless it is there.

        Args:
            subjects: what it listens to.
            limits: more of its configuration, as nats-py's `StreamConfig` has it: `num_replicas`, `max_bytes`, `max_age` (s).

        Returns:
            What it is then: nothing of one that is there is changed.

        Raises:
            NatsError: the server refuses it.
            Denied, Away: it does not let us, or does not answer.
        """
        with contextlib.suppress(NoStream):
            return await self.state()
        with self.sorted(f"{self.shown} cannot be made"):
            config = StreamConfig(name=self.name, subjects=subjects, storage=StorageType.FILE, **limits)
            try:
                return self._known(await self.jetstream.add_stream(config))
            except BadRequestError as error:
                if error.err_code != _IN_USE:
                    raise
        return await self.state()  # another was quicker

    async def last(self, subject: str) -> Message | None:
        """The last message of a subject; None if there is none, or no longer.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        # A server that is just making the stream dies of the question (2.9.10, in jsMsgGetRequest). It has no messages then.
        if not self._last and not (await self.state()).last:
            return None
        with self.sorted():
            try:
                return message_of(await self.jetstream.get_last_msg(self.name, subject))
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None

    async def following(self, subject: str, sequence: int) -> Message | None:
        """The first message of a subject that has this number, or a later one; None if there is none.

        Args:
            subject: perhaps with wildcards.
            sequence: the number.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.sorted():
            try:
                return message_of(await self.jetstream.get_msg(self.name, max(sequence, 1), subject, next=True))
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None

    async def stored(self, sequence: int, subject: str = ">") -> tuple[int, int] | None:
        """The first message from a number on: its number, and when the server got it, in nanoseconds; None if there is none.

        Args:
            sequence: the number.
            subject: of which messages, perhaps with wildcards.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.sorted():
            request = json.dumps({"seq": sequence, "next_by_subj": subject}).encode()
            try:
                told = await self.jetstream._api_request(f"$JS.API.STREAM.MSG.GET.{self.name}", request, timeout=PATIENCE)
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None
            return told["message"]["seq"], moment(told["message"]["time"])

    async def check_readable(self) -> None:
        """Sees that the server lets us ask for messages by their numbers, if it has any: none comes of that.

        Raises:
            Denied: it does not; or the connection is given up, see `Connection.while_open`.
            NatsError: as for `stored`.
        """
        if self._last:  # or else see `last`
            await self.stored(MOST_SEQUENCE)

    @property
    def is_alone(self) -> bool:
        """Whether the next message may be added while the last is on its way: it is stored directly behind that one, or not."""
        return self._is_one_server and self._newest > 0

    async def publish(
        self,
        subject: str,
        payload: Payload,
        headers: Mapping[str, str],
        behind: int,
        name: str,
        removed: Callable[[], object] = lambda: None,
        *,
        follows: bool = False,
    ) -> int:
        """Adds a message. When this returns, the stream has it on as many servers as it is to have.

        If it was added before, and the stream has removed it since, by its limits, by hand or since it was read, it is added
        again, by another name: that it was this message, and all of it, a name does not prove, which others see on its way. In
        a stream of several servers the name is what keeps it from being stored twice: there it is `UnderWay`, for so long.

        Args:
            subject: of it; the stream must listen to it.
            payload: at most `max_payload` bytes.
            headers: others than those that say where it belongs, as `room` expects them.
            behind: the number of the message of the same subject that is to be the last before it; 0 for none.
            name: what nothing else of this subject is called that comes behind that message, but this one when it is tried
                again. Who can tell it beforehand, and may publish elsewhere in the stream, can keep it out.
            removed: is called when it was added again.
            follows: whether the message before is on its way, and `behind` the number that it is to get. See `is_alone`.

        Returns:
            Its number.

        Raises:
            Overtaken: another message is the last of this subject. It may be this one: ask with `last`. Or it `follows`, and the
                stream has got another message, or did not take the one before; then it does not have this one.
            UnderWay: it was tried before, and is stored, or will be, or was given up: ask with `last`, and try again.
            Refused: the stream does not take it, or has another message of that name.
            NoStream: there is none that listens to the subject.
            Denied, Away: the server does not let us, or does not answer, or the stream is full and drops nothing. Whether it
                has the message nobody knows.
        """
        again = 0
        while True:
            try:
                sequence = await self._publish(subject, payload, headers, behind, name, follows=follows)
            except _Removed as error:
                if follows or again == _MOST_REMOVED:  # what is before it must be known first
                    raise
                again, name = again + 1, f"{name} {error.sequence}"
            else:
                if again:
                    removed()
                return sequence

    async def _publish(
        self, subject: str, payload: Payload, headers: Mapping[str, str], behind: int, name: str, *, follows: bool = False
    ) -> int:
        # Names are the stream's. With the number: who sends the same again because it is gone sends another message.
        told = {**headers, STREAM: self.name, NAME: _short(f"{subject} {name} {behind}")}
        newest, self._newest = self._newest, 0
        if self._is_one_server and behind and behind == newest:
            last = {LAST_OF_ALL: str(behind), LAST_NAME: self._newest_name}
            # The one before, and who hears that could give its name to something small, and confirm it in the stream's place.
            if self._is_refusing:
                last[LAST] = str(behind)
            self._newest, self._newest_name = behind + 1, told[NAME]  # what it is to get
            try:
                return await self._add(subject, payload, told | last, behind)
            except Overtaken:  # by a message of another subject, if it is not said again
                created = self._created
                if follows or (await self.state()).created != created:  # and more servers may keep it now
                    raise
        elif follows:
            raise Overtaken(f"{self.shown} has got something else")
        return await self._add(subject, payload, told | {LAST: str(behind)}, behind)

    async def _add(self, subject: str, payload: Payload, told: dict[str, str], behind: int) -> int:
        try:
            sequence = await self._added(subject, payload, told, behind)
        except BaseException:
            self._newest = 0
            raise
        if sequence != behind + 1:
            self._newest = 0
        elif self._newest <= sequence:  # else others follow it
            self._newest, self._newest_name = sequence, told[NAME]
        return sequence

    async def _added(self, subject: str, payload: Payload, told: dict[str, str], behind: int) -> int:
        last = self._last
        with self.sorted():
            try:
                done = await self.jetstream.publish(subject, payload, headers=told)  # type: ignore[arg-type] # an extent
            except APIError as error:
                if error.err_code in _WRONG_LAST:
                    raise Overtaken(f"{self.shown} has got something else on {subject}") from None
                if error.err_code == _UNDER_WAY:
                    raise UnderWay(f"{self.shown} has not stored yet what it was sent") from None
                raise
            except NoStreamResponseError:
                # Nobody has taken it: no stream listens to that, or the server that led this one has just died.
                with contextlib.suppress(NoStream):
                    if is_within(subject, (await self.state()).subjects):
                        raise Away(f"{self.shown}: no server leads it now") from None
                raise
            if done.duplicate:
                raise await self._tried_before(subject, done.seq, behind)
            if done.stream != self.name or type(done.seq) is not int or not max(behind, last) < done.seq <= MOST_SEQUENCE:
                raise Away(f"{self.shown}: somebody else has answered for it")  # whoever listens to the subject can
            return done.seq

    async def _tried_before(self, subject: str, sequence: int, behind: int) -> NatsError:
        """What has become of the message that has the name of ours.

        Args:
            subject: of ours.
            sequence: the number that it is said to have; of servers that do not know it yet, 0.
            behind: that of the message that it is to come behind.
        """
        words = f"{self.shown} has not stored yet what it was sent"
        if type(sequence) is int and 0 < sequence <= MOST_SEQUENCE:
            try:
                found = await self.jetstream.get_msg(self.name, sequence)
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                state = await self.state()
                if state.replicas == 1 and behind < sequence <= state.last:
                    return _Removed(f"{self.shown} removes what it is sent before that is known to be there", sequence)
            else:
                if found.subject != subject:
                    taken = f"message {sequence} of {printable(found.subject or '')} has the name"
                    return Refused(f"{self.shown}: {taken} that the next of {subject} was to get")
        return UnderWay(words)

    @contextlib.contextmanager
    def sorted(self, before: str = "") -> Iterator[None]:
        """Makes one of our errors, in one sentence, of what goes wrong with a stream.

        Args:
            before: what cannot be done, for what the server says of it.
        """
        try:
            yield
        except nats.errors.TimeoutError:
            connection = self.connection
            if connection.denied:
                raise Denied(f"{connection.server.shown} does not let us: {connection.denied}") from None
            raise Away(f"{connection.server.shown} does not answer") from None
        except NoStreamResponseError:
            raise NoStream(f"{self.shown}: no stream listens to that subject") from None
        except ServiceUnavailableError as error:
            # Without a description, nobody has answered: no JetStream there, or none now (a cluster without a leader).
            words = f": {error.description}" if error.description else " has no JetStream, or none now"
            raise Away(f"{self.connection.server.shown}{words}") from None
        except APIError as error:
            words = error.description or f"error {error.code}"
            if error.err_code == NO_STREAM:
                raise NoStream(f"{self.shown}: there is no such stream") from None
            if error.code in (500, 503, 408, 409) and error.err_code not in _NEVER:
                raise Away(f"{self.shown}: {words}") from None
            raise Refused(f"{before or self.shown}: {words}") from None
        except (nats.errors.Error, OSError) as error:
            raise Away(f"{self.connection.server.shown}: {str(error).removeprefix('nats: ')}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # of nats-py, which expects JetStream's answers
            log.debug("an answer that is none", exc_info=error)
            raise Away(f"{self.shown}: what answers for it is no JetStream") from None


def placing(stream: str) -> dict[str, str]:
    """The headers that say where a message belongs, as long as they can be."""
    letters, number = _short(stream), str(2**64)
    return {STREAM: stream, NAME: letters, LAST: number, LAST_OF_ALL: number, LAST_NAME: letters}


def _short(name: str) -> str:
    """A name of a subject's length as a few letters: servers keep names in memory for two minutes."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]
