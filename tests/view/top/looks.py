"""The view as tests have it: driven by Textual's pilot, or on a pseudo-terminal."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from textual.events import Key
from textual.pilot import Pilot

from futebus.view.top.app import Top
from futebus.view.top.sights import Sights
from futebus.view.top.widgets import Lines, Table

from ...helpers.mounts import Mount
from ...helpers.waiting import DEADLINE, until

COMMAND = [sys.executable, "-m", "futebus.commands.top"]

QUICK = 0.1
"""From look to look, in seconds."""

END = b"\0the end\0"
"""What no program writes on a terminal."""


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a test of the view."""
    asyncio.run(play())


class Seen:
    """A view that runs, and what is to be seen of it."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top, self.pilot = top, pilot

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Waits until something is so."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"{what or condition}: {self.screen_text}"
            await asyncio.sleep(0.01)

    async def press(self, *keys: str) -> None:
        """Presses keys, and waits until they have done what they do.

        The pilot would wait until the process is idle, which it is not for long: it looks at buses.
        """
        driver = self.top._driver
        assert driver
        for key in keys:
            event = Key(key, key if len(key) == 1 else None)
            event.set_sender(self.top)
            driver.send_message(event)
            await self.settle()

    async def settle(self) -> None:
        """Waits until everybody has done what there is to do: a message may lead to another one, and that to a third."""
        for _ in range(4):
            await self.pilot.pause(0)

    async def shows(self, screen: type) -> None:
        await self.until(lambda: isinstance(self.top.screen, screen) and self.top.screen.is_mounted, f"it shows {screen}")
        await self.settle()

    async def says(self, part: str, words: str) -> None:
        """Waits until a part has these words in it."""
        await self.until(lambda: words in self.text(part), f"{part} says {words!r}")

    async def lists(self, *names: str) -> None:
        """Waits until these are in the table, in this order."""
        await self.until(lambda: self.names == list(names), f"it lists {names}")

    async def looks_again(self) -> None:
        """Waits until the first bus was looked at twice more."""
        sight = self.top.sights.shown[0]
        looks = sight.looks
        await self.until(lambda: sight.looks > looks + 1, "it looks")

    async def is_wide(self, width: int) -> None:
        """Waits until it has so many columns, and is drawn."""
        await self.until(lambda: self.top.size.width == width, f"it is {width} wide")
        await self.settle()

    @property
    def table(self) -> Table:
        return self.top.screen.query_one(Table)

    @property
    def names(self) -> list[str]:
        """The first column."""
        column = self.table.columns[0]
        return [column.cell(row.thing, 1000).text for row in self.table.rows]

    def text(self, part: str) -> str:
        return self.top.screen.query_one(f"#{part}", Lines).text

    def cell(self, head: str, name: str) -> str:
        """What stands below a head, in the row of this name."""
        row = self.table.rows[self.names.index(name)]
        column = next(each for each in self.table.columns if each.heads[1] == head)
        return column.cell(row.thing, column.widths[1]).text

    @property
    def screen_text(self) -> str:
        """All that is drawn."""
        strips = self.top.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)


@contextlib.asynccontextmanager
async def seen(*mountpoints: Path, size: tuple[int, int] = (120, 30), interval: float = QUICK) -> AsyncIterator[Seen]:
    """Runs the view."""
    top = Top(Sights(mountpoints), interval)
    async with top.run_test(size=size) as pilot:
        yield Seen(top, pilot)


@contextlib.contextmanager
def opened(bus: Mount, name: str | bytes, flags: int) -> Iterator[int]:
    file = os.open(os.path.join(os.fsencode(bus.path), os.fsencode(name)), flags)
    try:
        yield file
    finally:
        os.close(file)


class Terminal:
    """A pseudo-terminal with a program on it, which is what is seen of a real one: bytes.

    Args:
        command: the program.
        size: columns and rows.
        environment: what is different in its environment.
    """

    def __init__(
        self, *command: str | Path, size: tuple[int, int] = (80, 24), environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(*size, tells=False)
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""
        self._lock = threading.Lock()
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [str(word) for word in (*COMMAND, *command)],
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.PIPE,
            env={**env, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                with self._lock:
                    self.shown += data

    def resize(self, columns: int, rows: int, *, tells: bool = True) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        if tells:
            self.process.send_signal(signal.SIGWINCH)

    @property
    def modes(self) -> list[Any]:
        """Those of the terminal, as termios has them."""
        return termios.tcgetattr(self.slave)

    @modes.setter
    def modes(self, modes: list[Any]) -> None:
        termios.tcsetattr(self.slave, termios.TCSANOW, modes)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def forget(self) -> None:
        """What was shown up to now does not count any more."""
        with self._lock:
            self.shown = b""

    @property
    def text(self) -> str:
        """What was shown, without the control sequences."""
        with self._lock:
            text = self.shown.decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?<>=$]*[a-zA-Z]|\x1b[^\[]", "", text)

    def wait_for(self, words: str) -> None:
        try:
            until(lambda: words in self.text or self.process.poll() is not None, f"it shows {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}, and not {self.text[-2000:]!r}") from None
        if words not in self.text:
            self._read_to_its_end()
        assert words in self.text, (self.process.poll(), self.text[-2000:], self.errors())

    def _read_to_its_end(self) -> None:
        """All that was written on the terminal is shown: the kernel hands it on in its own time, but in order."""
        os.write(self.slave, END)
        until(lambda: END in self.shown, "all is read")
        with self._lock:
            self.shown = self.shown.replace(END, b"")

    def errors(self) -> bytes:
        assert self.process.stderr
        return self.process.stderr.read() if self.process.poll() is not None else b""

    def ends(self) -> None:
        """It ends as it should, and leaves the terminal as it was."""
        assert self.process.wait(DEADLINE) == 0
        assert self.errors() == b""
        self._read_to_its_end()
        assert termios.tcgetattr(self.slave) == self.before
        assert self.shown.rfind(b"\x1b[?1049l") > self.shown.rfind(b"\x1b[?1049h"), "the screen is back"
        assert self.shown.rfind(b"\x1b[?25h") > self.shown.rfind(b"\x1b[?25l"), "the cursor is there"
        for mode in (b"1000", b"1003", b"1006", b"2004", b"1004"):
            assert self.shown.rfind(b"\x1b[?%sl" % mode) > self.shown.rfind(b"\x1b[?%sh" % mode), mode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        os.close(self.slave)
        self._reader.join(DEADLINE)
        os.close(self.master)
