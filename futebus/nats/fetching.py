"""Messages of a stream from a number on, as one connection brings them.

The one rule: none is left out that is there. Whatever a connection or a server does not bring as it should is an error, and who
asks goes on from the number of the next message; see reader.py.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import NamedTuple

from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from .client import SOON_SECONDS
from .connection import PATIENCE
from .errors import Away
from .handed import WORDS, read
from .limits import add_consumer, most_at_once
from .pace import Pace
from .stream import NO_STREAM, Stream

DETAILS_SECONDS = 120.0
"""Within which time a server must tell which messages are gone: they may be many."""

ASKED_BYTES = 4 << 20
"""What a server is asked for at once, at most, and so about what waits here: much more than a connection holds on its way."""

ASKED_MESSAGES = 1000
"""The same for messages that are short."""

_NONE = ("404", "408")
"""The statuses of a request that has ended because there are no messages, or not as many."""

ANY_BYTES = 64 << 20
"""What no message is longer than."""

ASKED_SECONDS = 5.0
"""How long a server may have nothing for us before we look whether it should."""

IDLE_SECONDS = 60.0
"""After which time servers forget a reader that asks for nothing. One that comes later is a new one."""

_API = "$JS.API"
_REFUSED = "409"
"""The status of a request whose bytes do not suffice for the next message, or that is for more than the server allows."""

TOO_LONG = "Exceeds MaxBytes"
"""What servers say with it, among other words, when the next message is longer than what is left of the bytes."""

ALL_CAME = "Batch Completed"
"""What servers from 2.10 on say with that same status when all messages have come that were asked for."""

FORGOTTEN = "Consumer Deleted"
"""And when they have forgotten who has asked."""


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
        pace: what is known of the line.
    """

    def __init__(self, stream: Stream, first: int, subject: str | None, *, headers_only: bool, pace: Pace | None = None) -> None:
        self.stream, self.next, self.subject, self.headers_only = stream, first, subject, headers_only
        self._arrived: list[Fetched] = []
        self._news = asyncio.Event()
        self._status = self._words = ""
        self._asked = 0
        """How many messages of the last request have not come."""
        self._pending = 1
        """How many more the server has said that there are."""
        self._count = 0
        """How many it has sent."""
        self._is_torn = False
        """Whether messages were lost on the way."""
        self._is_forgotten = False
        """Whether the server has said that it does not know us any more."""
        self._most, self._pace = ASKED_MESSAGES, pace or Pace(ASKED_BYTES)
        """What it asks for at once."""
        self._room = 0
        """How many bytes of what was asked for may still come."""
        self._is_long = False
        """Whether the next message is longer than what is asked for at once."""
        self._asked_at = time.monotonic()
        self._came, self._waited = 0, 0.0
        """How many bytes have come since then, and for how many seconds it was waited for them, but for the wait that lasts."""
        self._waits_since: float | None = None
        """When that began."""
        self._idle = IDLE_SECONDS

    @property
    def is_deaf(self) -> bool:
        """Whether nobody knows us any more: a server says so, or a request, which ends with a word, has outlived its time."""
        return self._is_forgotten or (self._asked > 0 and time.monotonic() >= self._asked_at + ASKED_SECONDS + 1)

    async def is_known(self) -> bool:
        """Whether the server still knows us, as far as can be told: it has answered lately, or what it has sent is here."""
        if self._arrived:
            return True
        if self.is_deaf:  # or nobody has listened: what has come meanwhile is heard now
            with self.stream.sorted():
                await self.stream.connection.client.flush(round(PATIENCE))
            await asyncio.sleep(0)
            if self._arrived:
                return True
        return not self.is_deaf and time.monotonic() < self._asked_at + self._idle / 2

    async def begin(self) -> None:
        """Has the server know us.

        Raises:
            NoStream: there is no such stream.
            Denied, Away: the server does not let us, or does not answer.
        """
        with self.stream.sorted():
            client = self.stream.connection.client
            self._inbox = client.new_inbox()
            self._subscription: Subscription = await client.listen(self._inbox, self._take)
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
            info = await add_consumer(self.stream, config)
            self._name, self._pending = info.name, info.num_pending or 0
            self._idle = info.config.inactive_threshold or IDLE_SECONDS

    def _take(self, subject: bytes, reply: bytes, told: Mapping[str, str], data: bytes) -> None:
        if reply.count(b".") < WORDS - 1:
            if told.get("Description") == ALL_CAME:  # we count, too, and may have asked for others
                return
            self._status, self._words = told.get("Status", ""), told.get("Description", "")
            self._is_forgotten |= self._status == _REFUSED and self._words == FORGOTTEN
            if self._status != "100":  # which says that it is there
                self._end_request()
        else:
            try:
                handed = read(reply.decode(errors="replace"))
            except ValueError:  # it is no server's, and may be in the place of one
                self._is_torn = True
                self._news.set()
                return
            self._count += 1
            self._is_torn |= handed.consumer_sequence != self._count
            self._asked -= 1
            self._came += len(data)
            self._is_long = False
            self._pending = handed.pending
            self._room -= self.stream.connection.client.handled
            if self._asked <= 0 or not self._room:  # of the latter a server says nothing (2.9.10)
                self._end_request()
            # A server that has less than the one that leads begins at its own end, if that is before what it was told (2.9.10).
            if not self._is_torn and handed.sequence >= self.next:
                where = subject.decode(errors="replace")  # a server takes any bytes for a subject
                self._arrived.append(Fetched(handed.sequence, where, told, data, handed.time))
        self._news.set()

    def _end_request(self) -> None:
        self._asked = 0
        if self._came and not self.headers_only:
            now = time.monotonic()
            waits = now - self._waits_since if self._waits_since is not None else 0.0
            self._pace.took(self._came, now - self._asked_at, self._waited + waits)

    async def _ask_up_to(self, end: int) -> None:
        await self._ask(1 if self._is_long else min(end - self.next, self._most), ASKED_SECONDS)

    async def _asks_for_less(self) -> bool:
        """Asks for fewer messages from now on if the server does not allow as many. Returns whether that is so."""
        before = self._most
        with self.stream.sorted():
            try:
                self._most = await most_at_once(self.stream, self._name, before)
            except NotFoundError as error:
                if error.err_code == NO_STREAM:
                    raise
                raise self._not_come() from None  # we have been forgotten
        return self._most < before

    def _not_come(self) -> Away:
        return Away(f"{self.stream.shown}: message {self.next} has not come")

    async def _ask(self, count: int, seconds: float) -> None:
        # Of what is not sent, servers count the bytes, too.
        size = ANY_BYTES if self._is_long or self.headers_only else self._pace.bytes
        wanted = {"batch": count, "max_bytes": size, "expires": int(seconds * 1e9)}
        self._asked, self._status, self._words, self._asked_at = count, "", "", time.monotonic()
        self._came, self._waited, self._room = 0, 0.0, size
        with self.stream.sorted():
            await self.stream.connection.client.publish(
                f"{_API}.CONSUMER.MSG.NEXT.{self.stream.name}.{self._name}", json.dumps(wanted).encode(), self._inbox
            )

    async def _wait(self, seconds: float) -> bool:
        """Waits for a message or the end of a request. Returns whether that has come."""
        if not self._news.is_set():
            begin = self._waits_since = time.monotonic()
            with contextlib.suppress(TimeoutError):
                try:
                    await asyncio.wait_for(self._news.wait(), min(SOON_SECONDS, seconds))  # which costs less
                except TimeoutError:
                    await self.stream.connection.client.patiently(self._news.wait(), max(seconds - SOON_SECONDS, 0))
            self._waits_since = None
            self._waited += time.monotonic() - begin
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
            count = self._count
            if not self._asked:
                await self._ask_up_to(end)
            has_come = await self._wait(ASKED_SECONDS + 1)
            self._news.clear()
            if self._is_torn or not has_come:
                raise self._not_come()
            if not self._arrived and not self._asked and self._count == count:
                if self._status == _REFUSED and TOO_LONG in self._words and not self._is_long:
                    self._is_long = True
                elif self._status == _REFUSED and await self._asks_for_less():
                    pass
                elif is_known:
                    raise self._not_come()
                else:
                    self._pending = 0
        arrived, self._arrived = self._arrived, []
        if arrived and arrived[-1].sequence >= end:
            self._arrived = [message for message in arrived if message.sequence >= end]  # for who goes on there
            arrived = [message for message in arrived if message.sequence < end]
            self.next = end
        elif arrived:
            self.next = arrived[-1].sequence + 1
        if not self._asked and self.next < end and self._pending:
            # What comes next is on its way while these are dealt with.
            await self._ask_up_to(end)
            await self.stream.connection.settle()
        return arrived

    async def is_there(self, seconds: float) -> bool:
        """Waits until there is a message. Returns whether there is one: if not, see `is_deaf`.

        It is not taken: nobody may ask for `some` then.

        Raises:
            Away: the server does not bring what there may be.
        """
        end = time.monotonic() + seconds
        while not self._arrived and not self.is_deaf and (left := end - time.monotonic()) > 0:
            count = self._count
            if not self._asked:
                await self._ask(1, ASKED_SECONDS)
            await self._wait(min(left, max(self._asked_at + ASKED_SECONDS + 1 - time.monotonic(), 0.001)))
            self._news.clear()
            if not self._asked and self._count == count and self._status not in _NONE and not self._is_forgotten:
                raise self._not_come()  # asked again, it would say so again, at once or never
        return bool(self._arrived)

    async def end(self) -> None:
        """Has the server forget us, if it lets us: else it does so later."""
        with contextlib.suppress(Exception):
            await self._subscription.unsubscribe()
            removing = self.stream.jetstream.delete_consumer(self.stream.name, self._name)
            await self.stream.connection.unless_denied(f"{_API}.CONSUMER.DELETE.{self.stream.name}.{self._name}", removing)


async def next_of(stream: Stream, sequence: int, subject: str | None) -> int | None:
    """The number of the first message from one on; None if there is none. Who leads the stream is asked.

    Args:
        stream: of which.
        sequence: from where on.
        subject: of which messages, perhaps with wildcards; None: all.

    Raises:
        NoStream: there is no such stream.
        Denied, Away: the server does not let us, or does not answer.
    """
    found = await stream.following(subject or ">", sequence)
    return found.sequence if found else None


async def removed(stream: Stream) -> list[int] | None:
    """The numbers of messages that are missing between the first that the stream has and the last that it got, in order.

    Returns:
        None if the server does not know them all. 2.9.10 leaves out those that filled whole blocks of its store, and those
        with which one began.

    Raises:
        NoStream: there is no such stream.
        Denied, Away: the server does not let us, or does not answer.
    """
    with stream.sorted():
        request = json.dumps({"deleted_details": True}).encode()
        told = await stream.jetstream._api_request(f"{_API}.STREAM.INFO.{stream.name}", request, timeout=DETAILS_SECONDS)
        state = told["state"]
        first, last, count = state["first_seq"], state["last_seq"], state["messages"]
    # Of one moment, so they can be compared.
    found = sorted(number for number in state.get("deleted") or () if first <= number <= last)
    gone = last + 1 - first - count if count else 0
    if len(found) != gone and (there := await stream.stored(first)) is not None:
        # After a purge up to a number, its own message may be missing, and be in no list.
        found = [*range(first, there[0]), *(number for number in found if number > there[0])]
    return found if len(found) == gone else None
