"""What the pages for people print, and shells into which it is typed."""

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

from . import java
from .programs import Start
from .recorders import parent_of
from .waiting import until

TREE = Path(__file__).parents[2]

VARIES = {"up 1 hour, 6 minutes": r"up \d+ \w+(, \d+ \w+)*"}
"""Lines of output that are never the same, and what they look like."""


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language in a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for language_of, block in found if language_of == language]


def examples(page: str) -> list[str]:
    """The examples of a manual page, in its order, as man(1) shows them."""
    text = (TREE / "man" / page).read_text()
    section = re.split(r"^\.Sh ", text.partition("\n.Sh EXAMPLES\n")[2], flags=re.MULTILINE)[0]
    return [
        block.replace(r"\e", "\\") for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", section, re.DOTALL | re.MULTILINE)
    ]


def environment(home: Path) -> dict[str, str]:
    """The environment of somebody who has installed futebus."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    own = {"HOME": str(home), "PATH": f"{TREE}/.venv/bin:{os.environ['PATH']}"}
    return {**kept, **own, "LC_ALL": "C", "SPARK_LOCAL_IP": "127.0.0.1", java.OPTIONS: java.options()}


class Shell:
    """A shell that somebody types into, whose home is a directory of the test and who finds the commands of this tree.

    Args:
        start: starts it.
        place: where it is, and its home.
        name: of the file in `place` with all that it shows.
        program: what it is: bash, or another program that takes what is typed.
    """

    def __init__(self, start: Start, place: Path, name: str, *program: str | Path) -> None:
        self._shown = place / name
        with self._shown.open("w") as shown:
            self.process = start(
                *(program or ["bash"]), cwd=place, stdout=shown, stderr=subprocess.STDOUT, env=environment(place)
            )
        self._seen = 0

    def type(self, words: str) -> None:
        """A command, or Ctrl-C."""
        assert self.process.stdin
        if words == "^C":
            for pid in self._children():
                os.kill(pid, signal.SIGINT)
            return
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()

    def _children(self) -> list[int]:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [int(entry.name) for entry in entries if parent_of(entry) == self.process.pid]

    def expect(self, line: str) -> None:
        """The next line that it shows."""
        pattern = VARIES.get(line, re.escape(line))

        def is_there() -> bool:
            shown = self._shown.read_text().split("\n")[:-1]
            if len(shown) <= self._seen:
                return False
            assert re.fullmatch(pattern, shown[self._seen]), f"{shown[self._seen]!r} where {line!r} is promised"
            return True

        until(is_there, f"it shows {line!r}")
        self._seen += 1

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What fails meanwhile fails with all that it has shown."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows {self.shown}") from None

    @property
    def shown(self) -> str:
        """All that it has shown."""
        return self._shown.read_text()

    @property
    def rest(self) -> list[str]:
        """What it has shown besides."""
        return self._shown.read_text().split("\n")[self._seen : -1]


class Terminal:
    """A terminal with an interactive bash, for what only happens there: job control, and words that come between others.

    Args:
        start: starts it.
        place: where it is, and its home.
        path: directories to look for programs in first.
    """

    def __init__(self, start: Start, place: Path, *path: Path) -> None:
        self._terminal, self._there = os.openpty()
        os.set_blocking(self._terminal, False)
        fcntl.ioctl(self._there, termios.TIOCSWINSZ, struct.pack("4H", 24, 1000, 0, 0))  # so that no line is broken
        own = environment(place)
        own |= {"PATH": ":".join([*map(str, path), own["PATH"]]), "PS1": "$ ", "TERM": "dumb"}
        # The first terminal that the leader of a session opens becomes its own.
        words = 'exec bash --noprofile --norc -i <"$0" >"$0" 2>&1'
        self._process = start("sh", "-c", words, os.ttyname(self._there), cwd=place, env=own)
        self._shown = ""
        self._seen = 0

    @property
    def shown(self) -> str:
        """All that it has shown."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._terminal, 1 << 16):
                self._shown += data.decode(errors="replace").replace("\r\n", "\n")
        return self._shown

    def type(self, words: str, *, to_program: bool = False) -> None:
        """Types a line, and waits until it is shown: by the shell, or by the terminal if a program is to read it."""
        if to_program:  # the shell has shown the command before it gives the terminal back its echo
            until(lambda: termios.tcgetattr(self._there)[3] & termios.ECHO, "the terminal shows what is typed")
        os.write(self._terminal, f"{words}\n".encode())
        self.expect(f"{words}\n")

    def expect(self, *words: str) -> None:
        """Waits until it shows these, in any order, behind all that was expected before."""
        try:
            until(lambda: all(each in self.shown[self._seen :] for each in words))
        except AssertionError as error:
            raise AssertionError(f"{error}: it shows {words}, and not {self._shown!r}") from None
        self._seen = max(self._shown.index(each, self._seen) + len(each) for each in words)

    def close(self) -> None:
        """Ends it, and all that was started there: each job is a process group of its own."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(ProcessLookupError, ValueError):
                if os.getsid(int(entry.name)) == self._process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        os.close(self._there)  # not before: what nobody has open, or not yet, is no terminal
        os.close(self._terminal)


@contextlib.contextmanager
def terminals(count: int, start: Start, place: Path, *path: Path) -> Iterator[list[Terminal]]:
    """So many terminals side by side."""
    opened = [Terminal(start, place, *path) for _ in range(count)]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()
