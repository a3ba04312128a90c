"""No call stays without its answer, whatever fails inside: nobody waits in vain, nor out of the reach of signals."""

import errno
import os
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from futebus.core.bus import Bus
from futebus.core.channel import READERS_AT_ONCE, Channel
from futebus.core.client import Access, Effects, Owner
from futebus.core.limits import Limits
from futebus.core.mailbox import Mailbox
from futebus.fuse import waiting
from futebus.fuse.files import SPLIT_PIECE, OpenChannel
from futebus.fuse.turns import Step, Turns
from futebus.fuse.waiting import Calls

ME = Owner(7, 7, 1)
RW = Access(True, True)


class Request:
    """A parked call, and its answers."""

    def __init__(self) -> None:
        self.answers: list[bytes | int] = []

    def data(self, data: bytes) -> None:
        self.answers.append(data)

    def written(self, count: int) -> None:
        self.answers.append(count)

    def error(self, number: int) -> None:
        self.answers.append(-number)


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "Request", Request)


class Fails:
    """Has a function raise `MemoryError` so many times, from the next call on or after so many."""

    def __init__(self, function: Callable[..., Any], times: int = 1, after: int = 0) -> None:
        self.function = function
        self.after = after
        self.times = times

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.after -= 1
        if self.after < 0 < self.times:
            self.times -= 1
            raise MemoryError
        return self.function(*arguments, **named)


class Bench:
    """A bus and the calls on it, by requests that no kernel has sent."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.turns = Turns()
        self.bus = Bus(limits or Limits())
        self.calls = Calls(self.bus, self.turns)
        self.channel: Channel | None = None

    def open(self, name: bytes = b"", access: Access = RW) -> int:
        """Makes a channel, or opens the one that there is. Returns the handle."""
        if self.channel is None:
            client, effects = self.bus.create(name, access, ME, 0o644, 0)
            self.channel = client.channel
        else:
            client, effects = self.bus.open(self.channel, access, ME, 0)
        self.calls.settle(effects)
        return self.calls.add(OpenChannel(client, 1))

    def read(self, handle: int, flags: int = 0) -> tuple[Request, Any]:
        request: Any = Request()
        return request, self.calls.read(request, handle, 100, 0, flags)

    def write(self, handle: int, data: bytes, caller: int, offset: int = 0) -> tuple[Request, Any]:
        request: Any = Request()
        return request, self.calls.write(request, handle, data, offset, 0, caller)

    def interrupt(self, request: Any) -> None:
        self.calls.interrupt(request)

    def go_on(self, most: int = 1_000) -> None:
        """Does what was put off."""
        while len(self.turns):
            self.turns.take()
            most -= 1
            assert most, "there is no end of it"


def test_who_cannot_be_told_later_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of memory: what a master has read is not lost by that."""

    class Full(Turns):
        def put(self, step: Step, whose: Hashable = None) -> None:
            raise MemoryError

    bus = Bus(Limits(max_queue=1))
    calls = Calls(bus, Full())
    master, _ = bus.create(b".U_x", RW, ME, 0o644, 0)
    slaves = [bus.open(master.channel, RW, ME, 0)[0] for _ in range(100)]
    handle = calls.add(OpenChannel(master, 1))
    bus.write(slaves[0], b"one\n", 0)
    for slave in slaves:
        bus.poll(slave, arm=True)
    woken: list[object] = []
    monkeypatch.setattr(calls, "_wake", woken.append)
    request: Any = None
    assert calls.read(request, handle, 100, 0, os.O_NONBLOCK) == b"one\n"
    assert len(woken) == 100
    assert {*woken} == {*slaves}
    assert not calls._put_off


class Parked:
    """Forty answers, one of which fails, and forty pollers."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.told: list[object] = []
        self.fails = 1
        calls._finish = self.finish  # type: ignore[method-assign,assignment]
        calls._wake = self.told.append  # type: ignore[method-assign,assignment]

    def finish(self, token: object, _: object) -> None:
        if token == 35 and self.fails:
            self.fails -= 1
            raise MemoryError
        self.told.append(token)

    def settle(self) -> None:
        effects = Effects(0)
        effects.finished += [(number, b"") for number in range(40)]
        effects.ready += [f"poller {number}" for number in range(40)]  # type: ignore[misc]
        self.calls.settle(effects, 7)


def test_an_answer_for_which_there_is_no_memory_keeps_no_other_now_or_later() -> None:
    turns = Turns()
    parked = Parked(Calls(Bus(), turns))
    parked.settle()
    assert parked.told == [*range(32), *(f"poller {number}" for number in range(32))]
    turns.finish()
    assert len(parked.told) == 79
    assert {*parked.told} == {*range(40), *(f"poller {number}" for number in range(40))} - {35}
    parked.told.clear()
    parked.settle()
    turns.finish()
    assert len(parked.told) == 80


def test_the_end_does_not_wait_for_a_channel_that_fails_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    bus = Bus(Limits(max_queue=1))
    calls = Calls(bus, turns)
    master, _ = bus.create(b".U_x", RW, ME, 0o644, 0)
    slave, _ = bus.open(master.channel, RW, ME, 0)
    handle = calls.add(OpenChannel(master, 1))
    bus.write(slave, b"one\n", 0)
    calls.settle(bus.shut_down(0))
    bus.poll(slave, arm=True)
    tries: list[object] = []

    def fail(*arguments: object) -> None:
        tries.append(arguments)
        if len(tries) > 1 + waiting._MOST_FAILURES:  # the first is before the end
            pytest.fail("it is tried for ever")
        raise MemoryError

    monkeypatch.setattr(Channel, "tell_writable", fail)
    request: Any = None
    assert calls.read(request, handle, 100, 0, os.O_NONBLOCK) == b"one\n"
    turns.finish()
    assert tries


def test_what_cannot_be_put_off_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Limits(max_queue=1))
    master, slave = bench.open(b".U_x"), bench.open()
    assert bench.write(slave, b"m0\n", 11)[1] == 3
    (first, answer), (second, behind) = bench.write(slave, b"m1\n", 11), bench.write(slave, b"m2\n", 12)
    assert answer is behind is None
    put = Fails(bench.turns.put)
    monkeypatch.setattr(bench.turns, "put", put)
    assert bench.read(master, os.O_NONBLOCK)[1] == b"m0\n"
    assert put.times == 0
    bench.go_on()
    assert bench.read(master, os.O_NONBLOCK)[1] == b"m1\n"
    bench.go_on()
    assert bench.read(master, os.O_NONBLOCK)[1] == b"m2\n"
    assert first.answers == second.answers == [3]


def test_what_cannot_be_put_off_is_done_although_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(Limits(max_clients=5_000, max_clients_per_user=5_000))
    writer = bench.open(b"B_x", Access(False, True))
    readers = [bench.open(access=Access(True, False)) for _ in range(3 * READERS_AT_ONCE)]
    reads = [bench.read(reader)[0] for reader in readers]
    put, go_on = Fails(bench.turns.put), Fails(bench.bus.go_on, 10)
    with monkeypatch.context() as patch:
        patch.setattr(bench.turns, "put", put)
        patch.setattr(bench.bus, "go_on", go_on)
        first, _ = bench.write(writer, b"hello\n", 0)
        bench.go_on()
    assert put.times == go_on.times == 0
    assert [read.answers for read in reads] == [[b"hello\n"]] * len(reads)
    assert first.answers == [6]


def test_what_can_neither_go_on_nor_be_ended_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    writer, _ = bench.open(b"A_x"), bench.open()
    data = b"{1}x\n{2}x\n" * 3_000
    (first, answer), (second, behind) = bench.write(writer, data, 11), bench.write(writer, b"{2}y\n", 12)
    assert answer is behind is None
    effects = Fails(Effects, 2)
    monkeypatch.setattr("futebus.core.bus.Effects", effects)
    bench.go_on()
    assert effects.times == 0
    assert (first.answers, second.answers) == ([len(data)], [5])


def refused_in_its_second_piece(bench: Bench) -> list[bytes | int]:
    """Returns the answers to that piece."""
    master, slave = bench.open(b".U_x"), bench.open()
    assert bench.write(slave, b"x" * (SPLIT_PIECE - 1) + b"\n", os.getpid())[1] == SPLIT_PIECE
    further, answer = bench.write(slave, b"y\n", os.getpid(), SPLIT_PIECE)
    assert answer is None
    bench.calls.remove(master)
    bench.go_on()
    return further.answers


LONG = Limits(max_queue=1, max_message=4 << 20, max_queue_bytes=8 << 20)


def test_the_process_of_a_refused_thread_that_cannot_be_found_keeps_it_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(OpenChannel, "swallow", fail)
    assert refused_in_its_second_piece(Bench(LONG)) == [-errno.ESRCH]


def test_the_process_of_a_refused_thread_is_looked_for_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is answered, it may have ended, and nobody can tell whose it was."""
    order: list[object] = []
    monkeypatch.setattr(OpenChannel, "swallow", lambda *_: order.append("swallowed"))
    monkeypatch.setattr(Request, "error", lambda _, number: order.append(number))
    refused_in_its_second_piece(Bench(LONG))
    assert order == ["swallowed", errno.ESRCH]


def test_a_broadcast_ends_well_though_one_reader_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bus ends."""
    bench = Bench(Limits(max_clients=5_000, max_clients_per_user=5_000))
    writer = bench.open(b"B_x", Access(False, True))
    readers = [bench.open(access=Access(True, False)) for _ in range(3 * READERS_AT_ONCE)]
    reads = [bench.read(reader)[0] for reader in readers]
    assert bench.write(writer, b"hello\n", 0)[1] in {None, 6}
    bench.calls.settle(bench.bus.shut_down(0))
    put = Fails(Mailbox.put, after=10)
    monkeypatch.setattr(Mailbox, "put", lambda mailbox, run: put(mailbox, run))
    bench.turns.finish()
    assert put.times == 0
    answers = [read.answers for read in reads]
    assert answers.count([b"hello\n"]) == len(reads) - 1
    assert answers.count([b""]) == 1, "who did not get it is at the end"


def test_a_signal_ends_a_call_whose_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    writer, reader = bench.open(b"B_x"), bench.open()
    lost, _ = bench.read(reader)
    monkeypatch.setattr(bench.calls, "_finish", Fails(bench.calls._finish))
    assert bench.write(writer, b"one\n", 0)[1] == 4
    assert not lost.answers
    bench.interrupt(lost)
    assert lost.answers == [-errno.EIO]


def test_a_signal_does_not_end_a_call_whose_answer_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """But one whose answer is lost, when nothing is put off any more."""
    bench = Bench()
    writer = bench.open(b"B_x", Access(False, True))
    readers = [bench.open(access=Access(True, False)) for _ in range(50)]
    reads = [bench.read(reader)[0] for reader in readers]
    assert bench.write(writer, b"one\n", 0)[1] == 4
    late = [read for read in reads if not read.answers]
    assert len(late) > 2
    for read in late[:2]:
        bench.interrupt(read)
    lost = late.pop()
    bench.interrupt(lost)
    answer = bench.calls._answer

    def fail(request: Any, *given: Any) -> None:
        if request is lost:
            raise MemoryError
        answer(request, *given)

    monkeypatch.setattr(bench.calls, "_answer", fail)
    bench.go_on()
    assert lost.answers == [-errno.EIO]
    assert [read.answers for read in reads if read is not lost] == [[b"one\n"]] * 49
    assert not bench.calls._unknown


@pytest.mark.parametrize("is_put_off", [True, False], ids=["later", "at once"])
def test_answers_that_fail_again_and_again_keep_nobody(monkeypatch: pytest.MonkeyPatch, is_put_off: bool) -> None:
    """They are given up: there may never be memory again."""
    bench = Bench()
    settled = Fails(bench.calls._settle_some, 1_000, after=is_put_off)
    monkeypatch.setattr(bench.calls, "_settle_some", settled)
    Parked(bench.calls).settle()
    bench.turns.finish()
    assert 0 < settled.times < 950
    assert not bench.calls._put_off
