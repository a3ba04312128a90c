"""The command on a pseudo-terminal: it leaves the terminal as it was, however it ends."""

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

from ...helpers.mounts import Mount, hanging
from ...helpers.processes import state_of
from ...helpers.waiting import DEADLINE, until
from .looks import COMMAND, Terminal


def stopped(pid: int) -> bool:
    return state_of(pid) == "T"


def is_writing(pid: int) -> bool:
    """Whether a thread of a process waits in a write to its standard output."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if (thread / "syscall").read_text().startswith("1 0x1 "):
                return True
    return False


def test_it_starts_and_shows_and_keys_end_it(bus: Mount) -> None:
    bus.touch("B_one")
    for keys in (b"q", b"\x03"):
        with Terminal(bus.path) as terminal:
            terminal.wait_for("B_one")
            terminal.type(keys)
            terminal.ends()


def test_keys_behind_the_last_one_do_nothing(bus: Mount) -> None:
    bus.touch("B_one")
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_one")
        terminal.type(b"q" + b"?j?" * 30)
        terminal.ends()


def test_signals_end_it(bus: Mount) -> None:
    bus.touch("B_one")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Terminal(bus.path) as terminal:
            terminal.wait_for("B_one")
            terminal.process.send_signal(number)
            terminal.ends()


def test_a_terminal_that_takes_nothing_does_not_keep_it(bus: Mount) -> None:
    """Ctrl-S, or a window that hangs: what is drawn waits, and so does who draws. A signal ends it all the same."""
    for number in range(50):
        bus.touch(f"B_{number}")
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 60, 300, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [*COMMAND, "-i", "0.1", str(bus.path)],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    try:
        until(lambda: is_writing(process.pid), "it waits for the terminal")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        assert process.stderr.read() == b""
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)


def test_while_it_listens_to_a_bus_that_hangs_it_ends_too(bus: Mount) -> None:
    bus.touch("B_one")
    with Terminal(bus.path, "-i", "0.2") as terminal:
        terminal.wait_for("B_one")
        terminal.type(b"t")
        terminal.wait_for("listening as client")
        with hanging(bus):
            terminal.type(b"\x1b")
            terminal.wait_for("has not answered for")
            terminal.type(b"q")
            terminal.ends()
    until(lambda: not bus.clients(), "it has gone")


def test_another_size(bus: Mount) -> None:
    bus.touch("B_one")
    with Terminal(bus.path, size=(100, 24)) as terminal:
        terminal.wait_for("B_one")
        terminal.forget()
        terminal.resize(40, 10)
        terminal.wait_for("»")  # more columns than there is place for
        terminal.forget()
        terminal.resize(120, 30)
        terminal.wait_for("DROPS/S")
        terminal.type(b"q")
        terminal.ends()


def test_stopped_and_going_on(bus: Mount) -> None:
    """By Ctrl-Z it leaves the terminal, and comes back. By SIGSTOP it cannot; the terminal is as it was in the end."""
    bus.touch("B_one")
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_one")
        terminal.type(b"t")
        terminal.wait_for("listening as client")
        terminal.type(b"\x1a")
        until(lambda: stopped(terminal.process.pid), "it is stopped")
        until(lambda: terminal.shown.rfind(b"\x1b[?1049l") > terminal.shown.rfind(b"\x1b[?1049h"), "it has left the terminal")
        until(lambda: not bus.clients(), "it listens no more")
        terminal.forget()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("listening as client")
        terminal.process.send_signal(signal.SIGSTOP)
        until(lambda: stopped(terminal.process.pid), "it is stopped")
        terminal.forget()
        terminal.process.send_signal(signal.SIGCONT)
        (bus / "B_one").write_text("after all\n")
        terminal.wait_for("after all")
        terminal.type(b"q")
        terminal.ends()


def test_stopped_by_a_signal_of_somebody_else(bus: Mount) -> None:
    """SIGTSTP does what Ctrl-Z does: nothing is listened to meanwhile."""
    bus.touch("B_one")
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_one")
        terminal.type(b"t")
        terminal.wait_for("listening as client")
        terminal.process.send_signal(signal.SIGTSTP)
        until(lambda: stopped(terminal.process.pid), "it is stopped")
        until(lambda: not bus.clients(), "it listens no more")
        terminal.forget()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("listening as client")
        terminal.type(b"q")
        terminal.ends()


def test_a_shell_takes_the_terminals_modes_away_meanwhile(bus: Mount) -> None:
    """After SIGSTOP a shell has the terminal as it wants it. Going on, keys are heard again, and nothing is echoed."""
    bus.touch("B_one")
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_one")
        special = terminal.modes
        terminal.process.send_signal(signal.SIGSTOP)
        until(lambda: stopped(terminal.process.pid), "it is stopped")
        terminal.modes = terminal.before
        terminal.process.send_signal(signal.SIGCONT)
        until(lambda: terminal.modes == special, "it has its modes again")
        terminal.type(b"q")
        terminal.ends()


def test_keys_that_are_no_characters(bus: Mount) -> None:
    bus.touch("B_one")
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_one")
        terminal.type(b"\xff\xe9?")
        terminal.wait_for("futebus-top(1) tells the rest")
        terminal.type(b"\x03")
        terminal.ends()


def test_a_terminal_of_another_encoding(bus: Mount) -> None:
    """Bars and dots are none of its characters: all else is shown, and it is left as it was."""
    bus.touch("B_漢")
    (bus.path / "B_caf\xe9").touch()
    with Terminal(bus.path, environment={"PYTHONIOENCODING": "latin-1"}) as terminal:
        terminal.wait_for("B_?")
        until(lambda: b"B_caf\xe9" in terminal.shown, "what it has characters for is shown")
        terminal.type(b"q")
        terminal.ends()


def test_without_colours(bus: Mount) -> None:
    colour = rb"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]"
    for environment, has_colours in (dict[str, str](), True), ({"NO_COLOR": "1"}, False):
        with Terminal(bus.path, environment=environment) as terminal:
            (bus / "B_one").write_text("x\n") if (bus / "B_one").exists() else bus.touch("B_one")
            terminal.wait_for("B_one")
            terminal.wait_for("CHANNEL")
            terminal.type(b"q")
            terminal.ends()
            assert bool(re.search(colour, terminal.shown)) == has_colours, re.findall(colour, terminal.shown)


def test_a_terminal_that_goes_away_ends_it(bus: Mount) -> None:
    bus.touch("B_one")
    master, slave = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, str(bus.path)],
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(slave)
    try:
        data = b""
        while b"B_one" not in data:
            data += os.read(master, 65536)
        os.close(master)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()


def test_what_names_say_does_not_reach_the_terminal(bus: Mount) -> None:
    file = os.open(os.fsencode(bus.path) + b"/B\x1b]0;owned\x07\x1b[31m[red]", os.O_RDWR | os.O_CREAT)
    with Terminal(bus.path, size=(160, 24)) as terminal:
        terminal.wait_for("\\x1b]0;owned\\x07\\x1b[31m[red]")
        terminal.type(b"t")
        terminal.wait_for("listening as client")
        os.write(file, b"\x1b]0;owned\x07\x1b[2J \x9b31m end\n")
        terminal.wait_for("\\x9b31m end")
        terminal.type(b"q")
        terminal.ends()
        assert b"\x1b]0;" not in terminal.shown
        assert b"\x1b[2J \\" not in terminal.shown
        assert b"\x9b" not in terminal.shown
    os.close(file)


def test_keys_that_come_at_once_are_done_in_their_order(bus: Mount) -> None:
    """What follows `/` is what is looked for, and what follows Enter is about what that has led to."""
    for name in ("B_tx", "B_queue"):
        bus.touch(name)
    with Terminal(bus.path) as terminal:
        terminal.wait_for("B_queue")
        for keys, words in ((b"/tx\r", "only with “tx”"), (b"/\x7f\x7fqueue\r", "only with “queue”")):
            terminal.type(keys)
            terminal.wait_for(words)
        assert not bus.clients(), "no tail was opened"
        terminal.forget()
        terminal.type(b"\r/zz\rt")
        terminal.wait_for("B_queue  on")
        until(lambda: bus.clients("B_queue"), "it listens")
        terminal.forget()
        terminal.type(b"\x1b")
        terminal.wait_for("only with “zz”")
        terminal.type(b"q")
        terminal.ends()
