"""What a channel says, as the view shows it."""

import asyncio
import os
from pathlib import Path

from futebus.view.top.said import KEPT, WAITING, TailView
from futebus.view.top.screens import Overview

from ...helpers.mounts import Mount, Mounting, hanging, run
from ...helpers.waiting import until
from .looks import opened, played, seen


def test_a_tail(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.shows(TailView)
            await view.says("head", "listening as client")
            assert "this view is a client of it" in view.text("head")
            (client,) = bus.clients("B_log")
            assert (client["pid"], client["reads"], client["writes"], client["bulk"]) == (os.getpid(), True, False, True)
            (bus / "B_log").write_bytes(b"hello [red]\x1b[31m \xff\n" + b"x" * 5000 + b"\n" + b"last\n")
            await view.says("said", "last")
            assert view.text("said").split("\n") == ["hello [red]\\x1b[31m \\xff", "x" * 2000 + " … and 3000 bytes", "last"]
            assert "hello [red]\\x1b[31m" in view.screen_text
            await view.press("space")
            (bus / "B_log").write_bytes(b"while held\n")
            await view.says("hint", "held, 1 line waits")
            assert "while held" not in view.text("said")
            await view.press("space")
            assert view.text("said").endswith("\nlast\nwhile held")
            await view.says("head", "came 4  skipped 0")
            await view.press("escape")
            await view.shows(Overview)
        until(lambda: not bus.clients(), "it is no client any more")

    played(play)


def test_a_bus_that_hangs_and_another_in_its_place(bus: Mount, place: Path) -> None:
    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.shows(TailView)
            await view.says("head", "listening as client")
            with hanging(bus):
                await view.says("head", "the bus does not answer")
                await asyncio.to_thread(run, "umount", "-l", bus.path)
                other = Mount(bus.path, place / "other.log")
                try:
                    other.touch("B_log")
                    await view.says("head", "listening as client")
                    (other / "B_log").write_text("after\n")
                    await view.says("said", "after")
                finally:
                    other.unmount()
                    other.discard()
            bus.daemon.kill()
            bus.daemon.wait()
            bus.was_killed = True

    played(play)


def test_what_comes_faster_than_it_can_be_shown_is_skipped(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.until(lambda: "listening" in view.text("head") if isinstance(view.top.screen, TailView) else False)
            with opened(bus, "B_log", os.O_WRONLY) as writer:
                os.write(writer, b"".join(b"line %d\n" % number for number in range(50_000)))
            await view.says("said", "line 49999")
            screen = view.top.screen
            assert isinstance(screen, TailView)
            shown = [line for line in view.text("said").split("\n") if line.startswith("line")]
            assert len(shown) <= KEPT
            await view.says("head", f"came 50,000  skipped {screen.skipped:,}")
            assert screen.shown + screen.skipped == 50_000, "what was shown and what was skipped is all"
            assert screen.skipped

    played(play)


def test_what_is_addressed_to_others_is_not_heard(bus: Mount) -> None:
    async def play() -> None:
        with opened(bus, "A_chat", os.O_RDWR | os.O_CREAT) as one, opened(bus, "A_chat", os.O_RDWR):
            async with seen(bus.path) as view:
                await view.lists("A_chat")
                await view.press("t")
                await view.shows(TailView)
                await view.says("head", "listening as client 3")
                assert "only what is addressed to all, or to this view" in view.text("head")
                os.write(one, b"{2}for two\n{3}for us\n{*}for all\n")
                await view.says("said", "{1}for us\n{1}for all")
                assert "for two" not in view.text("said")

    played(play)


def test_a_channel_with_a_master_is_not_watched(bus: Mount) -> None:
    async def play() -> None:
        with opened(bus, ".S_x", os.O_RDWR | os.O_CREAT), opened(bus, ".U_x", os.O_RDWR | os.O_CREAT):
            async with seen(bus.path) as view:
                await view.lists("S_x", "U_x")
                for name in view.names:
                    await view.press("t")
                    await view.says("hint", f"{name} cannot be watched without taking part")
                    assert isinstance(view.top.screen, Overview)
                    await view.looks_again()
                    assert f"{name} cannot be watched" in view.text("hint"), "it stays to be read"
                    await view.press("down")
                assert len(bus.clients()) == 2

    played(play)


def test_a_channel_without_a_name_is_not_watched(bus: Mount) -> None:
    async def play() -> None:
        with opened(bus, "B_x", os.O_RDWR | os.O_CREAT):
            os.unlink(bus / "B_x")
            async with seen(bus.path) as view:
                await view.lists("B_x")
                assert view.cell("STATE", "B_x") == "removed"
                bus.touch("B_x")  # another one, which is not meant
                await view.press("t")
                await view.says("hint", "its name was removed")
                assert len(bus.clients()) == 1

    played(play)


def test_what_comes_while_it_is_held(bus: Mount) -> None:
    """The newest lines wait, and a mark stands where others are missing; what was shown can be gone back to."""

    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path, size=(60, 12)) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.says("head", "listening")
            (bus / "B_log").write_bytes(b"".join(b"early %d\n" % number for number in range(30)))
            await view.says("said", "early 29")
            await view.press("space")
            (bus / "B_log").write_bytes(b"".join(b"held %d\n" % number for number in range(WAITING + 1234)))
            await view.says("head", f"came {WAITING + 1264:,}  skipped 1,234")
            await view.settle()
            assert "early 29" in view.screen_text
            assert "early 20" not in view.screen_text
            await view.press("up", "pageup", "home")
            await view.settle()
            assert "early 0 " in view.screen_text
            await view.press("pagedown", "down", "end")
            await view.settle()
            assert "early 29" in view.screen_text
            await view.press("space")
            lines = view.text("said").split("\n")
            assert lines[29:32] == ["early 29", "… 1,234 lines skipped", "held 1234"]
            assert lines[-1] == f"held {WAITING + 1233}"
            await view.settle()
            assert lines[-1] in view.screen_text
            await view.press("up")
            await view.says("hint", "held")

    played(play)


def test_what_the_bus_has_dropped_is_skipped_too(mounting: Mounting) -> None:
    bus = mounting("max_queue=4")

    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.says("head", "listening")
            (bus / "B_log").write_bytes(b"x\n" * 5000)
            await view.says("head", "came 5,000  skipped ")
            screen = view.top.screen
            assert isinstance(screen, TailView)
            assert screen.shown + screen.skipped == 5000
            assert screen.skipped

    played(play)


def test_a_long_line_is_brought_by_keys(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path, size=(40, 10)) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.says("head", "listening")
            long = "".join(f"<{number}>" for number in range(40)) + "漢" * 10 + "end"
            (bus / "B_log").write_text(f"short\n{long}\n")
            await view.says("said", "end")
            await view.settle()
            assert "<15>" not in view.screen_text
            await view.press("right")
            await view.settle()
            assert "<15>" in view.screen_text
            assert "<0>" not in view.screen_text
            await view.press(*["right"] * 20)
            await view.settle()
            assert "漢end" in view.screen_text
            assert all(len(line) <= 40 for line in view.screen_text.split("\n"))
            await view.press(*["left"] * 20)
            await view.settle()
            assert "<0>" in view.screen_text
            assert "short" in view.screen_text
            await view.press(*["right"] * 20)
            for width in (60, 300):
                await view.pilot.resize_terminal(width, 10)
                await view.is_wide(width)
                await view.until(lambda: "漢end" in view.screen_text)
                drawn = next(line for line in view.screen_text.split("\n") if "漢end" in line)
                assert ("<0>" in drawn) == (width == 300), "no more is left out than there is no place for"
                assert width == 300 or drawn.rstrip() == drawn
            assert "short" in view.screen_text

    played(play)


def test_who_cannot_listen_is_no_client(bus: Mount) -> None:
    async def play() -> None:
        bus.touch("B_log")
        async with seen(bus.path) as view:
            await view.lists("B_log")
            await view.press("t")
            await view.says("head", "this view is a client of it")
            os.unlink(bus / "B_log")
            await view.says("head", "its name was removed")
            assert "this view is a client of it" in view.text("head")
            bus.unmount()
            await view.says("head", "waiting")
            assert "this view is a client of it" not in view.text("head")

    played(play)
