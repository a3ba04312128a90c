"""trio and asyncio, as tests of clients use them: the same calls for both."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio

import futebus.client.aio
import futebus.client.trio

from ..helpers.waiting import DEADLINE

LATE_SECONDS = 0.5
"""So long after it has begun, a task waits, also on a machine that stood still meanwhile."""


class Trio:
    """trio, as these tests use it."""

    doors: Any = futebus.client.trio

    def run(self, main: Callable[[], Awaitable[object]]) -> None:
        async def in_time() -> None:
            with trio.fail_after(DEADLINE):
                await main()

        trio.run(in_time)

    async def together(self, *tasks: Callable[[], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(task)

    async def is_late(self, task: Callable[[], Awaitable[object]]) -> bool:
        """Cancels it when it waits. Returns whether it had to."""
        with trio.move_on_after(LATE_SECONDS) as limit:
            await task()
        return limit.cancelled_caught

    async def elsewhere(self, main: Callable[[], Awaitable[object]]) -> None:
        """Does something in a loop of another thread."""
        await trio.to_thread.run_sync(self.run, main)

    async def pause(self) -> None:
        await trio.sleep(0.01)

    async def until_readable(self, descriptor: int) -> None:
        await trio.lowlevel.wait_readable(descriptor)

    async def cancelled(self, task: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]]) -> None:
        """Cancels a task when it waits, and does something at once: it has not come out yet."""
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def bound() -> None:
                with scope:
                    await task()

            nursery.start_soon(bound)
            await self.until_waiting(1)
            scope.cancel()
            await then()

    @property
    def waiting(self) -> int:
        """How many tasks wait for a file."""
        told: Any = trio.lowlevel.current_statistics().io_statistics
        return int(told.tasks_waiting_read + told.tasks_waiting_write - 1)  # one of them is trio's own

    async def until_waiting(self, count: int) -> None:
        while self.waiting < count:
            await self.pause()


class Aio:
    """asyncio, as these tests use it."""

    doors: Any = futebus.client.aio

    def run(self, main: Callable[[], Awaitable[object]]) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(DEADLINE):
                await main()

        asyncio.run(in_time())

    async def together(self, *tasks: Callable[[], Awaitable[object]]) -> None:
        async def one(task: Callable[[], Awaitable[object]]) -> None:
            await task()

        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(one(task))

    async def is_late(self, task: Callable[[], Awaitable[object]]) -> bool:
        try:
            async with asyncio.timeout(LATE_SECONDS):
                await task()
        except TimeoutError:
            return True
        return False

    async def elsewhere(self, main: Callable[[], Awaitable[object]]) -> None:
        await asyncio.to_thread(self.run, main)

    async def pause(self) -> None:
        await asyncio.sleep(0.01)

    async def until_readable(self, descriptor: int) -> None:
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)

    async def cancelled(self, task: Callable[[], Awaitable[object]], then: Callable[[], Awaitable[object]]) -> None:
        async def one() -> None:
            await task()

        doing = asyncio.create_task(one())
        await self.until_waiting(1)
        doing.cancel()
        await then()
        await asyncio.wait([doing])

    @property
    def waiting(self) -> int:
        waiter: Any = futebus.client.aio._doors._waiter
        return sum(map(len, waiter._waited.values()))

    async def until_waiting(self, count: int) -> None:
        while self.waiting < count:
            await self.pause()
