"""README's transcripts and recipes, typed as they are printed. Only where a bus is mounted is another place."""

import doctest
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .helpers.mounts import Mount, bash, run
from .helpers.papers import TREE, Shell, blocks
from .helpers.programs import Start
from .helpers.recorders import RECORD
from .helpers.waiting import DEADLINE, until

README = (TREE / "README.md").read_text()


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


def play(bus: Mount, place: Path, start: Start, transcript: str) -> None:
    """Types a transcript, and compares each line of output."""
    shells = [Shell(start, place, f"shell{number}") for number in range(2)]
    for column, text in rows(transcript):
        text = text.replace("/mnt/bus", str(bus.path))
        shell = shells[column]
        if text == "^C" or text.startswith("$ "):
            channel = text.rpartition("/")[2]
            before = len(bus.clients(channel))
            shell.type(text.removeprefix("$ "))
            settle(bus, place, text, channel, before)
        else:
            shell.expect(text)
    assert [shell.rest for shell in shells] == [[], []], "nothing else is shown"


def settle(bus: Mount, place: Path, command: str, channel: str, before: int) -> None:
    """Waits for what somebody at a keyboard sees before he goes on: that a reader listens, a recorder records and has recorded.

    Args:
        bus: the bus.
        place: where it is typed.
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
    elif command.startswith("$ echo ") and (place / "jobs").exists():
        until(lambda: run(*RECORD, "--print", place / "jobs").stdout, "it is recorded")


def test_transcripts(bus: Mount, place: Path, start: Start) -> None:
    transcripts = [block for block in blocks(README, "") if "|" in block and "$ " in block]
    assert len(transcripts) == 2
    for number, transcript in enumerate(transcripts):
        directory = place / f"transcript{number}"
        directory.mkdir()
        play(bus, directory, start, transcript)


def test_the_service(bus: Mount, start: Start, place: Path) -> None:
    service, client = (block.replace("/mnt/bus", str(bus.path)) for block in blocks(README, "bash")[:2])
    assert ".S_upper" in service
    start("bash", "-c", service)
    until((bus / "S_upper").exists, "it serves")
    assert bash(client, timeout=DEADLINE).stdout == "HELLO, WORLD\n"


def test_the_collector(bus: Mount, start: Start, place: Path) -> None:
    collector, reporter = (block.replace("/mnt/bus", str(bus.path)) for block in blocks(README, "bash")[2:4])
    start("bash", "-c", collector, cwd=place)
    until((bus / "U_jobs").exists, "it collects")
    assert bash(reporter).returncode == 0
    jobs = place / "jobs.txt"
    until(lambda: jobs.exists() and jobs.read_text() == "job 1\n", "the job is there")


def test_the_program_that_polls(bus: Mount, start: Start) -> None:
    [program] = blocks(README, "python")[:1]
    other = os.open(bus / "A_chat", os.O_RDWR | os.O_CREAT)
    process = start(TREE / ".venv" / "bin" / "python", "-c", program.replace("5000", "1000").replace("/mnt/bus", str(bus.path)))
    assert os.read(other, 100) == b"{2}anybody here?\n"
    os.write(other, b"{2}yes, me\n")
    assert process.communicate(timeout=DEADLINE)[0] == "{1}yes, me\n"
    os.close(other)


def test_the_service_in_python(bus: Mount, start: Start) -> None:
    program = next(block for block in blocks(README, "python") if "client.serve" in block)
    python = TREE / ".venv" / "bin" / "python"
    start(python, "-c", program.replace("/mnt/bus", str(bus.path)))
    [(call, answer)] = re.findall(r"`(client\.call\(.*?\))` returns `(.*?)`", README)
    call = call.replace("timeout=5", "timeout=60, wait=60").replace("/mnt/bus", str(bus.path))
    asked = run(python, "-c", f"from futebus import client; print(repr({call}))")
    assert asked.stdout == f"{answer}\n", asked.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/client.md"])
def test_a_service_that_ends_quietly(bus: Mount, start: Start, page: str) -> None:
    [words] = re.findall(r"`?(with contextlib\.suppress\(KeyboardInterrupt\))", (TREE / page).read_text())
    program = next(block for block in blocks(README, "python") if "client.serve" in block)
    service = f"import contextlib\n{words}:\n" + "".join(f"    {line}\n" for line in program.splitlines())
    if page != "README.md":
        [service] = [block for block in blocks((TREE / page).read_text(), "python") if words in block]
    process = start(TREE / ".venv" / "bin" / "python", "-c", service.replace("/mnt/bus", str(bus.path)))
    until((bus / "S_upper").exists, "it serves")
    bus.wait_for_readers(1, "S_upper")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=DEADLINE) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("page", ["README.md", "docs/client.md", "examples/dispatcher.py"])
def test_who_finds_the_module_is_told_before_it_is_wanted(page: str) -> None:
    text = (TREE / page).read_text()
    assert text.index(". .venv/bin/activate`") < text.index("from futebus import client")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/spark.md",
        "docs/security.md",
        "docs/performance.md",
        "docs/reliability.md",
        "docs/client.md",
        "docs/gateways.md",
        "docs/hosts.md",
    ],
)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (TREE / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert ((TREE / page).parent / target).exists(), target
    for script in re.findall(r"\bscripts/[a-z-]+", text):
        assert (TREE / script).exists(), script


def test_the_page_about_programs_in_python(bus: Mount) -> None:
    text = (TREE / "docs" / "client.md").read_text()
    examples = doctest.DocTestParser().get_doctest(
        re.sub(r"^```.*\n", "", text, flags=re.MULTILINE).replace("/mnt/bus", str(bus.path)), {}, "client.md", None, 0
    )
    assert len(examples.examples) > 10
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS)
    assert runner.run(examples, out=said.append).failed == 0, "".join(said)
