"""Where a user's own files are, and what commands say whose user nobody knows."""

import os
import pwd
import sys
from pathlib import Path

import pytest

from futebus.host.home import home

from ..helpers.mounts import run

STRANGER = 64001
"""A user whom no system knows: containers run programs as such."""

AS_STRANGER = f"""
import os, sys
from futebus.commands import link, ubus
os.environ.pop("HOME", None)
os.environ.pop("STATE_DIRECTORY", None)
os.environ.pop("XDG_STATE_HOME", None)
os.getuid = os.geteuid = lambda: {STRANGER}
sys.exit({{"link": link, "ubus": ubus}}[sys.argv[1]].main(sys.argv[2:]))
"""

UNKNOWN = f"HOME is not set, and the system knows no user {STRANGER}"


def test_it_is_what_the_environment_says_or_else_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)
    monkeypatch.setenv("HOME", "/home/ann")
    assert home() == Path("/home/ann")
    monkeypatch.setenv("HOME", "")
    assert home() == own, "and not the working directory"
    monkeypatch.delenv("HOME")
    assert home() == own


def test_nobody_may_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    with pytest.raises(FileNotFoundError, match=UNKNOWN):
        home()


@pytest.mark.parametrize("use", [["expose", "--wait", "/nowhere/B_x"], ["signal"], ["connect"]])
def test_a_socket_below_it_cannot_be_had(use: list[str]) -> None:
    done = run(sys.executable, "-c", AS_STRANGER, "ubus", *use, "x.signal")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"futebus-ubus: {UNKNOWN}\n")


def test_a_script_of_sockets_is_told_so_and_goes_on(place: Path) -> None:
    done = run(sys.executable, "-c", AS_STRANGER, "ubus", "x", str(place / "y"))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()] == [["b", "1", "0"], ["b", "2", "1"]]
    assert UNKNOWN in done.stdout


def test_a_delivery_wants_to_be_told_where_its_state_is() -> None:
    done = run(sys.executable, "-c", AS_STRANGER, "link", "--deliver", "nats://127.0.0.1:1/LINES", "/nowhere/U_x")
    words = f"futebus-link: {UNKNOWN}: --state says where it is kept how far it has come\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
