"""What the recorder shows of a spool: its lines, at any place, also into a channel; and a summary."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolWriter

from ..helpers.mounts import Mount, Mounting, bash, run
from ..helpers.programs import Start
from ..helpers.recorders import RECORD
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import numbered


@pytest.fixture
def spool(place: Path) -> Path:
    """Three appends of a hundred lines, each at a time of its own."""
    with SpoolWriter(place / "spool", "U_x", segment_bytes=1 << 20) as writer:
        for begin in (0, 100, 200):
            moment = time.time_ns()
            until(lambda moment=moment: time.time_ns() > moment + 2_000_000)  # type: ignore[misc]
            writer.append(numbered(begin, begin + 100))
    return place / "spool"


@pytest.mark.parametrize(
    ("options", "begin", "end"),
    [
        ([], 0, 300),
        (["--from", "0"], 0, 300),
        (["--from", "150"], 150, 300),
        (["--from", "-10"], 290, 300),
        (["--from", "-1000"], 0, 300),
        (["--from", "300"], 300, 300),
        (["--to", "10"], 0, 10),
        (["--from", "99", "--to", "101"], 99, 101),
        (["--from", "101", "--to", "99"], 101, 101),
        (["--from", "-20", "--to", "-10"], 280, 290),
        (["--from", "1h"], 0, 300),
        (["--to", "1h"], 0, 0),
        (["--from", "0s"], 300, 300),
        (["--from", "2020-01-01"], 0, 300),
        (["--from", "2999-01-01T00:00:00Z"], 300, 300),
        (["--from", "SECOND"], 100, 300),
        (["--from", "SECOND", "--to", "THIRD"], 100, 200),
    ],
)
def test_print(spool: Path, options: list[str], begin: int, end: int) -> None:
    times = [time for piece in Spool(spool).pieces(0, 300) for _, time in piece.times]
    for number, word in enumerate(("FIRST", "SECOND", "THIRD")):
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(times[number] // 10**9))
        iso = f"{moment}.{times[number] // 1000 % 10**6:06}+00:00"
        options = [iso if option == word else option for option in options]
    done = run(*RECORD, "--print", spool, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode() == numbered(begin, end)


def test_print_goes_as_far_as_the_first_line_that_is_damaged(place: Path) -> None:
    """And what is damaged behind it is told in one go."""
    with SpoolWriter(place / "spool", "U_x", segment_bytes=1 << 20) as writer:
        for begin in range(0, 3000, 10):
            writer.append(numbered(begin, begin + 10))
    with next((place / "spool").glob("*.lines")).open("r+b") as file:
        for at in (50_000, 200_000):
            file.seek(at)
            file.write(bytes(2000))
    shown, begin = b"", 0
    for first, stop in ((500, 520), (2000, 2020)):
        done = subprocess.run([*RECORD, "--print", place / "spool", "--from", str(begin)], capture_output=True, check=False)
        assert done.returncode == 1
        assert f"its lines {first} to {stop - 1} are lost\n".encode() in done.stderr
        shown, begin = shown + done.stdout, stop
    done = subprocess.run([*RECORD, "--print", place / "spool", "--from", str(begin)], capture_output=True, check=True)
    assert shown + done.stdout == numbered(0, 500) + numbered(520, 2000) + numbered(2020, 3000)


def test_a_time_without_a_zone_is_local(spool: Path) -> None:
    times = [time for piece in Spool(spool).pieces(0, 300) for _, time in piece.times]
    environment = {**os.environ, "TZ": "UTC-5"}
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(times[0] // 10**9 + 5 * 3600))
    assert run(*RECORD, "--print", spool, "--from", moment, env=environment).stdout.encode() == numbered(0, 300)
    assert run(*RECORD, "--print", spool, "--to", moment, env=environment).stdout == ""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(times[2] // 10**9 + 1 + 5 * 3600))
    assert run(*RECORD, "--print", spool, "--to", moment, env=environment).stdout.encode() == numbered(0, 300)


def test_print_says_what_is_not_there(place: Path) -> None:
    with SpoolWriter(place / "spool", "U_x", segment_bytes=1 << 16, first_segment_bytes=1 << 16) as writer:
        for begin in range(0, 2000, 100):
            writer.append(numbered(begin, begin + 100))
        writer.retain(offset=1500)
        begin = Spool(place / "spool").begin
    assert 0 < begin <= 1500
    for options in (["--from", str(begin - 1)], ["--from", "2001"]):
        done = run(*RECORD, "--print", place / "spool", *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"has lines {begin} to 1999, and not line {options[1]}\n" in done.stderr
    done = run(*RECORD, "--print", place / "spool", "--to", "2001")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"has lines {begin} to 1999, and not line 2000\n" in done.stderr
    assert run(*RECORD, "--print", place / "spool").stdout.encode() == numbered(begin, 2000)


def test_follow(place: Path, start: Start) -> None:
    with SpoolWriter(place / "spool", "U_x", segment_bytes=1 << 16, first_segment_bytes=1 << 13) as writer:
        writer.append(b"one\ntwo\n")
        reader = start(*RECORD, "--print", place / "spool", "--follow", "--from", "1")
        assert reader.stdout is not None
        assert reader.stdout.readline() == "two\n"
        for number in range(2000):
            writer.append(b"%099d\n" % number)
            if number % 500 == 0:
                writer.note_lost(1)
        for number in range(2000):
            assert int(reader.stdout.readline()) == number
    reader.send_signal(signal.SIGINT)
    assert reader.wait(DEADLINE) == -signal.SIGINT
    assert reader.communicate() == ("", "")


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_who_follows_a_spool_that_goes_is_told_so(place: Path, start: Start, how: str) -> None:
    spool = place / "spool"
    with SpoolWriter(spool, "U_x") as writer:
        writer.append(b"one\n")
        reader = start(*RECORD, "--print", spool, "--follow")
        assert reader.stdout is not None
        assert reader.stdout.readline() == "one\n"
        if how == "moved":
            spool.rename(place / "other")
        else:
            shutil.rmtree(spool)
        said, words = reader.communicate(timeout=DEADLINE)
    assert (said, words, reader.returncode) == ("", f"futebus-record: {spool} has been removed, or moved\n", 1)


def test_a_closed_pipe_ends_it_quietly(place: Path) -> None:
    with SpoolWriter(place / "spool", "U_x") as writer:
        writer.append(numbered(0, 20_000))
    done = bash(f"{' '.join(RECORD)} --print {place}/spool | head -n 1; echo ${{PIPESTATUS[0]}}")
    assert done.stdout.encode() == numbered(0, 1) + b"%d\n" % (128 + signal.SIGPIPE)
    assert done.stderr == ""


def test_a_closed_pipe_ends_one_that_follows_and_has_nothing_to_write(place: Path, start: Start) -> None:
    """`--follow | head -n 1` is over when `head` is, and not when the next line comes."""
    with SpoolWriter(place / "spool", "U_x") as writer:
        writer.append(b"one\n")
    reader = start(*RECORD, "--print", place / "spool", "--follow")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "one\n"
    reader.stdout.close()
    assert reader.wait(DEADLINE) == -signal.SIGPIPE


@pytest.mark.parametrize("option", ["--print", "--info"])
def test_a_full_disk_is_standard_output_s(spool: Path, option: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RECORD, option, spool], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "futebus-record: standard output: No space left on device\n")


def test_replay_into_a_channel(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("max_queue=100,max_message=1M")
    lines = numbered(0, 3000) + b"x" * 300_000 + b"\n" + b"y" * 1000 + b"\n"
    with SpoolWriter(place / "spool", "U_x") as writer:
        writer.append(lines)
    (place / "out").touch()  # the shell makes it after it has opened the channel
    master = start("bash", "-c", f"cat <>{bus.path}/+.U_x >{place}/out")
    bus.wait_for_clients(1, "U_x", role="master")
    done = bash(f"{' '.join(RECORD)} --print {place}/spool > {bus.path}/U_x")
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: (place / "out").read_bytes() == lines, "all of it has arrived")
    os.killpg(master.pid, signal.SIGKILL)


def test_a_channel_that_takes_no_more_is_told(bus: Mount, place: Path) -> None:
    with SpoolWriter(place / "spool", "A_x") as writer:
        writer.append(b"no address\n")
    done = bash(f"{' '.join(RECORD)} --print {place}/spool > {bus.path}/A_x")
    assert done.returncode == 1
    assert done.stderr == "futebus-record: standard output: Bad address\n"


def test_info(spool: Path) -> None:
    with SpoolWriter(spool, "U_x", segment_bytes=1 << 20) as writer:
        writer.note_lost(7)
    shown = run(*RECORD, "--info", spool)
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = dict(line.split(None, 1) for line in shown.stdout.splitlines())
    assert rows["channel"] == "U_x"
    assert rows["identity"] == Spool(spool).id
    assert rows["lines"] == "300, from 0 up to 300"
    assert rows["bytes"] == "30000 (29.3K)"
    assert re.fullmatch(r"[\d.]+[KM] in 1 segment, with room that is kept for lines to come", rows["disk"])
    assert rows["lost"] == "7, that could not be taken"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", rows["first"])
    assert rows["first"] <= rows["last"]


@pytest.mark.parametrize(
    ("field", "row"),
    [
        ('"id": "\\u001b]0;x\\u0007\\nlost      9"', r"identity  \x1b]0;x\x07\nlost      9"),
        ('"channel": "B_\\ud800"', r"channel   B_\ud800"),
    ],
)
def test_info_of_what_somebody_else_has_made_up(spool: Path, field: str, row: str) -> None:
    given = (spool / "spool.json").read_text().rstrip()
    (spool / "spool.json").write_text(f"{given[:-1]}, {field}}}\n")
    done = run(*RECORD, "--info", spool)
    assert (done.returncode, done.stderr) == (0, "")
    assert row in done.stdout.splitlines()
    assert len(done.stdout.splitlines()) == 8


@pytest.mark.parametrize("text", ['{"format": Infinity, "id": "x", "channel": "B_x"}', "[" * 60_000])
@pytest.mark.parametrize("option", ["--info", "--print"])
def test_what_can_be_no_spool_is_told_in_one_line(spool: Path, option: str, text: str) -> None:
    (spool / "spool.json").write_text(text)
    done = run(*RECORD, option, spool)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"futebus-record: {spool}/spool.json is damaged\n")


def test_info_in_a_locale_that_has_not_all_characters(place: Path) -> None:
    SpoolWriter(place / "spool", "B_\u00fc").close()
    done = bash(f"PYTHONIOENCODING=ascii {' '.join(RECORD)} --info {place}/spool")
    assert (done.returncode, done.stderr) == (0, "")
    assert "channel   B_\u00fc" in done.stdout.splitlines()


@pytest.mark.parametrize("option", ["--info", "--print"])
def test_an_output_that_takes_nothing_is_to_blame(spool: Path, option: str) -> None:
    done = bash(f"{' '.join(RECORD)} {option} {spool} >/dev/full")
    assert (done.returncode, done.stderr) == (1, "futebus-record: standard output: No space left on device\n")


HASTY = "import sys; from futebus.commands import record; record.PROGRESS_SECONDS = 0.0; sys.exit(record.main(sys.argv[1:]))"


@pytest.mark.parametrize(("to", "shows"), [("file", True), ("pipe", False), ("file, followed", False)])
def test_print_shows_on_a_terminal_how_far_it_is(spool: Path, place: Path, to: str, shows: bool) -> None:
    """But not when it may be a pager that draws there."""
    master, slave = os.openpty()
    end, pipe = os.pipe()
    out = pipe if to == "pipe" else os.open(place / "out", os.O_WRONLY | os.O_CREAT)
    options = ["--follow"] if "followed" in to else []
    command = [sys.executable, "-c", HASTY, "--print", str(spool), *options]
    with subprocess.Popen(command, stdout=out, stderr=slave, env=os.environ | {"TERM": "xterm"}) as process:
        if options:
            until(lambda: (place / "out").stat().st_size == len(numbered(0, 300)), "all is there")
            process.kill()
        else:
            assert process.wait(DEADLINE) == 0
    os.close(slave)
    screen = b""
    with contextlib.suppress(OSError):  # it has ended
        while piece := os.read(master, 4096):
            screen += piece
    assert (b"[####################] 100 %, 300 of 300 lines" in screen) == shows
    assert screen.endswith(b"\r\x1b[K") == shows, "and takes it away"
    assert bool(screen) == shows
    if to != "pipe":
        assert (place / "out").read_bytes() == numbered(0, 300)
    for descriptor in (master, out, end, *([pipe] if out != pipe else [])):
        os.close(descriptor)


def test_info_of_an_empty_spool(place: Path) -> None:
    SpoolWriter(place / "spool", "B_x").close()
    rows = dict(line.split(None, 1) for line in run(*RECORD, "--info", place / "spool").stdout.splitlines())
    assert rows["lines"] == "0, from 0 up to 0"
    assert rows["first"] == rows["last"] == "-"
    assert rows["lost"] == "none that is known"


def test_a_summary_of_another_users_spool_says_nothing_to_the_terminal(spool: Path) -> None:
    identity = spool / "spool.json"
    identity.write_text(json.dumps(json.loads(identity.read_text()) | {"id": "x\x1b[31m\nlines     0"}))
    shown = subprocess.run([*RECORD, "--info", spool], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[1].startswith("identity  x")
    assert "\x1b" not in shown
    assert shown.count("\nlines ") == 1
