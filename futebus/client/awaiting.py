"""Channels for programs whose tasks wait. What waiting is, `trio` and `aio` say.

The one rule: a task that is cancelled while it waits has taken nothing from the bus, and `accepted` tells what the bus has taken.
So calls have no timeouts: trio and asyncio have better ones.
"""

import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, Unpack, overload

from .blocking import Creates, Path, Waits
from .channel import RETRY_SECONDS, Endpoint, Mastery, Way, begin_of_line, way_to
from .errors import ClientError, Ended, NoBus, NoClient, NoMaster
from .messages import Event, Item, Text, What, address_of, addressed, encoded, events, joined, like, texts

Read = TypeVar("Read")


class Waiter(Protocol):
    """How tasks wait."""

    async def checkpoint(self) -> None:
        """Lets others run."""

    async def sleep(self, seconds: float) -> None:
        """Waits so long."""

    async def until_readable(self, descriptor: int) -> None:
        """Waits until reading is worth a try."""

    async def until_writable(self, descriptor: int) -> None:
        """Waits until writing is worth a try."""

    def closing(self, descriptor: int) -> None:
        """Is told that a descriptor is about to be closed."""


class Iteration(Generic[Read]):
    """What comes, one by one, until the channel ends.

    It is no generator: one that is left by `break` would want to be closed.

    Args:
        read: what waits for the next.
    """

    def __init__(self, read: Callable[[], Awaitable[Read]]) -> None:
        self._read = read

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        try:
            return await self._read()
        except Ended:
            raise StopAsyncIteration from None


class _Awaiting(Endpoint[Item]):
    """A channel whose calls are awaited. `async with` opens it."""

    def __init__(self, way: Way, cut: object, waiter: Waiter) -> None:
        super().__init__(way, cut, is_blocking=False)  # type: ignore[arg-type]
        self._waiter = waiter
        self._is_opening = False
        """Whether a task opens it again."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _leave(self) -> None:
        if self.is_open:
            self._waiter.closing(self._file)
        super()._leave()

    async def open(self) -> None:
        """Opens the channel; `async with` does it.

        Raises:
            ClientError: as for `Endpoint.open_nowait`.
        """
        await self._waiter.checkpoint()
        self._left = False
        await self._open(self.way.wait)

    async def _open(self, wait: float) -> None:
        for pause in self.attempts(wait):
            await self._waiter.sleep(pause)

    async def _open_again(self, joins: int) -> None:
        """Opens the channel again, unless another task does so, or has done so since it had been opened so often."""
        while self._is_opening:
            await self._waiter.sleep(RETRY_SECONDS[0])
        if self.joins != joins or self._left:
            return
        self._is_opening = True
        try:
            await self._open(math.inf)
        finally:
            self._is_opening = False

    # ------------------------------------------------------------------------------------------ reading

    async def read_block(self) -> bytes:
        r"""The next whole lines as the bus gives them, addresses included, each with its `\n`; as many as there are.

        Raises:
            Ended: nothing more will come.
            NoBus: the bus has gone.
            ValueError: the channel is not open, or messages that have come before are still to be asked for.
        """
        self.check_nothing_pending()
        return await self._block()

    async def _block(self) -> bytes:
        await self._waiter.checkpoint()
        while True:
            joins = self.joins
            try:
                return self.read_block_nowait()
            except BlockingIOError:
                await self._waiter.until_readable(self.fileno())
            except (Ended, NoBus):
                if not self._comes_again:
                    raise
                await self._open_again(joins)
            except ValueError:  # it is not open: another task opens it, or has tried in vain
                if not self._comes_again or self._left:
                    raise
                await self._open_again(joins)

    async def _next(self) -> Item:
        while True:
            for item in self._items:
                return item
            self._items = iter(self._cut(await self._block()))

    # ------------------------------------------------------------------------------------------ sending

    async def send_block(self, lines: bytes) -> int:
        r"""Sends whole lines as they are, addresses included, each with its `\n`.

        Returns:
            How many were accepted: all of them.

        Raises:
            ClientError: as for `send`.
        """
        lines, first, epoch = self.begin_sending(lines)
        start = 0
        try:
            await self._waiter.checkpoint()
            while start < len(lines):
                joins = self.joins
                file, start, epoch = self.go_on_sending(lines, first, start, epoch)
                try:
                    start = self.send_nowait(lines, start, file)
                except BlockingIOError:
                    await self._waiter.until_writable(self.fileno())
                except (NoBus, NoMaster):
                    # On another channel, an address is another client's.
                    if self._comes_again and self._is_addressed and self._epoch == epoch and not self._is_opening:
                        self._leave()  # whoever reads or sends next opens it
                    if not self._comes_again or self._is_addressed:
                        raise
                    start = begin_of_line(lines, start, first)  # what the bus had of a message has gone with it
                    await self._waiter.sleep(RETRY_SECONDS[0])  # a master that does not read is found again at once
                    await self._open_again(joins)
                except ValueError:
                    if not self._comes_again or self._left:
                        raise
                    start = begin_of_line(lines, start, first)
                    await self._open_again(joins)
        except ClientError as error:  # what the bus had of a message is dropped
            error.accepted = self.end_sending(lines, first, begin_of_line(lines, start, first), epoch)
            raise
        except BaseException:  # cancelled
            self.stop_sending(lines, first, start, epoch)
            raise
        return self.end_sending(lines, first, start, epoch)


class Reader(_Awaiting[Text], Generic[Text]):
    """Somebody who listens to a channel, as `futebus.client.Reader`."""

    async def read(self) -> Text:
        """The next message, as `futebus.client.Reader.read`."""
        return await self._next()

    def __aiter__(self) -> Iteration[Text]:
        return Iteration(self.read)


class Publisher(_Awaiting[str]):
    """Somebody who writes to a channel, as `futebus.client.Publisher`."""

    def __init__(self, way: Way, waiter: Waiter) -> None:
        super().__init__(way, texts(str), waiter)
        self._address = address_of(None) if way.name[0] == "A" else b""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages, as `futebus.client.Publisher.send`. If the task is cancelled, `accepted` tells how many were."""
        return await self.send_block(joined(messages, self._address))


class Slave(Reader[Text]):
    """A slave of a U or S channel, as `futebus.client.Slave`."""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages to the master, as `Publisher.send` does."""
        return await self.send_block(joined(messages))


class Collector(Reader[Text], Mastery[Text]):
    """The master of a U channel, as `futebus.client.Collector`."""

    async def send(self, *messages: str | bytes) -> int:
        """Sends messages to all slaves, as `Publisher.send` does. It never waits."""
        return await self.send_block(joined(messages))


class Peer(_Awaiting[tuple[int, Text]], Generic[Text]):
    """Somebody on an A channel, as `futebus.client.Peer`."""

    async def read(self) -> tuple[int, Text]:
        """The next message and who has sent it, as `Reader.read`."""
        return await self._next()

    def __aiter__(self) -> Iteration[tuple[int, Text]]:
        return Iteration(self.read)

    async def send(self, client: int | None, *messages: str | bytes) -> int:
        """Sends messages to one client, or to all others who read, as `futebus.client.Peer.send`."""
        return await self.send_block(joined(messages, address_of(client)))


class Service(_Awaiting[Event[Text]], Mastery[Event[Text]], Generic[Text]):
    """The master of an S channel, as `futebus.client.Service`."""

    async def read(self) -> tuple[int, Text]:
        """The next message and the slave who has sent it, as `Reader.read`."""
        while True:
            sender, what, text = await self._next()
            if what is What.SAID:
                return sender, text

    def __aiter__(self) -> Iteration[tuple[int, Text]]:
        return Iteration(self.read)

    def events(self) -> Iteration[Event[Text]]:
        """As iterating, and who opens and closes the channel too."""
        return Iteration(self._next)

    async def answer(self, client: int, *messages: str | bytes) -> bool:
        """Sends messages to one slave, as `futebus.client.Service.answer`. Returns whether it got them."""
        try:
            await self.send_block(joined(messages, address_of(client)))
        except NoClient:
            return False
        except NoBus:
            if not self._comes_again:
                raise
            return False  # with the bus, everybody has left
        return True

    async def announce(self, *messages: str | bytes) -> int:
        """Sends messages to all slaves that read, as `Publisher.send` does."""
        return await self.send_block(joined(messages, address_of(None)))


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
        return Reader(way, texts(kind), self._waiter)  # type: ignore[type-var]

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
        return Slave(Way(way_to(path, "USB", "connect()"), creates=True, **how), texts(kind), self._waiter)  # type: ignore[type-var]

    async def call(self, path: Path, request: Text, **how: Unpack[Waits]) -> Text:
        """Asks a service one thing."""
        if not encoded(request):
            raise ValueError("a request is a line that is not empty")
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
        return Collector(way, texts(kind), self._waiter)  # type: ignore[type-var]

    @overload
    def serve(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Service[str]: ...
    @overload
    def serve(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Service[bytes]: ...
    def serve(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Service[str] | Service[bytes]:
        """Becomes the master of an S channel, who answers what slaves ask."""
        way = Way(way_to(path, "S", "serve()"), is_master=True, **how)
        return Service(way, events(kind), self._waiter)  # type: ignore[type-var]

    @overload
    def join(self, path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Peer[str]: ...
    @overload
    def join(self, path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Peer[bytes]: ...
    def join(self, path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Peer[str] | Peer[bytes]:
        """Joins an A channel, on which each can write to each."""
        way = Way(way_to(path, "A", "join()"), creates=True, **how)
        return Peer(way, addressed(kind), self._waiter)  # type: ignore[type-var]
