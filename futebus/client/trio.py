"""Channels for programs of trio: as `futebus.client`, with `async with`, `async for` and `await`.

Timeouts are trio's, `trio.fail_after` for example.
"""

import contextlib
import os
from collections.abc import Callable

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
    def __init__(self) -> None:
        self._copied: object = None
        """The loop of which this process, a child of fork(2), has a copy. Who is woken in that is one of its parent's tasks."""

    def forked(self) -> None:
        """Notes that this is a child of fork(2)."""
        with contextlib.suppress(RuntimeError):
            self._copied = self.loop()

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

    def here(self) -> object:
        try:
            task = trio.lowlevel.current_task()
        except RuntimeError:
            return None
        return self.loop() if getattr(task.coro, "cr_running", True) else None  # it is also the one that has just begun to wait

    def is_over(self, loop: object) -> bool:
        with contextlib.suppress(RuntimeError):
            if loop is self.loop():
                return False
        return not self.have(loop, _nothing)  # it ends with all its tasks

    def have(self, loop: object, done: Callable[[], object]) -> bool:
        if not isinstance(loop, trio.lowlevel.TrioToken):
            return False
        try:
            loop.run_sync_soon(done, idempotent=True)
        except trio.RunFinishedError:
            return False
        return True

    def closing(self, descriptor: int) -> None:
        with contextlib.suppress(RuntimeError):  # nothing runs, and nobody waits
            if self.loop() is not self._copied:
                trio.lowlevel.notify_closing(descriptor)


def _nothing() -> None:
    pass


_waiter = _Trio()
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
