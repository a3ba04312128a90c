"""What is put off, and the requests that come meanwhile."""

from collections.abc import Callable, Hashable
from functools import partial

import pytest
import trio

from futebus.core.bus import Bus
from futebus.core.channel import READERS_AT_ONCE, Broadcast
from futebus.core.client import Access, Effects, Owner
from futebus.core.limits import Limits
from futebus.fuse.turns import REQUESTS_SHARE, Step, Turns
from futebus.fuse.waiting import Calls


class Kernel:
    """Requests that come from somewhere, one of which is served whenever the event loop has a turn, in a time of its own."""

    def __init__(self, requests: int, seconds: float = 0.001) -> None:
        self.requests = requests
        self.seconds = seconds
        """How long one takes."""
        self.hurried: list[bool] = []
        self.time = 0.0

    def clock(self) -> float:
        return self.time

    def busy(self, seconds: float) -> None:
        """Something else is done for so long."""
        self.time += seconds

    def is_waited_for(self) -> bool:
        return self.requests > 0

    async def serve(self) -> None:
        while True:
            if self.requests > 0:
                self.requests -= 1
                self.time += self.seconds
            await trio.lowlevel.checkpoint()


def run(turns: Turns, kernel: Kernel, is_done: Callable[[], bool]) -> None:
    """Has the turns taken until it is done."""

    async def all_of_it() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as tasks:
                tasks.start_soon(turns.run)
                tasks.start_soon(kernel.serve)
                while not is_done():
                    await trio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

    trio.run(all_of_it)


def test_requests_that_wait_are_all_served_before_the_next_step_if_they_are_quick() -> None:
    kernel = Kernel(requests=100)
    turns = Turns(kernel.is_waited_for, kernel.hurried.append, kernel.clock)
    left: list[int] = []

    def step() -> bool:
        left.append(kernel.requests)
        kernel.busy(0.5 if len(left) == 1 else 0.0)  # two seconds for 100 requests
        return len(left) < 3

    turns.put(step)
    run(turns, kernel, lambda: len(left) == 3)
    assert left[0] > 0
    assert left[1:] == [0, 0]


def test_want_of_memory_ends_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    take, tries = turns.take, [MemoryError, MemoryError]

    def fail() -> None:
        if tries:
            raise tries.pop()
        take()

    monkeypatch.setattr(turns, "take", fail)
    done: list[str] = []

    def step(name: str) -> bool:
        done.append(name)
        return len(done) == 1

    for name, whose in ("one", 1), ("two", 1), ("three", 2):
        turns.put(partial(step, name), whose)
    run(turns, Kernel(0), lambda: not len(turns))
    assert done == ["one", "three", "two", "one"]


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.2])
def test_requests_without_end_do_not_stop_what_is_put_off(seconds: float) -> None:
    kernel = Kernel(requests=1 << 60, seconds=seconds)
    turns = Turns(kernel.is_waited_for, kernel.hurried.append, kernel.clock)
    begun: list[float] = []

    def step() -> bool:
        begun.append(kernel.time)
        kernel.busy(0.01)
        return len(begun) < 50

    turns.put(step)
    run(turns, kernel, lambda: len(begun) == 50)
    # Both have their share, as exactly as whole requests (one or two between two looks) and whole steps can be shared out.
    for count, time in enumerate(begun):
        assert abs(time - begun[0] - count * 0.01 * (1 + REQUESTS_SHARE)) <= 2 * seconds + 0.01 * (1 + REQUESTS_SHARE)


def test_nobody_lingers_for_requests_while_something_is_put_off() -> None:
    kernel = Kernel(requests=0)
    turns = Turns(kernel.is_waited_for, kernel.hurried.append, kernel.clock)
    run(turns, kernel, lambda: kernel.hurried == [False])
    steps = [True, True, False]
    turns.put(lambda: steps.pop(0))
    turns.put(lambda: False)
    assert kernel.hurried == [False, True]
    run(turns, kernel, lambda: kernel.hurried[2:] == [False])
    assert not steps


def test_who_has_put_off_much_has_no_more_turns_than_others() -> None:
    turns = Turns()
    done: list[str] = []

    def steps(name: str, count: int) -> Step:
        left = [name] * count

        def step() -> bool:
            done.append(left.pop())
            return bool(left)

        return step

    for _ in range(5):
        turns.put(steps("many", 2), 1)
    turns.put(steps("few", 3), 2)
    turns.put(steps("one", 1), 3)
    turns.take()
    turns.put(steps("late", 1), 4)
    turns.finish()
    assert done[:8] == ["many", "few", "one", "many", "late", "few", "many", "few"]
    assert sorted(done) == sorted(["many"] * 10 + ["few"] * 3 + ["one", "late"])


def test_the_end_does_not_wait_for_what_fails_again_and_again() -> None:
    turns = Turns()
    tries = 0

    def fails() -> bool:
        nonlocal tries
        tries += 1
        return not turns.is_finishing

    turns.put(fails)
    turns.take()
    turns.take()
    assert (tries, len(turns)) == (2, 1), "others wait for it"
    turns.finish()
    assert (tries, len(turns)) == (3, 0)


def test_the_turns_of_a_broadcast_are_its_channel_s() -> None:
    """All who write to it wait for that, whatever else its sender has put off."""
    bus = Bus(Limits())
    sender, _ = bus.create(b"B_x", Access(True, True), Owner(7, 7, 1), 0o666, 0)
    channel = sender.channel
    for _ in range(READERS_AT_ONCE + 1):
        bus.open(channel, Access(True, False), Owner(7, 7, 1), 0)
    _, effects = bus.write(sender, b"one\n", 0, "first")
    [broadcast] = effects.later
    assert isinstance(broadcast, Broadcast)
    after = bus.go_on(broadcast, 0)
    [behind] = after.later
    put: list[object] = []

    class Recorded(Turns):
        def put(self, step: Step, whose: Hashable = None) -> None:
            put.append(whose)

    calls = Calls.__new__(Calls)
    calls._turns = Recorded()
    what = Effects(0)
    what.later.extend([broadcast, behind, "token", channel])
    calls.settle(what, 7)
    assert put == [channel, channel, 7, 7]
