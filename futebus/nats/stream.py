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

import calendar
import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

import nats.errors
from nats.js.api import RawStreamMsg, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from ..core.text import printable
from .address import is_within
from .connection import PATIENCE, Connection
from .errors import Away, Denied, NatsError

log = logging.getLogger(__name__)

LAST = "Nats-Expected-Last-Subject-Sequence"
LAST_OF_ALL = "Nats-Expected-Last-Sequence"
LAST_NAME = "Nats-Expected-Last-Msg-Id"
STREAM = "Nats-Expected-Stream"
NAME = "Nats-Msg-Id"

HEADER_BYTES = 4096
"""What headers take of a server's `max_payload`, at most."""

_WRONG_LAST = (10071, 10070)
"""The errors of a message that is not behind the one that it names by its number, or its name."""

_UNDER_WAY = 10158
"""The error of a message whose name another has that is not stored yet, of servers from 2.10 on."""

NO_STREAM = 10059
"""The error of what is asked of a stream that is not there."""

_IN_USE = 10058
"""The error of a stream that is there already, and is another."""


class NoStream(NatsError):
    """A stream is not there, and nobody may be asked to make it."""


class Overtaken(NatsError):
    """A message is not behind the one that it was to be behind: what is last of its subject is something else."""


class UnderWay(Away):
    """The same message was added before, and may not be stored yet: the stream tells, now or in a moment."""


class Refused(NatsError):
    """A server does not do what is wanted, and would not do it a second time."""


class Message(NamedTuple):
    """A message of a stream."""

    sequence: int
    """Its number. The first is 1."""
    subject: str
    headers: Mapping[str, str]
    data: bytes


class State(NamedTuple):
    """What a stream is and has."""

    created: str
    """When it was made, as the server says it. A stream of the same name that was made at another time is another stream."""
    subjects: tuple[str, ...]
    """What it listens to; with wildcards."""
    first: int
    """The number of the first message that it still has; `last` + 1 if it has none."""
    last: int
    """The number of the last message that it ever got; 0 if that has not been."""
    size: int
    """Bytes that it has, headers included."""
    is_memory: bool
    """Whether it is lost with its servers."""
    replicas: int
    retention: str = "limits"
    """When a message goes: `limits`, by age and room; `interest` or `workqueue`, when it has been read."""
    max_message: int = -1
    """Bytes that a message may have, headers included; -1: as many as its servers take."""
    is_acknowledging: bool = True
    """Whether it says that it has got a message."""
    is_sealed: bool = False
    """Whether it takes no message any more, for good."""
    mirrors: str = ""
    """The stream that it is a mirror of, and so takes messages from alone; "" if it is none."""
    max_bytes: int = -1
    """Bytes of messages that it keeps, headers included; -1: as many as there is room for."""
    is_fed: bool = False
    """Whether it takes messages from other streams, too, or alone: then it may have subjects that it does not listen to."""
    removed: int = 0
    """How many messages between the first and the last it has no more."""


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
        self._limits = {"max_msg_size": -1, "max_bytes": -1}
        """Bytes that a message of it may have, headers included, as far as is known; -1: as many as its servers take."""
        self._created = ""
        """When it was made, as far as is known."""
        self._newest, self._newest_name = 0, ""
        """Number and name of the message that was added last, if it came directly behind the one before; else 0."""

    @property
    def max_payload(self) -> int:
        """Bytes that a message may have beside its headers. What the stream itself allows counts when its state was asked for."""
        return self._least[0] - HEADER_BYTES

    @property
    def limit(self) -> str:
        """What allows no longer messages, for people."""
        return self._least[1]

    @property
    def _least(self) -> tuple[int, str]:
        own = [(size, f"the stream takes (its {name})") for name, size in self._limits.items() if size > 0]
        return min([(self.connection.max_payload, "the server takes (max_payload)"), *own])

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
        state = _state(info)
        self._is_one_server, self._created = state.replicas == 1, state.created
        self._limits = {"max_msg_size": state.max_message, "max_bytes": state.max_bytes}
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
        with self.sorted():
            try:
                return _message(await self.jetstream.get_last_msg(self.name, subject))
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None

    async def following(self, subject: str, sequence: int) -> Message | None:
        """The first message of a subject that has this number, or a later one; None if there is none.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.sorted():
            try:
                return _message(await self.jetstream.get_msg(self.name, max(sequence, 1), subject, next=True))
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None

    async def stored(self, sequence: int) -> tuple[int, int] | None:
        """The first message from a number on: its number, and when the server got it, in nanoseconds; None if there is none.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.sorted():
            request = json.dumps({"seq": sequence, "next_by_subj": ">"}).encode()
            try:
                told = await self.jetstream._api_request(f"$JS.API.STREAM.MSG.GET.{self.name}", request, timeout=PATIENCE)
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                return None
            return told["message"]["seq"], moment(told["message"]["time"])

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str], behind: int, name: str) -> int:
        """Adds a message. When this returns, the stream has it on as many servers as it is to have.

        Args:
            subject: of it; the stream must listen to it.
            payload: at most `max_payload` bytes.
            headers: others than those that say where it belongs, at most `HEADER_BYTES`.
            behind: the number of the message of the same subject that is to be the last before it; 0 for none.
            name: what nothing else of this subject is called that comes behind that message, but this one when it is tried
                again. Who can tell it beforehand, and may publish elsewhere in the stream, can keep it out.

        Returns:
            Its number.

        Raises:
            Overtaken: another message is the last of this subject. It may be this one: ask with `last`.
            UnderWay: it was tried before, and is stored, or will be, or was given up: ask with `last`, and try again.
            Refused: the stream does not take it, or has another message of that name.
            NoStream: there is none that listens to the subject.
            Denied, Away: the server does not let us, or does not answer, or the stream is full and drops nothing. Whether it
                has the message nobody knows.
        """
        # Names are the stream's. With the number: who sends the same again because it is gone sends another message.
        told = {**headers, STREAM: self.name, NAME: _short(f"{subject} {name} {behind}")}
        newest, self._newest = self._newest, 0
        if self._is_one_server and behind and behind == newest:
            try:
                last = {LAST_OF_ALL: str(behind), LAST_NAME: self._newest_name}
                return await self._add(subject, payload, told | last, behind)
            except Overtaken:  # by a message of another subject, if it is not said again
                created = self._created
                if (await self.state()).created != created:  # and more servers may keep it now
                    raise
        return await self._add(subject, payload, told | {LAST: str(behind)}, behind)

    async def _add(self, subject: str, payload: bytes, told: dict[str, str], behind: int) -> int:
        with self.sorted():
            try:
                done = await self.jetstream.publish(subject, payload, headers=told)
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
                await self._check_own(subject, done.seq)
                raise UnderWay(f"{self.shown} has not stored yet what it was sent")
            if done.stream != self.name or type(done.seq) is not int or done.seq <= behind:
                raise Away(f"{self.shown}: somebody else has answered for it")  # whoever listens to the subject can
            self._newest, self._newest_name = done.seq if done.seq == behind + 1 else 0, told[NAME]
            return done.seq

    async def _check_own(self, subject: str, sequence: int) -> None:
        """Sees that the message that has the name of ours is one of our subject."""
        with contextlib.suppress(NotFoundError):
            found = await self.jetstream.get_msg(self.name, sequence)
            if found.subject != subject:
                taken = f"message {sequence} of {printable(found.subject or '')} has the name"
                raise Refused(f"{self.shown}: {taken} that the next of {subject} was to get")

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
            if error.code in (500, 503, 408, 409):
                raise Away(f"{self.shown}: {words}") from None
            raise Refused(f"{before or self.shown}: {words}") from None
        except (nats.errors.Error, OSError) as error:
            raise Away(f"{self.connection.server.shown}: {str(error).removeprefix('nats: ')}") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # of nats-py, which expects JetStream's answers
            log.debug("an answer that is none", exc_info=error)
            raise Away(f"{self.shown}: what answers for it is no JetStream") from None


def moment(text: str) -> int:
    """A time as a server says it, in UTC, in nanoseconds since the epoch."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(rest.ljust(9, "0"))


def _short(name: str) -> str:
    """A name of a subject's length as a few letters: servers keep names in memory for two minutes."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _state(info: StreamInfo) -> State:
    config, state = info.config, info.state
    created = info.created.isoformat() if isinstance(info.created, datetime) else str(info.created)
    return State(
        created,
        tuple(config.subjects or ()),
        state.first_seq if state.messages else state.last_seq + 1,
        state.last_seq,
        state.bytes,
        config.storage != StorageType.FILE,
        config.num_replicas or 1,
        str(config.retention.value if isinstance(config.retention, Enum) else config.retention or "limits"),
        config.max_msg_size or -1,
        not config.no_ack,
        bool(config.sealed),
        config.mirror.name or "" if config.mirror else "",
        config.max_bytes or -1,
        bool(config.mirror or config.sources),
        state.num_deleted or 0,
    )


def _message(raw: RawStreamMsg) -> Message:
    # Of what is no ASCII, nats-py makes objects that are no text.
    headers = {name: value for name, value in (raw.headers or {}).items() if isinstance(value, str)}
    return Message(raw.seq or 0, raw.subject or "", headers, raw.data or b"")
