"""Channels for programs of asyncio: as `futebus.client`, with `async with`, `async for` and `await`.

Timeouts are those of asyncio, `asyncio.timeout` for example.
"""

import asyncio
from collections.abc import Callable

from .awaiting import Collector, Doors, Peer, Publisher, Reader, Service, Slave

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


class _Asyncio:
    def __init__(self) -> None:
        self._waited: dict[int, dict[str, asyncio.Future[None]]] = {}
        """Who waits for which descriptor, and for what."""

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

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
        waiting = self._waited.setdefault(descriptor, {})
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        waiting[what] = ready
        try:
            add(descriptor, tell)
            await ready
        finally:
            if waiting.get(what) is ready:  # or else the descriptor has been closed, and may be another file's
                remove(descriptor)
                del waiting[what]
                if not waiting:
                    del self._waited[descriptor]

    def closing(self, descriptor: int) -> None:
        waiting = self._waited.pop(descriptor, {})
        woken = [*waiting.values()]
        waiting.clear()  # whoever comes out finds that it is not his any more
        for ready in woken:
            loop = ready.get_loop()
            if loop.is_closed():
                continue
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)
            if not ready.done():
                ready.set_result(None)  # the next call says that it is closed


_doors = Doors(_Asyncio())

subscribe = _doors.subscribe
publisher = _doors.publisher
publish = _doors.publish
connect = _doors.connect
call = _doors.call
collect = _doors.collect
serve = _doors.serve
join = _doors.join
