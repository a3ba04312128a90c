"""Standard descriptors that are closed, and Ctrl-C while a command is being loaded."""

import os
import signal
import sys
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import Mount, run
from ..helpers.programs import Start
from ..helpers.waiting import until

RECORD = (sys.executable, "-m", "futebus.commands.record")
ARCHIVE = (sys.executable, "-m", "futebus.commands.archive")
MUTE = ("sh", "-c", 'exec "$@" >&-', "sh")
BARE = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
CLOSED = "standard output: Bad file descriptor\n"


@pytest.mark.parametrize("option", ["--print", "--info"])
def test_a_spool_is_shown_to_nobody(place: Path, option: str) -> None:
    with SpoolWriter(place / "spool", "B_x") as spool:
        spool.append(b"line\n")
    done = run(*MUTE, *RECORD, option, place / "spool")
    assert (done.returncode, done.stderr) == (1, f"futebus-record: {CLOSED}")


def test_a_spool_is_shown_to_who_has_closed_all_else(place: Path) -> None:
    with SpoolWriter(place / "spool", "B_x") as spool:
        spool.append(b"line\n")
    done = run("sh", "-c", 'exec "$@" <&- 2>&-', "sh", *RECORD, "--print", place / "spool")
    assert (done.returncode, done.stdout) == (0, "line\n")


def test_an_id_is_told_to_nobody(bus: Mount) -> None:
    script = 'exec "$@" <"$0" >&-'
    done = run("sh", "-c", script, bus.touch("B_x"), sys.executable, "-m", "futebus.commands.id")
    assert (done.returncode, done.stderr) == (1, f"futebus-id: {CLOSED}")


def test_a_spool_is_no_standard_descriptor(bus: Mount, place: Path, start: Start) -> None:
    process = start(*BARE, *RECORD, bus / "B_x", place / "spool")
    until(lambda: bus.clients("B_x"), "it records")
    for number in range(3):
        assert os.readlink(f"/proc/{process.pid}/fd/{number}") == os.devnull
    (bus / "B_x").write_text("line\n")
    until(lambda: Spool(place / "spool").end == 1, "it is there")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def test_an_archive_opens_standard_descriptors_first(place: Path) -> None:
    """What it opens next, its lock among others, would be the standard output of Spark's processes."""
    look = (
        "import os, sys; from futebus.commands import archive;"
        "archive._order = lambda given: sys.exit(sum(not os.path.exists(f'/proc/self/fd/{number}') for number in range(3)));"
        f"archive.main(['B_x', {str(place / 'archive')!r}])"
    )
    assert run(*BARE, sys.executable, "-c", look).returncode == 0


DEAF = ("sh", "-c", 'exec "$@" </dev/null 2>&-', "sh")


def test_a_complaint_that_nobody_can_read_is_no_output() -> None:
    """`id=$(futebus-id <&3)` would take it for the number."""
    done = run(*DEAF, sys.executable, "-m", "futebus.commands.id")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("name", ["futebus", "archive", "id", "link", "record", "sbus", "tmb", "top", "ubus", "web"])
def test_wrong_arguments_are_wrong_though_nobody_can_read_it(name: str) -> None:
    done = run(*DEAF, sys.executable, "-m", f"futebus.commands.{name}", "--frob")
    assert (done.returncode, done.stdout) == (2, "")


def test_what_is_said_to_nobody_may_be_in_any_language() -> None:
    say = "import sys; from futebus.commands import arguments; arguments.open_standard(); print('\\xfc', file=sys.stderr)"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run(*DEAF, sys.executable, "-c", say, env=environment).returncode == 0


@pytest.mark.parametrize("name", ["", "spool"])
def test_a_spool_is_not_on_a_bus(bus: Mount, name: str) -> None:
    place = bus.path / name
    done = run(*RECORD, bus / "B_x", place)
    words = f"futebus-record: {place} is on a bus; the last argument is the spool, a directory on a disk\n"
    assert (done.returncode, done.stderr) == (1, words)
    assert not (bus / "B_x").exists()


def test_little_is_imported_before_ctrl_c_just_ends_a_command() -> None:
    """What takes its time there could be interrupted, and Python would show where."""
    look = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.argv[0] = 'futebus';"
        "import enum; before = set(sys.modules); import futebus.commands, signal;"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = run(sys.executable, "-I", "-S", "-c", look, Path(__file__).parents[2])
    assert done.stdout.split() == ["futebus", "futebus.commands", "signal"], done.stderr
