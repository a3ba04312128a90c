"""A durable consumer of a stream that is pulled: messages in order, from a known one on, and confirmed when they are done with.

The one rule: whoever reads knows how far he is, not the server. So the consumer is made anew behind what he has whenever he
connects: nothing waits for the server to find out who has died, and the order is that of the stream. What it remembers is what
people and other programs see of it, and where to go on for who has lost what he knew.

The second rule: it is nobody else's. Servers before 2.10 make one of two that are made under one name at the same time, and hand
each message to one of them. So all that it has handed out must come here: it counts what it hands out, and tells the number.
Whose it is stands in its description; see owner.py.
"""

import asyncio
import contextlib
import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import NotFoundError, ServerError

from .connection import PATIENCE
from .errors import Away, Denied, NatsError
from .fetching import ALL_CAME, TOO_LONG, next_of
from .handed import PREFIX, Handed, read
from .limits import add_consumer, most_at_once
from .owner import Owner, owner_of
from .pace import Pace
from .state import Message, State
from .stream import MOST_SEQUENCE, Stream

BATCH = 256
"""Messages that are asked for at once, at most."""

BATCH_BYTES = 8 << 20
"""Their bytes, at most, as far as a line carries them; or one message of any length."""

EXPIRES_SECONDS = 20.0
"""For how long the server is to wait for messages before it is asked again."""

HEARTBEAT_SECONDS = 5.0
"""How often it says meanwhile that it is there."""

SILENT_SECONDS = 2.5 * HEARTBEAT_SECONDS
"""When it says nothing for so long, it is given up."""

MAKING_SECONDS = 1.0
"""For how long it is made at most when we are to end: without one, nobody who takes over knows how far we have come."""

UNHEARD_SECONDS = 0.5
"""How soon a new one is asked again that is not heard of everywhere."""

ACK_SECONDS = 30.0
"""How long a message may be under way before the server thinks of sending it again, to who asks for more."""

LATE_SECONDS = 0.1
"""When nothing was asked for so long after a request that had waited in vain, messages may have come and gone. Sooner, what is
missing counts as others': nobody knows how many of theirs have come while it waited."""

AT_ONCE, AT_ONCE_BYTES = 32, 256 << 10
"""So many places where a message may be missing are asked for at once, and about how many bytes of messages."""

REMOVED, NOBODY = "Consumer Deleted", "503"
"""What they say to who has asked a consumer that is removed then; and the status of what nobody answers, as of one that was."""


class Taken(NatsError):
    """A consumer of that name is somebody else's."""


class Copied(Taken):
    """A consumer of that name is of somebody who has been given our own state, and runs too."""


class Disputed(Away):
    """Somebody has removed the consumer, or has got messages of it."""


class Unconfirmed(Denied):
    """The server gives messages, and does not let us confirm them."""


class Consumer:
    """A consumer.

    Args:
        stream: of which.
        name: its.
        owner: who reads it: nobody else's is touched.
        subject: of which messages, perhaps with wildcards; None: all.
        pace: what is known of the line.
        gone: is told up to which number the stream has nothing any more, if messages that have not come may have waited before
            that. Whether any of a subject did, nobody knows then.
        settled: is told, of a consumer of a subject, now and then, up to which number all has come that was for it, or `gone` was
            told of it.
    """

    def __init__(
        self,
        stream: Stream,
        name: str,
        owner: Owner,
        subject: str | None,
        pace: Pace | None = None,
        gone: Callable[[int], object] = lambda number: None,
        settled: Callable[[int], object] = lambda number: None,
    ) -> None:
        self._stream, self._name, self._owner, self._subject = stream, name, owner, subject
        self._gone, self._settled = gone, settled
        self.is_made = False
        """Whether it has been tried to make it: then it may be there."""
        self.found = 0
        """How many messages the stream had for it when it was made, as the server says it. Some count what is not there any more
        (2.9.10)."""
        self._last = 0
        """The number of the last message that the stream had a while ago: the server that has the consumer may be a little behind
        the others."""
        self._looked_at = 0.0
        """When that was."""
        self._first = 0
        """The first number that the stream had, when it was asked where some were missing."""
        self._behind: set[int] = set()
        """Those that have come when messages may have waited before them."""
        self._ended_at = -math.inf
        """Up to when it is known that nothing has come and gone that was not told of: when the last request ended."""
        self._trip = 0.0
        """How long the last question took, in seconds."""
        self._came_at = -math.inf
        """When the last message came."""
        self._is_owed = False
        """Whether there was one for which the last request had no room: if there is none by now, it has gone."""
        self._is_late = False
        """Whether messages may have waited before that one, for a while, without being told of."""
        self._waiting: deque[tuple[Message, Handed]] = deque()
        self._changed = asyncio.Event()
        self._inbox = ""
        self._description = ""
        self._batch = BATCH
        self._most_unconfirmed = 0
        """When so many are not done with, the server hands out no more."""
        self._asked = self._left = 0
        """How many messages the last request was for, and how many of them have not come."""
        self._pace = pace or Pace(BATCH_BYTES)
        self._asked_at = 0.0
        """When that was."""
        self._room = -1
        """How many bytes of them may still come; negative if there is no limit."""
        self._there = self._came = 0
        """How many of those messages the server had then, as far as it had said, and how many bytes have come since."""
        self._pending = 1
        """How many more it has, as it said last."""
        self._is_asked = False
        """Whether the server has been asked for messages and may send more."""
        self._is_long = False
        """Whether the next message is too long for the bytes that are asked for at once."""
        self._heard = 0.0
        self._may_confirm = False
        """Whether it is known that the server lets us confirm messages."""
        self._is_idle = False
        """Whether nothing more has come of what was asked for last."""
        self._is_unheard = False
        """Whether nobody has answered, as of a consumer that is not there, or cannot be reached."""
        self._count = 0
        """How many messages have come: all that it has handed out."""
        self._through = 0
        """The number up to which all has come, and been passed on, that the stream had for us."""
        self._searched = 0
        """Up to which number it has nothing more for us."""
        self._sure = 0
        """How many of those that wait have none missing before them."""
        self._highest = 0
        """The highest number of one that has come."""
        self._unconfirmed: set[int] = set()
        """Those that are not done with."""

    async def confirmed(self) -> int:
        """Up to which message the consumer of that name has been confirmed; 0 if there is none, or if that tells nothing.

        It tells nothing of one that its owner knows: he knows better. Servers count as confirmed what was removed, and when the
        messages of one subject are purged, some count all that the stream has, of whatever subject (2.9.10). But then they
        have confirmed no more than they had handed out: if it is more, somebody has gone on with it who was given what its owner
        knew.

        Raises:
            Taken: it is of other subjects, of which nobody can tell here how far they have come.
        """
        info = await self._look()
        if info is None or self._owner.knows_all_of(info):
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
            try:
                await self._stream.jetstream.delete_consumer(self._stream.name, self._name)
            except ServerError:
                # A server that is writing down meanwhile what was just confirmed may not get rid of its directory (2.9.10).
                if await self._look():
                    raise

    async def _look(self) -> ConsumerInfo | None:
        with self._stream.sorted(), contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
            try:
                info: ConsumerInfo = await self._stream.jetstream.consumer_info(self._stream.name, self._name)
            except NotFoundError:
                return None
            if _is_sound(info):
                return info
        raise Away(f"{self._stream.shown}: somebody else has answered for it")  # whoever listens to the subject can

    async def check_free(self) -> None:
        """Sees that nobody else has one of that name.

        Raises:
            Taken: somebody has.
            NatsError: as for `Stream`.
        """
        if info := await self._look():
            self._check_own(info)

    async def begin(self, first: int, confirmed: str = "", *, last: int = 0, takes_over: bool = False) -> None:
        """Makes it anew. When this returns, the server has given a message, or has said that there is none.

        Args:
            first: the number of the message that it begins with, or behind if that is not there.
            confirmed: a subject that a message of it was confirmed on, ever; "" if none is known.
            last: the number of the last message that the stream has had so far, as far as is known.
            takes_over: whether one that is there is removed, whoever it belongs to.

        Raises:
            Taken: one of that name is somebody else's.
            Disputed: somebody has removed it at once, or has got messages of it.
            Denied: the server does not let us take messages, ask for them, or confirm them, as far as that can be known yet.
            NatsError: as for `Stream`.
        """
        if (info := await self._look()) and not takes_over:
            self._check_own(info)
        await self._stream.connection.while_open(self._stream.check_readable())  # which is wanted later, at any time
        if info and self._owner.knows(info):
            self._owner.note(info.config.description)  # however often it is tried to make the next one
        elif info and takes_over and owner_of(info)[0] == self._owner.name:
            # It is not to be another's when we are called otherwise; but nobody here knows what comes to it from now on.
            self._owner.note(info.config.description, info.ack_floor.consumer_seq if info.ack_floor else 0)
        if takes_over:
            self._owner.name = self._owner.rename()
        self._description = self._owner.describe()
        self._owner.note(self._description, 0)  # whatever happens from now on
        config = ConsumerConfig(
            durable_name=self._name,
            description=self._description,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if first > 1 else DeliverPolicy.ALL,
            opt_start_seq=first if first > 1 else None,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            filter_subject=self._subject,
        )
        self._through, self._last, self.is_made = first - 1, last, True
        self._looked_at = asyncio.get_running_loop().time()
        making = asyncio.ensure_future(self._make(config, info))
        try:
            await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait([making], timeout=MAKING_SECONDS)
            if not making.cancel() and not making.cancelled():
                making.exception()  # nobody wants to know any more
            raise
        client = self._stream.connection.client
        with self._stream.sorted():
            try:
                self._batch = await most_at_once(self._stream, self._name, BATCH)
            except NotFoundError:
                self._has_gone()  # another has been as quick
                raise self._stream.connection.lost() from None
            self._inbox = client.new_inbox()
            await client.listen(self._inbox, self._take)
        await self._try()
        await self.check()  # another may have been as quick
        if reply := self._waiting[0][1].reply if self._waiting else confirmed:
            await self._try_confirming(reply)

    async def _make(self, config: ConsumerConfig, before: ConsumerInfo | None) -> None:
        """Makes it. Another may have been as quick: with another begin, it is refused, and with the same, it is that one.

        Args:
            config: what it is to be.
            before: the one that is to be removed.
        """
        if before:
            await self.remove()
            self._owner.removed(before)
        try:
            with self._stream.sorted(f"{self._stream.shown} has no consumer {self._name}"):
                made = await add_consumer(self._stream, config)
        except NatsError:
            there = None
            with contextlib.suppress(Away, Denied):
                there = await self._look()
            if there is None or there.config.description == self._description:
                raise
            self._check_own(there)
            self._has_gone()
            raise self._stream.connection.lost() from None
        self._most_unconfirmed, self.found = made.config.max_ack_pending or 0, made.num_pending or 0
        if made.delivered and made.delivered.consumer_seq:
            self._owner.forget(self._description)  # it is another's, with our description
            self._has_been_shared()
            raise self._stream.connection.lost()

    def _check_own(self, info: ConsumerInfo) -> None:
        name, process = owner_of(info)
        if self._owner.knows(info):
            return  # it is of the past, and there again, if a server was restored
        if name != self._owner.name:
            raise Taken(
                f"{self._stream.shown} has a consumer {self._name} of another delivery: --consumer names another one,"
                " and --take-over goes on where that has come to"
            )
        if process in self._owner.past:
            raise Copied(
                f"{self._stream.shown} has a consumer {self._name} of a delivery that runs with a copy of this one's state:"
                " one of the two needs a --state and a --consumer of its own"
            )

    async def _try(self) -> None:
        """Takes a message, or hears that there is none. Only by trying is it to be known what the server lets us do."""
        connection = self._stream.connection
        for pause in (UNHEARD_SECONDS, 0.0):
            self._is_unheard = False
            self._changed.clear()
            await self._request(1, {"no_wait": True})
            try:
                await connection.client.patiently(connection.while_open(self._changed.wait()), PATIENCE)
            except TimeoutError:
                raise Away(f"{connection.server.shown} does not answer") from None
            if connection.is_closed.is_set():
                raise connection.lost()
            if not self._is_unheard:
                break
            await connection.while_open(asyncio.sleep(pause))

    async def _try_confirming(self, reply: str) -> None:
        """Says of a message that more time is wanted for it: who may say that may confirm it."""
        connection = self._stream.connection
        with self._stream.sorted():
            await connection.client.publish(reply, b"+WPI")
        await connection.settle()
        await connection.confirm()
        if connection.denied:
            raise Unconfirmed(str(connection.lost()))
        self._may_confirm = True

    async def messages(self) -> AsyncIterator[tuple[Message, Handed]]:
        """Its messages, each with how it was handed out. More are asked for when these have been taken.

        Raises:
            Away: the server does not answer, or the connection has failed.
            Taken: it has become somebody else's.
            Disputed: somebody has removed it, or has got messages of it.
            Denied: the server does not let us go on; `Unconfirmed` before the first message.
        """
        loop = asyncio.get_running_loop()
        closed = asyncio.ensure_future(self._stream.connection.is_closed.wait())
        movement = self._stream.connection.client.movement()
        self._heard = loop.time()
        try:
            while True:
                if self._stream.connection.is_closed.is_set():  # what waits comes again
                    raise self._stream.connection.lost()
                if self._waiting:
                    message, handed = self._waiting[0]
                    if message.sequence <= self._through:
                        self._waiting.popleft()
                        self._sure = max(self._sure - 1, 0)
                        await self._confirm_again(handed)
                        continue
                    if not self._may_confirm:
                        await self._try_confirming(handed.reply)
                    if not self._sure:
                        await self._compare()
                    self._waiting.popleft()
                    self._sure -= 1
                    first = min(self._first, message.sequence)
                    if message.sequence in self._behind and first > self._through + 1:
                        self._gone(first - 1)
                    self._behind.discard(message.sequence)
                    self._through = message.sequence
                    yield message, handed
                    self._heard = loop.time()  # who takes them has taken his time
                    continue
                if not self._is_asked:
                    is_long_ago = not self._pending and loop.time() - self._ended_at > LATE_SECONDS
                    is_late = is_long_ago or (self._is_late and not self._pending)
                    if self._is_idle or self._is_unheard or is_long_ago or self._is_owed:
                        left = await self.check(is_settled=(self._is_idle or is_long_ago) and not self._is_unheard)
                        self._is_late |= self._is_owed and not left
                        self._is_owed = False
                    if self._is_idle:
                        self._look_around(await self._state(), is_late=is_late)
                    await self._ask()
                    # Whoever has the consumer by now, nothing of what was asked for is passed on before that is known.
                    await self.check()
                    continue
                if self._may_have_gone:
                    # The server has handed out what was held back, or came when it was not asked, as far as that was still there.
                    state = await self._state()
                    if self._may_have_gone:
                        self._look_around(state, is_late=True)
                    continue
                self._changed.clear()
                changed, begin = asyncio.ensure_future(self._changed.wait()), loop.time()
                try:
                    await asyncio.wait([changed, closed], timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if movement.may_go_on(HEARTBEAT_SECONDS, loop.time() - begin):  # a message may take long
                    self._heard = loop.time()
                if loop.time() - self._heard > SILENT_SECONDS:
                    raise Away(f"{self._stream.connection.server.shown} does not answer")
        finally:
            closed.cancel()

    async def _state(self) -> State:
        return await self._stream.connection.while_open(self._stream.state())

    @property
    def _may_have_gone(self) -> bool:
        """Whether messages may have gone that would have come by now, since they have been asked for."""
        return self._is_late and self._is_asked and not (self._pending or self._waiting or self._is_full)

    def _look_around(self, state: State, *, is_late: bool) -> None:
        """Sees what the stream has besides what has come, and tells up to where nothing of it is for us.

        Args:
            state: what it has.
            is_late: whether messages may have come and gone while the server was not asked for any, or handed out none.
        """
        # On a slow line it is long ago that it was asked for some, also when it is asked at once.
        self._ended_at, self._is_late = asyncio.get_running_loop().time(), self._is_full
        if is_late and state.first > self._through + 1 and not self._waiting:
            self._gone(state.first - 1)
        if not (self._is_asked or self._pending or self._waiting or self._is_full):
            # All has come that was there a while ago. If all were for us, what has not come is gone.
            if self._subject is not None:
                self._settled(self._last)
            elif self._ended_at - self._looked_at > EXPIRES_SECONDS / 2:
                self._gone(self._last)
        self._last, self._looked_at = state.last, self._ended_at

    async def check(self, *, is_settled: bool = False) -> int:
        """Sees that it is there, and ours. It tells who has asked when it was removed, and nobody else.

        Args:
            is_settled: whether nothing is under way of what it has handed out.

        Returns:
            How many messages the stream has for it that it has not handed out.

        Raises:
            Taken, Disputed: it is not.
            NatsError: as for `messages`.
        """
        begin = asyncio.get_running_loop().time()
        info = await self._stream.connection.while_open(self._look())
        self._trip = asyncio.get_running_loop().time() - begin
        if info is None:
            self._has_gone()
        elif is_settled and info.delivered and info.delivered.consumer_seq != self._count:
            self._has_been_shared()
        else:
            self._check_own(info)
            if info.config.description != self._description:
                self._has_gone()
            elif self._is_unheard:
                self._fail(f"nobody there answers who asks for messages of its consumer {self._name}")
            elif is_settled and info.delivered and await self._has_passed(info.delivered.stream_seq + 1):
                self._has_left_out()
            else:
                if is_settled:
                    self._pending = info.num_pending or 0
                return info.num_pending or 0
        raise self._stream.connection.lost()

    async def _compare(self) -> None:
        """Sees that none is left out before those that wait now.

        When messages of one subject are purged, some servers have a consumer go on further behind, and others' messages are left
        out, also when nothing was there to be purged (2.9.10). So where numbers are missing, it is asked what the stream has
        there; for all that wait at once, since it is as far to the server for many as for one.
        """
        places, before, group = deque[tuple[int, Message]](), self._through, [message for message, _ in self._waiting]
        for message in group:
            if message.sequence > before + 1:
                places.append((before, message))
            before = max(message.sequence, before)
        connection, most = self._stream.connection, min(AT_ONCE_BYTES, self._pace.bytes)
        if any(message.sequence in self._behind for _, message in places):
            self._first = (await self._state()).first
        while places:
            some, size = [places.popleft()], 0
            while places and len(some) < AT_ONCE and (size := size + len(places[0][1].data)) < most:
                some.append(places.popleft())
            if await connection.while_open(self._has_more(some)):
                self._has_left_out()
                raise connection.lost()
        self._sure = len(group)

    async def _has_more(self, places: list[tuple[int, Message]]) -> bool:
        """Whether the stream has something for us between a number and a message, in one of these pairs."""
        # What is found is that message, as a rule, and the answer has all of it.
        there = await asyncio.gather(*(next_of(self._stream, begin + 1, self._subject) for begin, _ in places))
        return any(found is not None and found < message.sequence for found, (_, message) in zip(there, places, strict=True))

    async def _has_passed(self, behind: int) -> bool:
        """Whether the stream has something for us that has not come, before some number."""
        first = max(self._through, self._searched) + 1
        if behind <= first:
            return False
        found = await self._stream.connection.while_open(next_of(self._stream, first, self._subject))
        if found is not None and found < behind:
            return True
        self._searched = max(behind - 1, self._searched)
        return False

    @property
    def _is_full(self) -> bool:
        """Whether the server hands out nothing more until some are done with."""
        return 0 < self._most_unconfirmed <= len(self._unconfirmed)

    async def _ask(self) -> None:
        words = {"expires": int(EXPIRES_SECONDS * 1e9), "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9)}
        if self._is_long:
            # A server may have messages that are longer than it takes now, or than another one takes that we are connected to.
            await self._request(1, words)
        else:
            await self._request(self._batch, words | {"max_bytes": self._pace.bytes})

    async def _request(self, count: int, words: dict[str, int]) -> None:
        self._owner.hand(self._description, self._count + count)
        self._asked = self._left = count
        self._there, self._came, self._asked_at = min(count, self._pending), 0, asyncio.get_running_loop().time()
        self._is_late |= self._asked_at - self._ended_at > LATE_SECONDS
        self._room = words.get("max_bytes", -1)
        self._is_asked, self._is_idle = True, False
        with self._stream.sorted():
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self._name}"
            asked = json.dumps({"batch": count, **words}).encode()
            await self._stream.connection.client.publish(subject, asked, reply=self._inbox)

    def _take(self, subject: bytes, answer: bytes, told: dict[str, str], data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        # Who publishes chooses headers: only by the subject for the confirmation is a message told from what the server says.
        if answer.startswith(PREFIX.encode()):
            handed = read(answer.decode(errors="replace"))
            sequence = handed.sequence
            self._count += 1
            if handed.consumer_sequence != self._count:  # or a server that has come to lead it knows less than the one before
                self._has_been_shared()
                self._changed.set()
                return
            if sequence > self._highest:  # else it comes again
                self._unconfirmed.add(sequence)
                self._highest = sequence
                if self._subject is not None and (self._pending > 0 or self._is_late):
                    self._behind.add(sequence)
            self._waiting.append((Message(sequence, subject.decode(errors="replace"), told, data), handed))
            self._left -= 1
            self._room -= self._stream.connection.client.handled
            # When the bytes are all used, a server says nothing of it (2.9.10).
            self._is_asked, self._is_long = self._left > 0 and self._room != 0, False
            # Who has got all that he asked for does not wait for any more, and has for how long, by when he hears of it?
            self._is_late, self._came_at = self._is_full or not self._is_asked, self._heard
            self._is_owed = False
            self._came += len(data)
            if self._there == 1:
                self._know_pace()
            self._there -= 1
            self._pending = handed.pending
        else:
            status, words = told.get("Status"), told.get("Description", "")
            if not status or status == "100" or words == ALL_CAME:  # 100: a heartbeat
                return
            # What was asked for has come to its end, or its consumer has: asked again, the latter is not answered.
            self._is_asked, self._is_idle = False, status in ("404", "408")
            if self._is_idle:
                self._pending = 0
            if TOO_LONG in words:
                # So has one for which the next one was too long. But it may have waited for that, while others' came and went.
                self._is_late |= self._heard - self._came_at < LATE_SECONDS
                self._is_owed = True
            if TOO_LONG in words and self._left < self._asked:  # the next one is too long for what was left of the bytes
                self._know_pace()
            elif TOO_LONG in words and not self._is_long:
                self._is_long = True
            elif TOO_LONG in words:
                self._fail(f"it does not hand out the next message of {self._stream.name}, however long that may be: {words}")
            elif status == NOBODY:
                self._is_unheard = True
            elif words == REMOVED:
                self._has_gone()
            elif status not in ("404", "408"):
                self._fail(f"its consumer {self._name}: {words or status}")
        if not self._is_asked:
            # A request that nothing has come of has ended by itself, whenever we have time to hear that.
            self._ended_at = self._heard
            if self._is_idle and self._heard < self._asked_at + 0.9 * EXPIRES_SECONDS:
                self._ended_at = self._asked_at  # our clock has stood still, as it does while a machine is asleep
            elif self._is_idle:
                self._ended_at = min(self._heard, self._asked_at + EXPIRES_SECONDS + 2 * self._trip)
        self._changed.set()

    def _know_pace(self) -> None:
        if self._there > 0:  # or else it had to wait for them itself
            took = asyncio.get_running_loop().time() - self._asked_at
            self._pace.took(self._came, took, took)

    def _has_gone(self) -> None:
        self._fail(f"its consumer {self._name} has gone", Disputed)

    def _has_been_shared(self) -> None:
        self._fail(f"messages of its consumer {self._name} have gone elsewhere", Disputed)

    def _has_left_out(self) -> None:
        self._fail(f"its consumer {self._name} has left out messages that are there")

    def _fail(self, why: str, kind: type[Away] = Away) -> None:
        self._stream.connection.give_up(why, kind)

    async def confirm(self, handed: Handed) -> None:
        """Says that a message is done with.

        Args:
            handed: what came with it.

        Raises:
            Away: the connection has failed.
        """
        with self._stream.sorted():
            await self._stream.connection.client.publish(handed.reply, b"+ACK")
        if self._is_full:
            self._changed.set()
        self._unconfirmed.discard(handed.sequence)

    async def _confirm_again(self, handed: Handed) -> None:
        """Says of a message that comes again that it is done with, if it is: that was lost on the way."""
        if handed.sequence not in self._unconfirmed:
            await self.confirm(handed)


def _is_sound(info: ConsumerInfo) -> bool:
    """Whether what is said of a consumer is what it must be: nats-py takes it as it comes."""
    places = [place for place in (info.delivered, info.ack_floor) if place]
    numbers = [info.num_pending or 0, info.config.opt_start_seq or 0]
    numbers += [number for place in places for number in (place.stream_seq, place.consumer_seq)]
    words = [info.config.description or "", info.config.filter_subject or ""]
    is_sound = all(type(number) is int and 0 <= number <= MOST_SEQUENCE for number in numbers)
    return is_sound and all(isinstance(word, str) for word in words) and isinstance(info.created, datetime)
