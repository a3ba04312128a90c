"""Buses that come, go and hang while they are looked at, and several of them."""

import errno
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from futebus.host.mounted import NoBus
from futebus.view.top.said import TailView
from futebus.view.top.screens import Overview
from futebus.view.top.sights import Sights
from futebus.view.top.widgets import Table

from ...helpers.mounts import Mount, Mounting
from ...helpers.waiting import DEADLINE, until
from .looks import played, seen


@pytest.fixture
def mounting_there(place: Path) -> Iterator[Callable[[Path], Mount]]:
    """Mounts a bus on a directory, again and again."""
    mounts: list[Mount] = []

    def mount(directory: Path) -> Mount:
        directory.mkdir(exist_ok=True)
        mounts.append(Mount(directory, place / f"there{len(mounts)}.log"))
        return mounts[-1]

    try:
        yield mount
    finally:
        for mounted in mounts:
            if mounted.daemon.poll() is None:
                mounted.unmount()
            mounted.discard()


def test_a_bus_that_comes_and_goes(place: Path, mounting_there: Callable[[Path], Mount]) -> None:
    directory = place / "later"

    async def play() -> None:
        async with seen(directory) as view:
            await view.says("head", "there is no directory")
            assert "waiting" in view.text("head")
            for round_ in range(2):
                bus = mounting_there(directory)
                bus.touch(f"B_{round_}")
                await view.lists(f"B_{round_}")
                await view.press("t")
                await view.shows(TailView)
                await view.says("head", "listening")
                bus.unmount()
                await view.says("head", "waiting")
                if round_:
                    break
                await view.says("head", "no bus is mounted")
                await view.press("escape")
                await view.shows(Overview)
                await view.until(lambda: view.names == [] and "no bus is mounted" in view.text("head"))
            # The tail goes on, too.
            bus = mounting_there(directory)
            bus.touch("B_1")
            await view.says("head", "listening")
            (bus / "B_1").write_text("back again\n")
            await view.says("said", "back again")
            await view.press("escape")

    played(play)


def test_what_is_seen_of_others_does_not_sort_what_is_shown(mounting: Mounting, monkeypatch: pytest.MonkeyPatch) -> None:
    """With forty buses, four thousand channels would be sorted forty times an interval."""
    shown, other = mounting(), mounting()
    arranged = []
    arrange = Table._arrange

    def note(table: Table) -> None:
        arranged.append(len(table._all))
        arrange(table)

    monkeypatch.setattr(Table, "_arrange", note)

    async def play() -> None:
        async with seen(shown.path, other.path, interval=86_400) as view:
            first, second = view.top.sights.shown
            await view.until(lambda: first.looks and second.looks, "both are looked at")
            await view.settle()
            before = len(arranged)
            for _ in range(3):
                second.begin()
                await view.until(lambda: second._question.call is None, "the other is looked at")
                await view.settle()
            assert len(arranged) == before
            shown.touch("B_x")
            first.begin()
            await view.lists("B_x")
            other.unmount()
            second.begin()
            await view.until(lambda: second.words, "it has gone")
            await view.until(lambda: view.top._named[1] == (second, True), "its name is drawn in red")

    played(play)


def test_a_bus_that_hangs_does_not_hang_the_view(mounting: Mounting) -> None:
    stuck, well = mounting(), mounting()

    async def play() -> None:
        stuck.touch("B_stuck")
        well.touch("B_well")
        async with seen(stuck.path, well.path) as view:
            await view.lists("B_stuck")
            await view.press("t")
            await view.shows(TailView)
            await view.says("head", "listening")
            stuck.daemon.send_signal(signal.SIGSTOP)
            try:
                await view.press("escape")
                await view.shows(Overview)
                await view.says("head", "has not answered for")
                assert view.names == ["B_stuck"], "what was seen last is still shown"
                await view.press("right_square_bracket")
                await view.lists("B_well")
                well.touch("B_new")
                await view.lists("B_new", "B_well")
                await view.press("left_square_bracket")
                await view.press("t")
                await view.shows(TailView)
                await view.says("head", "opening it")
                await view.press("escape")
                await view.shows(Overview)
            finally:
                stuck.daemon.send_signal(signal.SIGCONT)
            stuck.touch("B_a_sign")
            await view.until(lambda: "B_a_sign" in view.names)
            assert "answered" not in view.text("head")

    played(play)
    until(lambda: not stuck.clients(), "no tail is left")


def test_a_bus_in_the_place_of_one_that_hangs(place: Path, mounting_there: Callable[[Path], Mount]) -> None:
    directory = place / "there"
    stuck = mounting_there(directory)
    stuck.touch("B_stuck")

    async def play() -> None:
        async with seen(directory) as view:
            await view.lists("B_stuck")
            stuck.daemon.send_signal(signal.SIGSTOP)
            await view.says("head", "has not answered for")
            stuck.was_killed = True
            subprocess.run(["umount", "-l", str(directory)], check=True)  # noqa: ASYNC221 - it waits for nobody
            bus = mounting_there(directory)
            bus.touch("B_new")
            await view.lists("B_new")
            assert "answered" not in view.text("head")
            bus.unmount()

    try:
        played(play)
    finally:
        stuck.daemon.kill()
        stuck.daemon.wait()


def test_a_bus_that_is_for_others_is_not_shown(bus: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    sights = Sights([])

    def look() -> list[Path]:
        sights.begin()
        sights.wait(DEADLINE)
        sights.settle()
        return [sight.mountpoint for sight in sights.shown]

    assert bus.path in look()

    def refuse(mountpoint: Path, most: int) -> bytes:
        raise NoBus(f"the bus on {mountpoint} cannot be used: Permission denied", errno.EACCES)

    monkeypatch.setattr("futebus.view.top.sights.read", refuse)
    assert bus.path not in look()
    named = Sights([bus.path])
    named.begin()
    named.wait(DEADLINE)
    named.settle()
    assert [sight.words for sight in named.shown] == [f"the bus on {bus.path} cannot be used: Permission denied"]


def test_several_buses(mounting: Mounting) -> None:
    one, two = mounting(), mounting()

    async def play() -> None:
        one.touch("B_one")
        two.touch("B_two")
        async with seen(one.path, two.path, size=(100, 20)) as view:
            await view.lists("B_one")
            assert view.text("tabs") == f" 1 {one.path}  2 {two.path} "
            for keys, name in (("2", "B_two"), ("1", "B_one"), ("tab", "B_two"), ("tab", "B_one"), ("shift+tab", "B_two")):
                await view.press(keys)
                await view.lists(name)
            await view.pilot.click("#tabs", offset=(2, 0))
            await view.lists("B_one")

    played(play)


def test_all_buses_that_are_mounted(mounting: Mounting) -> None:
    async def play() -> None:
        one = mounting()
        async with seen() as view:
            await view.until(lambda: one.path in [sight.mountpoint for sight in view.top.sights.shown])
            two = mounting()
            await view.until(lambda: two.path in [sight.mountpoint for sight in view.top.sights.shown])
            two.unmount()
            # (others' buses, which may be there, are shown, and one that is shown stays)
            await view.until(
                lambda: (
                    view.top.sight is not None
                    and (
                        view.top.sight.mountpoint == two.path
                        or two.path not in [each.mountpoint for each in view.top.sights.shown]
                    )
                )
            )

    played(play)
