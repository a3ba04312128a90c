"""Channels for programs of asyncio: as `futebus.client`, with `async with`, `async for` and `await`.

Timeouts are those of asyncio, `asyncio.timeout` for example.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

from .awaiting import Collector, Doors, Peer, Publisher, Reader, Service, Slave
from .errors import is_own

__all__ = [
    "Collector",
    "Peer",
    "Publisher",
    "Reader",
    "Service",
    "Slave",
    "call",
    "collect",
    "connect",
    "join",
    "publish",
    "publisher",
    "serve",
    "subscribe",
]


class _Flag(asyncio.Event):
    def set(self) -> None:
        self.clear()  # or it would find, the second time, that it has been set
        super().set()


@contextlib.contextmanager
def _unless_closed(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Inside, a loop is asked for something. It may be closed, or be so meanwhile by its own thread: then that is that.

    What the question finds then depends on how far that is: asyncio is not made for it.
    """
    try:
        yield
    except Exception as error:
        if not loop.is_closed() or not is_own(error, "asyncio", "selectors", type(loop).__module__):
            raise


class _Asyncio:
    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """In a child of fork(2), nobody waits. What loops of its parent's wait for, the two have in common."""
        self._waited: dict[int, WeakValueDictionary[str, asyncio.Future[None]]] = {}
        """Who waits for which descriptor, and for what. Those of a loop that was closed are nobody's."""

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    def event(self) -> asyncio.Event:
        return _Flag()

    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def here(self) -> object:
        try:
            return self.loop()
        except RuntimeError:
            return None

    def have(self, loop: object, done: Callable[[], object]) -> bool:
        if not isinstance(loop, asyncio.AbstractEventLoop) or not loop.is_running():
            return False
        with _unless_closed(loop):
            loop.call_soon_threadsafe(done)
        return not loop.is_closed()  # or nobody may ever look at what it is to do

    def is_over(self, loop: object) -> bool:
        return isinstance(loop, asyncio.AbstractEventLoop) and loop.is_closed()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until_readable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        await self._until(descriptor, "reads", loop.add_reader, loop.remove_reader)

    async def until_writable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        await self._until(descriptor, "sends", loop.add_writer, loop.remove_writer)

    async def _until(
        self,
        descriptor: int,
        what: str,
        add: Callable[[int, Callable[[], None]], None],
        remove: Callable[[int], bool],
    ) -> None:
        waiting = self._waited.setdefault(descriptor, WeakValueDictionary())
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not ready.done():
                with contextlib.suppress(asyncio.InvalidStateError):  # the handler of a signal has closed it since
                    ready.set_result(None)
            else:  # the handler of a signal may have kept the task from that
                remove(descriptor)

        waiting[what] = ready
        try:
            add(descriptor, tell)
            await ready
        finally:
            if self._waited.get(descriptor) is waiting and waiting.get(what, ready) is ready:
                remove(descriptor)  # or else it has been closed, and may be another file's
                waiting.pop(what, None)
                if not waiting:
                    self._waited.pop(descriptor, None)

    def closing(self, descriptor: int) -> None:
        for ready in [*self._waited.get(descriptor, WeakValueDictionary()).values()]:
            loop = ready.get_loop()
            with _unless_closed(loop):
                loop.remove_reader(descriptor)
                loop.remove_writer(descriptor)
                if not ready.done():
                    ready.set_result(None)  # the next call says that it is closed
                    loop.call_soon_threadsafe(int)  # the handler of a signal has interrupted its waiting, which goes on
        self._waited.pop(descriptor, None)  # whoever comes out finds that it is not his any more


_waiter = _Asyncio()
os.register_at_fork(after_in_child=_waiter.forked)
_doors = Doors(_waiter)

subscribe = _doors.subscribe
publisher = _doors.publisher
publish = _doors.publish
connect = _doors.connect
call = _doors.call
collect = _doors.collect
serve = _doors.serve
join = _doors.join
