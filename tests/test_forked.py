"""Commands that are copies of a process stand for those that are started in most tests: so they have what these have."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .helpers import forked
from .helpers.mounts import FUTEBUS, Mount, unused
from .helpers.processes import links_of, members
from .helpers.waiting import DEADLINE


def had(bus: Mount) -> dict[str, object]:
    """What a bus has got from whoever has started it."""
    pid = bus.daemon.pid
    status = dict(re.findall(r"(\w+):[ \t]*(.*)", Path(f"/proc/{pid}/status").read_text()))
    return {
        **{name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Umask", "Threads", "Uid", "Gid", "Groups", "CapEff")},
        "directory": os.readlink(f"/proc/{pid}/cwd"),
        "open": sorted(re.sub(r"\d+", "", what) for _, what in links_of(pid)),
        "session and group": (os.getsid(pid), os.getpgid(pid)),
        "first": unused(bus),
    }


def test_it_has_what_the_command_has(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    buses = []
    for command in (FUTEBUS, None):
        directory = place / "bus"
        directory.mkdir(exist_ok=True)
        bus = Mount(directory, place / "bus.log", "max_queue=7", command=command)
        try:
            buses.append(had(bus))
            bus.unmount()
        finally:
            bus.discard()
    assert buses[0] == buses[1]


def test_it_ends_as_the_command_does(place: Path) -> None:
    for command in (FUTEBUS, None):
        directory = place / "bus"
        directory.mkdir(exist_ok=True)
        with pytest.raises(AssertionError, match="max_queue"):
            Mount(directory, place / "bus.log", "max_queue=x", command=command)
        for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
            bus = Mount(directory, place / "bus.log", command=command)
            try:
                assert bus.daemon.poll() is None
                with pytest.raises(subprocess.TimeoutExpired):
                    bus.daemon.wait(0)
                bus.daemon.send_signal(number)
                assert bus.daemon.wait() == bus.daemon.poll() == bus.daemon.returncode == status
                bus.daemon.send_signal(number)  # it has gone, and nobody else gets that
                assert bus.daemon.pid not in members(os.getsid(0))
            finally:
                bus.discard()


@pytest.mark.parametrize("module", sorted(forked.COMMANDS))
@pytest.mark.parametrize("word", ["--help", "--wrong"])
def test_it_says_what_the_command_says(module: str, word: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    popen: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    popen |= {"text": True, "env": forked.environment(), "start_new_session": True}
    said = []
    for begin in (subprocess.Popen, forked.begin):
        process = begin([sys.executable, "-m", module, word], **popen)
        assert isinstance(process, forked.Copy) == (begin is forked.begin)
        assert os.getsid(process.pid) == process.pid
        said.append((*process.communicate("", timeout=DEADLINE), process.returncode))
    assert said[0] == said[1]


def test_what_a_copy_cannot_have_is_started(place: Path) -> None:
    command = [sys.executable, "-m", "futebus.commands.record", "--version"]
    for popen in ({"env": {**forked.environment(), "PYTHONUTF8": "0"}}, {"env": forked.environment(), "cwd": place}, {}):
        process = forked.begin(command, stdout=subprocess.DEVNULL, **popen)
        assert type(process) is subprocess.Popen
        assert process.wait(DEADLINE) == 0
