"""A bus for users who do not know each other, and programs that these run on it."""

import subprocess
import sys

import pytest

from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start
from ..helpers.users import BECOME


@pytest.fixture
def bus(mounting: Mounting) -> Mount:
    """A bus that all users can use."""
    return mounting("allow_other")


def python(start: Start, user: int, script: str, *arguments: object, comm: bytes = b"python") -> "subprocess.Popen[str]":
    """Runs a script as a user, who need not be able to start this interpreter: root starts it and becomes the user."""
    before = f"import signal\nopen('/proc/self/comm', 'wb').write({comm!r})\nbecome({user})"
    return start(sys.executable, "-c", f"{BECOME}\n{before}\n{script}", *map(str, arguments))


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline()


def go_on(process: "subprocess.Popen[str]") -> None:
    """Sends it a line, for which it waits."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()
