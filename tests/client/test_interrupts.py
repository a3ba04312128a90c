"""Clients whose calls end by a signal's handler that raises: nothing is lost or doubled, and they know what was sent."""

import contextlib
import errno
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import futebus.client as client
from futebus.client.channel import Endpoint
from futebus.client.opening import Opening

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.signals import Handler, Interrupt, at_a_place, at_a_signal, interrupted, interrupted_twice
from ..helpers.waiting import DEADLINE, until
from .threads import aside


def _at_a_signal(bus: Mount, channel: str, waits: str, do: Handler) -> contextlib.AbstractContextManager[None]:
    """Has a signal's handler do something as soon as somebody waits who reads or writes a channel."""
    return at_a_signal(lambda: bus.wait_for_clients(1, channel, waits=waits), do)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("way", ["read", "read with a timeout", "iterate", "read_block"])
def test_two_interrupts_in_a_row_lose_nothing(bus: Mount, way: str) -> None:
    """Wherever they come, as with SIGINT and SIGTERM."""
    for place in itertools.count():
        with client.collect(bus / "U_x") as jobs, client.publisher(bus / "U_x") as out:
            out.send("one", "two", "three")
            got: list[str] = []
            each = iter(jobs)  # what its end would raise where it is forgotten, Python only tells
            with contextlib.suppress(Interrupt), interrupted_twice(place, "futebus.") as hits:
                if way == "iterate":
                    got += (next(each),)
                elif way == "read_block":
                    got += jobs.read_block().decode().splitlines()
                else:
                    got += (jobs.read(timeout=DEADLINE if "timeout" in way else None),)
            got += [jobs.read(timeout=0) for _ in range(3 - len(got))]
            assert got == ["one", "two", "three"], hits
        if not hits:
            break
    assert place > 10


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("timeout", [None, DEADLINE])
def test_a_handler_that_opens_a_channel_anew_at_any_moment_loses_nothing_there(
    bus: Mount, timeout: float | None, *, reads: bool
) -> None:
    """Nobody gets what has come before, and somebody all that comes then."""

    def reopen() -> None:
        log.close()
        log.open_nowait()
        out.send("1", "2", "3")
        if reads:
            with contextlib.suppress(client.ClientError):  # it is just being read
                got.append(log.read(timeout=0))

    for place in itertools.count():
        with client.publisher(bus / "B_x") as out, client.subscribe(bus / "B_x") as log:
            out.send("old")
            got: list[str] = []
            with contextlib.suppress(ValueError), at_a_place(place, "futebus.client.", reopen) as hits:
                got += (log.read(timeout=timeout),)
            if not hits:
                break
            got = [each for each in got if each != "old"]  # it was taken before
            got += [log.read(timeout=DEADLINE) for _ in range(3 - len(got))]
            assert got == ["1", "2", "3"]
    assert place > 10


@pytest.mark.parametrize("timeout", [None, DEADLINE])
def test_a_handler_that_reads_at_any_moment_does_not_keep_who_reads_waiting(bus: Mount, timeout: float | None) -> None:
    """What it has left over comes next, also if that was before the call could know of it."""

    def read() -> None:
        with contextlib.suppress(client.ClientError):  # it is just being read, or nothing is left
            got.append(log.read(timeout=0))

    for place in itertools.count():
        with client.publisher(bus / "B_x") as out, client.subscribe(bus / "B_x") as log:
            out.send("1", "2", "3")
            got: list[str] = []
            with at_a_place(place, "futebus.client.", read) as hits:
                got += (log.read(timeout=timeout),)
            got += [log.read(timeout=0) for _ in range(3 - len(got))]
            assert got == ["1", "2", "3"]
            if not hits:
                break
    assert place > 10


@pytest.mark.parametrize("how", ["read", "read_block", "read with a timeout"])
def test_a_handler_that_reads_at_any_moment_gets_nothing_before_what_is_in_hand(bus: Mount, how: str) -> None:
    """It is refused instead, also if what has come is only to be handed on."""

    def read() -> None:
        out.send("4")
        with contextlib.suppress(client.ClientError):  # it is just being read
            got.append(log.read(timeout=0))

    for place in itertools.count():
        with client.publisher(bus / "B_x") as out, client.subscribe(bus / "B_x") as log:
            out.send("1", "2", "3")
            got: list[str] = []
            # What a handler has left over is not to be passed over by a block.
            with contextlib.suppress(ValueError), at_a_place(place, "futebus.client.", read) as hits:
                if how == "read_block":
                    got += log.read_block().decode().splitlines()
                else:
                    got += (log.read(timeout=DEADLINE if "timeout" in how else None),)
            got += [log.read(timeout=0) for _ in range(3 + bool(hits) - len(got))]
            assert got == ["1", "2", "3", "4"][: len(got)], hits
            if not hits:
                break
    assert place > 10


def test_a_handler_that_opens_a_channel_again_at_any_moment_keeps_what_it_has_opened(bus: Mount) -> None:
    """Though the call that it has interrupted does so, too: an answer may be coming there."""

    def ask() -> None:
        slave.send("question", timeout=DEADLINE)
        master.send("answer")

    for place in itertools.count():
        with client.collect(bus / "U_x"):
            slave = client.connect(bus / "U_x", again=True)
        with slave, client.collect(bus / "U_x") as master:
            got: list[str] = []
            with contextlib.suppress(client.TimedOut), at_a_place(place, "futebus.", ask) as hits:
                got += (slave.read(timeout=0),)
            if not hits:
                break
            got += [slave.read(timeout=DEADLINE) for _ in range(1 - len(got))]
            assert (got, slave.joins) == (["answer"], 2), hits
    assert place > 100


@pytest.mark.parametrize("what", ["read", "send", "inquire", "shut"])
def test_who_keeps_what_a_handler_has_raised_keeps_no_call(bus: Mount, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Wherever that was, in what the library uses, too. A shell keeps the last that was raised."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # some of that is where nobody hears of it

    def interrupt() -> None:
        raise Interrupt

    for place in itertools.count():
        with client.collect(bus / "U_x") as jobs, client.connect(bus / "U_x") as slave:
            slave.send("one")
            works: dict[str, Callable[[], object]] = {
                "read": lambda: jobs.read(timeout=DEADLINE),
                "send": lambda: slave.send("two", timeout=DEADLINE),
                "inquire": jobs.inquire,
                "shut": jobs.shut,
            }
            kept: list[BaseException] = []
            hits: list[str] = []
            try:
                with at_a_place(place, "", interrupt) as hits:
                    works[what]()
            except Interrupt as error:
                kept.append(error)
            for channel in (jobs, slave):
                inside = channel._inside
                calls = [*inside.readers, *inside.senders, *inside.others, *channel._now.hurry.calls]
                assert not calls, hits
            if not hits:
                break
    assert place > 3


def test_a_handler_that_reads_at_any_moment_gets_nothing_before_what_is_kept(bus: Mount) -> None:
    """Of a channel that has ended, by who sends and opens it again."""

    def read() -> None:
        for _ in range(2):
            with contextlib.suppress(client.ClientError):  # it is just being read, or there is nothing
                got.append(slave.read(timeout=0))
            again.send("new")  # heard if the handler has opened it

    for place in itertools.count():
        with client.collect(bus / "U_x") as master:
            slave = client.connect(bus / "U_x", again=True)
            master.send("1", "2", "3")
        with slave, client.collect(bus / "U_x") as again:
            got: list[str] = []
            with at_a_place(place, "futebus.client.", read) as hits:
                slave.send("text", timeout=DEADLINE)
            again.send("last")
            while "last" not in got:
                got.append(slave.read(timeout=DEADLINE))
            assert got == ["1", "2", "3", *["new"] * got.count("new"), "last"], hits
            if not hits:
                break
    assert place > 50


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_a_handler_that_sends_and_raises_at_any_moment_loses_nothing_that_is_kept(
    bus: Mount, *, is_back: bool, twice: bool
) -> None:
    """Whether it finds a master or not, and whether or not another one raises right behind it."""

    def send() -> None:
        if is_back:
            masters.append(client.collect(bus / "U_x"))
        slave.send("text", timeout=0)
        if not twice:
            raise Interrupt

    often = 0
    for place in itertools.count():
        masters: list[client.Reader[str]] = []
        with client.collect(bus / "U_x") as master:
            slave = client.connect(bus / "U_x", again=True)
            master.send("1", "2", "3")
        with slave:
            interrupting = (interrupted_twice if twice else at_a_place)(place, "futebus.client.", send)
            with contextlib.suppress(client.TimedOut, Interrupt), interrupting as hits:
                slave.send("text", timeout=0)
            got: list[str] = []
            with contextlib.suppress(client.TimedOut):
                for _ in range(3):
                    got.append(slave.read(timeout=DEADLINE))  # noqa: PERF401
            assert got == ["1", "2", "3"], hits
        for each in masters:
            each.close()
        often = max(often, len(hits))
        if not hits:
            break
    assert (place > 50, often) == (True, 1 + twice)


def test_what_a_raising_handler_has_left_is_kept_as_soon_as_nobody_reads_there(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the channel again, while what is left there was to be kept."""
    with client.collect(bus / "U_x") as master:
        slave = client.connect(bus / "U_x", again=True)
        master.send("1", "2", "3")
    gone, looks, reading = slave._now, itertools.count(1), slave._hand()
    reading.thread, reading.opening = 0, slave._now
    is_read = slave._is_read

    def look(opening: Opening) -> bool:
        number = next(looks)
        if opening is gone and number == 2:
            slave._inside.readers[reading] = None  # it is another thread's, which has not begun to read
            masters.append(client.collect(bus / "U_x"))
            slave.send("text", timeout=0)
            raise Interrupt
        if number == 4:
            del slave._inside.readers[reading]
        return is_read(opening)

    masters: list[client.Reader[str]] = []
    monkeypatch.setattr(slave, "_is_read", look)
    with slave:
        with pytest.raises(Interrupt):
            slave.send("text", timeout=0)
        monkeypatch.undo()
        assert [slave.read(timeout=DEADLINE) for _ in range(3)] == ["1", "2", "3"]
    for each in masters:
        each.close()


def test_what_a_handler_opens_anew_at_any_moment_stays_open(bus: Mount) -> None:
    """Though the call that it interrupts is about to open it again, as its master has gone."""

    def reopen() -> None:
        slave.close()
        slave.open_nowait()

    for place in itertools.count():
        master = client.collect(bus / "U_x")
        slave = client.connect(bus / "U_x", again=True)
        master.close()
        with client.collect(bus / "U_x") as master:
            master.send("hello")
            with contextlib.suppress(ValueError, client.TimedOut), at_a_place(place, "futebus.client.", reopen) as hits:
                slave.read(timeout=0.05)
            assert slave.is_open or not hits
            slave.close()
            until(lambda: len(bus.clients("U_x")) == 1, "only the master is there")
        if not hits:
            break
    assert place > 10


def test_who_is_interrupted_while_he_waits_knows_how_much_was_accepted(mounting: Mounting) -> None:
    bus = mounting("max_queue=8")
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(Interrupt())), pytest.raises(Interrupt):
            out.send(*map(str, range(100)))
        assert out.accepted == 8
        assert [master.read(timeout=60) for _ in range(8)] == [str(number) for number in range(8)]
        assert not master.inquire().queued


def test_the_half_of_a_long_message_is_completed_behind_an_interrupt(mounting: Mounting) -> None:
    bus = mounting("max_queue=2,max_message=8M")
    long = "x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(Interrupt())), pytest.raises(Interrupt):
            out.send(long, "never")
        assert (out.accepted, out.is_begun) == (1, True)
        got = [master.read(timeout=60) for _ in range(2)]
        writing = aside(lambda: out.send("last"))
        got += [master.read(timeout=60) for _ in range(2)]
        writing.join(DEADLINE)
        assert got == ["one", "two", long, "last"]


@pytest.mark.parametrize(
    "error",
    [TimeoutError("mine"), BrokenPipeError(errno.EPIPE, "mine"), BlockingIOError(errno.EAGAIN, "mine"), ValueError("mine")],
)
def test_what_a_handler_raises_is_no_word_of_the_bus(mounting: Mounting, error: Exception) -> None:
    bus = mounting("max_queue=8")
    with client.collect(bus / "U_x") as master, client.connect(bus / "U_x", again=True) as slave:
        with _at_a_signal(bus, "U_x", "read", lambda: _raise(error)), pytest.raises(type(error), match="mine"):
            slave.read()
        with _at_a_signal(bus, "U_x", "write", lambda: _raise(error)), pytest.raises(type(error), match="mine"):
            slave.send(*map(str, range(20)))
        assert (slave.accepted, slave.joins) == (8, 1)
        assert [master.read(timeout=60) for _ in range(8)] == [str(number) for number in range(8)]
        slave.send("next")
        assert master.read(timeout=60) == "next"


def test_what_a_handler_meets_on_another_channel_is_no_word_of_this_one(bus: Mount) -> None:
    with client.publisher(bus / "B_x") as other, client.subscribe(bus / "B_y", again=True) as log:
        other.close()
        with _at_a_signal(bus, "B_y", "read", lambda: other.send("x")), pytest.raises(ValueError, match="B_x is not open"):
            log.read()
        assert log.joins == 1


@pytest.fixture
def ended(bus: Mount) -> Iterator[client.Reader[str]]:
    """A channel that has ended."""
    with client.collect(bus / "U_ended") as master, client.subscribe(bus / "U_ended") as ended:
        master.close()
        yield ended


def test_the_end_of_another_channel_is_not_that_of_this_one(bus: Mount, ended: client.Reader[str]) -> None:
    with client.subscribe(bus / "B_y") as log:
        with _at_a_signal(bus, "B_y", "read", lambda: print(ended.read())), pytest.raises(client.Ended, match="U_ended"):
            for _ in log:
                pass
        client.publish(bus / "B_y", "next")
        assert log.read() == "next"


def test_the_end_of_another_channel_does_not_end_a_loop_of_tasks(library: Any, bus: Mount, ended: client.Reader[str]) -> None:
    async def main() -> None:
        async with library.doors.subscribe(bus / "B_y") as log:
            client.publish(bus / "B_y", "x")
            with (
                interrupted(Endpoint._hand.__code__, handle=lambda *_: print(ended.read())),
                pytest.raises(client.Ended, match="U_ended"),
            ):
                async for _ in log:
                    pass
            assert await log.read() == "x"

    library.run(main)


def test_who_has_left_another_channel_has_not_left_this_one(bus: Mount) -> None:
    with client.serve(bus / "S_x") as service, client.connect(bus / "S_x") as slave, client.join(bus / "A_x") as peer:
        with (
            interrupted(Endpoint.begin_sending.__code__, handle=lambda *_: peer.send(77, "x")),
            pytest.raises(client.NoClient, match="A_x"),
        ):
            service.answer(slave.id, "lost")
        assert service.answer(slave.id, "next")
        assert slave.read(timeout=60) == "next"


def test_who_has_left_another_channel_of_tasks_has_not_left_this_one(library: Any, bus: Mount) -> None:
    async def main() -> None:
        with client.connect(bus / "S_x", wait=60) as slave, client.join(bus / "A_x") as peer:
            with (
                interrupted(Endpoint.begin_sending.__code__, handle=lambda *_: peer.send(77, "x")),
                pytest.raises(client.NoClient, match="A_x"),
            ):
                await service.answer(slave.id, "lost")
            assert await service.answer(slave.id, "next")
            assert slave.read(timeout=60) == "next"

    service = library.doors.serve(bus / "S_x")
    service.open_nowait()
    library.run(main)
    service.close()


class Dear(str):
    """A text in the middle of whose encoding the handler of a signal raises."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise Interrupt


@pytest.mark.parametrize("channel", ["U_x", "A_x", "S_x"])
def test_nothing_is_accepted_of_what_is_not_even_put_together(bus: Mount, channel: str) -> None:
    with contextlib.ExitStack() as stack:
        if channel == "U_x":
            stack.enter_context(client.collect(bus / channel))
        if channel == "S_x":
            service = stack.enter_context(client.serve(bus / channel))
        if channel == "A_x":
            peer, one = (stack.enter_context(client.join(bus / channel)) for _ in range(2))
        out = stack.enter_context(client.publisher(bus / channel))
        assert out.send("one", "two", "three") == out.accepted == 3
        for text in (Dear("x"), "two\nlines"):
            out.accepted = 3
            with pytest.raises((Interrupt, ValueError)):
                out.send("x", text)
            assert out.accepted == 0
        if channel == "A_x":
            assert peer.send(one.id, "x") == peer.accepted == 1
            with pytest.raises(Interrupt):
                peer.send(one.id, Dear("x"))
            assert peer.accepted == 0
        if channel == "S_x":
            slave, _ = service.read()
            service.accepted = 3
            with pytest.raises(Interrupt):
                service.answer(slave, Dear("x"))
            assert service.accepted == 0


@pytest.mark.parametrize("where", ["_hand_in", "_hand"])
def test_what_waits_in_a_channel_that_has_ended_is_not_forgotten_at_its_last_step(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with client.collect(bus / "U_x") as master:
        slave = client.connect(bus / "U_x", again=True)
        master.send("one", "two", "three")
    step = getattr(client.Slave, where)
    raised: list[object] = []

    def interrupted(*given: object) -> object:
        if not raised and sys._getframe(1).f_code.co_name in ("_keep", "_hand_in"):
            raised.append(given)
            raise Interrupt
        return step(*given)

    monkeypatch.setattr(client.Slave, where, interrupted)
    with slave, client.collect(bus / "U_x") as other:
        with pytest.raises(Interrupt):
            slave.send("never")
        slave.send("x")
        assert [slave.read(timeout=60) for _ in range(3)] == ["one", "two", "three"]
        other.send("four")
        assert (slave.read(timeout=60), other.read(timeout=60), slave.joins) == ("four", "x", 2)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_handler_does_not_read_what_is_being_read(bus: Mount, timeout: float | None) -> None:
    """The call that it has interrupted would wait, and what the handler had left over too."""
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        refused: list[OSError] = []

        def read() -> None:
            try:
                master.read(timeout)
            except client.ClientError as error:
                refused.append(error)
            out.send("one", "two")

        with _at_a_signal(bus, "U_x", "read", read):
            assert master.read() == "one"
        assert [error.errno for error in refused] == [errno.EBUSY]
        assert master.read(timeout=60) == "two"


@contextlib.contextmanager
def _each_millisecond(do: Handler) -> Iterator[None]:
    """Has a signal's handler do something all the time."""
    is_over = threading.Event()
    with at_a_signal(lambda: not is_over.wait(0.001), do, repeats=True):
        try:
            yield
        finally:
            is_over.set()


@pytest.mark.parametrize("how", ["one by one", "blocks"])
def test_a_handler_that_reads_at_any_moment_takes_nothing_twice(bus: Mount, how: str) -> None:
    got: list[bytes] = []
    hits = 0

    def read() -> None:
        nonlocal hits
        hits += 1
        with contextlib.suppress(client.ClientError):  # nothing has come, or it is being read
            got.append(master.read(timeout=0))

    def fill() -> None:
        with open(bus / "U_x", "wb", buffering=0) as out:
            numbers = itertools.count()
            while hits < 300:
                out.write(b"%d\n" % next(numbers))
            out.write(b"end\n")

    with client.collect(bus / "U_x", bytes) as master:
        filling = aside(fill)
        with _each_millisecond(read):
            while b"end" not in got[-100:]:
                if how == "blocks" and not master.pending:
                    with contextlib.suppress(ValueError):  # the handler has just left something
                        got.extend(master.read_block(timeout=60).splitlines())
                else:
                    got.append(master.read(timeout=60))
        filling.join(DEADLINE)
        got += [master.read() for _ in range(master.pending)]
        got.remove(b"end")
        assert sorted(map(int, got)) == list(range(len(got)))


@pytest.mark.parametrize("seed", range(20))
def test_a_handler_that_closes_what_is_being_read_ends_it(bus: Mount, seed: int) -> None:
    with client.publisher(bus / "B_x") as out:
        log = client.subscribe(bus / "B_x")
        is_over = threading.Event()

        def say() -> None:
            while not is_over.is_set():
                out.send("x")

        saying = aside(say)
        heard = 0
        closing = random.Random(seed).randrange(100, 200)

        def close() -> None:
            if heard > closing:
                log.close()

        with _each_millisecond(close):
            for _ in log:
                heard += 1
        is_over.set()
        saying.join(DEADLINE)
        assert not log.is_open


def test_a_handler_does_not_send_in_the_middle_of_a_long_message(mounting: Mounting) -> None:
    bus = mounting("max_queue=2,max_message=8M")
    long = "x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        refused: list[OSError] = []

        def send() -> None:
            try:
                out.send("from the handler")
            except client.ClientError as error:
                refused.append(error)
            reading.start()

        got: list[str] = []
        reading = threading.Thread(target=lambda: got.extend(itertools.islice(master, 3)))
        with _at_a_signal(bus, "U_x", "write", send):
            assert out.send(long) == 1
        reading.join(DEADLINE)
        assert got == ["one", "two", long]
        assert [error.errno for error in refused] == [errno.EBUSY]
        out.send("next")
        assert master.read(timeout=60) == "next"


@pytest.mark.parametrize("is_owed", [False, True])
def test_a_handler_leaves_no_half_to_the_call_that_it_has_interrupted(mounting: Mounting, *, is_owed: bool) -> None:
    """Nor does it send a half that this call has in hand."""
    bus = mounting("max_queue=2,max_message=8M")
    long = "x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        if is_owed:
            with pytest.raises(client.TimedOut):
                out.send(long, timeout=0.05)
            assert out.is_begun
        refused: list[OSError] = []

        def send() -> None:
            try:
                out.send("from the handler" if is_owed else long, timeout=0.05)
            except client.ClientError as error:
                refused.append(error)
            reading.start()

        wanted = ["one", "two", *[long] * is_owed, "outer", "next"]
        got: list[str] = []
        reading = threading.Thread(target=lambda: got.extend(itertools.islice(master, len(wanted))))
        with _at_a_signal(bus, "U_x", "write", send):
            assert out.send("outer") == 1
        out.send("next")
        reading.join(DEADLINE)
        assert got == wanted
        assert [error.errno for error in refused] == [errno.EBUSY]


def test_no_files_stay_open_of_channels_that_are_opened_again_in_a_storm(bus: Mount) -> None:
    done = run(sys.executable, "-m", "tests.client.interrupted", "open", bus.path, "0")
    assert done.returncode == 0, done.stderr


def test_a_handler_that_sends_while_the_channel_is_opened_again(bus: Mount) -> None:
    """What it does in the middle of it, it may do."""
    said: list[str] = []
    with client.collect(bus / "U_x"):
        slave = client.connect(bus / "U_x", again=True, say=said.append)

    def come() -> None:
        master = client.collect(bus / "U_x")
        slave.send("from the handler")
        got.append(master.read(timeout=60))
        master.send("welcome")
        masters.append(master)

    got: list[str] = []
    masters: list[client.Collector[str]] = []
    try:
        with at_a_signal(lambda: until(lambda: said, "it waits"), come):
            assert slave.read() == "welcome"
        assert (got, slave.joins) == (["from the handler"], 2)
    finally:
        slave.close()
        for master in masters:
            master.close()


def test_a_handler_may_shut_a_channel_that_is_away(bus: Mount) -> None:
    said: list[str] = []
    with client.collect(bus / "U_x", again=True, say=said.append) as jobs:
        bus.unmount()
        with at_a_signal(lambda: until(lambda: said, "it waits for the bus"), jobs.shut):
            assert list(jobs) == []
        with pytest.raises(client.Ended, match="it was shut"):
            jobs.read()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["read", "send", "enter", "close", "keep", "shut"])
def test_a_storm_of_interrupts(bus: Mount, what: str, seed: int) -> None:
    done = run(sys.executable, "-m", "tests.client.interrupted", what, bus.path, str(seed))
    assert done.returncode == 0, done.stderr
