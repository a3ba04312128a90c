"""What calls itself a bus and is none: nobody else notices, and nothing is opened that is no channel."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from futebus.view.errands import NOT_ANSWERING
from futebus.view.there import MOST_OF_USER
from futebus.view.web import shown
from futebus.view.web.feeds import GATHER, Bus
from futebus.view.web.pages import MOST_TAILS

from ...helpers.hostile import Mislead, lie
from ...helpers.mounts import Mount
from ...helpers.programs import Start
from ...helpers.waiting import until
from .webs import Web

MOST_THREADS = 8

FEW_THREADS = f"""
import sys, threading
from futebus.view import errands
start = errands.start
def limited(run):
    if threading.active_count() >= {MOST_THREADS}:
        raise RuntimeError("can't start new thread")
    start(run)
errands.start = limited
from futebus.commands.web import main
sys.exit(main(sys.argv[1:]))
"""


def threads(served: Web) -> int:
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


def test_a_name_that_leads_elsewhere(hostile: Mislead, place: Path, start: Start) -> None:
    (place / "secret").write_text("root:x\n")
    name = "B_x/../../secret"
    bus = hostile(lie(name))
    bus.directories.add(b"+B_x")
    served = Web(start, place, bus.path)
    with served.stream("/events") as events:
        told = events.bus()
        assert "a name is that of no channel" in told["trouble"]
        assert "channels" not in told
    with served.stream("/tail", served.bearer, channel=name) as tail:
        assert tail.next("trouble") == "the bus cannot be seen"
    served.end()


def test_what_is_no_channel_is_not_watched(hostile: Mislead, place: Path, start: Start) -> None:
    bus = hostile(lie("B_x"))
    bus.directories.add(b"+B_x")
    served = Web(start, place, bus.path)
    with served.stream("/tail", served.bearer, channel="B_x") as tail:
        assert tail.next("trouble") == "it cannot be read: Is a directory"
    served.end()


def test_channels_that_hang_take_no_place_for_ever(bus: Mount, hostile: Mislead, place: Path, start: Start) -> None:
    bus.touch("B_log")
    sick = hostile(lie("B_x") | {b"+B_x": b""})
    sick.hangs.add(("open", b"+B_x"))
    served = Web(start, place, bus.path, sick.path)
    for _ in range(2):
        tails = [served.stream("/tail", served.bearer, bus=str(sick.path), channel="B_x") for _ in range(MOST_TAILS + 4)]
        with served.stream("/tail", served.bearer, bus=str(bus.path), channel="B_log") as well:
            assert well.status == 200
            well.next("open")
        for tail in tails:
            assert tail.status == 200
            assert tail.next("trouble") == NOT_ANSWERING
            tail.close()
    assert sick.calls["open", b"+B_x"] == MOST_TAILS + 4, "who comes later is not sent there"
    served.end()


def test_channels_that_hang_later_give_their_places_back(bus: Mount, hostile: Mislead, place: Path, start: Start) -> None:
    bus.touch("B_log")
    sick = hostile(lie("B_x") | {b"+B_x": lambda size: b""})
    sick.hangs.add(("read", b"+B_x"))
    served = Web(start, place, bus.path, sick.path)
    tails = [served.tail("B_x", bus=str(sick.path)) for _ in range(MOST_TAILS)]
    assert served.ask(f"/tail?bus={bus.path}&channel=B_log", served.bearer).status == 503
    for tail in tails:
        tail.close()

    def has_place() -> bool:
        with served.stream("/tail", served.bearer, bus=str(bus.path), channel="B_log") as well:
            return well.status == 200 and well.next_of_all()[0] == "open"

    until(has_place, "there is a place")
    served.end()


def test_a_channel_of_a_bus_that_is_slow_is_watched(hostile: Mislead, place: Path, start: Start) -> None:
    bus = hostile(lie("B_x") | {b"+B_x": b""})
    bus.late[b"_stat.json"] = 2 * GATHER
    bus.hangs.add(("read", b"+B_x"))
    served = Web(start, place, bus.path)
    with served.stream("/tail", served.bearer, channel="B_x") as tail:
        assert tail.next_of_all() == ("open", {})
    served.end()


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_bus_in_the_place_of_one_that_hangs(hostile: Mislead, place: Path, start: Start, is_linked: bool) -> None:
    sick = hostile(lie("B_sick"))
    (place / "link").symlink_to(sick.path)
    served = Web(start, place, place / "link" if is_linked else sick.path)
    with served.stream("/events") as events:
        events.bus_when(lambda bus: not bus["trouble"])
        sick.hangs.add(("read", b"_stat.json"))
        events.bus_when(lambda bus: bus["trouble"] == NOT_ANSWERING)
        sick.detach()
        hostile(lie("B_new"), sick.path)
        events.bus_when(lambda bus: not bus["trouble"] and [channel["name"] for channel in bus["channels"]] == ["B_new"])
    served.end()


def test_where_there_can_be_few_threads(bus: Mount, hostile: Mislead, place: Path, start: Start) -> None:
    """As many buses that hang as there may be threads, and more: the others go on as soon as those have gone."""
    sick = [hostile(lie()) for _ in range(12)]
    for each in sick:
        each.hangs.add(("read", b"_stat.json"))
    served = Web(start, place, bus.path, *(each.path for each in sick), command=[sys.executable, "-c", FEW_THREADS])
    with served.stream("/events") as events:
        until(lambda: any("new thread" in each["trouble"] for each in events.next("buses")["buses"]), "there are no more")
        assert threads(served) <= MOST_THREADS
        assert served.ask("/").status == 200
        for each in sick:
            each.close()
        until(lambda: not any("new thread" in each["trouble"] for each in events.next("buses")["buses"]), "there are some again")
    served.end()


def test_how_many_are_left_out_is_told(hostile: Mislead, place: Path, start: Start) -> None:
    owner = 1_000_000 + os.getpid()  # one that nobody else's mounts have
    for _ in range(MOST_OF_USER + 3):
        hostile(lie(), owner=owner)
    served = Web(start, place)
    with served.stream("/events") as events:

        def are_shown() -> bool:
            told = events.next("buses")
            ours = [bus["name"] for bus in told["buses"] if bus["name"].startswith(f"{place}/")]
            assert len(ours) <= MOST_OF_USER
            assert told["untold"] >= 3
            return len(ours) == MOST_OF_USER

        until(are_shown, "nobody else's mounts take their places")
    served.end()


def test_paths_that_look_the_same(place: Path) -> None:
    names = {Bus(place / name, was_asked_for=True).name for name in ("x\nb", "x\\nb")}
    assert len(names) == 2


def test_no_name_is_asked_for_while_a_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int) -> Any:
        raise AssertionError(number)

    monkeypatch.setattr("pwd.getpwuid", refuse)
    assert shown.user(123_456) == "123456"
