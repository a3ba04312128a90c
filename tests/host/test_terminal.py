"""What a long-running command says on a terminal: a status line, sentences, and what others print."""

import contextlib
import io
import os
import subprocess
import sys
from typing import IO

import pytest

from futebus.host.terminal import Terminal

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until


def shows(seen: IO[bytes], expected: bytes) -> None:
    """Sees that this has come to a screen, however many pieces it comes in."""
    come = b""
    while len(come) < len(expected):
        come += seen.read(100)
    assert come == expected


def test_the_status_is_written_over_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    with open(slave, "w") as screen, open(master, "rb", buffering=0) as seen:
        terminal = Terminal("name", screen)
        terminal.status("one")
        shows(seen, b"\r\x1b[K\x1b[2mone\x1b[m")
        terminal.say("hello")
        shows(seen, b"\r\x1b[Kname: hello\r\n\x1b[2mone\x1b[m")
        with terminal.adopted():
            program = subprocess.Popen(["sh", "-c", "echo WARNING: Using incubator modules >&2; echo from Java >&2"])
        assert program.wait(DEADLINE) == 0
        shows(seen, b"\r\x1b[Kfrom Java\r\n\x1b[2mone\x1b[m")
        terminal.status("all", is_last=True)
        shows(seen, b"\r\x1b[Kall\r\n")


def test_a_terminal_that_goes_away_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    screen = open(slave, "w")  # noqa: SIM115  it cannot even be closed without an error
    terminal = Terminal("name", screen)
    terminal.status("one")
    os.close(master)
    terminal.status("two")
    terminal.say("three")
    terminal.status("all", is_last=True)
    terminal.clear()
    with contextlib.suppress(OSError):
        screen.close()


def test_the_status_is_not_drawn_over_what_is_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started with `&`, the command shares its terminal with whatever is typed there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + 1)
    master, slave = os.openpty()
    with open(slave, "w") as screen, open(master, "rb", buffering=0) as seen:
        terminal = Terminal("name", screen)
        terminal.status("one")
        terminal.say("hello")
        shows(seen, b"\r\x1b[Kname: hello\r\n")
        terminal.status("all", is_last=True)
        shows(seen, b"\r\x1b[Kname: all\r\n")


def test_nothing_that_somebody_has_named_reaches_the_terminal_raw() -> None:
    text = io.StringIO()
    terminal = Terminal("name", text)
    terminal.say("B_\x1b[2J\nname: all is well \udcff")
    terminal.status("B_\r", is_last=True)
    with contextlib.redirect_stderr(terminal):
        print("from Python: B_\x1b[2J\n\tat java.lang", file=sys.stderr)
    with terminal.adopted():
        subprocess.run(["printf", "from Java: \\r\\033[2J\\377\\n"], check=True, stdout=2)
    until(lambda: text.getvalue().count("\n") == 5, "all is printed")
    assert text.getvalue().splitlines() == [
        r"name: B_\x1b[2J\nname: all is well \xff",
        r"name: B_\r",
        r"from Python: B_\x1b[2J",
        "        at java.lang",
        r"from Java: \r\x1b[2J\xff",
    ]


ADOPTING = """
import os, sys
from futebus.host.terminal import Terminal

terminal = Terminal("name")
with terminal.adopted():
    terminal.say("hello")
    os.write(2, b"Picked up JAVA_TOOL_OPTIONS\\n" * 4000)
    sys.stdin.readline()
"""


def test_what_is_passed_on_does_not_come_back(start: Start) -> None:
    """Descriptor 2 is the others' meanwhile. More than a pipe holds never got through, and less went round and round."""
    process = start(sys.executable, "-c", ADOPTING)
    assert process.stderr
    seen = [process.stderr.readline() for _ in range(4001)]
    assert seen == ["name: hello\n", *["Picked up JAVA_TOOL_OPTIONS\n"] * 4000]
    assert process.communicate("go on\n", timeout=DEADLINE) == ("", "")


PRINTED = """before
Traceback (most recent call last):
  File "daemon.py", line 233, in manager
    code = worker(sock, authenticated)
BrokenPipeError: [Errno 32] Broken pipe

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "daemon.py", line 235, in manager
    exit()
OSError: [Errno 9] Bad file descriptor
between
\tat java.lang
Traceback (most recent call last):
  File "daemon.py", line 233, in manager
BrokenPipeError
after
"""


@pytest.mark.parametrize("is_open", [False, True])
def test_tracebacks_of_sparks_processes_are_for_who_asks_for_them(is_open: bool) -> None:
    """Spark ends its Python processes when they are idle, and they print how much that surprises them."""
    text = io.StringIO()
    terminal = Terminal("name", text, is_open=is_open)
    with terminal.adopted():
        subprocess.run(["cat"], input=PRINTED.encode(), check=True, stdout=2)
    until(lambda: "after" in text.getvalue(), "all is printed")
    assert text.getvalue() == (PRINTED.expandtabs() if is_open else "before\nbetween\n        at java.lang\nafter\n")


def test_a_status_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    with open(slave, "w") as screen, open(master, "rb", buffering=0) as seen:
        terminal = Terminal("name", screen)
        terminal.clear()
        terminal.status("one")
        shows(seen, b"\r\x1b[K\x1b[2mone\x1b[m")
        terminal.clear()
        terminal.say("hello")
        shows(seen, b"\r\x1b[K\r\x1b[Kname: hello\r\n")


def test_the_status_is_told_seldom_elsewhere() -> None:
    text = io.StringIO()
    terminal = Terminal("name", text)
    terminal.status("one")
    assert text.getvalue() == ""
    terminal.status("all", is_last=True)
    assert text.getvalue() == "name: all\n"
