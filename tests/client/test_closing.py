"""`futebus.client` when a channel is closed, by whom ever, in the middle of whatever."""

import contextlib
import fcntl
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import futebus.client as client
import futebus.client.aio
import futebus.client.trio
from futebus.client import entry, waking
from futebus.client.channel import Endpoint
from futebus.client.entry import enter
from futebus.client.inquire import inquire
from futebus.client.opening import Hand, Opening
from futebus.client.waiting import Waiting
from futebus.core.inquiry import SHUT
from futebus.host import mounted

from ..helpers.descriptors import descriptors
from ..helpers.mounts import Mount, Mounting, run
from ..helpers.signals import Interrupt, at_a_signal, interrupted, interrupted_twice
from ..helpers.waiting import DEADLINE, until
from .threads import aside, child, lasting_child, sleeps, status


def _not_open(work: Callable[[], object], found: list[object]) -> Callable[[], None]:
    """Notes what is done, or that the channel is not open."""

    def do() -> None:
        try:
            found.append(work())
        except ValueError as error:
            found.append(str(error))

    return do


def test_a_channel_that_is_closed_while_it_is_opened_again_stays_closed(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    master = client.collect(bus / "U_x")
    said: list[str] = []
    slave = client.subscribe(bus / "U_x", again=True, say=said.append)
    opened, closed = threading.Event(), threading.Event()

    def open_slowly(*how: Any) -> int:
        file = enter(*how)
        opened.set()
        assert closed.wait(DEADLINE)
        return file

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    found: list[object] = []
    reading = aside(_not_open(slave.read, found))
    master.close()
    until(lambda: said, "it has noticed, and waits")
    monkeypatch.setattr("futebus.client.channel.enter", lambda *how: open_slowly(*how) if how[1] == "+U_x" else enter(*how))
    with client.collect(bus / "U_x"):
        assert opened.wait(DEADLINE)
        slave.close()
        closed.set()
        reading.join(DEADLINE)
        assert (found, slave.is_open) == ([f"{bus / 'U_x'} is not open"], False)
        assert len(bus.clients("U_x")) == 1


def test_closing_wakes_who_waits_though_no_file_can_be_opened(bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Or else he would read what is opened by that number next."""
    log = client.subscribe(bus / "B_x")
    found: list[object] = []
    reading = aside(_not_open(log.read, found))
    bus.wait_for_readers(1, "B_x")
    monkeypatch.setattr(waking, "_NOTHING", ((place / "missing",), (os.O_RDONLY,)))  # an error of the system
    number = log.fileno()
    log.close()
    reading.join(DEADLINE)
    assert found == [f"{bus / 'B_x'} is not open"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_what_is_read_is_not_closed_as_long_as_it_can_stand_for_nothing_else(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no descriptor left, and no reserve. Who reads would read what is opened by that number next."""
    log = client.subscribe(bus / "B_x")
    found: list[object] = []
    reading = aside(_not_open(log.read, found))
    bus.wait_for_readers(1, "B_x")
    number, file = log.fileno(), os.fstat(log.fileno()).st_ino
    with monkeypatch.context() as patch:
        patch.setattr(waking, "_NOTHING", (("/missing",), (os.O_RDONLY,)))
        patch.setattr(waking, "_reserve", [])
        log.close()
    assert os.fstat(number).st_ino == file
    client.publish(bus / "B_x", "text")
    reading.join(DEADLINE)
    assert found == [f"{bus / 'B_x'} is not open"]
    until(lambda: not bus.clients("B_x"), "nobody is there")


FULL = """
import contextlib, os, resource, sys, threading
import futebus.client as client
from tests.client.threads import aside, sleeps
from tests.helpers.waiting import DEADLINE, until

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

@contextlib.contextmanager
def full():
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):
            while True:
                opened.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        yield

path, when = sys.argv[1:]
heard = []
def read():
    heard.extend(jobs)
    heard.append("the end")

if when == "closed before":
    client.collect(path).close()
    os.closerange(3, 64)  # as daemons do when they begin
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
if when == "full at first":
    def say(words):
        places.close()
    places = contextlib.ExitStack()
    places.enter_context(full())
    jobs = client.collect(path, wait=DEADLINE, say=say)
else:
    jobs = client.collect(path)
reading = aside(read)
until(lambda: jobs._inside.readers and sleeps(reading.native_id), "it is read")
with full():
    jobs.close()
    reading.join(DEADLINE)
print(heard)
client.collect(path).close()
"""


@pytest.mark.parametrize("when", ["full now", "full at first", "closed before"])
def test_a_process_without_a_descriptor_left_can_leave_a_channel(bus: Mount, when: str) -> None:
    """Though it is the first that it leaves; also if there was none when the channel was made, or it has closed all of them."""
    done = run(sys.executable, "-c", FULL, bus / "U_x", when)
    assert (done.stdout, done.stderr) == ("['the end']\n", "")


NO_SIGNALS = """
import resource, sys
import futebus.client as client
from tests.client.threads import aside, sleeps
from tests.helpers.waiting import DEADLINE, until

jobs, heard = client.collect(sys.argv[1]), []
def read():
    heard.extend(jobs)
    heard.append("the end")

reading = aside(read)
until(lambda: jobs._inside.readers and sleeps(reading.native_id), "it is read")
resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
jobs.close()
reading.join(DEADLINE)
print(heard)
"""


def test_closing_wakes_who_waits_though_no_signal_more_can_be_on_its_way(bus: Mount) -> None:
    """As if other programs of this user had sent so many that nobody takes."""
    done = run(sys.executable, "-c", NO_SIGNALS, bus / "U_x")
    assert (done.stdout, done.stderr) == ("['the end']\n", "")


OWN_SIGNAL = """
import os, signal, sys
import futebus.client as client
from tests.client.threads import aside, sleeps
from tests.helpers.waiting import until

begin, end = os.pipe()
signal.signal(signal.SIGRTMAX, lambda number, frame: os.write(end, b"handled"))
jobs = client.collect(sys.argv[1])
reading = aside(lambda: [*jobs])
until(lambda: jobs._inside.readers and sleeps(reading.native_id), "it is read")
jobs.close()
reading.join()

def tell():
    until(lambda: sleeps(os.getpid()), "it waits")
    os.kill(os.getpid(), signal.SIGRTMAX)

aside(tell)
print(os.read(begin, 100))
"""


def test_the_handlers_of_a_program_are_as_it_has_set_them_when_it_has_left_a_channel(bus: Mount) -> None:
    """One interrupts what waits, if it is not said to be done again."""
    done = run(sys.executable, "-c", OWN_SIGNAL, bus / "U_x")
    assert (done.stdout, done.stderr) == ("b'handled'\n", "")


def test_a_channel_is_left_though_a_handler_has_raised_where_others_are_woken(bus: Mount) -> None:
    log = client.subscribe(bus / "B_x")
    found: list[object] = []
    reading = aside(_not_open(log.read, found))
    bus.wait_for_readers(1, "B_x")
    with interrupted(waking.wake.__code__), pytest.raises(Interrupt):
        log.close()
    reading.join(DEADLINE)
    assert found == [f"{bus / 'B_x'} is not open"]
    until(lambda: not bus.clients("B_x"), "nobody is there")


@pytest.mark.parametrize("is_handler", [False, True])
def test_two_who_close_at_one_moment_have_no_number_that_is_anothers_by_then(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path, *, is_handler: bool
) -> None:
    """One has found that somebody reads, and is kept until the other has closed, perhaps by a handler that waits for that."""
    (place / "file").write_text("")
    log = client.connect(bus / "B_x")
    reading = aside(_not_open(log.read, []))
    bus.wait_for_readers(1, "B_x")
    files, begun = list[int](), threading.Event()

    def open_slowly(*what: Any, **how: Any) -> int:
        opened = open_(*what, **how)
        if not begun.is_set():
            begun.set()
            if is_handler:
                log.close()
            else:
                aside(log.close).join(DEADLINE)
                client.publish(bus / "B_x", "comes just now")
            reading.join(DEADLINE)
            assert not reading.is_alive()
            files.extend(open_(place / "file", os.O_RDONLY) for _ in range(2))
        return opened

    open_ = os.open
    monkeypatch.setattr("os.open", open_slowly)
    log.close()
    monkeypatch.undo()
    for file in files:
        assert os.readlink(f"/proc/self/fd/{file}") == str(place / "file")
        os.close(file)
    until(lambda: not bus.clients("B_x"), "nobody is there")


def test_a_child_that_is_forked_in_the_middle_of_closing_keeps_its_own_files(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """Of which one has the channel's number, which the child has left. The handler of a signal may fork, and the child go on."""
    (place / "file").write_text("its own")
    log = client.connect(bus / "B_x")
    reading = aside(_not_open(log.read, []))
    bus.wait_for_readers(1, "B_x")
    number, found, numbers = log.fileno(), place / "found", list[int]()

    def open_slowly(*what: Any, **how: Any) -> int:
        opened = open_(*what, **how)
        if not numbers:
            numbers.append(os.fork())
            if not numbers[0]:
                os.dup2(open_(place / "file", os.O_RDONLY), number)
        return opened

    open_ = os.open
    monkeypatch.setattr("os.open", open_slowly)
    try:
        log.close()
    finally:
        if numbers and not numbers[0]:
            with contextlib.suppress(BaseException):
                found.write_bytes(os.read(number, 100))
            os._exit(0)
    assert status(numbers[0]) == 0
    reading.join(DEADLINE)
    assert not reading.is_alive()
    assert found.read_text() == "its own"


@pytest.mark.parametrize("what", ["read", "send"])
def test_a_child_that_a_handler_has_forked_in_the_middle_of_a_call_leaves_the_channel(
    mounting: Mounting, place: Path, what: str
) -> None:
    """And goes on: the call must not be made on a file that it has opened since."""
    bus, me, children = mounting("max_queue=8"), os.getpid(), list[int]()
    (place / "file").write_text("its own")
    with client.collect(bus / "U_x") as master, client.connect(bus / "U_x") as channel:
        if what == "send":
            for _ in range(8):
                channel.send("text")

        def fork() -> None:
            children.append(os.fork())
            if not children[0]:
                channel.close()
                files.extend(os.open(place / "file", os.O_RDWR) for _ in range(3))
            else:
                codes.append(status(children[0]))
                if what == "send":
                    master.read()
                else:
                    master.send("text")

        def wait() -> None:
            until(lambda: inside.readers or inside.senders, "it is about to wait")
            until(lambda: sleeps(me), "it waits")

        inside, files, codes, found = channel._inside, list[int](), list[int](), list[object]()
        with at_a_signal(wait, fork):
            try:
                _not_open(channel.read if what == "read" else lambda: channel.send("text"), found)()
            finally:
                if os.getpid() != me:
                    is_well = found == [f"{bus / 'U_x'} is not open"] and len(files) == 3
                    texts = [os.read(file, 100) for file in files]
                    os._exit(0 if is_well and texts == [b"its own"] * 3 else 1)
        assert (found, codes) == (["text"] if what == "read" else [1], [0])


@pytest.mark.parametrize(
    ("where", "is_before"), [("host.mounted.mount_id", True), ("client.entry._open", True), ("inquire", False)]
)
def test_a_child_that_a_handler_has_forked_while_a_channel_is_opened_keeps_its_own_files(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path, where: str, *, is_before: bool
) -> None:
    """Nothing is made there, if it is a directory; nor taken for the channel."""
    (place / "own").mkdir()
    me, children, files, is_well = os.getpid(), list[int](), list[int](), False
    name = f"futebus.{where}" if "." in where else f"futebus.client.entry.{where}"
    works: dict[str, Callable[..., Any]] = {
        "host.mounted.mount_id": mounted.mount_id,
        "client.entry._open": entry._open,
        "inquire": inquire,
    }
    work = works[where]

    def fork(*given: Any) -> Any:
        patch.undo()
        done = None if is_before else work(*given)
        children.append(os.fork())
        if not children[0]:
            files.extend(os.open(place / "own", os.O_RDONLY) for _ in range(3))
        return work(*given) if is_before else done

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    patch = pytest.MonkeyPatch()
    patch.setattr(name, fork)
    try:
        try:
            client.subscribe(bus / "B_x").close()
        except client.ClientError:
            links = [os.readlink(f"/proc/self/fd/{file}") for file in files]
            is_well = links == [str(place / "own")] * 3 and not os.listdir(place / "own")
    finally:
        if os.getpid() != me:
            os._exit(0 if is_well else 1)
    assert status(children[0]) == 0
    assert not is_well


def test_a_handler_may_wait_for_who_waits_to_open_the_channel_again(mounting: Mounting) -> None:
    """It has interrupted who opens it, and leaves the channel first."""
    bus, said, goes_on = mounting(), list[str](), threading.Event()
    master = client.collect(bus / "U_x")
    slave = client.connect(bus / "U_x", again=True, say=said.append)

    def read() -> None:
        for _ in slave:
            assert goes_on.wait(DEADLINE)

    def wait() -> None:
        until(lambda: said, "it waits until it can open it")
        goes_on.set()
        until(lambda: slave._inside.readers and not next(iter(slave._inside.readers)).opening, "the other waits for that")

    def leave() -> None:
        slave.close()
        reading.join(DEADLINE)
        assert not reading.is_alive()

    reading = aside(read)
    master.send("text")
    until(lambda: not slave._inside.readers, "it has read")
    master.close()
    with at_a_signal(wait, leave), pytest.raises(ValueError, match="is not open"):
        slave.send("text")


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_handler_may_wait_for_who_is_about_to_be_in_a_hurry(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, *, is_blocking: bool
) -> None:
    """It has interrupted who begins to be so, or ends that, and leaves the channel first."""
    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    log = client.connect(bus / "B_x")
    others: list[threading.Thread] = []
    set_blocking = os.set_blocking

    def set_slowly(file: int, value: bool) -> None:
        set_blocking(file, value)
        if value == is_blocking and not others:
            others.append(aside(_not_open(lambda: log.read(timeout=DEADLINE), [])))
            until(lambda: len(log._now.hurry.calls) == 2 - is_blocking, "another waits for that")
            log.close()
            others[0].join(DEADLINE)
            assert not others[0].is_alive()
            others.append(aside(log.open_nowait))
            others[1].join(DEADLINE)
            assert not others[1].is_alive()

    monkeypatch.setattr("os.set_blocking", set_slowly)
    with contextlib.suppress(ValueError):
        log.send("text", timeout=DEADLINE)
    assert log.is_open
    log.close()


def test_a_child_that_comes_out_of_a_call_leaves_its_parent_in_a_hurry(bus: Mount) -> None:
    """The handler of a signal has forked; what waits, and what not, is the same for both."""
    with client.subscribe(bus / "B_x") as log:
        opening, hurry, hand = log._now, log._now.hurry, Hand()

        def come_out() -> None:
            del hurry.calls[hand]
            log._relax(hurry, opening)

        hurry.calls[hand] = None
        log._hurry(hurry, opening, log.closings, time.monotonic() + DEADLINE, "")
        assert status(child(come_out)) == 0
        assert not os.get_blocking(log.fileno())
        come_out()
        assert os.get_blocking(log.fileno())


def test_who_sends_has_in_hand_what_he_sends_to(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another thread is about to leave that when he begins, and then is not: to give it away may fail."""
    log = client.connect(bus / "B_x")
    opening, seen, write = log._now, list[bool](), os.write
    begin = log.begin_sending

    def begin_sending(*what: Any) -> Any:
        try:
            return begin(*what)
        finally:
            log._now = Opening()

    def is_addressed(_: Any) -> bool:
        log._now = opening
        return False

    def look(*what: Any) -> int:
        seen.append([hand.opening for hand in log._inside.senders] == [opening])
        return write(*what)

    monkeypatch.setattr(log, "begin_sending", begin_sending)
    monkeypatch.setattr(type(log), "_is_addressed", property(is_addressed), raising=False)
    monkeypatch.setattr("os.write", look)
    log.send("text")
    monkeypatch.undo()
    assert seen == [True]
    log.close()


@pytest.mark.parametrize("doors", [client, futebus.client.aio, futebus.client.trio])
def test_who_asks_about_a_channel_is_not_told_of_another(bus: Mount, monkeypatch: pytest.MonkeyPatch, doors: Any) -> None:
    """Which another thread opens when it has left this one."""
    log, others = doors.join(bus / "A_x"), list[Any]()
    if not log.is_open:
        log.open_nowait()

    def inquire_late(file: int) -> object:
        aside(log.close).join(DEADLINE)
        patch.undo()
        others.extend(client.join(bus / "A_y") for _ in range(3))
        return inquire(file)

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    with monkeypatch.context() as patch:
        patch.setattr("futebus.client.channel.inquire", inquire_late)
        with pytest.raises(ValueError, match="is not open"):
            log.inquire()
    for other in others:
        other.close()


@pytest.mark.parametrize("doors", [client, futebus.client.aio, futebus.client.trio])
def test_a_child_has_nothing_open_that_another_thread_was_asking_about(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, doors: Any
) -> None:
    """When it had been left."""
    log, asks, goes_on, found = doors.join(bus / "A_x"), threading.Event(), threading.Event(), list[object]()
    if not log.is_open:
        log.open_nowait()

    def inquire_late(file: int) -> object:
        asks.set()
        assert goes_on.wait(DEADLINE)
        return inquire(file)

    def check() -> None:
        assert not os.path.lexists(f"/proc/self/fd/{number}")

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    monkeypatch.setattr("futebus.client.channel.inquire", inquire_late)
    number = log.fileno()
    asking = aside(_not_open(log.inquire, found))
    assert asks.wait(DEADLINE)
    log.close()
    assert status(child(check)) == 0
    goes_on.set()
    asking.join(DEADLINE)
    assert found == [f"{bus / 'A_x'} is not open"]
    check()


@pytest.mark.parametrize("doors", [client, futebus.client.aio, futebus.client.trio])
def test_who_ends_a_channel_does_not_end_another(bus: Mount, monkeypatch: pytest.MonkeyPatch, doors: Any) -> None:
    """The same."""
    jobs, others, ioctl = doors.collect(bus / "U_x"), list[Any](), fcntl.ioctl
    if not jobs.is_open:
        jobs.open_nowait()

    def ioctl_late(*what: Any) -> object:
        if what[1] == SHUT:
            aside(jobs.close).join(DEADLINE)
            patch.undo()
            others.extend(client.collect(bus / f"U_{count}") for count in range(3))
        return ioctl(*what)

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.ioctl", ioctl_late)
        with pytest.raises(ValueError, match="is not open"):
            jobs.shut()
    for count, other in enumerate(others):
        client.publish(bus / f"U_{count}", "text")
        assert other.read() == "text"
        other.close()


def test_nobody_waits_for_who_closes(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take long, or a handler in it may wait for somebody else."""
    log = client.connect(bus / "B_x")
    begun, goes_on = threading.Event(), threading.Event()
    close = Opening.close

    def close_slowly(opening: Opening) -> None:
        if not begun.is_set():
            begun.set()
            assert goes_on.wait(DEADLINE)
        close(opening)

    def work() -> None:
        for _ in range(3):
            log.open_nowait()
            log.send("text")
            log.close()

    monkeypatch.setattr(Opening, "close", close_slowly)
    closing = aside(log.close)
    assert begun.wait(DEADLINE)
    working = aside(work)
    working.join(DEADLINE)
    assert not working.is_alive()
    assert len(bus.clients("B_x")) == 1  # what that one closes
    goes_on.set()
    closing.join(DEADLINE)
    until(lambda: not bus.clients("B_x"), "nobody is there")


def test_who_closes_leaves_what_another_thread_takes_from_a_channel_that_has_gone(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one closes it: it would read another file under its number."""
    master = client.collect(bus / "U_x")
    slave = client.connect(bus / "U_x", again=True)
    file = os.fstat(slave.fileno()).st_ino
    is_reading, goes_on = threading.Event(), threading.Event()
    found: list[object] = []
    keep = Waiting._keep

    def keep_slowly(channel: Any, gone: Any, closings: int) -> None:
        is_reading.set()
        assert goes_on.wait(DEADLINE)
        found.append(gone.file >= 0 and os.fstat(gone.file).st_ino == file)
        keep(channel, gone, closings)

    monkeypatch.setattr(Waiting, "_keep", keep_slowly)
    master.close()
    sending = aside(_not_open(lambda: slave.send("text"), found))
    assert is_reading.wait(DEADLINE)
    slave.close()
    goes_on.set()
    sending.join(DEADLINE)
    assert found == [True, f"{bus / 'U_x'} is not open"]
    until(lambda: not bus.clients("U_x"), "nobody is there")


def test_who_closes_does_not_close_what_others_open_meanwhile(bus: Mount, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    (place / "file").write_text("")
    log = client.connect(bus / "B_x")
    reading = aside(_not_open(log.read, []))
    bus.wait_for_readers(1, "B_x")
    files: list[int] = []

    def dup2_slowly(file: int, number: int, **how: bool) -> int:
        if number == log_file and not files:
            client.publish(bus / "B_x", "comes just now")
            reading.join(DEADLINE)
            files.append(os.open(place / "file", os.O_RDONLY))
        return dup2(file, number, **how)

    log_file, dup2 = log.fileno(), os.dup2
    monkeypatch.setattr("os.dup2", dup2_slowly)
    log.close()
    assert not reading.is_alive()
    assert os.readlink(f"/proc/self/fd/{files[0]}") == str(place / "file")
    os.close(files[0])


@pytest.mark.parametrize("what", ["read", "send"])
def test_closing_wakes_all_who_wait(mounting: Mounting, what: str) -> None:
    bus = mounting("max_queue=8")
    before = descriptors()
    with client.collect(bus / "U_y"), client.collect(bus / "U_x"):
        channel = client.connect(bus / "U_x")
        found: list[object] = []
        threads = []
        for _ in range(3):
            work: Callable[[], object] = channel.read if what == "read" else lambda: [channel.send("x") for _ in range(9)]
            threads.append(aside(_not_open(work, found)))
        bus.wait_for_clients(1, "U_x", waits="read" if what == "read" else "write")
        channel.close()
        for thread in threads:
            thread.join(DEADLINE)
        assert found == [f"{bus / 'U_x'} is not open"] * 3
    until(lambda: descriptors() <= before, "all is closed")


def test_nobody_gets_what_was_not_asked_for_before_the_end(bus: Mount) -> None:
    with client.subscribe(bus / "B_x") as log:
        client.publish(bus / "B_x", "one", "two", "three")
        got = []
        for text in log:
            got.append(text)
            log.close()
        assert (got, log.pending) == (["one"], 0)


def test_a_child_that_closes_what_a_thread_reads_here_closes_it(bus: Mount) -> None:
    """Threads are not there in a child of fork(2)."""
    with client.subscribe(bus / "B_x") as log:
        got: list[str] = []
        reading = aside(lambda: got.append(log.read()))
        bus.wait_for_readers(1, "B_x")
        child = os.fork()
        if not child:
            number = log.fileno()
            log.close()
            os._exit(os.path.lexists(f"/proc/self/fd/{number}"))
        assert os.waitpid(child, 0)[1] == 0
        client.publish(bus / "B_x", "text")
        reading.join(DEADLINE)
        assert got == ["text"]


def test_its_name_in_a_debugger(bus: Mount) -> None:
    log = client.subscribe(bus / "B_x")
    assert repr(log) == f"<Reader of {bus / 'B_x'}>"
    log.close()
    assert repr(log) == f"<Reader of {bus / 'B_x'}, not open>"


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize(
    ("where", "go_on"),
    [
        ("host.mounted.mount_id", mounted.mount_id),
        ("client.entry.inquire", inquire),
        ("client.channel.Endpoint._opened", Endpoint._opened),
    ],
)
@pytest.mark.parametrize("doors", [client, futebus.client.aio, futebus.client.trio])
def test_a_child_leaves_what_another_thread_is_about_to_open(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, doors: Any, where: str, go_on: Any, *, is_closed: bool
) -> None:
    """Nor has it the bus's directory open, which could not be unmounted then. And if it was closed just before that."""
    jobs = doors.collect(bus / "U_x")
    jobs.close()

    def fork(*given: Any) -> Any:
        monkeypatch.undo()
        if is_closed:
            aside(jobs.close).join(DEADLINE)
        opened = Path("/proc", str(children.enter_context(lasting_child())), "fd")
        found.extend(target for link in opened.iterdir() if (target := os.readlink(link)).startswith(str(bus.path)))
        return go_on(*given)

    found: list[str] = []
    with contextlib.ExitStack() as children:
        monkeypatch.setattr(f"futebus.{where}", fork)
        with contextlib.suppress(ValueError):
            jobs.open_nowait()
        assert jobs.is_open == (not is_closed)
        jobs.close()
        client.collect(bus / "U_x").close()
        assert not found


@pytest.mark.parametrize("what", ["close", "detach", "open_nowait"])
def test_what_two_interrupts_keep_open_is_left_by_the_next_who_closes(bus: Mount, what: str) -> None:
    for place in itertools.count():
        jobs = client.collect(bus / "U_x")
        if what == "open_nowait":
            jobs.close()
        given: list[int] = []
        with contextlib.suppress(Interrupt), interrupted_twice(place, "futebus.client.") as hits:
            if what == "detach":
                given += (jobs.detach(),)
            else:
                getattr(jobs, what)()
        jobs.close()
        for each in given:
            os.close(each)
        client.collect(bus / "U_x").close()
        if not hits:
            break
    assert place > 5


def test_a_child_leaves_what_there_is_though_a_handler_raises(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises there is told by Python, and ends nothing."""
    channels = [client.subscribe(bus / f"B_{number}") for number in range(3)]

    def begin(channel: Any) -> None:
        begun.append(channel)
        raise Interrupt

    def check() -> None:
        assert len(begun) == 3

    begun: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(Endpoint, "_begin", begin)
        patch.setattr(Waiting, "_begin", begin)
        patch.setattr(sys, "unraisablehook", lambda _: None)
        patch.setattr("futebus.client.channel._THERE", {*channels})
        assert status(child(check)) == 0
    for channel in channels:
        channel.close()


@pytest.mark.parametrize("doors", [client, futebus.client.aio, futebus.client.trio])
def test_a_child_leaves_what_another_thread_is_about_to_close(bus: Mount, monkeypatch: pytest.MonkeyPatch, doors: Any) -> None:
    """That thread is not there in the child."""
    jobs = doors.collect(bus / "U_x")
    if not jobs.is_open:
        jobs.open_nowait()
    close, is_about, goes = type(jobs)._close, threading.Event(), threading.Event()

    def close_slowly(channel: Any, opening: Any) -> None:
        is_about.set()
        goes.wait(DEADLINE)
        close(channel, opening)

    monkeypatch.setattr(type(jobs), "_close", close_slowly)
    closing = aside(jobs.close)
    assert is_about.wait(DEADLINE)
    monkeypatch.undo()
    with lasting_child():
        goes.set()
        closing.join(DEADLINE)
        client.collect(bus / "U_x").close()
