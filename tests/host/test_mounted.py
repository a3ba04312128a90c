"""What is said of a bus whose daemon is dead, and of one whose daemon does nothing."""

import signal
import sys
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, Mounting, device_of, have_unmounted
from ..helpers.programs import Start, stop
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE

COMMANDS = {
    "top": ["--once", "BUS"],
    "record": ["BUS/B_x", "SPOOL"],
    "tmb": ["-l", "127.0.0.1:0", "BUS/B_x"],
    "sbus": ["-f", "-a", "SPOOL", "--channel", "BUS/B_x"],
    "ubus": ["expose", "BUS/B_x", "SPOOL.signal"],
    "archive": ["BUS/B_x", "SPOOL"],
}


def typed(command: str, bus: Mount, place: Path) -> list[str]:
    """A command as it is started."""
    words = [word.replace("BUS", str(bus.path)).replace("SPOOL", str(place / "spool")) for word in COMMANDS[command]]
    return [sys.executable, "-m", f"futebus.commands.{command}", *words]


def killed(bus: Mount) -> str:
    """Kills the daemon of a bus. Returns what is said of it then."""
    bus.daemon.kill()
    bus.daemon.wait()
    bus.was_killed = True
    return f"the futebus on {bus.path} is dead: 'futebus {bus.path}' takes its place, 'fusermount3 -u {bus.path}' removes it"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dead_bus_is_called_dead(mounting: Mounting, place: Path, start: Start, command: str) -> None:
    for _ in range(3):
        bus = mounting()
        words = killed(bus)
        process = start(*typed(command, bus, place))
        assert process.stderr
        said = process.stderr.readline()
        if device_of(bus.path) is not None:  # or else something on this machine has taken the dead mount away meanwhile
            break
    assert said == f"futebus-{command}: {words}{'; waiting' if command == 'record' else ''}\n"
    if command != "record":
        assert process.wait(DEADLINE) == 1


def test_both_ways_out_of_it(bus: Mount, remounting: Remounting) -> None:
    removes = killed(bus).split("'")[3]
    *command, directory = removes.split()
    assert directory == str(bus.path)
    have_unmounted(bus.path, *command)
    assert device_of(bus.path) is None
    again = Mount(bus.path, bus.log)
    killed(again)
    again.let_be()
    assert remounting(again).touch("B_x").exists()


@pytest.mark.parametrize("command", ["record", "tmb", "sbus", "ubus"])
def test_a_bus_that_hangs_is_said_to(bus: Mount, place: Path, start: Start, command: str) -> None:
    stop(bus.daemon.pid)
    try:
        process = start(*typed(command, bus, place))
        assert process.stderr
        said = process.stderr.readline()
    finally:
        bus.daemon.send_signal(signal.SIGCONT)
    assert said == f"futebus-{command}: the bus on {bus.path} does not answer; waiting\n"
    ready = process.stderr.readline()
    ready += process.stderr.readline() if command != "record" else ""
    assert str(bus / "B_x") in ready
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
