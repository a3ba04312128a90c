"""Channels of tasks, and who is none of them: other threads, handlers of signals, children, the next loop."""

import asyncio
import contextlib
import fcntl
import gc
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import futebus.client as client
from futebus.client import awaiting
from futebus.client.aio import _Asyncio
from futebus.client.awaiting import Tenants, Turns, _Awaiting
from futebus.client.channel import Endpoint
from futebus.client.opening import Opening

from ..helpers.descriptors import descriptors
from ..helpers.mounts import Mount, Mounting
from ..helpers.recorders import Remounting
from ..helpers.signals import Interrupt, interrupted
from ..helpers.waiting import DEADLINE, until
from .libraries import Aio
from .threads import aside, child, lasting_child, status

SOON_SECONDS = 0.05
"""So long after the last task has begun to wait, the loop waits, too."""


def _is_channel(number: int, bus: Mount) -> bool:
    """Whether a descriptor is a channel's. It may be another file's at once."""
    with contextlib.suppress(FileNotFoundError):
        return Path(os.readlink(f"/proc/self/fd/{number}")).is_relative_to(bus.path)
    return False


async def _is_told(channel: Any) -> None:
    """Reads from a channel that is closed meanwhile, and is told so."""
    with pytest.raises(ValueError, match="is not open"):
        await channel.read()


def _by_another(how: str, work: Callable[[], object]) -> None:
    """Has another thread do something, or the handler of a signal, when the loop waits."""
    if how == "signal":
        main, was = threading.get_ident(), signal.getsignal(signal.SIGUSR1)

        def handle(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGUSR1, was)
            work()

        signal.signal(signal.SIGUSR1, handle)
        threading.Timer(SOON_SECONDS, signal.pthread_kill, (main, signal.SIGUSR1)).start()
    else:
        threading.Timer(SOON_SECONDS, work).start()


# ---------------------------------------------------------------------------------------------- threads and handlers


@pytest.mark.parametrize("how", ["thread", "signal"])
@pytest.mark.parametrize("what", ["reads", "loops", "sends", "both"])
def test_all_who_wait_come_out_when_another_closes(library: Any, mounting: Mounting, what: str, how: str) -> None:
    """One of those who do the same has the turn, the others wait for it."""
    bus = mounting("max_queue=2")
    ended: list[bool] = []

    async def main() -> None:
        with client.collect(bus / "U_x"):
            before = descriptors()
            one = library.doors.connect(bus / "U_x")
            await one.open()
            await one.send("one", "two")

            async def read() -> None:
                await _is_told(one)
                ended.append(True)

            async def send() -> None:
                with pytest.raises(ValueError, match="is not open"):
                    await one.send("three")
                ended.append(True)

            async def loop() -> None:
                async for _ in one:
                    pass
                ended.append(True)

            async def close() -> None:
                await library.until_waiting(2 if what == "both" else 1)
                _by_another(how, one.close)

            waiting = {"reads": (read, read), "loops": (loop, loop), "sends": (send, send), "both": (read, send)}[what]
            await library.together(*waiting, *waiting, close)
            assert (len(ended), one.is_open) == (4, False)
            while descriptors() > before:  # whoever closes has done so, and its thread has ended
                await library.pause()

    library.run(main)


def test_a_descriptor_is_nobody_elses_before_all_have_come_out(library: Any, bus: Mount) -> None:
    """It is closed when the loop has time for that."""

    async def main() -> None:
        jobs = library.doors.collect(bus / "U_x")
        await jobs.open()
        number = jobs.fileno()
        others: list[int] = []
        again: list[int] = []
        closing: list[threading.Thread] = []
        is_closed = threading.Event()

        def close() -> None:
            jobs.close()
            others.extend(os.dup(0) for _ in range(20))
            is_closed.set()
            with client.collect(bus / "U_x", wait=DEADLINE) as other:
                again.append(other.fileno())

        async def stand_still() -> None:
            await library.until_waiting(1)
            closing.append(aside(close))
            is_closed.wait(DEADLINE)

        await library.together(lambda: _is_told(jobs), stand_still)
        closing[0].join(DEADLINE)
        assert again
        assert number not in others
        for other in others:
            os.close(other)

    library.run(main)


@contextlib.contextmanager
def _no_more_files() -> Iterator[None]:
    """This process cannot open any."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # poll(2) wants some
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_another_gives_away_is_closed_when_that_is_heard(library: Any, bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though that one has not come far yet."""
    is_heard = threading.Event()

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        number, close = log.fileno(), log._close

        def close_slowly(opening: Opening) -> None:
            close(opening)
            assert is_heard.wait(DEADLINE)

        async def hear() -> None:
            try:
                await _is_told(log)
                assert not _is_channel(number, bus)
            finally:
                is_heard.set()

        async def give() -> None:
            await library.until_waiting(1)
            _by_another("thread", lambda: os.close(log.detach()))

        monkeypatch.setattr(log, "_close", close_slowly)
        await library.together(hear, give)

    library.run(main)
    until(lambda: not bus.clients("B_x"), "nobody is there")


def test_what_another_gives_away_can_be_read_there(library: Any, bus: Mount) -> None:
    given: list[int] = []

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        number = log.fileno()

        async def give() -> None:
            await library.until_waiting(1)
            _by_another("thread", lambda: given.append(log.detach()))

        await library.together(lambda: _is_told(log), give)
        assert not log.is_open
        assert not _is_channel(number, bus)

    library.run(main)
    until(lambda: given, "it is given")  # the loop may be faster
    client.publish(bus / "B_x", "hello")
    assert os.read(given[0], 100) == b"hello\n"
    assert not os.get_inheritable(given[0])
    os.close(given[0])


def test_who_begins_to_read_what_another_gives_away_is_told(library: Any, bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    waiter, given = library.doors._doors._waiter, list[int]()
    closing = waiter.closing

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        begins, has_begun = threading.Event(), threading.Event()

        def close_slowly(descriptor: int) -> None:
            closing(descriptor)
            if threading.current_thread() is giving:
                begins.set()
                has_begun.wait(DEADLINE)

        async def read() -> None:
            begins.wait(DEADLINE)
            await _is_told(log)
            has_begun.set()

        async def wait() -> None:
            while not has_begun.is_set() and not library.waiting:
                await library.pause()
            has_begun.set()

        with monkeypatch.context() as patch:
            giving = threading.Thread(target=lambda: given.append(log.detach()), daemon=True)
            patch.setattr(waiter, "closing", close_slowly)
            giving.start()
            await library.together(read, wait)
            giving.join(DEADLINE)

    library.run(main)
    os.close(given[0])


def test_what_cannot_be_given_away_stays_open(library: Any, bus: Mount) -> None:
    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()

        def give() -> None:
            with _no_more_files(), pytest.raises(client.Refused, match="too many open files"):
                log.detach()
            client.publish(bus / "B_x", "hello")

        async def read() -> None:
            assert await log.read() == "hello"

        async def meet() -> None:
            await library.until_waiting(1)
            aside(give).join(DEADLINE)

        await library.together(read, meet)
        log.close()

    library.run(main)


def test_a_handler_may_close_at_any_moment(library: Any, bus: Mount) -> None:
    """Also in the middle of what the task does that waits, which goes on with the descriptor then."""
    now: list[Any] = []
    wrong: list[BaseException] = []

    def close(number: int, frame: FrameType | None) -> None:
        try:
            now[-1].close()
        except Exception as error:
            wrong.append(error)

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        now.append(log)
        # Once more if it came just before the loop of asyncio began to wait: that is not heard of before the loop wakes.
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.0006), SOON_SECONDS)
        await _is_told(log)

    was = signal.signal(signal.SIGALRM, close)
    try:
        for _ in range(300):
            library.run(main)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
    assert not wrong


def test_a_handler_that_closes_and_opens_does_not_lend_the_descriptor_to_another(library: Any, bus: Mount) -> None:
    """To be called in the middle of a step, behind the system call that has the number of the descriptor."""

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        number = log.fileno()

        def change(number: int, frame: FrameType | None) -> None:
            log.close()
            log.open_nowait()

        code = type(log._waiter).until_readable.__code__
        with interrupted(code, handle=change) as hits, pytest.raises(ValueError, match="is not open as it was"):
            await log.read()
        assert hits
        assert log.fileno() != number
        log.close()

    library.run(main)


# ---------------------------------------------------------------------------------------------- closed and opened again


def test_a_loop_ends_though_the_channel_is_open_again(library: Any, bus: Mount) -> None:
    ended: list[bool] = []

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:

            async def loop() -> None:
                async for _ in log:
                    pass
                ended.append(True)

            async def change() -> None:
                await library.until_waiting(1)
                log.close()
                await log.open()

            await library.together(loop, loop, loop, change)

    library.run(main)
    assert len(ended) == 3


def test_a_loop_that_blocks_ends_though_the_channel_is_open_again(bus: Mount) -> None:
    """Which it comes to see at times before, at times behind that."""
    ended: list[bool] = []
    with client.subscribe(bus / "B_x") as log:

        def loop() -> None:
            for _ in log:
                pass
            ended.append(True)

        for count in range(100):
            thread = aside(loop)
            until(lambda: any(hand.opening for hand in [*log._inside.readers]), "it reads")
            log.close()
            log.open_nowait()
            thread.join(DEADLINE)
            assert len(ended) == count + 1


# ---------------------------------------------------------------------------------------------- loops and children


@pytest.mark.parametrize("is_held", [False, True])
def test_a_loop_that_was_closed_while_it_opened_again_is_not_in_the_way_of_the_next(
    bus: Mount, remounting: Remounting, *, is_held: bool
) -> None:
    said: list[str] = []
    loop = asyncio.new_event_loop()
    log = Aio.doors.subscribe(bus / "B_x", again=True, say=said.append)

    async def begin() -> asyncio.Task[str]:
        await log.open()
        reading = asyncio.create_task(log.read())
        await Aio().until_waiting(1)
        bus.unmount()
        while not said:
            await Aio().pause()
        return reading

    reading = loop.run_until_complete(begin())
    loop.close()
    reading._log_destroy_pending = False  # type: ignore[attr-defined]
    if not is_held:
        del reading
        gc.collect()
    remounting(bus)

    async def main() -> None:
        reading = asyncio.create_task(log.read())
        await Aio().until_waiting(1)
        client.publish(bus / "B_x", "hello")
        assert (await reading, log.joins) == ("hello", 2)
        log.close()

    Aio().run(main)


def test_a_child_that_leaves_its_copy_takes_nothing_from_its_parent(library: Any, bus: Mount) -> None:
    """They have the loop's file in common, by which it waits."""

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:

            async def read() -> None:
                assert await log.read() == "hello"

            async def fork() -> None:
                await library.until_waiting(1)
                assert status(child(log.close)) == 0
                client.publish(bus / "B_x", "hello")

            await library.together(read, fork)

    library.run(main)


def test_what_a_child_has_open_too_is_not_watched_any_more(library: Any, bus: Mount) -> None:
    """A loop that did so would be awake all the time, or take it for the next file with this number."""
    end, begin = os.pipe()

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        number = log.fileno()

        async def close() -> None:
            await library.until_waiting(1)
            children.enter_context(lasting_child())
            aside(log.close)

        await library.together(lambda: _is_told(log), close)
        client.publish(bus / "B_x", "hello")
        others.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, number))  # this number, unless another thread has just taken it
        assert await library.is_late(lambda: library.until_readable(others[0]))

    others: list[int] = []
    with contextlib.ExitStack() as children:
        library.run(main)
    for other in (end, begin, *others):
        os.close(other)


def test_a_child_leaves_what_its_parent_is_about_to_leave(library: Any, bus: Mount) -> None:
    """The loop that is to close for another thread is not there in the child, and has not come to it in the parent."""

    async def main() -> None:
        jobs = library.doors.collect(bus / "U_x")
        await jobs.open()

        async def close() -> None:
            await library.until_waiting(1)
            aside(jobs.close).join(DEADLINE)
            children.enter_context(lasting_child())

        await library.together(lambda: _is_told(jobs), close)
        jobs = library.doors.collect(bus / "U_x")
        await jobs.open()
        jobs.close()

    with contextlib.ExitStack() as children:
        library.run(main)


def test_a_child_may_use_what_its_parent_waits_for(bus: Mount) -> None:
    library = Aio()

    async def main() -> None:
        async with library.doors.connect(bus / "B_x") as one:

            async def ask() -> None:
                reading = asyncio.create_task(one.read())
                await library.until_waiting(1)
                client.publish(bus / "B_x", "hello")
                assert await reading == "hello"
                await one.send("x")

            reading = asyncio.create_task(one.read())
            await library.until_waiting(1)
            with contextlib.suppress(asyncio.CancelledError):
                assert status(child(lambda: library.run(ask))) == 0
            reading.cancel()

    library.run(main)


# ---------------------------------------------------------------------------------------------- interrupts


class Watched:
    """What a task waits for, which notes who sets it.

    Args:
        flag: that.
        sets: the threads that have made it, and set it.
    """

    def __init__(self, flag: Any, sets: set[tuple[int, int]]) -> None:
        self.wait, self._set, self._sets, self._thread = flag.wait, flag.set, sets, threading.get_ident()

    def set(self) -> None:
        self._sets.add((self._thread, threading.get_ident()))
        self._set()


@pytest.fixture
def sets(library: Any, monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, int]]:
    """As of `Watched`, of all that tasks wait for."""
    waiter, sets = library.doors._doors._waiter, set[tuple[int, int]]()
    event = waiter.event
    monkeypatch.setattr(waiter, "event", lambda: Watched(event(), sets))
    return sets


def test_who_is_refused_wakes_nobody_of_the_loop_that_is_let_in(library: Any, bus: Mount, sets: set[tuple[int, int]]) -> None:
    """Those of a loop are woken by its own thread alone."""

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:

            async def read() -> None:
                await log.read()

            async def refused() -> None:
                for _ in range(3):
                    with pytest.raises(client.ClientError, match="a task of another loop reads"):
                        await log.read()

            async def meet() -> None:
                await library.until_waiting(1)
                await library.elsewhere(refused)
                client.publish(bus / "B_x", "one", "two", "three")

            await library.together(read, read, read, meet)

    library.run(main)
    assert sets == {(threading.get_ident(), threading.get_ident())}


@pytest.mark.parametrize("function", [Turns.come, Tenants.let_in, Turns.first])
def test_of_two_loops_that_come_at_one_moment_one_is_let_in(
    library: Any, bus: Mount, sets: set[tuple[int, int]], function: Any
) -> None:
    """The one of another thread comes where the first is in the middle of that: at each line."""
    code = function.__code__
    lines = sorted({line for _, _, line in code.co_lines() if line and line > code.co_firstlineno})
    for line in lines:
        told: list[str] = []

        async def main(line: int = line, told: list[str] = told) -> None:
            async with library.doors.subscribe(bus / "B_x") as log:

                async def read() -> None:
                    try:
                        told.append(await log.read())
                    except client.ClientError as error:
                        told.append(os.strerror(error.errno or 0))

                def come(*_: object) -> None:
                    others.append(aside(lambda: library.run(read)))
                    until(lambda: told or log._reading._all, "the other one is refused, or let in")

                others: list[threading.Thread] = []

                async def meet() -> None:
                    while others and not told:
                        await library.pause()
                    client.publish(bus / "B_x", "one", "two")

                with interrupted(code, lambda frame: frame.f_lineno == line, come):
                    await library.together(read, meet)
                while any(each.is_alive() for each in others):
                    await library.pause()
                assert len(told) == 1 + len(others), "each is told"
                assert set(told) <= {"one", "two", "Device or resource busy"}

        library.run(main)
    assert all(made == woken for made, woken in sets), "none waits for one of the other"


def test_the_next_one_is_woken_though_the_handler_of_a_signal_raises_there(bus: Mount) -> None:
    """Of asyncio. What Ctrl-C raises in a program of trio does not come in the middle of that."""
    got: list[str] = []
    library = Aio()

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:

            async def read() -> None:
                with contextlib.suppress(Interrupt):
                    got.append(await log.read())

            reading = [asyncio.create_task(read()) for _ in range(3)]
            await library.until_waiting(1)
            await library.pause()
            with interrupted(asyncio.Event.set.__code__, lambda frame: "fut" in frame.f_locals) as hits:
                client.publish(bus / "B_x", "one", "two", "three")
                await asyncio.wait(reading, timeout=DEADLINE)
            assert hits
            assert not log.pending + len(got) - 3
            assert [each.done() for each in reading] == [True] * 3

    library.run(main)


def test_who_closes_again_wakes_who_waits_though_the_handler_of_a_signal_has_raised_there(bus: Mount) -> None:
    library = Aio()

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        reading = asyncio.create_task(log.read())
        await library.until_waiting(1)
        code = _Asyncio.closing.__code__
        with interrupted(code, lambda frame: "ready" in frame.f_locals) as hits, pytest.raises(Interrupt):
            log.close()
        assert hits
        log.close()
        with pytest.raises(ValueError, match="is not open"):
            await reading
        assert not library.waiting

    library.run(main)


def test_a_loop_does_not_spin_though_the_handler_of_a_signal_has_kept_a_task_from_its_end(bus: Mount) -> None:
    library = Aio()

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:
            reading = asyncio.create_task(log.read())
            await library.until_waiting(1)
            with interrupted(asyncio.SelectorEventLoop.remove_reader.__code__) as hits:
                client.publish(bus / "B_x", "hello")
                with pytest.raises(Interrupt):
                    await reading
            assert hits
            loop: Any = asyncio.get_running_loop()
            while loop._selector.get_map().get(log.fileno()):
                await library.pause()
            assert await log.read() == "hello"

    library.run(main)


def test_nothing_is_accepted_of_what_an_interrupt_keeps_from_its_turn(bus: Mount) -> None:
    library = Aio()

    async def main() -> None:
        with client.collect(bus / "U_x"):
            async with library.doors.publisher(bus / "U_x") as out:
                first = asyncio.create_task(out.send("a", "b", "c"))
                second = asyncio.create_task(out.send("d"))
                code = _Awaiting._send_in_turn.__code__
                with interrupted(code, lambda frame: frame.f_locals.get("lines") == b"d\n") as hits:
                    assert await first == 3
                    with pytest.raises(Interrupt):
                        await second
                assert hits
                assert out.accepted == 0

    library.run(main)


def test_an_interrupt_behind_a_refusal_does_not_forget_what_was_accepted(bus: Mount) -> None:
    """`B` takes messages of 256K."""
    long = "x" * (257 << 10)

    async def main() -> None:
        async with Aio.doors.publisher(bus / "B_x") as out:
            with interrupted(Endpoint.stop_sending.__code__) as hits, pytest.raises(Interrupt):
                await out.send("a", "b", long)
            assert hits
            assert out.accepted == 2

    Aio().run(main)
    with client.publisher(bus / "B_x") as out:
        with interrupted(Endpoint.stop_sending.__code__) as hits, pytest.raises(Interrupt):
            out.send("a", "b", long)
        assert hits
        assert out.accepted == 2


def test_a_sender_of_a_closed_loop_says_nothing_of_what_was_accepted_since(mounting: Mounting) -> None:
    bus = mounting("max_queue=2")
    library = Aio()
    with client.collect(bus / "U_x") as jobs:
        out = library.doors.publisher(bus / "U_x")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(out.open())
        loop.run_until_complete(out.send("one", "two"))
        sending = [loop.create_task(out.send(text)) for text in "ab"]
        loop.run_until_complete(library.until_waiting(1))
        loop.run_until_complete(library.pause())
        loop.close()
        assert [jobs.read(), jobs.read()] == ["one", "two"]
        library.run(lambda: out.send("three", "four"))
        assert out.accepted == 2
        for task in sending:
            task.get_coro().close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        assert out.accepted == 2
        out.close()


def test_a_loop_closes_for_another_thread_though_the_handler_of_a_signal_raises_there(
    bus: Mount, caplog: pytest.LogCaptureFixture
) -> None:
    library = Aio()

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        number = log.fileno()
        reading = asyncio.create_task(log.read())
        await library.until_waiting(1)
        with interrupted(_Asyncio.closing.__code__, lambda frame: "ready" in frame.f_locals) as hits:
            aside(log.close)
            with pytest.raises(ValueError, match="is not open"):
                await reading
        assert hits
        assert not _is_channel(number, bus)

    library.run(main)
    assert "Interrupt" in caplog.text  # asyncio says so


@pytest.mark.parametrize("where", [Endpoint._leave, Opening.__init__, Endpoint._take])
def test_what_is_closed_is_left_though_the_handler_of_a_signal_raises_there(bus: Mount, where: Any) -> None:
    library = Aio()

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        reading = asyncio.create_task(log.read())
        await library.until_waiting(1)
        with interrupted(where.__code__) as hits, pytest.raises(Interrupt):
            log.close()
        assert hits
        assert not log.is_open
        with pytest.raises(ValueError, match="is not open"):
            await reading

    library.run(main)


def test_a_callback_may_close_a_channel_and_stop_its_loop(bus: Mount) -> None:
    log = Aio.doors.subscribe(bus / "B_x")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(log.open())
    number = log.fileno()
    reading = loop.create_task(log.read())
    loop.run_until_complete(Aio().until_waiting(1))

    def stop() -> None:
        log.close()
        loop.stop()

    loop.call_soon(stop)
    loop.run_forever()
    assert not _is_channel(number, bus)
    loop.close()
    reading._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_callback_that_the_handler_of_a_signal_interrupts_bears_that_it_closes(bus: Mount) -> None:
    library = Aio()
    tell = next(each for each in _Asyncio._until.__code__.co_consts if isinstance(each, CodeType) and each.co_name == "tell")
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        reading = asyncio.create_task(_is_told(log))
        await library.until_waiting(1)
        with interrupted(tell, lambda frame: frame.f_lineno > tell.co_firstlineno + 1, lambda *_: log.close()) as hits:
            client.publish(bus / "B_x", "hello")
            await reading
        assert hits

    library.run(main)
    assert not errors


@pytest.mark.parametrize("what", ["has not come to it", "does not run"])
def test_a_loop_that_is_closed_before_it_has_closed_for_another_thread_leaves_nothing(bus: Mount, what: str) -> None:
    library = Aio()
    log = library.doors.subscribe(bus / "B_x")

    def close() -> "weakref.ref[asyncio.AbstractEventLoop]":
        loop = asyncio.new_event_loop()
        loop.run_until_complete(log.open())
        number = log.fileno()
        reading = loop.create_task(log.read())
        loop.run_until_complete(library.until_waiting(1))

        def stop() -> None:
            aside(log.close).join(DEADLINE)
            loop.stop()

        if what == "has not come to it":
            loop.call_soon(stop)
            loop.run_forever()
        else:
            log.close()
        loop.close()
        assert not _is_channel(number, bus)
        reading._log_destroy_pending = False  # type: ignore[attr-defined]
        return weakref.ref(loop)

    there = close()
    gc.collect()
    assert there() is None


def test_a_loop_that_nobody_closes_leaves_nothing_when_it_is_forgotten(bus: Mount) -> None:
    def close() -> int:
        log = Aio.doors.subscribe(bus / "B_x")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(log.open())
        number: int = log.fileno()
        reading = loop.create_task(log.read())
        reading._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(Aio().until_waiting(1))

        def stop() -> None:
            aside(log.close).join(DEADLINE)
            loop.stop()

        loop.call_soon(stop)
        loop.run_forever()
        return number

    def forget() -> int:
        number = close()
        gc.collect()
        return number

    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        number = forget()
    assert not _is_channel(number, bus)


def test_what_a_handler_raises_is_not_lost_where_a_loop_has_closed(library: Any, bus: Mount) -> None:
    """What it raises in a callback of the garbage collection would be."""

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()

        async def close() -> None:
            await library.until_waiting(1)
            aside(log.close).join(DEADLINE)

        with interrupted(weakref.finalize.__call__.__code__) as hits:
            await library.together(lambda: _is_told(log), close)
        assert not hits

    library.run(main)


def test_a_loop_that_closes_at_once_leaves_nothing_to_who_has_asked_it(
    library: Any, bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a handler raises where garbage is collected would be lost there, too."""
    waiter, late = library.doors._doors._waiter, []
    have = waiter.have
    monkeypatch.setattr(awaiting, "_never_done", lambda *given: late.append(given))

    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x")
        await log.open()
        opening = log._now

        def have_done(loop: object, done: Callable[[], object]) -> bool:
            is_heard: bool = have(loop, done)
            if log._leaving.get(opening):
                until(lambda: opening.file < 0, "the loop has closed it")
            return is_heard

        async def close() -> None:
            await library.until_waiting(1)
            with monkeypatch.context() as patch:
                patch.setattr(waiter, "have", have_done)
                closing = aside(log.close)
                while closing.is_alive():
                    await library.pause()

        await library.together(lambda: _is_told(log), close)

    library.run(main)
    assert not late


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("is_running", [True, False])
def test_a_loop_may_be_closed_while_another_thread_asks_it_to_close(bus: Mount, is_running: bool, number: int) -> None:
    """Behind the first, second... look of the other thread whether it is."""
    reached, closed, looks = threading.Event(), threading.Event(), iter(range(1, 1000))
    goes = threading.Event()

    class Loop(asyncio.SelectorEventLoop):
        def _look(self) -> None:
            if threading.current_thread() is closing and next(looks) == number:
                reached.set()
                closed.wait(DEADLINE)

        def is_closed(self) -> bool:
            try:
                return super().is_closed()
            finally:
                self._look()

        def _check_closed(self) -> None:
            super()._check_closed()  # type: ignore[misc]
            self._look()

    def close() -> None:
        goes.wait(DEADLINE)
        try:
            jobs.close()
        except BaseException as error:
            errors.append(error)
        reached.set()

    async def wait() -> None:
        goes.set()
        reached.wait(DEADLINE)

    errors: list[BaseException] = []
    closing = threading.Thread(target=close, daemon=True)
    jobs = Aio.doors.collect(bus / "U_x")
    loop = Loop()
    loop.run_until_complete(jobs.open())
    reading = loop.create_task(jobs.read())
    reading._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(Aio().until_waiting(1))
    closing.start()
    if is_running:
        loop.run_until_complete(wait())
    else:
        goes.set()
        reached.wait(DEADLINE)
    loop.close()
    closed.set()
    closing.join(DEADLINE)
    assert not errors
    client.collect(bus / "U_x").close()


def test_what_a_handler_raises_is_not_lost_where_a_loop_is_asked_that_has_just_been_closed(bus: Mount) -> None:
    async def main() -> None:
        await jobs.open()
        reading = asyncio.ensure_future(jobs.read())
        await Aio().until_waiting(1)
        loops.append(asyncio.get_running_loop())
        await asyncio.to_thread(is_asked.wait)
        reading.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        is_asked.set()
        until(loops[0].is_closed, "it is closed")
        raise Interrupt

    jobs, is_asked = Aio.doors.collect(bus / "U_x"), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    aside(lambda: asyncio.run(main()))
    until(lambda: loops, "it waits")
    with (
        interrupted(asyncio.BaseEventLoop.call_soon_threadsafe.__code__, handle=interrupt),
        pytest.raises(Interrupt),
    ):
        jobs.close()
    client.collect(bus / "U_x").close()


AT_EXIT = """
import asyncio, atexit, sys, threading
from futebus.client import aio

log, waits, goes = aio.subscribe(sys.argv[1]), threading.Event(), threading.Event()

async def main():
    await log.open()
    reading = asyncio.create_task(log.read())
    await asyncio.sleep(0)
    while not aio._doors._waiter._waited:
        await asyncio.sleep(0.01)
    waits.set()
    goes.wait()
    try:
        await reading
    except ValueError as error:
        print(error)

def end():
    goes.set()
    thread.join(60)

atexit.register(end)
thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
thread.start()
waits.wait()
log.close()
"""
"""A loop of another thread has time for what it is to close when the program ends."""


def test_a_loop_that_is_there_when_the_program_ends_closes_itself(bus: Mount) -> None:
    words = subprocess.run([sys.executable, "-c", AT_EXIT, bus / "B_x"], capture_output=True, text=True, timeout=DEADLINE)
    assert (words.stdout, words.stderr) == (f"{bus / 'B_x'} is not open\n", "")


def test_a_loop_that_the_handler_of_a_signal_ends_where_it_closes_leaves_nothing(bus: Mount) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    library = Aio()
    log = library.doors.subscribe(bus / "B_x")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(log.open())
    number = log.fileno()
    reading = loop.create_task(log.read())
    loop.run_until_complete(library.until_waiting(1))

    def end() -> None:
        reading.cancel()
        aside(log.close).join(DEADLINE)

    loop.call_soon(end)
    code = _Awaiting._close_handed_over.__code__
    with interrupted(code, lambda frame: "loop" in frame.f_locals, handle) as hits, pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert hits
    with pytest.raises(KeyboardInterrupt):
        reading.result()
    loop.close()
    assert not _is_channel(number, bus)
