"""The loop of the bus, and who waits for it: what is given up before it has begun there."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked as blocked

import futebus.client
import futebus.client.trio
from futebus.gateways.apart import Far, Side
from futebus.gateways.ubus.connection import Connection
from futebus.gateways.ubus.telling import HOLD_SECONDS, Telling

from ..helpers.mounts import Mounting


class Slow(Side):
    """A loop that stands still until it is let go on, and then does all that it was told meanwhile."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._waiting: list[Callable[[], object]] = []

    def post(self, work: Callable[..., object], *arguments: Any) -> None:
        self._waiting.append(lambda: work(*arguments))

    @property
    def posts(self) -> int:
        return len(self._waiting)

    def go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()


class Full:
    """A channel whose master takes nothing."""

    accepted = 0
    is_open = False
    is_begun = False
    asked = 0

    async def open(self) -> None:
        self.is_open = True

    async def send_block(self, lines: bytes) -> int:
        self.asked += 1
        await trio.sleep_forever()
        raise AssertionError

    def close(self) -> None:
        self.is_open = False


class Saying:
    """A connection that says one line."""

    def __init__(self) -> None:
        self._lines = [b"line\n"]

    async def receive_lines(self) -> bytes:
        return self._lines.pop() if self._lines else b""


def run(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Here:
    """Another thread's loop that is this one's."""

    async def run(self, work: Callable[..., Awaitable[Any]], *words: Any) -> Any:
        return await work(*words)

    def post(self, work: Callable[..., object], *words: Any) -> None:
        work(*words)


def test_who_gives_up_behind_half_of_a_long_message_has_sent_nothing(mounting: Mounting) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    accepted = []

    async def main() -> None:
        far: Far[Any] = Far(cast(Any, Here()), futebus.client.trio.publisher(bus / "U_x"))
        await far.open()
        assert await far.send_block(b"one\ntwo\n") == 2
        for lines in (b"x" * (3 << 20) + b"\n", b"never\n"):

            async def send(lines: bytes = lines) -> None:
                accepted.append(await far.send_block(lines))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await blocked(0.1)  # it waits for place
                far.give_up()

    with futebus.client.collect(bus / "U_x"):
        trio.run(main)
    assert accepted == [0, 0]


def test_who_gives_up_what_has_not_begun_does_not_wait_for_it() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            slow = Slow(nursery)
            far: Far[Any] = Far(slow, Full())
            sent = []

            async def send() -> None:
                sent.append(await far.send_block(b"line\n"))

            nursery.start_soon(send)
            await blocked()
            assert slow.posts == 1
            far.give_up()
            slow.go_on()
            await blocked()
            assert sent == [0]

            # And the next call is not given up.
            nursery.start_soon(send)
            await blocked()
            assert slow.posts == 1
            slow.go_on()
            await blocked()
            assert sent == [0]
            nursery.cancel_scope.cancel()
            slow.go_on()

    run(main)


def test_a_channel_that_is_opened_slowly_does_not_hold_up_who_leaves_it() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            slow, full = Slow(nursery), Full()
            telling = Telling(Far(slow, full), keeps_value=False)  # type: ignore[arg-type]
            connection: Connection = Saying()  # type: ignore[assignment]
            nursery.start_soon(telling.handle, connection)
            await blocked()
            assert slow.posts == 1
            held = trio.Event()

            async def hold() -> None:
                await telling.hold()
                held.set()

            nursery.start_soon(hold)
            await trio.sleep(2 * HOLD_SECONDS)
            assert slow.posts == 2, "it has been given up"
            slow.go_on()
            with trio.fail_after(60):
                await held.wait()
            assert (full.is_open, full.asked) == (True, 0)
            nursery.cancel_scope.cancel()
            slow.go_on()

    run(main)
