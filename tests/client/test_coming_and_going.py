"""`futebus.client` while masters and buses come and go, and while others use the same channel object, or close it."""

import contextlib
import copy
import errno
import itertools
import json
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import futebus.client as client
from futebus.client.entry import enter
from futebus.client.inquire import Inquiry, inquire
from futebus.client.opening import Opening
from futebus.host import mounted

from ..helpers.descriptors import descriptors
from ..helpers.mounts import LINGERING, Mount, Mounting
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE, until
from .threads import Reads, aside


def test_waiting_for_a_master(bus: Mount) -> None:
    with pytest.raises(client.NoMaster):
        client.connect(bus / "S_x", wait=0.01)
    answers: list[str] = []
    asking = aside(lambda: answers.append(client.call(bus / "S_x", "hello", timeout=60, wait=60)))
    with client.serve(bus / "S_x") as service:
        sender, text = service.read()
        service.answer(sender, text.upper())
        asking.join(DEADLINE)
    assert answers == ["HELLO"]


def test_a_master_that_waits_for_his_turn(bus: Mount) -> None:
    first = client.collect(bus / "U_x")
    turns: list[str] = []

    def second() -> None:
        with client.collect(bus / "U_x", wait=60) as jobs:
            turns.append(jobs.read())

    waiting = aside(second)
    client.publish(bus / "U_x", "one")
    assert first.read() == "one"
    first.close()
    client.publish(bus / "U_x", "two", wait=60)
    waiting.join(DEADLINE)
    assert turns == ["two"]


def test_what_is_addressed_goes_to_nobody_once_and_then_to_those_who_are_there(bus: Mount, remounting: Remounting) -> None:
    """Who has found that the bus had gone does not find that for ever."""
    with client.join(bus / "A_x", again=True) as peer:
        bus.daemon.kill()
        bus.daemon.wait()
        with pytest.raises(client.TimedOut):
            peer.read(timeout=0.05)
        with pytest.raises(client.TimedOut):
            peer.send(None, "nobody", timeout=0.05)
        again = remounting(bus)
        with pytest.raises(client.NoClient, match="whom this is for"):
            peer.send(2, "nobody", timeout=DEADLINE)
        with client.join(again / "A_x") as other:
            assert peer.send(other.id, "hello", timeout=DEADLINE) == 1
            assert other.read(timeout=DEADLINE) == (peer.id, "hello")


@pytest.mark.parametrize("is_back", [False, True])
def test_whom_is_heard_on_a_bus_that_has_gone_has_gone_with_it(bus: Mount, remounting: Remounting, *, is_back: bool) -> None:
    """From the first call on that addresses him. And nobody has closed the channel."""
    with client.join(bus / "A_x", again=True) as peer:
        with client.join(bus / "A_x") as other:
            other.send(peer.id, "hello")
            sender, _ = peer.read(timeout=DEADLINE)
        bus.daemon.kill()
        bus.daemon.wait()
        again = remounting(bus) if is_back else None
        for _ in range(2):
            with pytest.raises(client.NoClient):
                peer.send(sender, "nobody", timeout=DEADLINE)
        with pytest.raises(client.NoBus, match="is not open again yet"):
            peer.inquire()
        again = again or remounting(bus)
        with client.join(again / "A_x") as other:
            assert peer.send(None, "hello", timeout=DEADLINE) == 1
            assert other.read(timeout=DEADLINE)[1] == "hello"
        assert peer.inquire().id == peer.id


def test_whom_tasks_have_heard_on_a_bus_that_has_gone_has_gone_with_it(library: Any, bus: Mount, remounting: Remounting) -> None:
    async def main() -> None:
        async with library.doors.join(bus / "A_x", again=True) as peer:
            with client.join(bus / "A_x") as other:
                other.send(peer.id, "hello")
                sender, _ = await peer.read()
            bus.daemon.kill()
            bus.daemon.wait()
            remounting(bus)
            for _ in range(2):
                with pytest.raises(client.NoClient):
                    await peer.send(sender, "nobody")
            assert await peer.send(None, "hello") == 1

    library.run(main)


def test_who_only_sends_to_an_addressed_channel_opens_it_again(bus: Mount, remounting: Remounting) -> None:
    with client.publisher(bus / "A_x", again=True) as out:
        again = remounting(bus)
        with client.join(again / "A_x") as other:
            assert out.send("hello", timeout=DEADLINE) == 1
            assert other.read(timeout=DEADLINE)[1] == "hello"


@pytest.mark.parametrize("again", [False, True])
def test_what_may_only_be_read_is_not_opened_again_by_who_writes(bus: Mount, *, again: bool) -> None:
    with client.subscribe(bus / "B_x", again=again) as log:
        for timeout in (None, DEADLINE):
            with pytest.raises(client.ClientError, match="Bad file descriptor"):
                log.send_block(b"line\n", timeout)
        assert log.joins == 1


class Masters:
    """Masters of a U channel, who do not read, and each of whom leaves when his slave has come.

    Args:
        channel: opens its slave.
        path: the channel.
    """

    def __init__(self, path: Path, channel: Callable[[], client.Slave[str]]) -> None:
        self._path = path
        self._last = self._come()
        self.slave = channel()

    def _come(self) -> int:
        return os.open(self._path.with_name(f".{self._path.name}"), os.O_WRONLY | os.O_CREAT)

    def go_on(self, joins: int) -> int:
        """Until the slave has come so often. Returns the last master."""
        while self.slave.joins < joins:
            before = self.slave.joins
            os.close(self._last)
            self._last = self._come()
            until(lambda: self.slave.joins > before, "it is opened again")  # noqa: B023
        return self._last


def _go_on(work: Callable[[], object]) -> None:
    with contextlib.suppress(ValueError, client.ClientError):  # it is closed in the end
        work()


def test_who_reads_goes_on_when_another_thread_opens_the_channel_again(bus: Mount) -> None:
    masters = Masters(bus / "U_x", lambda: client.connect(bus / "U_x", again=True))
    got: list[str] = []
    with masters.slave as channel:
        reading = aside(lambda: got.append(channel.read()))
        sending = aside(lambda: _go_on(lambda: channel.send("x")))
        master = masters.go_on(5)
        os.write(master, b"line\n")
        reading.join(DEADLINE)
        assert got == ["line"]
    sending.join(DEADLINE)
    os.close(master)


@pytest.mark.parametrize("reads", [False, True])
def test_a_channel_that_is_opened_again_and_again_takes_no_more_files(bus: Mount, *, reads: bool) -> None:
    masters = Masters(bus / "U_x", lambda: client.connect(bus / "U_x", again=True))
    with masters.slave as channel:
        if reads:
            aside(lambda: _go_on(channel.read))
        sending = aside(lambda: _go_on(lambda: channel.send("x")))
        masters.go_on(3)
        before = descriptors()
        master = masters.go_on(15)
        until(lambda: descriptors() <= before + 2, "what it has left is closed")
    sending.join(DEADLINE)
    os.close(master)


def test_a_master_that_does_not_read_is_not_left(bus: Mount) -> None:
    """What he says is heard while somebody waits for one who does."""
    master = os.open(bus / ".U_x", os.O_WRONLY | os.O_CREAT)
    with client.connect(bus / "U_x", again=True) as channel:
        for _ in range(3):
            os.write(master, b"line\n")
            with pytest.raises(client.TimedOut, match="no master any more that reads"):
                channel.send("x", timeout=0.1)
        assert [channel.read() for _ in range(3)] == ["line"] * 3
        assert channel.joins == 1
        sending = aside(lambda: channel.send("x"))
        os.close(master)
        with client.collect(bus / "U_x", wait=DEADLINE) as jobs:
            assert jobs.read(timeout=DEADLINE) == "x"
        sending.join(DEADLINE)


class Slow:
    """os.read(2), the first time not before it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_in, self.goes_on = threading.Event(), threading.Event()
        self._read, self._monkeypatch = os.read, monkeypatch
        monkeypatch.setattr("os.read", self)

    def __call__(self, *what: Any) -> bytes:
        self._monkeypatch.setattr("os.read", self._read)
        self.is_in.set()
        assert self.goes_on.wait(DEADLINE)
        return self._read(*what)


@pytest.mark.parametrize("timeout", [0, 0.02])
def test_who_sends_and_is_late_does_not_forget_what_another_thread_is_reading(
    bus: Mount, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as slave:
        got: list[bytes] = []
        master.send("one", "two")
        master.close()
        slow = Slow(monkeypatch)
        reading = aside(lambda: got.append(slave.read_block(timeout=DEADLINE)))
        assert slow.is_in.wait(DEADLINE)
        with pytest.raises(client.TimedOut):
            slave.send("text", timeout=timeout)
        slow.goes_on.set()
        reading.join(DEADLINE)
        assert got == [b"one\ntwo\n"]


def test_a_handler_sends_though_another_thread_waits_for_who_it_has_interrupted(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one reads. The other wants to keep what is left there, and to open the channel again."""
    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as slave:
        master.close()
        looked, is_read, read = threading.Event(), slave._is_read, os.read

        def look(gone: Opening) -> bool:
            looked.set()
            return is_read(gone)

        def handle(*what: Any) -> bytes:
            monkeypatch.setattr("os.read", read)
            sending = aside(lambda: slave.send("from another thread"))
            assert looked.wait(DEADLINE)
            slave.send("from the handler", timeout=DEADLINE)
            sending.join(DEADLINE)
            again.send("text")
            return os.read(*what)

        monkeypatch.setattr(slave, "_is_read", look)
        with client.collect(bus / "U_x") as again:
            monkeypatch.setattr("os.read", handle)
            assert slave.read() == "text"
            assert {again.read(timeout=DEADLINE) for _ in range(2)} == {"from another thread", "from the handler"}


def test_who_is_late_tries_once_to_open_a_channel_again(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what is there each time has ended again when it is sent to."""
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, os.open(bus / ".U_x", os.O_WRONLY | os.O_CREAT))  # who does not read
        slave = opened.enter_context(client.connect(bus / "U_x", again=True))
        monkeypatch.setattr(slave, "_has_ended", lambda _: True)
        with pytest.raises(client.TimedOut):
            slave.send("text", timeout=0)
        assert slave.joins == 2


def test_a_master_has_not_ended_because_he_cannot_be_asked_about(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    def inquire(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with contextlib.ExitStack() as opened:
        opened.callback(os.close, os.open(bus / ".U_x", os.O_WRONLY | os.O_CREAT))
        slave = opened.enter_context(client.connect(bus / "U_x", again=True))
        monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
        monkeypatch.setattr("futebus.client.channel.inquire", inquire)
        with pytest.raises(client.TimedOut, match="has no master any more that reads"):
            slave.send("text", timeout=0.1)
        assert slave.joins == 1


def test_a_master_who_can_never_be_asked_about_is_left(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    def inquire(_: int) -> None:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as slave:
        master.close()
        monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
        monkeypatch.setattr("futebus.client.channel.inquire", inquire)
        with client.collect(bus / "U_x") as again:
            assert slave.send("text", timeout=DEADLINE) == 1
            assert again.read(timeout=DEADLINE) == "text"


def test_a_child_that_is_forked_in_a_call_does_not_wait_for_a_thread_of_its_parent(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one opens the channel again. The handler of a signal has forked."""
    me, children, masters, said = os.getpid(), list[int](), list[client.Reader[str]](), list[str]()
    with client.collect(bus / "U_x"):
        slave = client.connect(bus / "U_x", again=True, say=said.append)

    def read() -> None:
        with contextlib.suppress(ValueError):
            slave.read()

    def fork(*what: Any, **how: Any) -> None:
        monkeypatch.setattr(slave, "_acquire", acquire)
        children.append(os.fork())
        if children[0]:
            masters.append(client.collect(bus / "U_x"))
        acquire(*what, **how)

    reading, acquire = aside(read), slave._acquire
    until(lambda: said, "it waits for the master")
    monkeypatch.setattr(slave, "_acquire", fork)
    try:
        try:
            slave.send("text")
        finally:
            if os.getpid() != me:
                os._exit(0)
        assert [masters[0].read(timeout=DEADLINE) for _ in range(2)] == ["text"] * 2
    finally:
        for number in children:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
        slave.close()
        reading.join(DEADLINE)
        for master in masters:
            master.close()


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("was_away", [False, True])
def test_who_never_waits_finds_a_master_who_has_come_back(bus: Mount, *, was_away: bool, reads: bool) -> None:
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) if reads else client.publisher(bus / "U_x", again=True) as out:
        master.close()
        if was_away:
            with pytest.raises(client.TimedOut, match=r"has not come back in time: .* has no master"):
                out.send("nobody hears", timeout=0)
        with client.collect(bus / "U_x") as again:
            assert out.send("text", timeout=0) == 1
            assert again.read(timeout=DEADLINE) == "text"


def test_who_reads_does_not_wait_for_the_master_behind_what_who_sends_has_kept(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who sends opens the channel again, and waits for that."""
    master = client.collect(bus / "U_x")
    slave = client.connect(bus / "U_x", again=True)
    texts = ["one", "two", "three"]
    master.send(*texts)
    master.close()
    keep, acquire, got, reading = slave._keep, slave._acquire, list[str](), list[threading.Thread]()
    keeps, waits = threading.Event(), threading.Event()

    def acquire_late(*what: Any, **how: Any) -> None:
        if keeps.is_set():
            waits.set()  # who reads
        acquire(*what, **how)

    def keep_slowly(gone: Opening, closings: int) -> None:
        keeps.set()
        reading.append(aside(lambda: got.extend(slave)))
        assert waits.wait(DEADLINE)
        keep(gone, closings)

    def send() -> None:
        with contextlib.suppress(ValueError):
            slave.send("text")

    monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
    monkeypatch.setattr(slave, "_acquire", acquire_late)
    monkeypatch.setattr(slave, "_keep", keep_slowly)
    sending = aside(send)
    until(lambda: len(got) == len(texts), "all is read")
    assert got == texts
    slave.close()
    for thread in (*reading, sending):
        thread.join(DEADLINE)
        assert not thread.is_alive()


@pytest.mark.parametrize("reads", [False, True])
def test_who_sends_does_not_forget_what_waits_in_a_channel_that_has_ended(bus: Mount, *, reads: bool) -> None:
    """An answer was told to be delivered."""
    with client.serve(bus / "S_x") as service:
        asker = client.connect(bus / "S_x", again=True)
        asker.send("one")
        sender, _ = service.read()
        assert service.answer(sender, "answer one", "more")
    got: list[str] = []
    with asker, client.serve(bus / "S_x") as service:
        reading = aside(lambda: got.extend(itertools.islice(asker, 3))) if reads else None
        asker.send("two", timeout=DEADLINE)
        sender, text = service.read(timeout=DEADLINE)
        service.answer(sender, text)
        if reading:
            reading.join(DEADLINE)
        else:
            assert asker.pending == 2
            got = [asker.read(timeout=DEADLINE) for _ in range(3)]
        assert got == ["answer one", "more", "two"]


def has_gone_down(bus: Mount, send: Callable[[], object]) -> None:
    """Ends a bus, and sees that sending fails."""
    bus.daemon.send_signal(signal.SIGTERM)

    def is_refused() -> bool:
        try:
            send()
        except (client.NoBus, client.NoClient):  # the latter if it was left before
            return True
        return False

    until(is_refused, "nothing can be sent")


@pytest.mark.parametrize("reads", [False, True])
def test_who_addresses_somebody_does_not_forget_what_waits_in_a_bus_that_goes(
    mounting: Mounting, remounting: Remounting, *, reads: bool
) -> None:
    """On the next one, the sender's number is somebody else's."""
    bus = mounting(command=LINGERING)
    got: list[tuple[int, str]] = []
    with client.join(bus / "A_x") as other, client.join(bus / "A_x", again=True) as peer:
        other.send(peer.id, "one", "two", "three")
        sender, text = peer.read()
        assert (sender, text) == (other.id, "one")
        reading = aside(lambda: got.extend(itertools.islice(peer, 3))) if reads else None
        has_gone_down(bus, lambda: peer.send(sender, "x", timeout=DEADLINE))
        if not reading:
            assert (peer.is_open, peer.pending, peer.joins) == (False, 2, 1)
            got.append(peer.read())
            for each in (sender, got[0][0]):
                with pytest.raises(client.NoClient):  # and the next bus is not waited for
                    peer.send(each, "x")
            with pytest.raises(client.NoClient, match="whom this is for"):
                peer.send(int(sender), "x")
        other.close()
        remounting(bus)
        if not reading:
            peer.open_nowait()
            got.append(peer.read())
        until(lambda: peer.joins == 2, "it is there again")
        other.open_nowait()
        other.send(peer.id, "four")
        if reading:
            reading.join(DEADLINE)
        else:
            got.append(peer.read())
        assert got == [(sender, "two"), (sender, "three"), (other.id, "four")]
        for each, _ in got[:2]:
            with pytest.raises(client.NoClient):
                peer.send(copy.deepcopy(copy.copy(each)), "secret")
        assert peer.send(got[2][0], "five") == 1
        assert other.read() == (peer.id, "five")


def test_who_has_closed_a_channel_meanwhile_wants_nothing_of_it(mounting: Mounting, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = mounting(command=LINGERING)
    log = client.connect(bus / "B_x", again=True)
    client.publish(bus / "B_x", "one")
    keep = log._keep

    def close_before(gone: Opening, closings: int) -> None:
        log.close()
        keep(gone, closings)

    monkeypatch.setattr(log, "_keep", close_before)
    bus.daemon.send_signal(signal.SIGTERM)

    def send_on() -> None:
        while log.send("x"):
            pass

    with pytest.raises(ValueError, match="is not open"):
        send_on()
    assert log.pending == 0


def test_addresses_of_a_bus_that_has_gone_are_not_given_as_those_of_the_next(mounting: Mounting, remounting: Remounting) -> None:
    bus = mounting(command=LINGERING)
    with client.serve(bus / "S_x", again=True) as service:
        with client.connect(bus / "S_x") as slave, client.connect(bus / "S_x") as other:
            slave.send("one")
            assert service.read_block() == b"{%x:o}\n{%x:o}\n{%x}one\n" % (slave.id, other.id, slave.id)
            slave.send("two")
            answer = b"{%x}x\n" % other.id
            has_gone_down(bus, lambda: service.send_block(answer))
            assert service.pending == 1
        again = remounting(bus)
        service.open_nowait()
        with pytest.raises(client.TimedOut):
            service.read_block(timeout=0)
        with client.connect(again / "S_x") as slave:
            assert service.read_block(timeout=DEADLINE) == b"{%x:o}\n" % slave.id
            slave.send("three")
            assert service.read_block_nowait() == b"{%x}three\n" % slave.id


def test_who_never_reads_keeps_no_more_and_more(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("futebus.client.channel.KEPT_BYTES", 50)
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as channel:
        for number in range(4):  # the last one but one says nothing
            master.send(*[str(number)] * 10 * (number != 2))
            master.close()
            master = client.collect(bus / "U_x")
            channel.send("x", timeout=DEADLINE)
            assert master.read(timeout=DEADLINE) == "x"
            assert channel.pending == (10 if number == 0 else 20)
        assert [channel.read(timeout=DEADLINE) for _ in range(20)] == ["1"] * 10 + ["3"] * 10
        master.close()


def test_what_a_new_bus_is_told_of_is_for_all_who_are_there(bus: Mount, remounting: Remounting) -> None:
    with client.serve(bus / "S_x", again=True) as service, client.join(bus / "A_x", again=True) as peer:
        again = remounting(bus)
        with client.join(again / "A_x") as other:
            assert peer.send(None, "hello", timeout=DEADLINE) == 1
            assert other.read(timeout=DEADLINE) == (peer.id, "hello")
        assert service.announce("hello", timeout=DEADLINE) == 1
        assert service.joins == 2


def test_who_reads_in_a_hurry_is_so_on_a_channel_too_that_is_opened_again_meanwhile(
    bus: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.subscribe(bus / "B_x", again=True) as log:
        poll, late = log._poll, []

        def open_again(opening: Opening, events: int, end: float | None, what: str) -> None:
            if log.joins > 1:
                poll(opening, events, end, what)
            else:
                log.open_nowait()  # as another thread does, whose call has failed

        def read() -> None:
            with pytest.raises(client.TimedOut):
                log.read(timeout=0.05)
            late.append(True)

        monkeypatch.setattr(log, "_poll", open_again)
        reading = aside(read)
        reading.join(DEADLINE)
        assert late


def test_half_of_a_long_message_does_not_go_to_another_master(mounting: Mounting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it end the one that sends, when another thread is about to open the channel again."""
    bus = mounting("max_message=8M", "max_queue=2")
    long = b"x" * ((3 << 20) + 7)
    master = client.collect(bus / "U_x", bytes)
    begun, leaving, looked = threading.Event(), threading.Event(), threading.Event()
    with client.connect(bus / "U_x", bytes, again=True) as out:
        out.send("one", "two")
        poll = out._poll

        def wait(opening: Opening, events: int, end: float | None, what: str) -> None:
            if events == select.POLLOUT and not looked.is_set():
                begun.set()
                assert leaving.wait(DEADLINE)
                try:
                    poll(opening, events, end, what)
                finally:
                    looked.set()
            else:
                poll(opening, events, end, what)

        def open_slowly(place: Path, name: str, *how: Any) -> int:
            if not name.startswith("."):
                leaving.set()
                assert looked.wait(DEADLINE)
            return enter(place, name, *how)

        monkeypatch.setattr(out, "_poll", wait)
        monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
        sent: list[int] = []
        sending = aside(lambda: sent.append(out.send(long, timeout=DEADLINE)))
        assert begun.wait(DEADLINE)
        monkeypatch.setattr("futebus.client.channel.enter", open_slowly)
        got: list[bytes] = []
        reading = aside(lambda: got.append(out.read()))
        master.close()
        assert leaving.wait(DEADLINE)
        monkeypatch.setattr("futebus.client.channel.enter", enter)
        with client.collect(bus / "U_x", bytes) as other:
            assert other.read(timeout=DEADLINE) == long
            sending.join(DEADLINE)
            out.send("next")
            assert other.read(timeout=DEADLINE) == b"next"
            other.send("welcome")
            reading.join(DEADLINE)
        assert (sent, got) == ([1], [b"welcome"])


def test_what_is_being_sent_is_not_begun_again_by_who_closes_the_channel(
    mounting: Mounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = mounting("max_message=8M", "max_queue=2")
    long = b"x" * ((3 << 20) + 7)
    begun, leaving, over = threading.Event(), threading.Event(), threading.Event()
    with client.collect(bus / "U_x", bytes) as master:
        out = client.publisher(bus / "U_x")
        out.send("one", "two")
        leave, poll = out._leave, out._poll

        def leave_slowly() -> None:
            leaving.set()
            assert over.wait(DEADLINE)
            leave()

        def wait(opening: Opening, events: int, end: float | None, what: str) -> None:
            begun.set()
            assert leaving.wait(DEADLINE)
            poll(opening, events, end, what)

        monkeypatch.setattr(out, "_leave", leave_slowly)
        monkeypatch.setattr(out, "_poll", wait)
        sent: list[int] = []
        sending = aside(lambda: sent.append(out.send(long, timeout=DEADLINE)))
        assert begun.wait(DEADLINE)
        closing = aside(out.close)
        assert [master.read(timeout=DEADLINE) for _ in range(3)] == [b"one", b"two", long]
        sending.join(DEADLINE)
        over.set()
        closing.join(DEADLINE)
        assert sent == [1]
        with pytest.raises(client.TimedOut):
            master.read(timeout=0)


def test_a_master_that_ends_its_channel_while_another_thread_reads(bus: Mount) -> None:
    """Who reads finds the end, and does not become the master once more."""
    for _ in range(20):
        with client.collect(bus / "U_x", again=True) as jobs, client.publisher(bus / "U_x") as out:
            got: list[str] = []
            reading = aside(lambda: got.extend(jobs))  # noqa: B023
            sent = 0

            def send() -> None:
                nonlocal sent
                with contextlib.suppress(client.NoMaster):
                    while True:
                        sent += out.send("x")

            sending = aside(send)
            until(lambda: len(got) > 20, "it reads")  # noqa: B023
            jobs.shut()
            sending.join(DEADLINE)
            reading.join(DEADLINE)
            assert not reading.is_alive()
            assert len(got) == sent
            assert jobs.joins == 1
            jobs.shut()
    with pytest.raises(ValueError, match="is not open"):
        jobs.shut()


def test_a_bus_that_comes_back(bus: Mount, remounting: Remounting) -> None:
    with (
        client.collect(bus / "U_x", again=True) as jobs,
        client.publisher(bus / "U_x", again=True, wait=60) as out,
        client.subscribe(bus / "B_x") as log,
    ):
        out.send("before")
        assert jobs.read() == "before"
        again = remounting(bus)
        with pytest.raises(client.NoBus, match="B_x: the bus is gone"):
            log.read()
        reading = Reads(jobs)
        until(lambda: again.clients("U_x"), "the master is there again")
        assert out.send("after", "and more") == 2
        assert [next(reading), next(reading)] == ["after", "and more"]
        assert (jobs.joins, out.joins) == (2, 2)


def test_half_of_a_message_whose_master_goes_is_not_accepted_by_who_is_late(
    mounting: Mounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what ends it is that the time is over."""
    bus = mounting("max_message=8M")
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as slave:
        send, calls = slave._send_from, iter(range(9))

        def send_late(lines: bytes, place: list[int], opening: Opening) -> None:
            if not next(calls):
                place.append(os.write(opening.file, lines[: 1 << 20]))  # as when the bus takes no more
                return
            master.close()
            time.sleep(0.02)  # the time is over then
            send(lines, place, opening)

        monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
        monkeypatch.setattr(slave, "_send_from", send_late)
        with pytest.raises(client.TimedOut) as late:
            slave.send("x" * (3 << 20), timeout=0.01)
        assert (late.value.accepted, slave.accepted, slave.is_begun) == (0, 0, False)


def test_what_is_past_before_it_could_be_read_is_not_said(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that a bus is dead, while it ends."""
    said: list[str] = []
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True, say=said.append) as slave:
        words = iter(["it is dead"])
        is_there = threading.Event()

        def find(*how: Any) -> int:
            if not said:
                raise mounted.NoBus(next(words, "it is gone"), errno.ENOTCONN)
            if how[1] == "+U_x":  # or that there is no master may be said too
                assert is_there.wait(DEADLINE)
            return enter(*how)

        monkeypatch.setattr("futebus.client.errors._OWN", ("futebus.", "contextlib", __name__))
        monkeypatch.setattr("futebus.client.channel.enter", find)
        reading = aside(slave.read)
        master.close()
        until(lambda: said, "it waits")
        with client.collect(bus / "U_x") as master:
            is_there.set()
            until(lambda: slave.joins == 2, "it is there again")
            master.send("hello")
            reading.join(DEADLINE)
    assert said == ["it is gone; waiting", f"{bus / 'U_x'} is there"]


def test_answers_for_clients_of_a_bus_that_has_gone_reach_nobody(bus: Mount, remounting: Remounting) -> None:
    """IDs begin with 1 on each channel: the next client may have the number of one before."""
    with client.serve(bus / "S_x", again=True) as service:
        first = client.connect(bus / "S_x")
        first.send("one", "two")
        sender, text = service.read()
        assert text == "one"
        remounting(bus)
        first.close()
        asked: list[str] = []
        asking = aside(lambda: asked.append(client.call(bus / "S_x", "three", timeout=120, wait=120)))
        assert not service.answer(sender, "secret")
        assert service.read() == (sender, "two")
        assert not service.answer(sender, "secret, too")
        sender, text = service.read()
        assert text == "three"
        service.answer(sender, "four")
        asking.join(DEADLINE)
        assert asked == ["four"]


def test_a_loop_forgets_clients_of_a_bus_that_has_gone(bus: Mount, remounting: Remounting) -> None:
    """And who answers for them later, in a thread for example, answers nobody."""
    with client.serve(bus / "S_x", again=True) as service:
        first = client.connect(bus / "S_x")
        first.send("one", "two", "three")
        got: list[tuple[int, str]] = []
        for sender, text in service:
            got.append((sender, text))
            if text == "one":
                again = remounting(bus)
                first.close()
            assert not service.answer(sender, "secret")
            assert not service.answer(sender, "secret")
            if text == "three":
                break
        assert got == [(2, "one"), (2, "two"), (2, "three")]
        assert service.joins == 1
        service.open_nowait()
        with client.connect(again / "S_x") as second:
            assert second.id == sender
            assert not service.answer(sender, "secret")
            second.send("four")
            sender, text = service.read(timeout=DEADLINE)
            assert (sender, text) == (second.id, "four")
            assert service.answer(sender, "FOUR")
            assert second.read(timeout=DEADLINE) == "FOUR"


def test_what_was_for_a_client_before_is_not_for_the_peer_who_has_his_number(bus: Mount) -> None:
    with client.join(bus / "A_x", again=True) as one, client.join(bus / "A_x") as two:
        two.send(one.id, "hello")
        sender, _ = one.read()
        one.open_nowait()
        with client.join(bus / "A_x"), pytest.raises(client.NoClient, match="has gone"):
            one.send(sender, "secret")
        assert one.send(int(sender), "hello") == 1
        assert two.read() == (one.id, "hello")
        assert json.dumps([sender]) == "[2]"
        assert type(pickle.loads(pickle.dumps(sender))) is int


def test_who_keeps_something_for_each_client_tells_the_next_one_from_the_last(bus: Mount) -> None:
    """Though they have the same number."""
    with client.serve(bus / "S_x", again=True) as service:
        kept: dict[int, str] = {}
        for name in ("first", "second"):
            with client.connect(bus / "S_x") as slave:
                slave.send(name)
                sender, _ = service.read(timeout=DEADLINE)
                kept[sender] = name
                assert kept[sender] == name
                assert (sender, sender + 0) == (2, slave.id)
                assert [service.answer(each, "news") for each in kept] == [False] * (len(kept) - 1) + [True]
                assert slave.read(timeout=DEADLINE) == "news"
            service.open_nowait()
        assert [(int(key), value) for key, value in kept.items()] == [(2, "first"), (2, "second")]


def test_the_own_id_is_that_of_now(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    with client.connect(bus / "B_x") as one:

        def inquire_slowly(file: int) -> Inquiry:
            told = inquire(file)
            if not changed:
                changed.append(True)
                one.open_nowait()
            return told

        changed: list[bool] = []
        monkeypatch.setattr("futebus.client.channel.inquire", inquire_slowly)
        assert one.id == 1
        assert one.id == one.inquire().id == 2


def test_a_call_ends_with_its_service_though_it_comes_again(bus: Mount) -> None:
    def leave() -> None:
        with client.serve(bus / "S_x", wait=DEADLINE) as service:
            service.read()

    aside(leave)
    with pytest.raises(client.Ended):
        client.call(bus / "S_x", "anybody?", wait=DEADLINE, again=True)


def test_who_gives_up_waiting_for_a_bus_can_wait_again(bus: Mount, remounting: Remounting) -> None:
    with client.subscribe(bus / "B_x", again=True) as log, client.publisher(bus / "B_x", again=True) as out:
        bus.unmount()
        for _ in range(3):
            with pytest.raises(client.TimedOut):
                log.read(timeout=0.01)
            with pytest.raises((client.TimedOut, client.NoBus)):
                out.send("nobody", timeout=0.01)
        remounting(bus)
        reading = Reads(log)

        def is_heard() -> bool:
            out.send("text", timeout=60)
            return bool(reading.got)

        until(is_heard, "it is heard")


def test_a_channel_that_is_closed_while_it_waits_stays_closed(bus: Mount) -> None:
    master = client.collect(bus / "U_x")
    slave = client.subscribe(bus / "U_x", again=True)
    ended: list[str] = []

    def read() -> None:
        try:
            slave.read()
        except ValueError as error:
            ended.append(str(error))

    reading = aside(read)
    master.close()
    until(lambda: not slave.is_open, "it has noticed")
    # While that thread waits for a master, nobody else waits longer than he said.
    with pytest.raises(client.TimedOut):
        slave.read(timeout=0.05)
    slave.close()
    with client.collect(bus / "U_x"):
        reading.join(DEADLINE)
        assert ended == [f"{bus / 'U_x'} is not open"]
        assert not slave.is_open
        assert len(bus.clients("U_x")) == 1


def test_who_is_in_a_hurry_leaves_nobody_else_in_one(bus: Mount) -> None:
    master = client.collect(bus / "U_x")
    with client.connect(bus / "U_x", again=True) as slave:

        def read() -> None:
            with contextlib.suppress(ValueError):  # at the end it is closed
                slave.read()

        aside(read)
        master.close()
        until(lambda: not slave.is_open, "it has noticed")
        with pytest.raises(client.TimedOut):
            slave.send("x", timeout=0.05)
        with client.collect(bus / "U_x") as master:
            until(lambda: slave.is_open, "it is back")
            slave.send("one", timeout=60)
            assert master.read() == "one"
            assert os.get_blocking(slave.fileno())


def test_the_rest_of_a_long_message_is_for_nobody_else(mounting: Mounting) -> None:
    bus = mounting("max_message=8M", "max_queue=1")
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x", again=True, wait=60) as out:
        out.send("one")
        with pytest.raises(client.TimedOut):
            out.send(b"x" * (3 << 20), timeout=0.05)
        master.close()
        with client.collect(bus / "U_x", bytes) as other:
            assert out.send("two") == 1
            assert other.read() == b"two"


def test_a_read_without_end_that_must_come_back_in_time(bus: Mount) -> None:
    master = client.collect(bus / "U_x")
    with client.subscribe(bus / "U_x", again=True) as slave:
        master.close()
        with pytest.raises(client.TimedOut, match="has not come back in time"):
            slave.read(timeout=0.01)


Call = Callable[[client.Slave[str]], object]

WAITING: dict[str, Call] = {
    "read": lambda channel: channel.read(),
    "read with a timeout": lambda channel: channel.read(timeout=10 * DEADLINE),
    "iterate": lambda channel: list(channel),
    "send": lambda channel: [channel.send("x" * 1000) for _ in range(1000)],
    "send with a timeout": lambda channel: [channel.send("x" * 1000, timeout=10 * DEADLINE) for _ in range(1000)],
}


@pytest.mark.parametrize("what", WAITING)
def test_closing_wakes_who_waits_in_another_thread(mounting: Mounting, what: str) -> None:
    bus = mounting("max_queue=8")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    channel = client.connect(bus / "U_x")
    found: list[object] = []

    def work() -> None:
        try:
            found.append(WAITING[what](channel))
        except Exception as error:
            found.append(error)

    def waits() -> bool:
        if "timeout" in what:  # in poll(2), of which the bus tells nothing
            return Path(f"/proc/self/task/{thread.native_id}/wchan").read_text().find("poll") >= 0
        return bool(bus.clients("U_x", waits="write" if "send" in what else "read"))

    thread = threading.Thread(target=work)
    thread.start()
    until(waits, "it waits")
    number = channel.fileno()
    channel.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    if what == "iterate":
        assert found == [[]]
    else:
        assert [isinstance(each, ValueError) for each in found] == [True]
        assert "is not open" in str(found[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    with pytest.raises(ValueError, match="is not open"):
        channel.read()
    os.close(master)
