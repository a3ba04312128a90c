"""How scripts/install makes the environment, and makes it anew when that was stopped or killed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .helpers.programs import Start
from .helpers.users import NOBODY
from .helpers.waiting import DEADLINE, until

TREE = Path(__file__).parents[1]

INTERPRETER = """#!/bin/sh
# Python, as far as set-up knows it. `pip` does what the file of that name beside the tree says.
case "$*" in
"-m venv .venv")
    mkdir -p .venv/bin ".venv/lib/python$(cat "$PLACE/version" 2>/dev/null || echo 3.11)"
    cp "$0" .venv/bin/python
    echo "command = $0 -m venv $(pwd -P)/.venv" >.venv/pyvenv.cfg
    [ -e "$PLACE/venv" ] && . "$PLACE/venv"
    echo done >.venv/pip
    ;;
"-m pip --version") [ -e .venv/pip ] ;;
"-I -S -c "*) cat "$PLACE/version" 2>/dev/null || echo 3.11 ;;
"-m pip install "*)
    echo "$*" | sed 's/.*--editable //' >>"$PLACE/installed"
    [ ! -e "$PLACE/pip" ] || . "$PLACE/pip"
    ;;
*) exec /usr/bin/python3 "$@" ;;
esac
"""


class Setup:
    """A tree in which an ordinary user runs scripts/install, with an interpreter that makes and gets nothing."""

    def __init__(self, place: Path, start: Start) -> None:
        self.place, self.tree = place, place / "tree"
        self._start = start
        (self.tree / "futebus" / "core").mkdir(parents=True)
        (self.tree / "futebus" / "fuse").mkdir()
        for name in ("pyproject.toml", "setup.py", "futebus/core/scan.c", "futebus/fuse/hooks.c"):
            shutil.copy2(TREE / name, self.tree / name)
        for name in ("scripts", "man"):
            shutil.copytree(TREE / name, self.tree / name)
        (place / "home").mkdir()
        (place / "python").write_text(INTERPRETER)
        (place / "python").chmod(0o755)
        for path in (place, *place.rglob("*")):
            os.chown(path, 65534, 65534)

    def has(self, what: str, does: str) -> None:
        """From now on the making of the environment (`venv`) or the installing (`pip`) does this too."""
        (self.place / what).write_text(does)

    def begin(self, *extras: str, script: str = "install") -> "subprocess.Popen[str]":
        """Starts it."""
        own = {"HOME": str(self.place / "home"), "PLACE": str(self.place), "PYTHON": str(self.place / "python")}
        environment = {**os.environ, "PATH": "/usr/bin:/bin", **own}
        words = [self.tree / "scripts" / script, *(extras or ["none"])]
        return self._start(*words, env=environment, cwd=self.place, **NOBODY)

    def install(self, *extras: str, status: int = 0) -> str:
        """Runs it to its end. Returns what it says, but for what the links are."""
        process = self.begin(*extras)
        out, words = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out) == (status, ""), words
        return words.partition("install: the commands are in")[0]

    @property
    def installed(self) -> list[str]:
        """What pip was asked for."""
        path = self.place / "installed"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def setup(place: Path, start: Start) -> Setup:
    return Setup(place, start)


MAKING = "install: making an environment in .venv; with what it needs, this may take some minutes the first time\n"
LOADING = "install: downloading and building futebus"


def test_each_stage_is_told_and_done_once(setup: Setup) -> None:
    said = setup.install("gateways")
    assert said == f"{MAKING}{LOADING} with gateways\n"
    assert setup.install("gateways") == setup.install("none") == ""
    assert setup.install("dev").startswith(f"{LOADING} with dev,gateways\n"), "what was there stays"
    assert setup.installed == [".[gateways]", ".[dev,gateways]"]


def test_its_end_is_told_when_there_was_something_to_do(setup: Setup) -> None:
    assert setup.begin("gateways").communicate(timeout=DEADLINE)[1].endswith("install: done\n")
    assert setup.begin("gateways").communicate(timeout=DEADLINE)[1] == ""


def test_a_python_that_is_not_there(setup: Setup) -> None:
    (setup.place / "python").unlink()
    assert setup.install("none", status=1) == f"install: there is no {setup.place}/python (PYTHON)\n"
    assert not (setup.tree / ".venv").exists()


@pytest.mark.parametrize("what", ["venv", "pip"])
def test_ctrl_c_ends_it_in_one_line_and_leaves_nothing_half_made(setup: Setup, what: str) -> None:
    setup.has(what, 'trap "echo a page of its own >&2; exit 1" INT; echo > "$PLACE/waits"; while :; do sleep 0.1; done')
    process = setup.begin("gateways")
    until((setup.place / "waits").exists, "it is under way")
    os.killpg(process.pid, signal.SIGINT)
    words = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 130
    assert words.removeprefix(MAKING).removeprefix(f"{LOADING} with gateways\n") == (
        "install: stopped; what is half made is made anew the next time\n"
    )
    (setup.place / what).unlink()
    (setup.tree / ".venv" / "rubbish").touch()
    assert setup.install("none").startswith(f"{MAKING}{LOADING} with gateways\n"), "all that was wanted"
    assert not (setup.tree / ".venv" / "rubbish").exists()
    assert setup.install("gateways") == ""


def test_an_install_that_was_killed_is_no_install(setup: Setup) -> None:
    """What it had replaced by half is not there for those either who want no more than was there before."""
    setup.install("gateways")
    setup.has("pip", "rm .venv/pip; kill -9 $$")
    said = setup.install("spark", status=1)
    assert said.endswith("install: pip was killed (status 137); the environment is made anew the next time\n")
    (setup.place / "pip").unlink()
    assert setup.install("gateways").startswith(f"{MAKING}{LOADING} with gateways\n")
    assert setup.install("spark").startswith(LOADING)


def test_what_was_killed_with_all_that_it_had_started(setup: Setup) -> None:
    setup.install("gateways")
    setup.has("pip", 'echo > "$PLACE/waits"; while :; do sleep 0.1; done')
    process = setup.begin("spark")
    until((setup.place / "waits").exists, "it is under way")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE)
    (setup.place / "pip").unlink()
    assert setup.install("none").startswith(MAKING)


def test_what_cannot_be_had_takes_nothing_away(setup: Setup) -> None:
    setup.has("pip", "echo ERROR: no network >&2; exit 1")
    said = setup.install("gateways", status=3)
    assert said == f"{MAKING}{LOADING} with gateways\nERROR: no network\ninstall: pip could not install futebus with gateways\n"
    (setup.place / "pip").unlink()
    assert setup.install("gateways").startswith(LOADING), "the environment is whole"
    setup.has("pip", "exit 1")
    assert "could not install" in setup.install("view", status=3)
    assert setup.install("gateways") == "", "what there was is there"


def test_an_environment_without_pip_is_none(setup: Setup) -> None:
    setup.install("none")
    (setup.tree / ".venv" / "pip").unlink()
    assert setup.install("gateways").startswith(MAKING)


@pytest.mark.parametrize("path", ["other tree", "\u00e4 * [b]"])
def test_a_tree_that_was_moved_has_no_environment(setup: Setup, path: str) -> None:
    """The commands in it would be looked for where it was, and found if something is there."""
    setup.install("gateways")
    setup.tree = setup.tree.rename(setup.place / path)
    assert setup.install("none").startswith(f"{MAKING}{LOADING} with gateways\n"), "all that was there"
    assert setup.install("gateways") == ""


def test_an_environment_of_another_python_is_none(setup: Setup) -> None:
    """The system has a newer one by now, and nothing of ours is installed for that."""
    setup.install("gateways")
    setup.has("version", "3.13\n")
    assert setup.install("none").startswith(f"{MAKING}{LOADING} with gateways\n")
    assert setup.install("gateways") == ""


@pytest.mark.parametrize("script", ["install", "run"])
def test_a_tree_of_somebody_else(setup: Setup, script: str) -> None:
    os.chown(setup.tree, 0, 0)
    process = setup.begin("gateways" if script == "install" else str(setup.place / "bus"), script=script)
    words = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 1
    assert words == (
        "install: this tree is root's, and you cannot use what is made here, or make it: "
        "get a tree of your own, and run this there\n"
    )
    assert not (setup.place / "bus").exists()
