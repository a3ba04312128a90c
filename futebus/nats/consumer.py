"""A durable consumer of a stream that is pulled: messages in order, from a known one on, and confirmed when they are done with.

The one rule: whoever reads knows how far he is, not the server. So the consumer is made anew behind what he has whenever he
connects: nothing waits for the server to find out who has died, and the order is that of the stream. What it remembers is what
people and other programs see of it, and where to go on for who has lost what he knew.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import NotFoundError

from .errors import Away, NatsError
from .fetching import ALL_CAME
from .limits import add_consumer
from .stream import Message, Stream

BATCH = 256
"""Messages that are asked for at once, at most."""

BATCH_BYTES = 8 << 20
"""Their bytes, at most, or one message of any length."""

EXPIRES_SECONDS = 20.0
"""For how long the server is to wait for messages before it is asked again."""

HEARTBEAT_SECONDS = 5.0
"""How often it says meanwhile that it is there. When it misses two, it is given up."""

ACK_SECONDS = 30.0
"""How long a message may be under way before the server thinks of sending it again, to who asks for more."""


class Taken(NatsError):
    """A consumer of that name is somebody else's."""


class Consumer:
    """A consumer.

    Args:
        stream: of which.
        name: its.
        owner: who reads it, in one word: nobody else's is touched.
        subject: of which messages, perhaps with wildcards; None: all.
    """

    def __init__(self, stream: Stream, name: str, owner: str, subject: str | None) -> None:
        self._stream, self._name, self._owner, self._subject = stream, name, owner, subject
        self._waiting: deque[tuple[Message, str]] = deque()
        self._changed = asyncio.Event()
        self._inbox = ""
        self._left = 0
        self._is_asked = False
        """Whether the server has been asked for messages and may send more."""
        self._heard = 0.0

    async def confirmed(self) -> int:
        """Up to which message the consumer of that name has been confirmed, whoever it belongs to; 0 if there is none.

        Raises:
            Taken: it is of other subjects, of which nobody can tell here how far they have come.
        """
        info = await self._look()
        if info is None:
            return 0
        subjects, wanted = info.config.filter_subject or ">", self._subject or ">"
        if subjects != wanted:
            raise Taken(
                f"{self._stream.shown} has a consumer {self._name} of {subjects}, and not of {wanted}:"
                " --consumer names another one, which begins with the first message"
            )
        # One that was just made anew has confirmed nothing yet: where it begins is what its owner had.
        return max(info.ack_floor.stream_seq if info.ack_floor else 0, (info.config.opt_start_seq or 1) - 1)

    async def remove(self) -> None:
        """Removes the consumer of that name, whoever it belongs to."""
        with self._stream.sorted(), contextlib.suppress(NotFoundError):
            await self._stream.jetstream.delete_consumer(self._stream.name, self._name)

    async def _look(self) -> ConsumerInfo | None:
        with self._stream.sorted():
            try:
                info: ConsumerInfo = await self._stream.jetstream.consumer_info(self._stream.name, self._name)
            except NotFoundError:
                return None
        return info

    async def begin(self, first: int) -> None:
        """Makes it anew.

        Args:
            first: the number of the message that it begins with, or behind if that is not there.

        Raises:
            Taken: one of that name is somebody else's.
            NatsError: as for `Stream`.
        """
        if info := await self._look():
            owner = info.config.description or "somebody"
            if owner != self._owner:
                raise Taken(
                    f"{self._stream.shown} has a consumer {self._name} of another delivery: --consumer names another one,"
                    " and --take-over goes on where that has come to"
                )
            await self.remove()
        config = ConsumerConfig(
            durable_name=self._name,
            description=self._owner,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if first > 1 else DeliverPolicy.ALL,
            opt_start_seq=first if first > 1 else None,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=4 * BATCH,
            filter_subject=self._subject,
        )
        client = self._stream.connection.client
        with self._stream.sorted(f"{self._stream.shown} has no consumer {self._name}"):
            await add_consumer(self._stream, config)
            self._inbox = client.new_inbox()
            await client.subscribe(self._inbox, cb=self._take, pending_bytes_limit=0, pending_msgs_limit=0)

    async def messages(self) -> AsyncIterator[tuple[Message, str]]:
        """Its messages, each with the subject that it is confirmed on. More are asked for when these have been taken.

        Raises:
            Away: the server does not answer, or the connection has failed.
        """
        loop = asyncio.get_running_loop()
        closed = asyncio.ensure_future(self._stream.connection.is_closed.wait())
        self._heard = loop.time()
        try:
            while True:
                while self._waiting:
                    yield self._waiting.popleft()
                    self._heard = loop.time()  # who takes them has taken his time
                if closed.done():
                    raise Away(f"{self._stream.connection.server.shown}: {self._stream.connection.why}")
                if not self._is_asked:
                    await self._ask()
                self._changed.clear()
                if not self._waiting and self._is_asked:
                    changed = asyncio.ensure_future(self._changed.wait())
                    try:
                        await asyncio.wait([changed, closed], timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        changed.cancel()
                    if loop.time() - self._heard > 2.5 * HEARTBEAT_SECONDS:
                        raise Away(f"{self._stream.connection.server.shown} does not answer")
        finally:
            closed.cancel()

    async def _ask(self) -> None:
        words = {
            "batch": BATCH,
            "max_bytes": max(BATCH_BYTES, 2 * self._stream.connection.max_payload),
            "expires": int(EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
        }
        self._left = BATCH
        self._is_asked = True
        with self._stream.sorted():
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self._name}"
            await self._stream.connection.client.publish(subject, json.dumps(words).encode(), reply=self._inbox)

    async def _take(self, raw: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        # Who publishes chooses headers: only by the subject for the confirmation is a message told from what the server says.
        if raw.reply.startswith("$JS.ACK."):
            parts = raw.reply.split(".")  # later servers put two words more in the middle, and one behind
            sequence = int(parts[5 if len(parts) == 9 else 7])
            self._waiting.append((Message(sequence, raw.subject, raw.headers or {}, raw.data), raw.reply))
            self._left -= 1
            self._is_asked = self._left > 0
        else:
            told = raw.headers or {}
            status, words = told.get("Status"), told.get("Description", "")
            if not status or status == "100" or words == ALL_CAME:  # 100: a heartbeat
                return
            # What was asked for has come to its end, or its consumer has: asked again, the latter is not answered.
            self._is_asked = False
            if status not in ("404", "408") and "MaxBytes" not in words:
                self._stream.connection.why = f"its consumer {self._name} has gone"
                self._stream.connection.is_closed.set()
        self._changed.set()

    async def confirm(self, reply: str) -> None:
        """Says that a message is done with.

        Args:
            reply: the subject that came with it.

        Raises:
            Away: the connection has failed.
        """
        with self._stream.sorted():
            await self._stream.connection.client.publish(reply, b"+ACK")


def moment(reply: str) -> int:
    """When the server got a message, in nanoseconds, by the subject that it is confirmed on."""
    words = reply.split(".")
    return int(words[7 if len(words) == 9 else 9])
