"""Messages of a stream from a number on, for who calls and waits: the executors of Spark, and what asks how far there are any.

The one rule: what was given is known by the number of the next message alone. So whatever fails, a connection, a server, what a
server knows of its reader, it is made anew and goes on there: nothing is given twice, and nothing is left out that is there.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from .access import Access
from .address import Server
from .connection import WAITING_BYTES, WAITING_MESSAGES, Servers
from .errors import Away
from .stream import NO_STREAM, State, Stream

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds for which one goes on trying: servers are started again, and clusters choose new leaders, in less."""

PAUSES = (0.05, 1.0)
"""Seconds between two tries, at first and at most: twice as long each time."""

ASKED_BYTES = 4 << 20
"""What a server is asked for at once, and so about what waits here: much more than a connection holds on its way."""

ASKED_MESSAGES = 1000
"""The same for messages that are short."""

ASKED_SECONDS = 5.0
"""How long a server may have nothing for us before we look whether it should."""

IDLE_SECONDS = 60.0
"""After which time servers forget a reader that asks for nothing. One that comes later is a new one."""

_API = "$JS.API"
_TOO_LARGE = "409"
"""The status of a request whose bytes do not suffice for the next message."""


class Fetched(NamedTuple):
    """A message of a stream, as a reader gets it."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    """If the headers alone were asked for, `Nats-Msg-Size` is among them."""
    data: bytes
    time: int
    """When the stream got it, in nanoseconds since the epoch."""


class Pull:
    """Messages from a number on, as one connection brings them. Servers forget it by themselves.

    Args:
        stream: of which.
        first: the number.
        subject: those of this subject alone; None: all.
        headers_only: without what is in them.
    """

    def __init__(self, stream: Stream, first: int, subject: str | None, *, headers_only: bool) -> None:
        self.stream, self.next, self.subject, self.headers_only = stream, first, subject, headers_only
        self._arrived: list[Fetched] = []
        self._news = asyncio.Event()
        self._status = ""
        self._asked = 0
        """How many messages of the last request have not come."""
        self._pending = 1
        """How many more the server has said that there are."""
        self._count = 0
        """How many it has sent."""
        self._is_torn = False
        """Whether messages were lost on the way."""
        self._most_bytes = ASKED_BYTES

    async def begin(self) -> None:
        """Has the server know us.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.stream.sorted():
            client, jetstream = self.stream.connection.client, self.stream.jetstream
            self._inbox = client.new_inbox()
            self._subscription: Subscription = await client.subscribe(
                self._inbox, cb=self._take, pending_bytes_limit=2 * WAITING_BYTES, pending_msgs_limit=WAITING_MESSAGES
            )
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self.next,
                ack_policy=AckPolicy.NONE,
                filter_subject=self.subject,
                headers_only=self.headers_only or None,
                inactive_threshold=IDLE_SECONDS,
                mem_storage=True,
                num_replicas=1,
            )
            info = await jetstream.add_consumer(self.stream.name, config)
            self._name, self._pending = info.name, info.num_pending or 0

    async def _take(self, message: Msg) -> None:
        words = message.reply.split(".")
        if len(words) < 9:
            self._status = (message.headers or {}).get("Status", "")
            if self._status != "100":  # which says that it is there
                self._asked = 0
        else:
            sequence, count, moment, pending = map(int, words[5:9] if len(words) == 9 else words[7:11])
            self._count += 1
            self._is_torn |= count != self._count
            self._asked -= 1
            self._pending = pending
            if not self._is_torn:
                self._arrived.append(Fetched(sequence, message.subject, message.headers or {}, message.data, moment))
        self._news.set()

    async def _ask(self, count: int, seconds: float) -> None:
        wanted = {"batch": count, "max_bytes": self._most_bytes, "expires": int(seconds * 1e9)}
        self._asked, self._status = count, ""
        with self.stream.sorted():
            await self.stream.connection.client.publish(
                f"{_API}.CONSUMER.MSG.NEXT.{self.stream.name}.{self._name}", json.dumps(wanted).encode(), self._inbox
            )

    async def _wait(self, seconds: float) -> bool:
        """Waits for a message or the end of a request. Returns whether that has come."""
        if not self._news.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return self._news.is_set()

    async def some(self, end: int) -> list[Fetched]:
        """Messages before `end`, at least one; `next` is the number behind the last, or `end` if there are no more.

        Raises:
            NoStream: the stream has gone.
            Denied, Away: the server does not let us, or does not answer, or does not bring what is there.
        """
        is_known = False
        while not self._arrived and self.next < end:
            if not self._pending and not is_known:
                # The server that sends may be behind the one that leads, and so what it has not is not gone.
                found = await next_of(self.stream, self.next, self.subject)
                if found is None or found >= end:
                    self.next = end
                    return []
                is_known = True
            if not self._asked:
                await self._ask(min(end - self.next, ASKED_MESSAGES), ASKED_SECONDS)
            has_come = await self._wait(ASKED_SECONDS + 1)
            self._news.clear()
            if self._is_torn or not has_come:
                raise Away(f"{self.stream.shown}: message {self.next} has not come")
            if not self._arrived and not self._asked:
                if self._status == _TOO_LARGE and self._most_bytes < WAITING_BYTES:
                    self._most_bytes = WAITING_BYTES
                elif is_known:
                    raise Away(f"{self.stream.shown}: message {self.next} has not come")
                else:
                    self._pending = 0
        arrived, self._arrived = self._arrived, []
        if arrived and arrived[-1].sequence >= end:
            arrived = [message for message in arrived if message.sequence < end]
            self.next = end
        elif arrived:
            self.next = arrived[-1].sequence + 1
        if not self._asked and self.next < end and self._pending:
            # What comes next is on its way while these are dealt with.
            await self._ask(min(end - self.next, ASKED_MESSAGES), ASKED_SECONDS)
            await self.stream.connection.settle()
        return arrived

    async def is_there(self, seconds: float) -> bool:
        """Waits until there is a message. Returns whether there is one. It is not taken: nobody may ask for `some` then."""
        end = time.monotonic() + seconds
        while not self._arrived and (left := end - time.monotonic()) > 0:
            if not self._asked:
                await self._ask(1, ASKED_SECONDS)
            await self._wait(left)
            self._news.clear()
        return bool(self._arrived)

    async def end(self) -> None:
        """Has the server forget us."""
        with contextlib.suppress(Exception):
            await self._subscription.unsubscribe()
            await self.stream.jetstream.delete_consumer(self.stream.name, self._name)


async def next_of(stream: Stream, sequence: int, subject: str | None) -> int | None:
    """The number of the first message from one on; None if there is none. Who leads the stream is asked.

    Raises:
        NoStream: there is no such stream.
        Denied, Away: the server does not let us, or does not answer.
    """
    with stream.sorted():
        try:
            return (await stream.jetstream.get_msg(stream.name, sequence, subject or ">", next=True)).seq
        except NotFoundError as error:
            if error.err_code == NO_STREAM:
                raise
            return None


async def time_of(stream: Stream, sequence: int, *, or_later: bool = False) -> str | None:
    """When the stream got a message, as the server says it: in UTC, to the nanosecond; None if it has none of that number.

    Args:
        stream: whose.
        sequence: the number.
        or_later: if there is none, of the next one.

    Raises:
        NoStream: there is no such stream.
        Denied, Away: the server does not let us, or does not answer.
    """
    wanted: dict[str, Any] = {"seq": sequence, **({"next_by_subj": ">"} if or_later else {})}
    with stream.sorted():
        try:
            told = await stream.jetstream._api_request(
                f"{_API}.STREAM.MSG.GET.{stream.name}", json.dumps(wanted).encode(), timeout=PATIENCE
            )
        except NotFoundError as error:
            if error.err_code == NO_STREAM:
                raise
            return None
        # Servers leave out zeros at the end; so that times can be compared as text, they are put back.
        moment, _, fraction = str(told["message"]["time"]).removesuffix("Z").partition(".")
        return f"{moment}.{fraction:0<9}Z"


async def removed(stream: Stream) -> list[int]:
    """The numbers of messages that are missing between the first that the stream has and the last that it got, in order.

    Raises:
        NoStream: there is no such stream.
        Denied, Away: the server does not let us, or does not answer.
    """
    with stream.sorted():
        request = json.dumps({"deleted_details": True}).encode()
        told = await stream.jetstream._api_request(f"{_API}.STREAM.INFO.{stream.name}", request, timeout=PATIENCE)
        return sorted(told["state"].get("deleted") or ())


class Reader:
    """A stream, for who calls and waits. What may pass is waited for.

    Args:
        servers: that have it.
        access: what is shown to them.
        stream: its name.
        who: what servers call us, where they are watched.
        patience: seconds for which they may be away.
        say: is told when they are away, and when one is back.
    """

    def __init__(
        self,
        servers: tuple[Server, ...],
        access: Access,
        stream: str,
        who: str,
        patience: float = PATIENCE,
        say: Callable[[str], object] = lambda words: None,
    ) -> None:
        self._servers = Servers(servers, access, who)
        self._name, self._patience, self._say = stream, patience, say
        self.shown = f"{self._servers.shown}/{stream}"
        """Where it is, for people."""
        self._loop = asyncio.new_event_loop()
        self._stream: Stream | None = None
        self._pull: Pull | None = None
        self._removed: list[int] = []
        self._removed_at = (0, "", 0, 0)
        self.connections = 0
        """How many there have been. A server that comes back may have lost what it had."""

    def do(self, work: Callable[[Stream], Coroutine[Any, Any, T]]) -> T:
        """Does something with the stream, again if it fails for a reason that may pass.

        Raises:
            Away: it still does when patience is over.
            NatsError: something that does not pass by itself.
        """
        return self._loop.run_until_complete(self._persistently(work))

    async def _persistently(self, work: Callable[[Stream], Coroutine[Any, Any, T]]) -> T:
        pause, most = PAUSES
        end, has_said = time.monotonic() + self._patience, False
        while True:
            try:
                if self._stream is None or self._stream.connection.is_closed.is_set():
                    await self._leave()
                    self._stream = Stream(await self._servers.connect(), self._name)
                    self.connections += 1
                done = await self._stream.connection.while_open(work(self._stream))
            except Away as error:
                await self._leave()
                if time.monotonic() + pause > end:
                    raise Away(f"{error} (for {self._patience:g} s)") from None
                if pause == most and not has_said:
                    self._say(f"{error}; waiting")
                    has_said = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, most)
            else:
                if has_said:
                    self._say(f"{self.shown} is back")
                return done

    async def _leave(self) -> None:
        stream, self._stream, self._pull = self._stream, None, None
        if stream is not None:
            await stream.connection.close()

    def state(self) -> State:
        """What the stream is and has."""
        return self.do(lambda stream: stream.state())

    def removed(self) -> list[int]:
        """See `removed`. The list may be long: it is asked for when there are others than before."""
        state = self.state()
        now = (self.connections, state.created, state.first, state.removed)
        if now != self._removed_at:
            # What is gone stays so. So the same are missing if as many are, without those that retention has reached.
            known = [number for number in self._removed if number > state.first] if now[:2] == self._removed_at[:2] else []
            self._removed, self._removed_at = known if len(known) == state.removed else self.do(removed), now
        return self._removed

    def time_of(self, sequence: int, *, or_later: bool = False) -> str | None:
        """See `time_of`."""
        return self.do(lambda stream: time_of(stream, sequence, or_later=or_later))

    def messages(self, first: int, end: int, subject: str | None = None, *, headers_only: bool = False) -> Iterator[Fetched]:
        """The messages from number `first` up to `end` that are there.

        Args:
            first: where they begin.
            end: before which number they end.
            subject: of this subject alone; None: of all.
            headers_only: without what is in them.

        Raises:
            NatsError: see `do`.
        """
        at = first

        async def some(stream: Stream) -> tuple[list[Fetched], int]:
            pull = self._pull
            if pull is None or (pull.stream, pull.next, pull.subject, pull.headers_only) != (stream, at, subject, headers_only):
                pull = await self._pull_from(stream, at, subject, headers_only)
            return await pull.some(end), pull.next

        while at < end:
            found, at = self.do(some)
            yield from found

    async def _pull_from(self, stream: Stream, first: int, subject: str | None, headers_only: bool) -> Pull:
        if self._pull is not None:
            await self._pull.end()
        self._pull = None
        pull = Pull(stream, first, subject, headers_only=headers_only)
        await pull.begin()
        self._pull = pull
        return pull

    def wait_for(self, sequence: int, seconds: float, subject: str | None = None) -> bool:
        """Waits until there is a message of this number or a later one, for some time. Returns whether there is one."""
        end = time.monotonic() + seconds

        async def wait(stream: Stream) -> bool:
            pull = self._pull
            if pull is None or (pull.stream, pull.next, pull.subject, pull.headers_only) != (stream, sequence, subject, True):
                pull = await self._pull_from(stream, sequence, subject, True)
            return await pull.is_there(max(end - time.monotonic(), 0.001))

        has_come = self.do(wait)
        if has_come and self._pull is not None:
            self._loop.run_until_complete(self._pull.end())
            self._pull = None
        return has_come

    def close(self) -> None:
        """Leaves the server."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._leave())
            self._loop.close()
