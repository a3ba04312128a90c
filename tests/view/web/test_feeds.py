"""What pages are told: all buses, live, also when one goes, comes or hangs. Each is asked once, and not if nobody looks."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from futebus.host.mounted import NoBus
from futebus.view.looking import look, pause
from futebus.view.shares import Share
from futebus.view.tail import GONE
from futebus.view.told import Bounds, Look
from futebus.view.web import feeds, shown
from futebus.view.web.asking import NOT_ANSWERING, NotAnswering, Question
from futebus.view.web.feeds import TICK, Feeds

from ...helpers.mounts import Mount, Mounting, hanging, run
from ...helpers.programs import Start
from ...helpers.recorders import Remounting
from ...helpers.waiting import until
from .webs import Web

ODD = os.fsdecode(b"B<script>alert(1)<!--\x1b[31m\xff\n&amp;")


def test_channels_clients_and_rates(bus: Mount, place: Path, start: Start) -> None:
    reader = os.open(bus.touch("B_log"), os.O_RDONLY)
    writer = os.open(bus / "B_log", os.O_WRONLY)
    served = Web(start, place, bus.path)

    def is_seen() -> bool:
        with served.stream("/events") as events:
            return bool(events.next("past"))

    until(is_seen, "it is seen")
    with served.stream("/events", bus=str(bus.path), channel="B_log") as events:
        assert [each["bus"] for each in events.next("past")] == [str(bus.path)]
        os.write(writer, b"abc\n" * 5)
        told = events.bus_when(lambda bus: bus["rates"][0] > 0)
        assert (told["name"], told["trouble"], told["clients"], told["count"], told["untold"]) == (str(bus.path), "", 2, 1, 0)
        [channel] = told["channels"]
        assert (channel["name"], channel["type"], channel["state"], channel["clients"]) == ("B_log", "B", "live", 2)
        assert (channel["messages_in"], channel["bytes_in"], channel["waiting"], channel["kept"]) == (5, 20, 5, False)
        assert channel["rates"] == told["rates"]
        clients = events.clients()
        assert (clients["bus"], clients["channel"], clients["number"]) == (str(bus.path), "B_log", channel["number"])
        assert [(each["access"], each["sent"], each["pid"]) for each in clients["clients"]] == [
            ("-w", 5, os.getpid()),
            ("r-", 0, os.getpid()),
        ]
        with served.stream("/events") as others:
            [past] = others.next("past")
            assert [rates for rates in past["past"] if rates[0]], "a page that comes later sees how it has been"
    os.close(reader)
    os.close(writer)
    served.end()


def test_hostile_names_are_data(bus: Mount, place: Path, start: Start) -> None:
    bus.touch(ODD)
    served = Web(start, place, bus.path)
    with served.stream("/events", bus=str(bus.path), channel=(name := "B<script>alert(1)<!--\\x1b[31m\\xff\\n&amp;")) as events:
        assert [each["name"] for each in events.bus()["channels"]] == [name]
        assert events.next("clients")["number"]
    with served.tail(name) as tail:
        (bus / ODD).write_bytes(b"\x1b[2Jhi\xff\n")
        assert tail.next("lines") == {"lines": ["␛[2Jhi\ufffd"], "skipped": 0}
    served.end()


def test_a_bus_that_comes_goes_and_comes_back(mounting: Mounting, place: Path, start: Start, remounting: Remounting) -> None:
    served = Web(start, place, place / "bus0")
    until(
        lambda: f"there is no directory {place}/bus0; a bus there is shown as soon as there is one\n" in served.words,
        "it says so",
    )
    with served.stream("/events") as events:
        assert events.bus()["trouble"] == f"there is no directory {place}/bus0"
        bus = mounting()
        events.bus_when(lambda bus: not bus["trouble"])
        bus.touch("B_one")
        events.bus_when(lambda bus: [channel["name"] for channel in bus["channels"]] == ["B_one"])
        bus.daemon.kill()
        events.bus_when(lambda bus: "channels" not in bus)
        again = remounting(bus)
        events.bus_when(lambda bus: bus.get("channels") == [])
        again.touch("B_two")
        events.bus_when(lambda bus: [channel["name"] for channel in bus["channels"]] == ["B_two"])
    served.end()


def test_a_bus_that_hangs_keeps_nobody_waiting(mounting: Mounting, place: Path, start: Start) -> None:
    good, sick = mounting(), mounting()
    sick.touch("B_x")
    served = Web(start, place, good.path, sick.path)
    with served.stream("/events") as events, served.tail("B_x", bus=str(sick.path)) as tail:
        events.bus_when(lambda bus: not bus["trouble"], 1)
        sick.daemon.send_signal(signal.SIGSTOP)
        try:
            good.touch("B_good")
            events.bus_when(lambda bus: bus["channels"])
            events.bus_when(lambda bus: bus["trouble"] == NOT_ANSWERING, 1)
            assert tail.next("answers") == {"trouble": NOT_ANSWERING}
            # It may take its time, too, on a machine that has much to do.
            until(lambda: served.ask(f"/stat.json?bus={good.path}").status == 200, "the other one answers")
            with served.stream("/tail", served.bearer, bus=str(sick.path), channel="B_x") as late:
                answers = 'futebus_answers{{mountpoint="{}"}} {}\n'
                until(lambda: answers.format(good.path, 1) in served.ask("/metrics").text, "the other one answers")
                assert answers.format(sick.path, 0) in served.ask("/metrics").text
                assert late.next("trouble") == NOT_ANSWERING
            answer = served.ask(f"/metrics?bus={sick.path}")
            assert (answer.status, answer.text) == (504, f"{NOT_ANSWERING}\n")
            good.touch("B_more")
            events.bus_when(lambda bus: len(bus["channels"]) == 2)
        finally:
            sick.daemon.send_signal(signal.SIGCONT)
        events.bus_when(lambda bus: not bus["trouble"], 1)
        assert tail.next("answers") == {"trouble": ""}
        (sick / "B_x").write_bytes(b"well again\n")
        assert tail.next("lines")["lines"] == ["well again"]
    served.end()


def test_a_channel_is_watched_in_a_bus_that_hangs_until_that_is_unmounted(mounting: Mounting, place: Path, start: Start) -> None:
    sick = mounting()
    sick.touch("B_x")
    served = Web(start, place, sick.path)
    with served.tail("B_x", bus=str(sick.path)) as tail:
        sick.daemon.send_signal(signal.SIGSTOP)
        try:
            assert tail.next_of_all() == ("answers", {"trouble": NOT_ANSWERING})
            sick.was_killed = True
            run("umount", "-l", sick.path)
            assert tail.next_of_all() == ("trouble", GONE)
        finally:
            sick.daemon.kill()
            sick.daemon.wait()
    served.end()


def test_it_ends_though_a_bus_hangs(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    with served.stream("/events") as events:
        events.bus()
        with hanging(bus):
            events.bus_when(lambda bus: bus["trouble"] == NOT_ANSWERING)
            served.end()


# ---------------------------------------------------------------------------------------------- without a mount

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def run_quickly(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs something in a time that passes when nothing else happens, and without threads."""

    monkeypatch.setattr("futebus.view.errands.start", lambda run: run())
    return lambda main: trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_one_look_a_second_for_all_and_none_for_nobody(bus: Mount, run_quickly: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def count(mountpoint: Path, bounds: Bounds, share: Share | None) -> Look:
        looks.append(trio.current_time())
        return look(mountpoint, bounds, share)

    monkeypatch.setattr(feeds, "look_at", count)
    monkeypatch.setattr(feeds, "pause", lambda interval: pause(interval, trio.current_time()))

    async def main() -> None:
        fed = Feeds([bus.path])

        async def page(times: int) -> None:
            with fed.looking():
                number = 0
                for _ in range(times):
                    number = await fed.newer(number)

        async with trio.open_nursery() as nursery:
            await nursery.start(fed.run)
            await trio.sleep(10 * TICK)
            assert not looks
            async with trio.open_nursery() as pages:
                for _ in range(20):
                    pages.start_soon(page, 5)
            assert len(looks) == 5
            assert looks[-1] - looks[1] == pytest.approx(3 * TICK)
            assert all(abs(each - round(each)) < TICK / 100 for each in looks[1:]), "as all who look once a second"
            await trio.sleep(100 * TICK)
            assert len(looks) == 5
            assert fed.text == ""
            await page(1)
            assert len(looks) == 6
            nursery.cancel_scope.cancel()

    run_quickly(main)


def test_a_look_that_comes_when_all_have_gone_is_not_kept(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who comes an hour later is shown what was, and rates of that hour, as if it were now."""
    begun, threads = trio.open_memory_channel[Callable[[], object]](9)
    monkeypatch.setattr("futebus.view.errands.start", begun.send_nowait)

    async def main() -> None:
        fed = Feeds([bus.path])
        [only] = fed.buses
        async with trio.open_nursery() as nursery:
            await nursery.start(fed.run)
            with fed.looking():
                for number in range(2):
                    (await threads.receive())()
                    await fed.newer(number)
                last = await threads.receive()
            last()
            await trio.sleep(10 * TICK)
            assert not threads.statistics().current_buffer_used
            assert [bus.look for bus in fed.buses] == [None]
            assert not only.watch.whole.past
            with fed.looking():
                (await threads.receive())()
                await fed.newer(0)
                assert only.look
                assert not only.watch.whole.past
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_question_that_is_not_answered_is_asked_once(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Callable[[], object]] = []
    monkeypatch.setattr("futebus.view.errands.start", threads.append)

    async def main() -> None:
        question = Question(bus.path, lambda: "yes", keeps_last=True)
        for _ in range(3):
            with pytest.raises(NotAnswering):
                await question.answer()
        assert len(threads) == 1
        threads[0]()
        assert await question.answer() == "yes", "who asks next has what has come late"
        assert question.last == "yes"
        assert len(threads) == 1
        question.begin()
        assert len(threads) == 2
        threads[1]()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_nobody_has_thought_of_ends_nothing(bus: Mount, run_quickly: Run) -> None:
    async def main() -> None:
        question = Question(bus.path, lambda: 1 // 0)
        with pytest.raises(NoBus, match="cannot be looked at: ZeroDivisionError"):
            await question.answer()

    run_quickly(main)


def test_who_is_told_no(bus: Mount, run_quickly: Run) -> None:
    def fail() -> str:
        raise NoBus("it has gone", 5)

    async def main() -> None:
        question = Question(bus.path, fail)
        with pytest.raises(NoBus, match="it has gone"):
            await question.answer()
        assert question.last is None

    run_quickly(main)


def test_of_very_many_channels_the_busiest_are_told(bus: Mount, run_quickly: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST_CHANNELS", 3)
    monkeypatch.setattr(shown, "MOST_CLIENTS", 2)
    for number in range(6):
        bus.touch(f"B_{number}")
    files = [os.open(bus / "B_5", os.O_WRONLY) for _ in range(5)]

    async def main() -> None:
        fed = Feeds([bus.path])
        async with trio.open_nursery() as nursery:
            await nursery.start(fed.run)
            with fed.looking():
                number = await fed.newer(0)
                for file in files:
                    os.write(file, b"x\n")
                (bus / "B_3").write_bytes(b"x\n")
                await fed.newer(number)
                [only] = fed.buses
                told = shown.bus_shown(only, shown.most_shown([only]))
                assert [channel["name"] for channel in told["channels"]] == ["B_5", "B_3", "B_0"]
                assert (told["untold"], told["count"], told["clients"]) == (3, 6, 5)
                assert shown.past_shown(only, "", None)["uptime"] == told["uptime"], "of the same look"
                clients = shown.clients_shown(only, "B_5")
                assert (len(clients["clients"]), clients["untold"]) == (2, 3)
                assert shown.clients_shown(only, "B_9")["clients"] == []
            nursery.cancel_scope.cancel()

    run_quickly(main)
    for file in files:
        os.close(file)


def test_how_a_bus_is_shown_is_found_out_once(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that is not looked at so often, or is slow, it is told each second all the same."""
    found: list[int] = []

    def count(of: feeds.Bus, most: int) -> shown.Shown:
        found.append(most)
        return shown.bus_shown(of, most)

    monkeypatch.setattr(feeds, "bus_shown", count)
    [only] = Feeds([bus.path]).buses
    assert only.told(5) == only.told(5) == {"name": only.name, "trouble": "not seen yet"}
    only.look = look(bus.path)
    only.trouble = ""
    assert only.told(5) is only.told(5)
    only.told(6)
    only.trouble = NOT_ANSWERING
    assert only.told(6)["trouble"] == NOT_ANSWERING
    only.look = look(bus.path)
    only.told(6)
    assert found == [5, 5, 6, 6, 6]


def test_all_buses_together_have_so_many_channels() -> None:
    def most(*counts: int) -> int:
        buses = [SimpleNamespace(look=SimpleNamespace(channels=range(count))) for count in counts]
        return shown.most_shown(cast(list[feeds.Bus], [*buses, SimpleNamespace(look=None)]))

    assert most() == most(40_000) == most(500, 500) == shown.MOST_CHANNELS
    assert most(*[10] * 60, *[30_000] * 4) == shown.MOST_CHANNELS
    assert most(*[10] * 10, *[30_000] * 30) == (shown.MOST_OF_ALL - 100) // 30
    assert most(*[30_000] * 64) * 64 <= shown.MOST_OF_ALL
