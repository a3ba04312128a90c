"""The tables of the view, driven by Textual's pilot, on real buses."""

import contextlib
import os
import signal
from pathlib import Path

from textual.widgets import Input

from futebus.view.top.keys import Help
from futebus.view.top.said import TailView
from futebus.view.top.screens import Clients, Overview

from ...helpers.mounts import Mount, Mounting
from .looks import Seen, opened, played, seen

HOSTILE = [
    b"B\x1b[2J\x1b]0;x\x07",
    b"B[red]loud",
    b"B[bold on red]",
    b"B[@click=app.quit]x",
    b"B\nnew\rline\ttab",
    b"B\xff\xfe",
    b"B" + b"x" * 254,
    b"B" + "漢".encode() * 80,
    "Be\u0301\u202egnol".encode(),
]


def test_what_is_seen_of_a_bus(mounting: Mounting) -> None:
    bus = mounting("max_queue=4", "max_clients=100", "max_channels=50")

    async def play() -> None:
        async with seen(bus.path) as view:
            await view.says("head", "up ")
            assert view.names == []
            reader, writer = (os.open(bus / "B_log", flags | os.O_CREAT) for flags in (os.O_RDONLY, os.O_WRONLY))
            await view.lists("B_log")
            await view.says("head", "clients 2 of 100  channels 1 of 50")
            assert (view.cell("CLIENTS", "B_log"), view.cell("QUEUE", "B_log").strip()) == ("2", "")
            assert view.cell("DROPS/S", "B_log") == "0"

            def goes() -> bool:
                os.write(writer, b"0123456\n" * 10)
                return view.cell("IN/S", "B_log") != "0"

            await view.until(goes)
            await view.until(lambda: view.cell("QUEUE", "B_log") == "████████", "the queue is full")
            await view.until(lambda: goes() and view.cell("DROPS/S", "B_log") != "0", "it drops")
            await view.until(lambda: goes() and "█" in view.cell("IN", "B_log"), "it has a curve")
            assert "dropped" in view.text("head")
            assert "█" in view.text("head")
            assert "B_log" in view.screen_text
            os.close(reader)
            os.close(writer)
            os.unlink(bus / "B_log")
            await view.lists()

    played(play)


def test_who_is_blocked_is_seen(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")

    async def play() -> None:
        with opened(bus, ".U_jobs", os.O_RDWR | os.O_CREAT) as master:
            pid = os.fork()
            if not pid:  # it waits, until the master has closed
                with contextlib.suppress(OSError):
                    file = os.open(bus / "U_jobs", os.O_WRONLY)
                    os.write(file, b"1\n2\n3\n")
                os._exit(0)
            try:
                async with seen(bus.path) as view:
                    await view.until(lambda: view.names == ["U_jobs"] and view.cell("BLOCKED", "U_jobs") != "0")
                    assert view.cell("BLOCKED", "U_jobs").startswith("1 ")
                    assert view.cell("QUEUE", "U_jobs") == "█" * 8
                    await view.press("enter")
                    await view.shows(Clients)
                    await view.lists("1", "2")
                    assert view.cell("WAITS", "2").startswith("write ")
                    assert (view.cell("ROLE", "1"), view.cell("RW", "1"), view.cell("RLIST", "1")) == ("master", "rw", "1")
                    assert (view.cell("PID", "2"), view.cell("SENT", "2")) == (str(pid), "1")
                    assert os.read(master, 100) == b"1\n"
                    await view.until(lambda: view.cell("RECEIVED", "1") == "1")
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # noqa: ASYNC222 - it has been killed

    played(play)


def test_sorting(bus: Mount) -> None:
    async def play() -> None:
        with contextlib.ExitStack() as stack:
            for name, clients in (("B_a", 2), ("B_b", 3), ("A_c", 1)):
                for _ in range(clients):
                    stack.enter_context(opened(bus, name, os.O_RDWR | os.O_CREAT))
            async with seen(bus.path) as view:
                await view.lists("A_c", "B_a", "B_b")
                await view.press("r")
                assert view.names == ["B_b", "B_a", "A_c"], "the other way round"
                await view.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
                assert view.names == ["B_b", "B_a", "A_c"], "most clients first"
                assert view.table.sorted_by == 3
                await view.press("r")
                assert view.names == ["A_c", "B_a", "B_b"]
                await view.press("less_than_sign")
                assert view.table.sorted_by == 2
                # Heads: the name again, then clients.
                await view.pilot.click("#table", offset=(2, 0))
                assert (view.table.sorted_by, view.names) == (0, ["A_c", "B_a", "B_b"])
                await view.pilot.click("#table", offset=(2, 0))
                assert view.names == ["B_b", "B_a", "A_c"]
                at = view.screen_text.split("\n")[2].index("CLIENTS")
                await view.pilot.click("#table", offset=(at + 1, 0))
                assert view.table.sorted_by == 3

    played(play)


def test_the_cursor_stays_on_its_channel(bus: Mount) -> None:
    async def play() -> None:
        for name in ("B_b", "B_d"):
            bus.touch(name)
        async with seen(bus.path) as view:
            await view.lists("B_b", "B_d")
            await view.press("down")
            for name in ("B_a", "B_c"):
                bus.touch(name)
            await view.until(lambda: len(view.names) == 4)
            chosen = view.table.chosen
            assert chosen
            assert chosen.thing.channel.name == "B_d"
            os.unlink(bus / "B_d")
            await view.until(lambda: len(view.names) == 3)
            assert view.table.chosen
            await view.press("end", "end")
            assert view.table.place == "3/3"
            await view.press("home")
            assert view.table.place == "1/3"

    played(play)


def test_filtering(bus: Mount) -> None:
    async def play() -> None:
        for name in ("B_log", "B_Login", "A_chat"):
            bus.touch(name)
        async with seen(bus.path) as view:
            await view.until(lambda: len(view.names) == 3)
            await view.press("slash", *"log")
            await view.lists("B_Login", "B_log")
            await view.press(*"q")
            await view.lists()
            await view.press("backspace", "enter")
            await view.until(lambda: "2/2 of 3" in view.text("hint") or "1/2 of 3" in view.text("hint"))
            bus.touch("B_blog")
            await view.lists("B_Login", "B_blog", "B_log")
            await view.press("escape")
            assert len(view.names) == 4
            assert not view.top.screen.query_one(Input).display
            await view.press("slash", "x", "escape")
            assert len(view.names) == 4
            await view.press("escape")
            await view.shows(Overview)

    played(play)


def test_the_clients_of_a_channel(bus: Mount) -> None:
    own_name = Path("/proc/self/comm").read_text().strip()

    async def play() -> None:
        with (
            opened(bus, "+B_log", os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK) as reader,
            opened(bus, "B_log", os.O_WRONLY) as writer,
        ):
            async with seen(bus.path) as view:
                await view.lists("B_log")
                await view.press("enter")
                await view.shows(Clients)
                await view.lists("1", "2")
                assert (view.cell("RW", "1"), view.cell("RW", "2"), view.cell("ROLE", "1")) == ("r-+", "-w", "peer")
                assert (view.cell("PID", "1"), view.cell("UID", "1")) == (str(os.getpid()), str(os.getuid()))
                assert view.cell("COMMAND", "1") == own_name
                os.write(writer, b"one\ntwo\nhalf")
                await view.until(lambda: view.cell("RLIST", "1") == "2")
                assert (view.cell("SENT", "2"), view.cell("WBUF", "2")) == ("2", "4")
                os.read(reader, 100)
                await view.until(lambda: view.cell("RECEIVED", "1") == "2")
                await view.press("slash", *"zzz")
                await view.lists()
                await view.press("escape")
                assert view.names == ["1", "2"]
                await view.press("escape")
                await view.shows(Overview)
                await view.press("enter")
                await view.shows(Clients)
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("enter")
            await view.shows(Clients)
            os.unlink(bus / "B_log")
            await view.says("head", "the channel has gone")
            await view.press("escape")
            await view.shows(Overview)

    played(play)


def test_hostile_names_draw_nothing(bus: Mount) -> None:
    async def play() -> None:
        with contextlib.ExitStack() as stack:
            for name in HOSTILE:
                stack.enter_context(opened(bus, name, os.O_RDWR | os.O_CREAT))
            async with seen(bus.path, size=(150, 30)) as view:
                await view.until(lambda: len(view.names) == len(HOSTILE))
                assert "B[red]loud" in view.names
                assert "B\\x1b[2J\\x1b]0;x\\x07" in view.names
                assert "B\\nnew\\rline\\ttab" in view.names
                assert "B\\xff\\xfe" in view.names
                drawn = view.screen_text
                assert all(line.isprintable() for line in drawn.split("\n"))
                for words in ("B[red]loud", "B[@click=app.quit]x", "B[bold on red]", "B\\xff\\xfe", "B\\nnew"):
                    assert words in drawn
                for place in range(len(HOSTILE)):
                    assert view.table.chosen
                    name = view.table.chosen.thing.channel.name
                    screen = (TailView, Clients)[place % 3 == 2]
                    await view.press("t" if screen is TailView else "enter")
                    await view.shows(screen)
                    assert view.text("head").startswith(name)
                    if screen is TailView:
                        await view.says("head", "listening as client")
                    assert all(line.isprintable() for line in view.screen_text.split("\n"))
                    await view.press("escape")
                    await view.shows(Overview)
                    await view.press("down")

    played(play)


def test_sizes(bus: Mount) -> None:
    async def check(view: Seen) -> None:
        lines = view.screen_text.split("\n")
        assert len(lines) == view.top.size.height
        if view.top.size.width >= 20:
            assert any("B_x" in line for line in lines), lines

    async def play() -> None:
        bus.touch("B_x")
        async with seen(bus.path, size=(40, 10)) as view:
            await view.lists("B_x")
            for width, height in [(40, 10), (80, 24), (20, 5), (1, 1), (300, 100)]:
                await view.pilot.resize_terminal(width, height)
                await view.is_wide(width)
                await view.settle()
                await check(view)
                await view.press("question_mark")
                await view.shows(Help)
                await view.press("down", "escape")
                await view.shows(Overview)
                await view.press("right", "right", "greater_than_sign", "left")

    played(play)


def test_columns_for_which_there_is_no_place_are_brought_by_keys(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_x")
        async with seen(bus.path, size=(40, 10)) as view:
            await view.lists("B_x")
            await view.settle()
            assert "DROP" not in view.screen_text
            await view.press(*["right"] * 12)
            await view.settle()
            assert "DROP" in view.screen_text
            assert "B_x" in view.screen_text
            await view.press(*["left"] * 12)
            await view.press(*["greater_than_sign"] * 12)
            await view.settle()
            assert "DROP" in view.screen_text, "what is sorted by is seen"

    played(play)


def test_columns_come_back_when_there_is_place_again(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_x")
        async with seen(bus.path, size=(40, 10)) as view:
            await view.lists("B_x")
            await view.press(*["right"] * 12)
            await view.settle()
            assert "STATE" not in view.screen_text
            for width, is_all in ((60, False), (140, True)):
                await view.pilot.resize_terminal(width, 10)
                await view.is_wide(width)
                await view.until(lambda: "DROP" in view.screen_text)
                assert ("STATE" in view.screen_text) == ("«" not in view.screen_text) == is_all

    played(play)


def test_a_thousand_channels(bus: Mount) -> None:
    async def play() -> None:
        for number in range(1000):
            bus.touch(f"B_{number:03}")
        async with seen(bus.path) as view:
            await view.until(lambda: len(view.names) == 1000)
            await view.press("end")
            await view.settle()
            assert "B_999" in view.screen_text
            await view.press("pageup", "home")
            await view.settle()
            assert "B_000" in view.screen_text

    played(play)
