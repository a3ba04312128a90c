"""Channels for programs whose tasks wait. What waiting is, `trio` and `aio` say.

The one rule: a task that is cancelled while it waits has taken nothing from the bus, and `accepted` tells what the bus has taken.
So calls have no timeouts: trio and asyncio have better ones.
"""

import errno
import math
import operator
import sys
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack, overload

from .blocking import Creates, Path, Waits
from .channel import RETRY_SECONDS, TRANSIENT, Endpoint, Mastery, Way, begin_of_line, check_whole, way_to
from .errors import ClientError, Ended, NoBus, NoClient, NoMaster, NotOpen, is_own
from .messages import Event, Item, Text, What, address_of, addressed, encoded, events, joined, like, opening_of, texts
from .opening import Hand, Opening

Read = TypeVar("Read")
Done = TypeVar("Done")


class Flag(Protocol):
    """What a task can wait for, once."""

    async def wait(self) -> object:
        """Waits until it is set."""

    def set(self) -> None:
        """Wakes who waits. Done once more, it wakes whom the handler of a signal has kept it from waking."""


class Waiter(Protocol):
    """How tasks wait."""

    async def checkpoint(self) -> None:
        """Lets others run."""

    def event(self) -> Flag:
        """Something to wait for."""

    def loop(self) -> object:
        """What the tasks run in."""

    def here(self) -> object:
        """The loop in which this call is made; None if it is made in none: in another thread, for one."""

    def is_over(self, loop: object) -> bool:
        """Whether the tasks of a loop never run again."""

    def have(self, loop: object, done: Callable[[], object]) -> bool:
        """Has something done between two steps of the tasks of a loop, by any thread. Returns whether it will be."""

    async def sleep(self, seconds: float) -> None:
        """Waits so long."""

    async def until_readable(self, descriptor: int) -> None:
        """Waits until reading is worth a try."""

    async def until_writable(self, descriptor: int) -> None:
        """Waits until writing is worth a try."""

    def closing(self, descriptor: int) -> None:
        """Is told that a descriptor is about to be closed, by who is where its loop is. Who waits for it is woken."""


class Tenants:
    """The loops whose tasks are in calls on a channel, or would be: the first of them is, and the others are refused.

    Each notes and removes itself alone, in steps that no other thread can come between, so there is no lock: the handler of a
    signal could keep one from being given back.

    Args:
        waiter: how they wait.
    """

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter
        self.turns: list[Turns] = []
        """All of those on the channel."""
        self._all: dict[object, None] = {}

    @property
    def loop(self) -> object:
        """The one whose tasks are in calls on the channel, None if there is none. One that is over is in none any more."""
        for loop in [*self._all]:
            if not self.waiter.is_over(loop):
                return loop
            self._all.pop(loop, None)
        return None

    def let_in(self, loop: object) -> bool:
        """Notes a loop, by its own thread. Returns whether its tasks can make calls."""
        self._all[loop] = None
        return self.loop is loop

    def let_out(self, loop: object) -> bool:
        """Forgets a loop if no task of it is in a call. Returns whether that is so."""
        is_out = self.loop is not loop or all(turns.first(loop) is None for turns in self.turns)
        if is_out:
            self._all.pop(loop, None)
        return is_out


class Turns:
    """Whose turn it is, of tasks that do the same. A task that was cancelled has its turn until it has come out.

    It is no lock of trio or asyncio: one that the handler of a signal keeps from giving it back would be held for ever.

    Args:
        tenants: the loops whose tasks take turns on the channel. These turns are added to theirs.
        words: what the one does whose turn it is, for the message.
    """

    def __init__(self, tenants: Tenants, words: str) -> None:
        self._tenants, self._words = tenants, words
        self._all: OrderedDict[Flag, object] = OrderedDict()
        """Those who have come, each with its loop. It is the first one's turn."""
        tenants.turns.append(self)

    async def come(self, mine: Flag, loop: object) -> None:
        """Lets others run, and waits for the turn.

        Args:
            mine: for this turn alone, to be given to `leave` in any case.
            loop: of the task.

        Raises:
            ClientError: a task of another loop has one on the channel.
        """
        await self._tenants.waiter.checkpoint()
        if not self._tenants.let_in(loop):
            words = next((turns._words for turns in self._tenants.turns if turns._all), "uses it")
            raise ClientError(errno.EBUSY, f"a task of another loop {words}: a channel is for the tasks of one")
        self._all[mine] = loop
        while self.first(loop) is not mine:
            await mine.wait()

    def leave(self, mine: Flag, loop: object) -> None:
        """Ends the turn, or the wait for it. To be called again if the handler of a signal has raised in it.

        Args:
            mine: the one that `come` was given, which may not have let it in.
            loop: as well. Only its own tasks are woken: those of another are another thread's.
        """
        self._all.pop(mine, None)
        if not self._tenants.let_out(loop) and (following := self.first(loop)) is not None:
            following.set()

    def first(self, loop: object) -> Flag | None:
        """The one whose turn it is, of the tasks of the loop that is let in. Those of one before are over."""
        while self._all:
            try:
                first, of = next(iter(self._all.items()))
            except (KeyError, RuntimeError, StopIteration):  # where garbage is collected, a task of one before has come out
                continue
            if of is loop:
                return first
            self._all.pop(first, None)
        return None

    @property
    def are_taken(self) -> bool:
        """Whether it is somebody's turn, as a task asks that has one beside."""
        return self.first(self._tenants.loop) is not None


class Iteration(Generic[Read]):
    """What comes, one by one, until the channel ends.

    It is no generator: one that is left by `break` would want to be closed.

    Args:
        read: what waits for the next.
        channel: where that comes from.
    """

    def __init__(self, read: Callable[[], Awaitable[Read]], channel: "_Awaiting[Any]") -> None:
        self._read, self._channel = read, channel

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        closings = self._channel.closings
        try:
            return await self._read()
        except Ended as error:
            if not is_own(error):
                raise
            raise StopAsyncIteration from None
        except NotOpen as error:
            if not is_own(error) or not self._channel.was_left_since(closings):
                raise
            raise StopAsyncIteration from None  # it was closed in the loop, or by another task


class _Awaiting(Endpoint[Item]):
    """A channel whose calls are awaited. `async with` opens it."""

    def __init__(self, way: Way, cut: Any, waiter: Waiter) -> None:
        self._waiter = waiter
        super().__init__(way, cut, is_blocking=False)

    def _begin(self) -> None:
        super()._begin()
        self._tenants = Tenants(self._waiter)
        self._reading, self._sending = Turns(self._tenants, "reads"), Turns(self._tenants, "sends")
        self._opening = Turns(self._tenants, "opens it again")

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _loop_elsewhere(self) -> object:
        """The loop whose tasks are in a call on the channel, unless one of them makes this one; None if there is none.

        The handler of a signal that has interrupted a task in such a call is not that task, which goes on with the descriptor.
        """
        here = None if _is_within_a_turn() else self._waiter.here()
        loop = self._tenants.loop
        return None if loop is here else loop

    def _close(self, opening: Opening) -> None:
        """Closes what tasks may wait for, who come out of that.

        Where they wait is known to their own thread alone. If this is another one, or the handler of a signal, their loop does it
        as soon as it can. Nothing else will do: another file would have the number of the descriptor at once, and be taken for
        the channel; and epoll(7) watches a file, under that number, as long as anybody has it open, a child of fork(2) for one.
        """
        loop = self._loop_elsewhere()
        if loop is not None:

            def work() -> None:
                self._close_there(opening)
                forget()

            def forget() -> None:
                for each in ends:
                    each.detach()  # or what the handler of a signal raises in that would be lost

            ends: list[weakref.finalize[..., Any]] = []
            self._leaving[opening] = loop
            is_heard = False
            try:
                # Before it is handed over: it may be done at once. Noted in the same step, or it would go off behind an error.
                ends += map(weakref.finalize, (work,), (_never_done,), (weakref.ref(self),), (opening,))
                ends[0].atexit = False
                is_heard = self._waiter.have(loop, work)
            finally:
                if not is_heard:
                    forget()
            if is_heard:
                return
        self._close_here(opening)

    def _close_here(self, opening: Opening) -> None:
        if opening.file >= 0:
            self._waiter.closing(opening.file)
        self._let_go(opening)

    def _let_go(self, opening: Opening) -> None:
        """Closes what no task waits for. It is forgotten last: who is kept from the end of that does it again."""
        self._inside.close(opening)
        if opening.file < 0:  # else another thread has it in hand, which a child of fork(2) has not
            self._leaving.pop(opening, None)

    def _close_handed_over(self, here: object) -> None:
        """Closes what is a loop's to close, before anybody hears from it that it was left.

        Args:
            here: that loop.
        """
        for opening, loop in self._leaving.copy().items():
            if loop is here:
                self._close_here(opening)

    def _close_there(self, opening: Opening) -> None:
        try:
            self._close_here(opening)
        except BaseException:  # the handler of a signal
            self._close_here(opening)
            raise

    def _is_elsewhere(self, opening: Opening) -> bool:
        return self._loop_elsewhere() is not None or super()._is_elsewhere(opening)

    def _give_away(self, opening: Opening, *, is_copy: bool) -> None:
        if opening.file >= 0 and self._loop_elsewhere() is None:
            self._waiter.closing(opening.file)

    async def open(self) -> None:
        """Opens the channel; `async with` does it.

        Raises:
            ClientError: as for `Endpoint.open_nowait`.
        """
        await self._waiter.checkpoint()
        self._is_left = self._is_shut = False
        await self._open(self.way.wait)

    async def _open(self, wait: float, closings: int | None = None, gone: Opening | None = None, *, reads: bool = False) -> None:
        for pause in self.attempts(wait, closings, gone, reads=reads):
            await self._waiter.sleep(pause)

    async def _open_again(self, gone: Opening, closings: int, *, reads: bool = False) -> None:
        """Opens the channel again, unless another task does so, or has done so since.

        Args:
            gone: the one that was found to be gone, or not open.
            closings: how often its owner had closed it when the call began that has found that.
            reads: as for `attempts`.
        """

        async def work(_: int) -> None:
            await self._open(math.inf, closings, gone, reads=reads)

        await self._in_turn(self._opening, work)

    def _open_for_others(self, gone: Opening, closings: int) -> None:
        """As `Waiting._open_for_others`."""
        if self._opening.are_taken:
            raise self._away()
        try:
            for _ in self.attempts(0, closings, gone):
                pass  # there is no second try to wait for
        except TRANSIENT as error:
            if not is_own(error):
                raise
            raise self._away() from None

    async def _in_turn(self, turns: Turns, work: Callable[[int], Awaitable[Done]]) -> Done:
        """Does something when no other task does so.

        Args:
            turns: whose turn it is.
            work: is given how often its owner had closed the channel when this was called.

        Raises:
            ValueError: he has closed it while the turn was waited for, and may have opened it again.
        """
        closings, mine, loop = self._closings, self._waiter.event(), self._waiter.loop()
        try:
            await turns.come(mine, loop)
            self._check_not_closed(closings)
            return await work(closings)
        finally:
            try:
                turns.leave(mine, loop)
            except BaseException:  # the handler of a signal
                turns.leave(mine, loop)
                raise
            if self._leaving:
                self._close_handed_over(loop)

    # ------------------------------------------------------------------------------------------ reading

    async def read_block(self) -> bytes:
        r"""The next whole lines as the bus gives them, addresses included, each with its `\n`; as many as there are.

        Raises:
            Ended: nothing more will come.
            NoBus: the bus has gone.
            ValueError: the channel is not open, or messages that have come before are still to be asked for.
        """
        hand = self._hand()

        async def take(closings: int) -> None:
            self.check_nothing_pending()
            await self._catch(hand, closings)

        try:
            while True:
                await self._in_turn(self._reading, take)
                if data := self._given(hand):
                    return data
        except BaseException:
            if hand.blocks and hand.of.forgettings == self._forgettings:
                self._saved = (hand, *self._saved)
            raise

    async def _catch(self, hand: Hand, closings: int) -> None:
        """Takes the next lines in hand, as soon as there are some."""
        while True:
            self._check_not_closed(closings)
            opening = self._now
            try:
                self._read_nowait(hand)
                return
            except BlockingIOError as error:
                if not is_own(error):
                    raise
                await self._waiter.until_readable(self.fileno())
            except (Ended, NoBus) as error:
                if not self.way.again or not is_own(error):
                    raise
                if self._is_shut:
                    raise self._ended() from None
                await self._open_again(opening, closings, reads=True)
            except NotOpen as error:  # another task opens it, or has tried in vain
                if not self.way.again or self._is_left or not is_own(error):
                    raise
                await self._open_again(opening, closings, reads=True)

    async def _next(self) -> Item:
        while True:
            for item in self._items:
                return item
            await self._in_turn(self._reading, self._fill)

    async def _fill(self, closings: int) -> None:
        """Waits until there is something that can be asked for."""
        if operator.length_hint(self._items):
            return  # another task has brought it
        self._all = []
        hand = self._hand()
        try:
            await self._catch(hand, closings)
            self._hand_on(hand)
        except BaseException:
            if hand.blocks and hand.of.forgettings == self._forgettings:
                self._saved = (hand, *self._saved)
            raise

    # ------------------------------------------------------------------------------------------ sending

    async def send_block(self, lines: bytes) -> int:
        r"""Sends whole lines as they are, addresses included, each with its `\n`.

        Returns:
            How many were accepted: all of them.

        Raises:
            ClientError: as for `send`.
        """
        self.accepted = 0
        check_whole(lines)
        return await self._send(lines)

    async def _send(self, lines: bytes, of: object = None, *, is_to_all: bool = False) -> int:
        """Sends lines, as `Waiting._send`. Tasks that do so take turns."""
        before, has_come = self._now, False

        async def send(closings: int) -> int:
            nonlocal has_come
            self.accepted, has_come = 0, True
            return await self._send_in_turn(lines, closings, before, of, is_to_all=is_to_all)

        try:
            return await self._in_turn(self._sending, send)
        except GeneratorExit:  # its loop was closed, and somebody else may have sent since
            raise
        except BaseException:
            if not has_come:
                self.accepted = 0  # it may tell of the one whose turn it was
            raise

    async def _send_in_turn(self, lines: bytes, closings: int, before: Opening, of: object, *, is_to_all: bool) -> int:
        is_addressed = self._is_addressed and not is_to_all
        place = [0]
        lines, first, opening = self.begin_sending(lines, of)
        counted = [first, 0]
        if is_addressed and opening is not before:
            opening = before  # the one in which the addresses are known
        try:
            while place[-1] < len(lines):
                if opening is not self._now:
                    self._check_not_closed(closings)
                start, opening = self.go_on_sending(lines, first, place[-1], opening, is_to_all=is_to_all)
                place[:] = (start,)
                try:
                    self._send_from(lines, place, opening)
                except BlockingIOError as error:
                    if not is_own(error):
                        raise
                    # It may never go on: its loop may be closed.
                    self.stop_sending(lines, first, place[-1], opening, counted=counted)
                    await self._waiter.until_writable(self.fileno())
                except (NoBus, NoMaster) as error:
                    if not is_own(error):
                        raise
                    if self._comes_again and is_addressed and self._now is opening and not self._opening.are_taken:
                        self._keep(opening, closings)
                        self._leave(closings, opening)  # whoever reads or sends next opens it
                    if not self._comes_again:
                        raise
                    if is_addressed:  # on another channel, an address is another client's
                        raise self._away() from None
                    place.append(begin_of_line(lines, place[-1], first))  # what the bus had of a message has gone with it
                    await self._waiter.sleep(RETRY_SECONDS[0])  # a master that does not read is found again at once
                    if isinstance(error, NoMaster) and not self._has_ended(opening):
                        continue
                    if self._now is opening and self.way.reads:
                        self._keep(opening, closings)
                    await self._open_again(opening, closings)
                except NotOpen as error:
                    if not self._comes_again or self._is_left or not is_own(error):
                        raise
                    place.append(begin_of_line(lines, place[-1], first))
                    if is_addressed:
                        self._open_for_others(opening, closings)
                    else:
                        await self._open_again(opening, closings)
            return self.end_sending(lines, first, place[-1], opening, counted=counted)
        except GeneratorExit:  # its loop was closed: somebody else may have gone on from what was noted
            raise
        except BaseException as error:  # refused, or cancelled
            try:
                self.stop_sending(lines, first, place[-1], opening, error, counted=counted)
            except BaseException:  # the handler of a signal
                self.stop_sending(lines, first, place[-1], opening, error, counted=counted)
                raise
            raise


def _never_done(channel: "weakref.ref[_Awaiting[Any]]", opening: Opening) -> None:
    """Closes what a loop was to close that was closed before: nobody waits there. What has gone itself has done so."""
    there = channel()
    if there:
        there._let_go(opening)


_IN_TURN = _Awaiting._in_turn.__code__


def _is_within_a_turn() -> bool:
    """Whether the handler of a signal asks that, in the middle of what a task does on a channel. One that waits is elsewhere."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_code is not _IN_TURN:
        frame = frame.f_back
    return frame is not None


class Reader(_Awaiting[Text], Generic[Text]):
    """Somebody who listens to a channel, as `futebus.client.Reader`."""

    async def read(self) -> Text:
        """The next message, as `futebus.client.Reader.read`."""
        return await self._next()

    def __aiter__(self) -> Iteration[Text]:
        return Iteration(self.read, self)


class Publisher(_Awaiting[str]):
    """Somebody who writes to a channel, as `futebus.client.Publisher`."""

    def __init__(self, way: Way, waiter: Waiter) -> None:
        super().__init__(way, texts(str), waiter)
        self._address = address_of(None) if way.name[0] == "A" else b""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages, as `futebus.client.Publisher.send`. If the task is cancelled, `accepted` tells how many were."""
        self.accepted = 0
        return await self._send(joined(messages, self._address), is_to_all=True)


class Slave(Reader[Text]):
    """A slave of a U or S channel, as `futebus.client.Slave`."""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages to the master, as `Publisher.send` does."""
        self.accepted = 0
        return await self.send_block(joined(messages))


class Collector(Reader[Text], Mastery[Text]):
    """The master of a U channel, as `futebus.client.Collector`."""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages to all slaves, as `Publisher.send` does. It never waits."""
        self.accepted = 0
        return await self.send_block(joined(messages))


class Peer(_Awaiting[tuple[int, Text]], Generic[Text]):
    """Somebody on an A channel, as `futebus.client.Peer`."""

    async def read(self) -> tuple[int, Text]:
        """The next message and who has sent it, as `Reader.read`."""
        return await self._next()

    def __aiter__(self) -> Iteration[tuple[int, Text]]:
        return Iteration(self.read, self)

    async def send(self, client: int | None, *messages: str | bytes) -> int:
        """Sends messages to one client, or to all others who read, as `futebus.client.Peer.send`."""
        self.accepted = 0
        return await self._send(joined(messages, address_of(client)), opening_of(client), is_to_all=client is None)


class Service(_Awaiting[Event[Text]], Mastery[Event[Text]], Generic[Text]):
    """The master of an S channel, as `futebus.client.Service`."""

    async def read(self) -> tuple[int, Text]:
        """The next message and the slave who has sent it, as `Reader.read`."""
        while True:
            sender, what, text = await self._next()
            if what is What.SAID:
                return sender, text

    def __aiter__(self) -> Iteration[tuple[int, Text]]:
        return Iteration(self.read, self)

    def events(self) -> Iteration[Event[Text]]:
        """As iterating, and who opens and closes the channel too."""
        return Iteration(self._next, self)

    async def answer(self, client: int, *messages: str | bytes) -> bool:
        """Sends messages to one slave, as `futebus.client.Service.answer`. Returns whether it got them."""
        self.accepted = 0
        lines = joined(messages, address := address_of(client))
        if len(lines) <= (len(address) + 1) * len(messages):
            return False  # the bus takes empty lines and discards them
        try:
            await self._send(lines, opening_of(client))
        except NoClient as error:
            if not is_own(error):
                raise
            return False
        return True

    async def announce(self, *messages: str | bytes) -> int:
        """Sends messages to all slaves that read, as `Publisher.send` does."""
        self.accepted = 0
        return await self._send(joined(messages, address_of(None)), is_to_all=True)


class Doors:
    """The ways in, for one way to wait. Each is what the function of the same name in `futebus.client` is, to be awaited.

    Args:
        waiter: how to wait.
    """

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    @overload
    def subscribe(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Reader[str]: ...
    @overload
    def subscribe(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Reader[bytes]: ...
    def subscribe(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Reader[str] | Reader[bytes]:
        """Listens to a channel, as `futebus.client.subscribe` does."""
        way = Way(way_to(path, "USB", "subscribe()"), writes=False, creates=True, **how)
        return Reader(way, texts(kind), self._waiter)

    def publisher(self, path: Path, **how: Unpack[Creates]) -> Publisher:
        """Opens a channel to write to it, as `futebus.client.publisher` does."""
        way = Way(way_to(path, "UASB", "publisher()"), reads=False, creates=True, **how)
        return Publisher(way, self._waiter)

    async def publish(self, path: Path, *messages: str | bytes, **how: Unpack[Creates]) -> int:
        """Sends messages to a channel, once."""
        async with self.publisher(path, **how) as out:
            return await out.send(*messages)

    @overload
    def connect(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Slave[str]: ...
    @overload
    def connect(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Slave[bytes]: ...
    def connect(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Slave[str] | Slave[bytes]:
        """Becomes a slave of a U or S channel, or one of those on a B channel, who reads and writes."""
        return Slave(Way(way_to(path, "USB", "connect()"), creates=True, **how), texts(kind), self._waiter)

    async def call(self, path: Path, request: Text, **how: Unpack[Waits]) -> Text:
        """Asks a service one thing."""
        if not encoded(request):
            raise ValueError("a request is a line that is not empty")
        how["again"] = False  # another service knows nothing of what this one was asked
        async with self.connect(way_to(path, "S", "call()"), bytes, **how) as slave:
            await slave.send(request)
            return like(request, await slave.read())

    @overload
    def collect(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Collector[str]: ...
    @overload
    def collect(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Collector[bytes]: ...
    def collect(
        self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]
    ) -> Collector[str] | Collector[bytes]:
        """Becomes the master of a U channel, who gets every line that anybody writes to it."""
        way = Way(way_to(path, "U", "collect()"), is_master=True, **how)
        return Collector(way, texts(kind), self._waiter)

    @overload
    def serve(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Service[str]: ...
    @overload
    def serve(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Service[bytes]: ...
    def serve(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Service[str] | Service[bytes]:
        """Becomes the master of an S channel, who answers what slaves ask."""
        way = Way(way_to(path, "S", "serve()"), is_master=True, **how)
        return Service(way, events(kind), self._waiter)

    @overload
    def join(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Peer[str]: ...
    @overload
    def join(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Peer[bytes]: ...
    def join(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Peer[str] | Peer[bytes]:
        """Joins an A channel, on which each can write to each."""
        way = Way(way_to(path, "A", "join()"), creates=True, **how)
        return Peer(way, addressed(kind), self._waiter)
