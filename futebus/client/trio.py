"""Channels for programs of trio: as `futebus.client`, with `async with`, `async for` and `await`.

Timeouts are trio's, `trio.fail_after` for example.
"""

import contextlib

import trio

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


class _Trio:
    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def until_readable(self, descriptor: int) -> None:
        with contextlib.suppress(trio.ClosedResourceError):  # the next call says that it is closed, if it is
            await trio.lowlevel.wait_readable(descriptor)

    async def until_writable(self, descriptor: int) -> None:
        with contextlib.suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_writable(descriptor)

    def event(self) -> trio.Event:
        return trio.Event()

    def loop(self) -> object:
        return trio.lowlevel.current_trio_token()

    def is_over(self, loop: object) -> bool:
        return loop is not self.loop()  # it ends with all its tasks

    def closing(self, descriptor: int) -> None:
        with contextlib.suppress(RuntimeError):  # nothing runs, and nobody waits
            trio.lowlevel.notify_closing(descriptor)


_doors = Doors(_Trio())

subscribe = _doors.subscribe
publisher = _doors.publisher
publish = _doors.publish
connect = _doors.connect
call = _doors.call
collect = _doors.collect
serve = _doors.serve
join = _doors.join
