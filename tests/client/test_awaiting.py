"""`futebus.client.trio` and `.aio` on a real bus: the same as the one that blocks, and tasks that are cancelled."""

import asyncio
import contextlib
import errno
import math
import os
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import futebus.client as client
from futebus.client.awaiting import Doors, Turns
from futebus.client.channel import Endpoint

from ..helpers.mounts import LINGERING, Mount, Mounting
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE
from .libraries import Aio
from .threads import aside


def test_both_have_all_that_the_other_one_has(library: Any) -> None:
    functions = {name for name in client.__all__ if name.islower()}
    assert functions == {name for name in vars(Doors) if not name.startswith("_")}
    assert functions <= set(library.doors.__all__)
    for name in library.doors.__all__:
        assert getattr(library.doors, name).__doc__


def test_a_service(library: Any, bus: Mount) -> None:
    doors = library.doors
    answers = []

    async def work() -> None:
        async with doors.serve(bus / "S_upper", bytes) as service:
            count = 0
            async for sender, text in service:
                assert await service.answer(sender, text.upper())
                count += 1
                if count == 20:
                    break

    async def ask(number: int) -> None:
        answers.append(await doors.call(bus / "S_upper", f"request {number}", wait=60))

    library.run(lambda: library.together(work, *(lambda number=number: ask(number) for number in range(20))))
    assert sorted(answers) == sorted(f"REQUEST {number}" for number in range(20))


def test_peers_readers_and_collectors(library: Any, bus: Mount) -> None:
    doors = library.doors

    async def main() -> None:
        async with doors.join(bus / "A_x") as one, doors.join(bus / "A_x") as two:
            await one.send(None, "to all")
            assert await two.read() == (one.id, "to all")
            with pytest.raises(client.NoClient):
                await two.send(99, "nobody")
        async with doors.subscribe(bus / "B_x") as log:
            assert await doors.publish(bus / "B_x", "one", b"two") == 2
            assert [await log.read(), await log.read()] == ["one", "two"]
        async with doors.collect(bus / "U_x") as jobs, doors.connect(bus / "U_x") as slave:
            await slave.send("job")
            await jobs.send("news")
            assert (await jobs.read(), await slave.read()) == ("job", "news")
            jobs.close()
            assert [line async for line in slave] == []
        with pytest.raises(client.NoMaster):
            async with doors.connect(bus / "U_x"):
                pass

    library.run(main)


def test_events(library: Any, bus: Mount) -> None:
    doors = library.doors

    async def main() -> None:
        async with doors.serve(bus / "S_x") as service:
            async with doors.connect(bus / "S_x") as slave:
                await slave.send("hello")
                number = slave.id
            await service.announce("nobody hears this")
            assert not await service.answer(number, "nor this")
            seen = []
            async for event in service.events():
                seen.append(event)
                if event.what is client.What.CLOSED:
                    break
            assert [(event.sender, event.what.name, event.text) for event in seen] == [
                (number, "OPENED", ""),
                (number, "SAID", "hello"),
                (number, "CLOSED", ""),
            ]

    library.run(main)


def test_who_is_cancelled_has_taken_nothing_and_knows_what_he_gave(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_queue=10")
    doors = library.doors

    async def main() -> None:
        async with doors.collect(bus / "U_x") as jobs, doors.publisher(bus / "U_x") as out:
            for _ in range(3):
                assert await library.is_late(jobs.read)
            lines = [str(number) for number in range(25)]
            assert await library.is_late(lambda: out.send(*lines))
            assert out.accepted == 10
            got = [await jobs.read() for _ in range(10)]

            async def rest() -> None:
                await out.send(*lines[10:])

            async def read() -> None:
                got.extend([await jobs.read() for _ in range(15)])

            await library.together(rest, read)
            assert got == lines
            assert await library.is_late(jobs.read)

    library.run(main)


def test_half_of_a_long_message_is_not_forgotten_by_who_is_cancelled_again(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    doors = library.doors
    long = "x" * ((3 << 20) + 7)

    async def main() -> None:
        async with doors.collect(bus / "U_x") as jobs, doors.publisher(bus / "U_x") as out:
            await out.send("one", "two")
            for text, accepted in ((long, 1), ("never", 0), ("never", 0)):
                assert await library.is_late(lambda text=text: out.send(text))
                assert (out.accepted, out.is_begun) == (accepted, True)
            got = []

            async def read() -> None:
                got.extend([await jobs.read() for _ in range(4)])

            await library.together(lambda: out.send("last"), read)
            assert got == ["one", "two", long, "last"]

    library.run(main)


@pytest.mark.parametrize("is_owed", [False, True])
def test_half_of_a_long_message_does_not_go_to_another_master(library: Any, mounting: Mounting, *, is_owed: bool) -> None:
    """Though another task has opened the channel again before the one that sends has found that it had gone."""
    bus = mounting("max_message=8M", "max_queue=2")
    doors = library.doors
    long = "x" * ((3 << 20) + 7)

    async def main() -> None:
        master = client.collect(bus / "U_x")
        async with doors.connect(bus / "U_x", again=True) as out:
            await out.send("one", "two")
            if is_owed:
                assert await library.is_late(lambda: out.send(long))
                assert out.is_begun
            got: list[str] = []

            async def read() -> None:
                assert await out.read() == "welcome"

            async def change() -> None:
                await library.until_waiting(2)
                master.close()
                with client.collect(bus / "U_x") as other:  # nobody else runs before it is there
                    while not got:
                        await library.pause()
                        with contextlib.suppress(client.TimedOut):
                            got.append(other.read(timeout=0))
                    other.send("welcome")

            await library.together(read, lambda: out.send("next" if is_owed else long), change)
            assert got == ["next" if is_owed else long]
            assert not out.is_begun

    library.run(main)


def test_half_of_a_long_message_goes_with_its_channel_though_its_sender_is_cancelled_then(mounting: Mounting) -> None:
    """While another task opens the channel again."""
    bus = mounting("max_message=8M", "max_queue=2")
    long = "x" * ((3 << 20) + 7)

    async def main() -> None:
        sending: asyncio.Task[int] | None = None

        def say(words: str) -> None:
            if words.endswith("waiting"):
                assert sending
                sending.cancel()

        master = client.collect(bus / "U_x")
        async with Aio.doors.connect(bus / "U_x", again=True, say=say) as out:
            await out.send("one", "two")
            sending = asyncio.create_task(out.send(long))
            reading = asyncio.create_task(out.read())
            await Aio().until_waiting(2)
            master.close()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert (out.accepted, out.is_begun) == (0, False)
            with client.collect(bus / "U_x") as other:
                assert await out.send("next") == 1
                assert other.read(timeout=DEADLINE) == "next"
                other.send("welcome")
                assert await reading == "welcome"

    Aio().run(main)


def test_one_task_reads_while_another_writes(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_queue=100")
    doors = library.doors
    count = 5000

    async def main() -> None:
        async with doors.serve(bus / "S_x") as service, doors.connect(bus / "S_x") as slave:

            async def echo() -> None:
                for _ in range(count):
                    sender, text = await service.read()
                    await service.answer(sender, text)

            async def write() -> None:
                for begin in range(0, count, 50):
                    await slave.send(*map(str, range(begin, begin + 50)))
                    while read < begin:
                        await library.pause()

            read = 0

            async def listen() -> None:
                nonlocal read
                for number in range(count):
                    assert await slave.read() == str(number)
                    read += 1

            await library.together(echo, write, listen)

    library.run(main)


def test_a_bus_that_comes_back(library: Any, bus: Mount, remounting: Remounting) -> None:
    doors = library.doors

    async def main() -> None:
        async with doors.collect(bus / "U_x", again=True) as jobs, doors.publisher(bus / "U_x", again=True, wait=math.inf) as out:
            await out.send("before")
            assert await jobs.read() == "before"
            remounting(bus)
            got = []

            async def read() -> None:
                got.append(await jobs.read())

            await library.together(read, lambda: out.send("after"))
            assert got == ["after"]
            assert (jobs.joins, out.joins) == (2, 2)

    library.run(main)


def test_who_only_sends_to_an_addressed_channel_opens_it_again(library: Any, bus: Mount, remounting: Remounting) -> None:
    doors = library.doors

    async def main() -> None:
        async with doors.publisher(bus / "A_x", again=True) as out:
            again = remounting(bus)
            with client.join(again / "A_x") as other:
                assert await out.send("hello") == 1
                assert other.read(timeout=DEADLINE)[1] == "hello"

    library.run(main)


def test_a_master_that_ends_its_channel_reads_what_was_accepted_and_does_not_come_again(library: Any, bus: Mount) -> None:
    doors = library.doors

    async def main() -> None:
        async with doors.serve(bus / "S_x", again=True) as service, doors.connect(bus / "S_x") as slave:
            await slave.send("one", "two")
            service.shut()
            with pytest.raises(client.NoMaster):
                await slave.send("three")
            got = []
            async for sender, text in service:
                got.append(text)
                assert await service.answer(sender, text.upper())
            assert got == ["one", "two"]
            assert [await slave.read(), await slave.read()] == ["ONE", "TWO"]
            with pytest.raises(client.Ended, match="it was shut, and all that was accepted has been read"):
                await service.read()
            assert service.joins == 1
            service.close()
            await service.open()  # which is a channel like any other
            await doors.publish(bus / "S_x", "four")
            assert (await service.read())[1] == "four"

    library.run(main)


def test_a_channel_that_is_closed_while_somebody_waits(library: Any, bus: Mount) -> None:
    """The number of its descriptor may be another file's at once."""
    doors = library.doors

    async def main() -> None:
        log = doors.subscribe(bus / "B_x")
        await log.open()

        async def wait() -> None:
            with pytest.raises(ValueError, match="is not open"):
                await log.read()

        async def close() -> None:
            await library.pause()
            log.close()
            async with doors.subscribe(bus / "B_x") as other:
                await doors.publish(bus / "B_x", "text")
                assert await other.read() == "text"

        await library.together(wait, close)

    library.run(main)


@pytest.mark.parametrize("by_another", [False, True])
def test_a_loop_ends_when_the_channel_is_closed(library: Any, bus: Mount, *, by_another: bool) -> None:
    doors = library.doors
    got: list[str] = []

    async def main() -> None:
        async for _ in doors.subscribe(bus / "B_y"):
            pass

    with pytest.raises(ValueError, match="is not open"):  # nobody has opened it
        library.run(main)

    async def loop() -> None:
        async for text in log:
            got.append(text)
            if not by_another:
                log.close()

    async def close() -> None:
        await doors.publish(bus / "B_x", "one", "two")
        if by_another:
            while len(got) < 2:
                await library.pause()
            await library.until_waiting(1)
            log.close()

    async def both() -> None:
        await log.open()
        await library.together(loop, close)

    log = doors.subscribe(bus / "B_x")
    library.run(both)
    assert got == (["one", "two"] if by_another else ["one"])


def test_who_waits_for_a_channel_that_is_closed_leaves_the_next_one_alone(library: Any, bus: Mount) -> None:
    doors = library.doors

    async def main() -> None:
        master = client.collect(bus / "U_x")
        async with doors.subscribe(bus / "U_x", again=True) as slave:
            ended: list[bool] = []

            async def wait() -> None:
                with pytest.raises(ValueError, match="is not open"):
                    await slave.read()
                ended.append(True)

            async def change() -> None:
                await library.until_waiting(1)
                master.close()
                while slave.is_open:
                    await library.pause()
                slave.close()
                with client.collect(bus / "U_x") as other:
                    await slave.open()
                    other.send("welcome")
                    while not ended:
                        await library.pause()
                    assert (await slave.read(), slave.joins) == ("welcome", 2)

            await library.together(wait, change)

    library.run(main)


def test_who_reads_a_channel_that_was_opened_again_is_woken_by_its_end(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_queue=10")
    doors = library.doors

    async def main() -> None:
        master = client.collect(bus / "U_x")
        slave = doors.connect(bus / "U_x", again=True)
        await slave.open()
        await slave.send(*map(str, range(10)))

        async def read() -> None:
            with pytest.raises(ValueError, match="is not open"):
                await slave.read()

        async def change() -> None:
            await library.until_waiting(2)
            master.close()
            with client.collect(bus / "U_x") as other:
                while not other.inquire().queued:
                    await library.pause()
                await library.until_waiting(1)
                assert (other.read(), slave.joins) == ("more", 2)
                slave.close()

        await library.together(read, lambda: slave.send("more"), change)

    library.run(main)


def test_who_sends_does_not_forget_what_waits_in_a_channel_that_has_ended(library: Any, bus: Mount) -> None:
    async def main() -> None:
        master = client.collect(bus / "U_x")
        async with library.doors.connect(bus / "U_x", again=True) as slave:
            master.send("one", "two")
            master.close()
            with client.collect(bus / "U_x") as other:
                await slave.send("x")
                other.send("three")
                assert [await slave.read() for _ in range(3)] == ["one", "two", "three"]

    library.run(main)


def _reading(jobs: client.Collector[str], count: int, got: list[str]) -> threading.Thread:
    """Reads in a thread."""
    return aside(lambda: got.extend(jobs.read(timeout=DEADLINE) for _ in range(count)))


@contextlib.asynccontextmanager
async def _full(library: Any, bus: Mount) -> AsyncIterator[tuple[client.Collector[str], Any]]:
    """A channel whose master has no place for more than two messages, and has them; and somebody who sends to it."""
    with client.collect(bus / "U_x") as jobs:
        async with library.doors.publisher(bus / "U_x") as out:
            await out.send("one", "two")
            yield jobs, out


def test_a_message_does_not_get_into_the_middle_of_one_whose_task_has_been_cancelled_just_now(
    library: Any, mounting: Mounting
) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    long = "x" * ((3 << 20) + 7)
    got: list[str] = []

    async def main() -> None:
        async with _full(library, bus) as (jobs, out):

            async def then() -> None:
                reading = _reading(jobs, 4, got)
                assert await out.send("next") == 1
                reading.join(DEADLINE)

            await library.cancelled(lambda: out.send(long), then)
            assert got == ["one", "two", long, "next"]
            assert not out.is_begun

    library.run(main)


def test_tasks_that_send_take_turns(library: Any, mounting: Mounting) -> None:
    """And who is cancelled before it is his turn has sent nothing."""
    bus = mounting("max_message=8M", "max_queue=2")
    long = "x" * ((3 << 20) + 7)
    got: list[str] = []

    async def main() -> None:
        async with _full(library, bus) as (jobs, out):

            async def send_too() -> None:
                await library.until_waiting(1)
                assert await library.is_late(lambda: out.send("never"))
                assert (out.accepted, out.is_begun) == (0, True)
                reading.append(_reading(jobs, 12, got))
                await library.together(*[lambda text=text: out.send(text) for text in "abcdefghi"])

            reading: list[threading.Thread] = []
            await library.together(lambda: out.send(long), send_too)
            reading[0].join(DEADLINE)
            assert (got[:3], sorted(got[3:])) == (["one", "two", long], list("abcdefghi"))

    library.run(main)


def test_who_waits_for_his_turn_to_send_does_not_get_onto_the_next_opening(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_queue=2")

    async def main() -> None:
        async with _full(library, bus) as (jobs, out):

            async def send(text: str) -> None:
                with pytest.raises(ValueError, match="is not open"):
                    await out.send(text)

            async def reopen() -> None:
                await library.until_waiting(1)
                await library.pause()
                out.close()
                await out.open()

            await library.together(*[lambda text=text: send(text) for text in "abc"], reopen)
            assert [jobs.read(), jobs.read()] == ["one", "two"]
            await out.send("next")
            assert jobs.read() == "next"

    library.run(main)


@pytest.mark.parametrize("what", ["read", "send"])
def test_a_turn_ends_though_the_handler_of_a_signal_raises_there(
    library: Any, bus: Mount, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    raised: list[Turns] = []
    leave = Turns.leave

    def interrupted(turns: Turns, mine: Any, loop: object) -> None:
        if not raised:
            raised.append(turns)
            raise InterruptedError
        leave(turns, mine, loop)

    async def main() -> None:
        async with library.doors.connect(bus / "B_x") as one:
            client.publish(bus / "B_x", "one", "two")
            monkeypatch.setattr(Turns, "leave", interrupted)
            with pytest.raises(InterruptedError):
                await (one.read() if what == "read" else one.send("x"))
            await one.send("y")
            assert one.pending or await one.read()

    library.run(main)


def test_a_task_of_another_loop_is_told_that_the_channel_is_not_for_it(library: Any, mounting: Mounting) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    long = "x" * ((3 << 20) + 7)
    got: list[str] = []

    async def main() -> None:
        async with _full(library, bus) as (jobs, out):

            async def other() -> None:
                with pytest.raises(client.ClientError, match="a task of another loop sends: a channel is for the tasks of one"):
                    await out.send("never")

            async def meet() -> None:
                await library.until_waiting(1)
                await library.elsewhere(other)
                reading = _reading(jobs, 4, got)
                await out.send("next")
                reading.join(DEADLINE)

            await library.together(lambda: out.send(long), meet)

    library.run(main)
    assert got == ["one", "two", long, "next"]


def test_a_channel_that_a_task_reads_is_not_for_a_sender_of_another_loop(library: Any, bus: Mount) -> None:
    """Whoever closes the channel wakes those of one loop."""

    async def main() -> None:
        async with library.doors.connect(bus / "B_x") as one:

            async def other() -> None:
                with pytest.raises(client.ClientError, match="a task of another loop reads: a channel is for the tasks of one"):
                    await one.send("never")

            async def read() -> None:
                assert await one.read() == "hello"

            async def meet() -> None:
                await library.until_waiting(1)
                await library.elsewhere(other)
                client.publish(bus / "B_x", "hello")

            await library.together(read, meet)
            await library.elsewhere(lambda: one.send("nobody reads"))

    library.run(main)


def test_half_of_a_long_message_is_not_forgotten_though_its_loop_was_closed(mounting: Mounting) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    long = "x" * ((3 << 20) + 7)
    library = Aio()
    got: list[str] = []
    with client.collect(bus / "U_x") as jobs:
        out = library.doors.publisher(bus / "U_x")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(out.open())
        loop.run_until_complete(out.send("one", "two"))
        sending = loop.create_task(out.send(long))
        loop.run_until_complete(library.until_waiting(1))
        loop.close()

        async def main() -> None:
            reading = _reading(jobs, 4, got)
            await out.send("next")
            reading.join(DEADLINE)

        library.run(main)
        assert got == ["one", "two", long, "next"]
        sending.get_coro().close()
        assert not out.is_begun
        sending._log_destroy_pending = False  # type: ignore[attr-defined]
        out.close()


def test_who_cannot_wait_is_not_in_the_way_of_the_next(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may refuse to watch one descriptor more."""
    library = Aio()

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:

            def refuse(*how: object) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            with monkeypatch.context() as patch:
                patch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
                with pytest.raises(OSError, match="No space"):
                    await log.read()
            reading = asyncio.create_task(log.read())
            await library.until_waiting(1)
            client.publish(bus / "B_x", "hello")
            assert await reading == "hello"

    library.run(main)


@pytest.mark.parametrize("again", [False, True])
def test_who_waits_for_what_is_given_away_finds_it_not_open(library: Any, bus: Mount, *, again: bool) -> None:
    async def main() -> None:
        log = library.doors.subscribe(bus / "B_x", again=again)
        await log.open()

        async def read() -> None:
            with pytest.raises(ValueError, match="is not open"):
                await log.read()

        async def give() -> None:
            await library.until_waiting(1)
            os.close(log.detach())

        await library.together(read, give)
        assert (log.is_open, log.joins) == (False, 1)

    library.run(main)


@pytest.mark.parametrize("what", ["read", "send"])
def test_a_call_does_not_go_on_with_the_next_opening(library: Any, mounting: Mounting, what: str) -> None:
    """Though the channel is open again before it comes to see that."""
    bus = mounting("max_queue=2")

    async def main() -> None:
        with client.collect(bus / "U_x"):
            async with library.doors.connect(bus / "U_x") as one:
                await one.send("one", "two")

                async def work() -> None:
                    with pytest.raises(ValueError, match="is not open"):
                        await (one.read() if what == "read" else one.send("three"))

                async def reopen() -> None:
                    await library.until_waiting(1)
                    one.close()
                    one.open_nowait()

                await library.together(work, reopen)

    library.run(main)


def test_a_long_block_is_counted_once(library: Any, mounting: Mounting, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often its master has no place for more of it."""
    bus = mounting("max_queue=8")
    many, block = 2000, b"line\n" * 2000
    end_sending, counted = Endpoint.end_sending, list[int]()

    class Lines(bytes):
        def count(self, line: Any, start: Any = None, end: Any = None) -> int:
            counted.append(len(self[start:end]))
            return super().count(line, start, end)

    def end_counting(channel: Any, lines: bytes, *given: Any, **how: Any) -> int:
        return end_sending(channel, Lines(lines), *given, **how)

    async def main() -> None:
        master = os.open(bus / ".U_x", os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)  # it takes them one by one
        async with library.doors.publisher(bus / "U_x") as out:

            async def read() -> None:
                got = 0
                while got < many:
                    try:
                        got += os.read(master, 100).count(b"\n")
                    except BlockingIOError:
                        await library.pause()
                    if got % 100 == 50:
                        await library.pause()
                        assert got <= out.accepted <= got + 8

            async def send() -> None:
                assert await out.send_block(block) == many

            monkeypatch.setattr(Endpoint, "end_sending", end_counting)
            await library.together(send, read)
            assert out.accepted == many
        os.close(master)

    library.run(main)
    assert len(counted) > 10
    assert sum(counted) == len(block)


def test_a_channel_can_be_left_when_nothing_runs_any_more(library: Any, bus: Mount) -> None:
    logs = [library.doors.subscribe(bus / "B_x") for _ in range(2)]

    async def main() -> None:
        for log in logs:
            await log.open()

    library.run(main)
    os.close(logs[0].detach())
    logs[1].close()
    assert not any(log.is_open for log in logs)


def test_who_answers_does_not_forget_what_waits_in_a_bus_that_goes(
    library: Any, mounting: Mounting, remounting: Remounting
) -> None:
    bus = mounting(command=LINGERING)

    async def main() -> None:
        async with library.doors.serve(bus / "S_x", again=True) as service:
            with client.connect(bus / "S_x") as slave:
                slave.send("one", "two", "three")
                sender, _ = await service.read()
                bus.daemon.send_signal(signal.SIGTERM)
                while await service.answer(sender, "x"):
                    await library.pause()
                assert (service.is_open, service.joins) == (False, 1)
                assert await service.read() == (sender, "two")
                for each in (sender, int(sender)):  # the next bus is not waited for
                    assert not await service.answer(each, "x")
            again = remounting(bus)
            service.open_nowait()
            with client.connect(again / "S_x") as other:
                other.send("four")
                assert await service.read() == (sender, "three")
                assert not await service.answer(sender, "secret")
                told, text = await service.read()
                assert (told, text) == (other.id, "four")
                assert await service.answer(told, "FOUR")
                assert other.read(timeout=DEADLINE) == "FOUR"

    library.run(main)


def test_tasks_that_read_take_turns(library: Any, bus: Mount) -> None:
    """Each message is for one of them. Closing the channel ends them all."""

    async def main() -> None:
        async with library.doors.subscribe(bus / "B_x") as log:
            got: list[str] = []
            ended: list[str] = []

            async def read() -> None:
                async for text in log:
                    got.append(text)  # noqa: PERF401
                ended.append("so")

            async def read_once() -> None:
                with contextlib.suppress(ValueError):  # it is not open
                    while True:
                        got.append(await log.read())
                ended.append("so")

            async def publish() -> None:
                await library.until_waiting(1)
                client.publish(bus / "B_x", "one", "two")
                while len(got) < 2:
                    await library.pause()
                for text in ("three", "four"):
                    client.publish(bus / "B_x", text)
                while len(got) < 4:
                    await library.pause()
                log.close()

            await library.together(read, read, read_once, publish)
            assert sorted(got) == sorted(["one", "two", "three", "four"])
            assert len(ended) == 3

    library.run(main)


def test_a_master_that_does_not_read_is_waited_for_in_peace(bus: Mount, library: Any) -> None:
    master = os.open(bus / ".U_deaf", os.O_WRONLY | os.O_CREAT)

    async def main() -> None:
        async with library.doors.publisher(bus / "U_deaf", again=True) as out:
            assert await library.is_late(lambda: out.send("x"))
            assert out.joins < 10

    library.run(main)
    with client.publisher(bus / "U_deaf", again=True) as out, pytest.raises(client.ClientError):
        out.send("x", timeout=0.1)
    os.close(master)


def test_two_tasks_of_one_slave_join_the_new_master_once(library: Any, bus: Mount) -> None:
    """And what the old one has said is not forgotten by that."""
    doors = library.doors

    async def main() -> None:
        first = doors.serve(bus / "S_x")
        await first.open()
        async with doors.connect(bus / "S_x", again=True) as slave:
            await slave.send("hello")
            sender, _ = await first.read()
            await first.answer(sender, "one", "two", "three")
            got = [await slave.read()]
            first.close()

            async def answer() -> None:
                async with doors.serve(bus / "S_x") as second:
                    while len(got) < 4:
                        sender, text = await second.read()
                        await second.answer(sender, text.upper())
                        await library.pause()

            async def read() -> None:
                while len(got) < 4:
                    got.append(await slave.read())

            async def send() -> None:
                await slave.send("again")

            await library.together(answer, read, send)
            assert got == ["one", "two", "three", "AGAIN"]
            assert slave.joins == 2

    library.run(main)
