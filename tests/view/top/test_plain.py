"""The view without a terminal: text once, and JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from futebus.commands import top
from futebus.core.text import escape, printable
from futebus.view.looking import look
from futebus.view.tail import refusal
from futebus.view.top.columns import CHANNELS
from futebus.view.top.drawn import bar, curve, number
from futebus.view.top.keys import KEYS
from futebus.view.top.plain import Teller
from futebus.view.top.sights import STEP_BACK

from ...helpers.hostile import Mislead, lie
from ...helpers.mounts import Mount, Mounting, run
from ...helpers.papers import TREE, examples
from ...helpers.programs import Start
from ...helpers.waiting import DEADLINE, until
from .looks import COMMAND, Terminal

ONCE = (*COMMAND, "--once", "-i", "0.3")


def test_once(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=4")
    reader = os.open(bus / "B_log", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_log", os.O_WRONLY)
    bus.touch(os.fsdecode(b"B\x1b[31m[red]\xff"))
    bus.touch("B" + "y" * 254)
    process = start(*COMMAND, "--once", "-i", "2", bus.path)
    # The second look comes when the first one is over: somebody writes all the time.
    while process.poll() is None:
        os.write(writer, b"0123456\n")
        time.sleep(0.001)
    told, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert "\x1b" not in told
    lines = told.splitlines()
    assert lines[0].startswith(f"{bus.path}: futebus ")
    assert lines[1] == "2 clients of 16384, 3 channels of 4096"
    heads = lines[4].split()
    expected = "CHANNEL TYPE STATE CLIENTS IN/S IN-BYTES/S OUT/S OUT-BYTES/S QUEUE BLOCKED DROPS/S".split()
    assert heads == expected
    row = dict(zip(heads, lines[6].split(), strict=True))
    assert (row["CHANNEL"], row["TYPE"], row["STATE"], row["CLIENTS"], row["QUEUE"]) == ("B_log", "B", "live", "2", "100%")
    assert "0" not in (row["IN/S"], row["IN-BYTES/S"], row["DROPS/S"])
    assert (row["OUT/S"], row["BLOCKED"]) == ("0", "0")
    assert lines[5].startswith("B\\x1b[31m[red]\\xff ")
    assert lines[7].startswith("B" + "y" * 62 + "… ")
    os.close(reader)
    os.close(writer)


def test_json(bus: Mount, start: Start) -> None:
    writer = os.open(bus / "B_log", os.O_WRONLY | os.O_CREAT)
    process = start(*COMMAND, "--json", "-i", "0.2", bus.path)
    assert process.stdout
    seen: list[Any] = []
    while len(seen) < 3 or not seen[-1]["channels"][0]["rates"]["messages_in"]:
        os.write(writer, b"hello\n")
        seen.append(json.loads(process.stdout.readline()))
    assert all(each["format"] == "futebus-stat" and each["mountpoint"] == str(bus.path) for each in seen)
    last = seen[-1]
    assert last["rates"] == last["channels"][0]["rates"]
    assert set(last["rates"]) == {"messages_in", "bytes_in", "messages_out", "bytes_out", "dropped"}
    assert last["rates"]["bytes_in"] == pytest.approx(6 * last["rates"]["messages_in"], rel=0.01)
    assert {each["taken_at"] for each in seen}.__len__() == len(seen), "each look once"
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + STEP_BACK, 19)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert process.stderr
    assert process.stderr.read() == ""
    done = run(*ONCE, "--json", bus.path)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert json.loads(done.stdout)["channels"][0]["name"] == "B_log"
    os.close(writer)


def test_a_bus_that_hangs_is_told_of(mounting: Mounting, start: Start) -> None:
    well, stuck = mounting(), mounting()
    both = start(*COMMAND, "--json", "-i", "0.2", well.path, stuck.path)
    assert both.stdout
    assert both.stderr
    stuck.daemon.send_signal(signal.SIGSTOP)
    try:
        assert both.stderr.readline() == f"futebus-top: the bus on {stuck.path} does not answer\n"
        now = time.time()
        while (told := json.loads(both.stdout.readline()))["mountpoint"] != str(well.path) or told["taken_at"] < now:
            pass  # the other goes on
        one = run(*ONCE, stuck.path)
        assert (one.returncode, one.stdout) == (1, "")
        assert "has not answered for" in one.stderr
    finally:
        stuck.daemon.send_signal(signal.SIGCONT)
    now = time.time()
    while (told := json.loads(both.stdout.readline()))["mountpoint"] != str(stuck.path) or told["taken_at"] < now:
        pass
    both.send_signal(signal.SIGINT)
    assert both.wait(DEADLINE) == 0


@pytest.mark.parametrize("name", ["bus", os.fsdecode(b"b\xffs")])
def test_a_bus_is_called_what_we_call_it(hostile: Mislead, place: Path, name: str) -> None:
    """Whatever it says: it could say that it is another one."""
    (place / name).mkdir()
    bus = hostile(lie("B_x"), place / name)
    text = bus.files[b"_stat.json"]
    assert isinstance(text, bytes)
    bus.files[b"_stat.json"] = text.replace(b'"/x"', b'"/mnt/bus", "mountpoint_hex": "2f6d6e742f627573"')
    done = run(*ONCE, bus.path)
    assert (done.returncode, done.stdout.split(": futebus ")[0]) == (0, escape(bytes(bus.path)))
    assert "/mnt/bus" not in done.stdout
    told = json.loads(run(*ONCE, "--json", bus.path).stdout)
    assert told["mountpoint"] == bytes(bus.path).decode(errors="replace")
    assert told.get("mountpoint_hex") == (bytes(bus.path).hex() if "\udcff" in name else None)


def test_a_look_that_takes_longer_than_the_interval_is_printed(hostile: Mislead, start: Start) -> None:
    bus = hostile(lie("B_x"))
    bus.late[b"_stat.json"] = 0.5  # five times as slow as it is looked at
    process = start(*COMMAND, "--json", "-i", "0.1", bus.path)
    assert process.stdout
    for _ in range(3):
        assert json.loads(process.stdout.readline())["mountpoint"] == str(bus.path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


def test_what_was_said_of_a_bus_that_has_gone_is_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    teller = Teller("x")
    for _ in range(2):
        teller.say("/a", "no")
        teller.say("/b", "no")
        teller.forget_but({"/b"})
    assert capsys.readouterr().err == "x: no\nx: no\nx: no\n"


def test_no_bus(place: Path, start: Start) -> None:
    done = run(*ONCE, place)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"futebus-top: no bus is mounted on {place}\n")
    odd = place / "x\x1b[31m\n"
    done = run(*ONCE, odd)
    assert (done.returncode, done.stderr) == (1, f"futebus-top: there is no directory {printable(str(odd))}\n")
    waiting = start(*COMMAND, "--json", "-i", "0.1", place)
    assert waiting.stderr
    assert waiting.stderr.readline() == f"futebus-top: no bus is mounted on {place}\n"
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(DEADLINE) == 0
    assert waiting.stderr.read() == ""


def test_all_buses_without_a_mount_point(bus: Mount) -> None:
    done = run(*ONCE)
    assert done.returncode == 0, done.stderr
    assert f"{bus.path}: futebus " in done.stdout


def test_without_a_terminal_it_is_once(bus: Mount) -> None:
    done = run(*COMMAND, bus.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{bus.path}: futebus ")
    assert "\x1b" not in done.stdout


def test_once_on_a_terminal_has_no_escape_sequences(bus: Mount) -> None:
    bus.touch("B_x")
    with Terminal("--once", "-i", "0.2", bus.path) as terminal:
        terminal.wait_for("B_x")
        assert terminal.process.wait(DEADLINE) == 0
        assert b"\x1b" not in terminal.shown


def test_a_pipe_that_is_closed_ends_it_silently(bus: Mount) -> None:
    for options in (["--json"], ["--once"], ["--once", "--json"]):
        process = subprocess.Popen(
            [*COMMAND, *options, "-i", "0.2", str(bus.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.wait(DEADLINE) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


def test_who_does_not_read_does_not_keep_it(bus: Mount, start: Start) -> None:
    for number_ in range(400):
        bus.touch(f"B_{number_}")
    process = start(*COMMAND, "--json", "-i", "0.1", bus.path)

    def is_stuck() -> bool:
        return "pipe" in Path(f"/proc/{process.pid}/wchan").read_text()

    until(is_stuck, "the pipe is full")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words, complaint in [
        (["--interval", "0"], "argument -i/--interval: from 0.1s to 1d, not 0"),
        (["-i", "x"], "argument -i/--interval: not a time span (s, m, h and d may follow): 'x', from 0.1s to 1d"),
        (["-i", "1e18"], "argument -i/--interval: longer than a century: '1e18', from 0.1s to 1d"),
        ([""], "argument MOUNTPOINT: the empty string is no directory"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ]:
        with pytest.raises(SystemExit) as ended:
            top.main(words)
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"futebus-top: {complaint} (see futebus-top --help)\n"
    for words, told in ((["-V"], "futebus-top 0"), (["-h"], "usage: futebus-top [OPTION...]")):
        with pytest.raises(SystemExit) as ended:
            top.main(words)
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize("options", [("--json",), ("--once",), ()])
def test_nowhere_to_print(bus: Mount, options: tuple[str, ...]) -> None:
    done = run("sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *options, bus.path)
    assert (done.returncode, done.stderr) == (1, "futebus-top: standard output: Bad file descriptor\n")


def test_nowhere_to_complain(bus: Mount, place: Path, start: Start) -> None:
    """What is wrong with a bus cannot be said: the others are shown, and it has failed all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full:
        for nowhere in (writer, full.fileno()):
            done = subprocess.run(
                [*ONCE, place / "none", bus.path], stdout=subprocess.PIPE, stderr=nowhere, text=True, timeout=DEADLINE
            )
            assert done.returncode == 1
            assert done.stdout.startswith(f"{bus.path}: futebus")
            told = start(*COMMAND, "--json", "-i", "0.1", place / "none", bus.path, stdout=subprocess.PIPE, stderr=nowhere)
            assert told.stdout
            for _ in range(3):
                assert json.loads(told.stdout.readline())["mountpoint"] == str(bus.path)
            told.terminate()
            assert told.wait(DEADLINE) == 0
    os.close(writer)


WITHOUT = """
import sys
for name in ("textual", "rich"):
    sys.modules[name] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "textual" else found(name, *rest)
from futebus.commands.top import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_textual(bus: Mount) -> None:
    done = run(sys.executable, "-c", WITHOUT, "--once", "-i", "0.2", bus.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{bus.path}: futebus" in done.stdout
    script = f"import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', {WITHOUT!r}, {str(bus.path)!r}]) >> 8)"
    done = run(sys.executable, "-c", script, env={**os.environ, "TERM": "xterm"})
    assert done.returncode == 1
    words = "futebus-top: the module textual is missing (--once and --json work without): "
    assert done.stdout == f"{words}{TREE / 'scripts' / 'install'} view\n"


def test_help_is_instant() -> None:
    script = "import sys; from futebus.commands import top; top.parser().format_help(); print(*sys.modules)"
    loaded = run(sys.executable, "-c", script).stdout.split()
    assert "futebus.commands.top" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("textual", "rich", "json") or name.startswith("futebus.view")]


def test_figures_in_few_characters() -> None:
    told = {
        0: "0",
        0.04: "0.0",
        0.3: "0.3",
        7: "7",
        9.97: "10",
        999: "999",
        999.9: "1.0k",
        9500: "9.5k",
        123456: "123k",
        1e6: "1.0M",
    }
    assert {value: number(value) for value in told} == told
    assert max(len(number(10**power * 9.9)) for power in range(40)) <= 4
    assert curve([], 3) == "   "
    assert curve([0, 1, 8, 4], 5) == "  ▁█▄"
    assert curve([5, 0, 1e-9, 8], 3) == " ▁█"
    assert [bar(share, 2) for share in (0, 1e-9, 0.5, 1)] == ["  ", "▏ ", "█ ", "██"]


def test_what_calls_itself_a_channel_may_not_be_opened(bus: Mount) -> None:
    from dataclasses import replace

    bus.touch("B_x")
    channel = look(bus.path).channels[0]
    assert refusal(channel) == ""
    assert "taking part" in refusal(replace(channel, file=b"U_x", type="B"))


def test_the_examples_of_the_manual(bus: Mount, place: Path) -> None:
    once, numbers = examples("futebus-top.1")
    commands = place / "bin"
    commands.mkdir()
    (commands / "futebus-top").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (commands / "futebus-top").chmod(0o755)
    env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}

    def is_shown() -> bool:
        done = run("bash", "-ec", once, env=env)
        return done.returncode == 0 and f"{bus.path}: futebus" in done.stdout

    until(is_shown, "it is among the buses that answer soon")  # on a busy machine it may not be, the first time
    quick = numbers.replace("/mnt/bus", f"-i 0.1 {bus.path}")
    done = run("bash", "-ec", quick, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert [float(line) for line in done.stdout.splitlines()] == [0.0] * 10


def test_the_keys_are_told_everywhere() -> None:
    page = (TREE / "man" / "futebus-top.1").read_text()
    docs = (TREE / "docs" / "view.md").read_text()
    for key in ("Enter", "Escape", "Space", "PgUp", "PgDn", "Home", "End", "Ctrl-Z", "Tab"):
        assert key in page
        assert key in docs
        assert key in KEYS
    for column in CHANNELS:
        assert column.heads[1] in page
