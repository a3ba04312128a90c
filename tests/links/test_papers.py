"""What docs/hosts.md and futebus-link(1) print, typed as it is printed: only places and ports are others. And the unit."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting, run
from ..helpers.nats import SERVER, Server
from ..helpers.papers import TREE, Terminal, blocks, environment, examples
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until
from .links import Linking
from .test_link import say

PAGE = (TREE / "docs" / "hosts.md").read_text()


def test_the_transcript(mounting: Mounting, place: Path, start: Start, nats: Server) -> None:
    """Only the server is there already: its port may be somebody's."""
    bus, other = mounting(), mounting()
    [transcript] = blocks(PAGE, "")
    (place / "nats-server").write_text("#!/bin/sh\nexec sleep 1000\n")
    (place / "nats-server").chmod(0o755)
    typed = transcript.replace("/mnt/bus", str(bus.path)).replace("/mnt/other", str(other.path))
    typed = typed.replace("nats://localhost/", f"nats://localhost:{nats.port}/").replace(":4222/", f":{nats.port}/")
    shell = Terminal(start, place, place)
    try:
        for line in typed.splitlines():
            if line.startswith("$ "):
                shell.type(line.removeprefix("$ "))
                if "cat " in line:
                    other.wait_for_readers(1, "B_log")
            else:
                shell.expect(line)
    finally:
        shell.close()


@pytest.mark.parametrize("number", [0, 1], ids=["socat", "cat"])
def test_ssh_is_enough_for_two(mounting: Mounting, place: Path, start: Start, collect: Collect, number: int) -> None:
    """Where ssh(1) would run the rest on another host, it is run on this one, with the other bus."""
    bus, other = mounting(), mounting()
    recipe = [block for block in blocks(PAGE, "sh") if "ssh" in block][number]
    bus.touch("B_log")
    other.touch("B_log")
    (place / "ssh").write_text(
        f'#!/bin/sh\n[ "$1" = HOST ] && shift\nexec sh -c "$(echo "$*" | sed s,{bus.path},{other.path},)"\n'
    )
    (place / "ssh").chmod(0o755)
    own = environment(place)
    script = recipe.replace("/mnt/bus", str(bus.path))
    joined = start("bash", "-c", script, env={**own, "PATH": f"{place}:{own['PATH']}"}, stdin=subprocess.DEVNULL)
    here, there = collect(bus / "B_log"), collect(other / "B_log")
    for mount in (bus, other):
        mount.wait_for_clients(2, "B_log")
    lines = [f"{number} {'x' * 100}" for number in range(500)]
    for line in lines:
        say(bus / "B_log", line)
        say(other / "B_log", f"{line} back")
    say(bus / "B_log", "the end")
    say(other / "B_log", "the end, too")
    for collector in (here, there):
        until(lambda: b"the end\n" in collector.data and b"the end, too\n" in collector.data, "all has come")  # noqa: B023 - called here
        heard = collector.data.decode().splitlines()
        assert [line for line in heard if line in set(lines)] == lines
        assert [line for line in heard if line.endswith("back")] == [f"{line} back" for line in lines]
        assert len(heard) == 2 * len(lines) + 2
    joined.terminate()
    joined.wait(DEADLINE)


def test_the_examples_of_the_manual(bus: Mount, place: Path, start: Start, nats: Server, linking: Linking) -> None:
    share, tell, join = examples("futebus-link.1")
    play = "& link=$!; until grep linked said; do sleep 0.01; done; : > said; kill $link; wait $link"
    lines = f"{share}{tell}{join}".splitlines()
    script = "\n".join(f"{line} {play}" if line.startswith("futebus-link") else line for line in lines)
    script = re.sub(r"(tls|nats)://(ann@)?[a-z1]+\.example,[a-z2]+\.example", nats.url, script)
    script = re.sub(r"nats://(nats|east)\.example", nats.url, script).replace("nats://west.example/log", nats / "west")
    script = f"exec 2>>said\n{script}".replace("/mnt/bus", str(bus.path))
    done = run("bash", "-ec", script, cwd=place, env=environment(place))
    assert done.returncode == 0, done.stdout
    channel, log = bus / "B_log", nats / "log"
    assert done.stdout.splitlines() == [
        f"futebus-link: {channel} is linked to {log}",
        f"futebus-link: {channel} is linked to {log}",
        f"futebus-link: {channel} is linked to {log} and {nats / 'west'}",
    ]


def test_the_unit_is_in_order(place: Path) -> None:
    unit = TREE / "systemd" / "futebus-link@.service"
    text = unit.read_text()
    assert "\nExecStart=futebus-link " in text
    copy = place / unit.name
    copy.write_text(text.replace("ExecStart=futebus-link", f"ExecStart={sys.executable} -m futebus.commands.link"))
    done = run("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_is_instant_and_needs_nothing() -> None:
    """It imports neither asyncio nor nats."""
    script = """
import sys
from futebus.commands.link import parser
parser().format_help()
print({"asyncio", "nats", "ssl"} & sys.modules.keys())
"""
    done = run(sys.executable, "-c", script)
    assert done.stdout == "set()\n", done.stderr


def test_the_server_is_the_one_that_setup_installs() -> None:
    assert Path(SERVER).exists(), "scripts/install test"
