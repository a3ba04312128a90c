"""The command `futebus-record`: which words it does not take, what it says and does not say, and what it imports."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from futebus.spool import SpoolLock, SpoolWriter

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.programs import Start
from ..helpers.recorders import RECORD, Recording, parent_of
from ..helpers.waiting import DEADLINE, until


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "a channel and a spool, please, and not 0 names"),
        (["B_x"], 2, "a channel and a spool, please, and not 1 names"),
        (["B_x", "spool", "more"], 2, "a channel and a spool, please, and not 3 names"),
        (["--frob", "B_x", "spool"], 2, "unrecognized arguments: --frob"),
        (["--master", "--slave", "U_x", "spool"], 2, "argument --slave: not allowed with argument --master"),
        (["--mode", "rw", "U_x", "spool"], 2, "argument --mode: not an octal mode such as 622: 'rw'"),
        (["--mode", "1777", "U_x", "spool"], 2, "argument --mode: not an octal mode such as 622: '1777'"),
        (["--keep-bytes", "1P", "U_x", "spool"], 2, "argument --keep-bytes: not a number (K, M, G and T may follow): '1P'"),
        (["--keep-age", "-1", "U_x", "spool"], 2, "argument --keep-age: not a time span (s, m, h and d may follow): '-1'"),
        (["--keep-age", "inf", "U_x", "spool"], 2, "argument --keep-age: not a time span (s, m, h and d may follow): 'inf'"),
        (["--keep-age", "1e300", "U_x", "spool"], 2, "argument --keep-age: longer than a century: '1e300'"),
        (["--sync", "1e9d", "U_x", "spool"], 2, "argument --sync: longer than a century: '1e9d', and not none"),
        (["--sync", "never", "U_x", "spool"], 2, "argument --sync: not a time span (s, m, h and d may follow): 'never', and"),
        (["--slave", "B_x", "spool"], 1, "PLACE/B_x: only U and S channels have a master, and slaves"),
        (["--print", "nowhere"], 1, "there is no directory nowhere"),
        (["--segment-bytes", "1K", "U_x", "spool"], 2, "argument --segment-bytes: from 1M to 1G, not 1K"),
        (["--from", "1", "U_x", "spool"], 2, "--from is for --print only"),
        (["--info", "spool", "--follow"], 2, "--follow is for --print only"),
        (["--print", "spool", "--quiet"], 2, "--quiet does not go with --print or --info"),
        (["--print", "spool", "--slave"], 2, "--master or --slave does not go with --print or --info"),
        (["--print", "spool", "more"], 2, "one spool, please, and not more too"),
        (["--print", "spool", "--to", "1", "-f"], 2, "--to and --follow exclude each other"),
        (["--print", "spool", "--from", "noon"], 2, "argument --from: not the number of a line (1234, -100), an age (10m)"),
        (["--print", "spool", "--from", "9999-12-31T23:59:59-14:00"], 2, "argument --from: not the number of a line"),
        (["--print", "spool", "--from", "999999999d"], 2, "argument --from: not the number of a line"),
        (["--print", "spool"], 1, "there is no directory spool"),
        (["--info", "spool"], 1, "there is no directory spool"),
        (["X_x", "spool"], 1, "PLACE/X_x: no channel has this name; its first letter is U, A, S or B"),
        (["--master", "B_x", "spool"], 1, "PLACE/B_x: only U and S channels have a master"),
        (["B_x", "none/spool"], 1, "PLACE/none does not exist"),
        (["B_x", "."], 1, "PLACE is no spool, and not empty"),
        (["B_x", "file"], 1, "PLACE/file is no directory"),
        (["B_x", "foreign"], 1, "PLACE/foreign is the spool of U_other, not of B_x"),
        (["B_x", "used"], 1, "PLACE/used is being written by process "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(place: Path, arguments: list[str], status: int, words: str) -> None:
    (place / "file").touch()
    with SpoolWriter(place / "foreign", "U_other") as foreign:
        foreign.append(b"line\n")
    lock = SpoolLock(place / "used", "B_x")
    done = run(*RECORD, *arguments, cwd=place)
    lock.close()
    assert done.stderr.startswith("futebus-record: " + words.replace("PLACE", str(place)))
    assert done.stderr.count("\n") == 1
    assert (done.returncode, done.stdout) == (status, "")
    assert not (place / "spool").exists() or status == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_waits_for_a_spool_is_ended_by_a_signal_as_any_command(place: Path, start: Start, number: signal.Signals) -> None:
    """Or Ctrl-C would not end a shell's loop that tries again and again."""
    held = place / "used"
    code = "import sys; sys.argv[0] = 'futebus-record'  # as when it is called\n"
    code += "from futebus.commands import record; from futebus.recorder import holder\n"
    code += "holder.LOCK_SECONDS = 1e6; sys.exit(record.main())"
    with contextlib.closing(SpoolLock(held, "B_x")):
        (held / "lock").chmod(0o640)
        process = start(sys.executable, "-c", code, place / "B_x", held)
        until(lambda: (held / "lock").stat().st_mode & 0o777 == 0o600, "it has tried to have it")
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE) == ("", "")
    assert process.returncode == -number


def test_a_bus_in_place_of_a_channel(bus: Mount, place: Path) -> None:
    done = run(*RECORD, bus.path, place / "spool")
    assert done.stderr == f"futebus-record: {bus.path} is a bus; name a channel of it, such as {bus.path}/B_log\n"
    assert done.returncode == 1


def test_a_channel_that_may_not_be_opened_ends_it(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("allow_other,mode=755")
    (place / "own").mkdir()
    os.chown(place / "own", 65534, 65534)
    drop = "record.parser().format_help(); os.setuid(65534); sys.exit(record.main())"  # what is imported late is there then
    code = f"import os, sys; from futebus.commands import record; from futebus.recorder import holder; {drop}"
    process = start(sys.executable, "-c", code, bus / "B_x", place / "own" / "spool")
    assert process.wait(DEADLINE) == 1
    assert process.communicate()[1] == f"futebus-record: {bus / 'B_x'}: Permission denied\n"


def test_help_and_version() -> None:
    shown = run(*RECORD, "--help")
    assert shown.returncode == 0
    assert "--keep-bytes" in shown.stdout
    assert run(*RECORD, "--version").stdout.startswith("futebus-record 0.")


def test_what_is_imported() -> None:
    """The help needs nothing, and a recorder nothing of FUSE."""
    code = (
        "import sys; from futebus.commands.record import parser; parser().format_help(); "
        "print({'futebus.spool'} & set(sys.modules))"
    )
    assert run(sys.executable, "-c", code).stdout == "set()\n"
    code = (
        "import sys; import futebus.recorder.holder, futebus.recorder.show; "
        "print({'futebus.fuse', 'trio', 'pyfuse3'} & set(sys.modules))"
    )
    assert run(sys.executable, "-c", code).stdout == "set()\n"


def test_quiet(bus: Mount, start: Start, place: Path) -> None:
    process = start(*RECORD, "-q", bus / "U_x", place / "spool")
    bus.wait_for_clients(1, "U_x", role="master")
    process.terminate()
    assert process.communicate(timeout=DEADLINE) == ("", "")


def test_the_processes_are_what_they_are_taken_for(bus: Mount, recording: Recording) -> None:
    recorder = recording(bus / "U_x")
    assert recorder.holder == recorder.process.pid
    assert parent_of(Path("/proc") / str(recorder.drain())) == recorder.holder
    recorder.end()
