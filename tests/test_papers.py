"""README's transcripts and recipes, typed as they are printed. Only where a bus is mounted is another place."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .helpers.mounts import Mount, bash
from .helpers.programs import Start
from .helpers.recorders import parent_of
from .helpers.waiting import DEADLINE, until

TREE = Path(__file__).parents[1]
README = (TREE / "README.md").read_text()

VARIES = {"up 1 hour, 6 minutes": r"up \d+ \w+(, \d+ \w+)*"}
"""Lines of output that are never the same, and what they look like."""


def blocks(language: str, text: str = README) -> list[str]:
    """The blocks of a language in a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for language_of, block in found if language_of == language]


class Row(NamedTuple):
    """A line of a transcript: in which column something stands, and what."""

    column: int
    text: str


def rows(transcript: str) -> Iterator[Row]:
    """The lines of a transcript of two shells, in their order."""
    for line in transcript.splitlines():
        for column, text in enumerate(line.split("|", 1)):
            if text.strip():
                yield Row(column, text.strip())


class Shell:
    """A shell that somebody types into."""

    def __init__(self, start: Start, place: Path, number: int, environment: dict[str, str]) -> None:
        self._shown = place / f"shell{number}"
        with self._shown.open("w") as shown:
            self._process = start("bash", cwd=place, stdout=shown, stderr=subprocess.STDOUT, env=environment)
        self._seen = 0

    def type(self, words: str) -> None:
        """A command, or Ctrl-C."""
        assert self._process.stdin
        if words == "^C":
            for pid in self._children():
                os.kill(pid, signal.SIGINT)
            return
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()

    def _children(self) -> list[int]:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [int(entry.name) for entry in entries if parent_of(entry) == self._process.pid]

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

    @property
    def rest(self) -> list[str]:
        """What it has shown besides."""
        return self._shown.read_text().split("\n")[self._seen : -1]


def play(bus: Mount, place: Path, start: Start, transcript: str) -> None:
    """Types a transcript, and compares each line of output."""
    environment = {**os.environ, "LC_ALL": "C", "HOME": str(place), "PATH": f"{TREE}/.venv/bin:{os.environ['PATH']}"}
    shells = [Shell(start, place, number, environment) for number in range(2)]
    for column, text in rows(transcript):
        text = text.replace("/mnt/bus", str(bus.path))
        shell = shells[column]
        if text == "^C" or text.startswith("$ "):
            channel = text.rpartition("/")[2]
            before = len(bus.clients(channel))
            shell.type(text.removeprefix("$ "))
            settle(bus, text, channel, before)
        else:
            shell.expect(text)
    assert [shell.rest for shell in shells] == [[], []], "nothing else is shown"


def settle(bus: Mount, command: str, channel: str, before: int) -> None:
    """Waits for what somebody at a keyboard sees before he goes on: that a reader listens, a recorder records.

    Args:
        bus: the bus.
        command: what was typed.
        channel: what it ends in.
        before: how many clients that had.
    """
    if command.startswith("$ cat "):
        # `cat <&3 &` reads what the shell has open.
        until(lambda: bus.clients(waits="read"), "cat waits")
    elif command.startswith("$ exec 3<>"):
        until(lambda: len(bus.clients(channel)) > before, "it is open")
    elif command.startswith("$ futebus-record -q /"):
        until(lambda: bus.clients(role="master"), "it records")


def test_transcripts(bus: Mount, place: Path, start: Start) -> None:
    transcripts = [block for block in blocks("") if "|" in block and "$ " in block]
    assert len(transcripts) == 2
    for number, transcript in enumerate(transcripts):
        directory = place / f"transcript{number}"
        directory.mkdir()
        play(bus, directory, start, transcript)


def test_the_service(bus: Mount, start: Start, place: Path) -> None:
    service, client = (block.replace("/mnt/bus", str(bus.path)) for block in blocks("bash")[:2])
    assert ".S_upper" in service
    start("bash", "-c", service)
    until((bus / "S_upper").exists, "it serves")
    assert bash(client, timeout=DEADLINE).stdout == "HELLO, WORLD\n"


def test_the_collector(bus: Mount, start: Start, place: Path) -> None:
    collector, reporter = (block.replace("/mnt/bus", str(bus.path)) for block in blocks("bash")[2:4])
    start("bash", "-c", collector, cwd=place)
    until((bus / "U_jobs").exists, "it collects")
    assert bash(reporter).returncode == 0
    until(lambda: (place / "jobs.txt").read_text() == "job 1\n", "the job is there")


def test_the_program_that_polls(bus: Mount, start: Start) -> None:
    [program] = blocks("python")[:1]
    other = os.open(bus / "A_chat", os.O_RDWR | os.O_CREAT)
    process = start(TREE / ".venv" / "bin" / "python", "-c", program.replace("/mnt/bus", str(bus.path)).replace("5000", "1000"))
    assert os.read(other, 100) == b"{2}anybody here?\n"
    os.write(other, b"{2}yes, me\n")
    assert process.communicate(timeout=DEADLINE)[0] == "{1}yes, me\n"
    os.close(other)


@pytest.mark.parametrize("page", ["README.md", "docs/spark.md", "docs/security.md", "docs/performance.md", "docs/reliability.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    text = (TREE / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((TREE / page).parent / target).exists(), target
    for script in re.findall(r"\bscripts/[a-z-]+", text):
        assert (TREE / script).exists(), script
