"""A B channel that futebus-sbus is joined to, on a real bus."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import futebus.client

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting, bash, hanging, run
from ..helpers.papers import Shell, examples
from ..helpers.programs import Start, leave_behind
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE, until
from .sbuses import BIGGEST, COMMAND, Sbus, Serving


@pytest.fixture
def joined(bus: Mount, serving: Serving) -> Sbus:
    """A server that is joined to B_x of the bus."""
    return serving("--channel", str(bus / "B_x"))


def test_both_ways(bus: Mount, joined: Sbus, collect: Collect) -> None:
    reader = collect(bus / "B_x")
    client = joined().sub(b"door/")
    bash(f"printf 'door/front\\topen\\nroom\\tdark\\ndoor/\\\\\\\\x\\ty\\\\ny\\ttab\\n' > {bus / 'B_x'}")
    assert client.take(2) == [b"MSG door/front\0open", b"MSG door/\\x\0y\ny\ttab"]
    client.msg(b"door/back", b"tab\tnewline\nreturn\rnul\0backslash\\").msg(b"door/\ta\n", b"")
    assert client.take(2) == [b"MSG door/back\0tab\tnewline\nreturn\rnul\0backslash\\", b"MSG door/\ta\n\0"]
    until(lambda: reader.data.endswith(b"door/\\ta\\n\t\n"), "the lines are there")
    assert reader.data.splitlines()[3:] == [rb"door/back" + b"\t" + rb"tab\tnewline\nreturn\rnul\0backslash\\", b"door/\\ta\\n\t"]
    assert client.rest() == [], "nothing comes back"
    joined.close()
    assert (bus / "B_x").exists()


def test_two_of_them_are_one_bus(bus: Mount, start: Start, place: Path) -> None:
    servers = []
    for name in ("one", "two"):
        (place / name).mkdir()
        servers.append(Sbus(start, place / name, "--channel", str(bus / "B_x")))
    one, two = (server().sub(b"") for server in servers)
    messages = [(b"key/%d" % number, os.urandom(300)) for number in range(500)]
    for key, payload in messages:
        one.msg(key, payload)
        assert one.recv() == two.recv() == b"MSG " + key + b"\0" + payload
    for server in servers:
        server.close()


def test_secrets_and_control_messages_stay_inside(bus: Mount, joined: Sbus, collect: Collect) -> None:
    reader = collect(bus / "B_x")
    client = joined().sub(b"", b"!/cred////x")
    key = client.whoami() + b"/x"
    client.msg(key, b"secret").msg(b"!/other", b"reserved").send(b"CMSG hello\0you").msg(b"public", b"last")
    assert client.take(3) == [b"MSG " + key + b"\0secret", b"MSG !/other\0reserved", b"MSG public\0last"]
    until(lambda: reader.data, "a line is there")
    assert reader.data == b"public\tlast\n"
    (bus / "B_x").write_bytes(key + b"\tforged\n!/other\tx\npublic\tfrom outside\n")
    assert client.recv() == b"MSG public\0from outside"
    joined.counts(2, "not carried over: with a key that begins with !/")


def test_what_cannot_be_carried_is_refused_and_not_cut(mounting: Mounting, serving: Serving, collect: Collect) -> None:
    bus = mounting("max_message=1000000")
    sbus = serving("--channel", str(bus / "B_x"))
    reader = collect(bus / "B_x")
    client = sbus().sub(b"k")
    longest = BIGGEST - len(b"MSG k\0")
    client.msg(b"k", b"x" * longest)
    assert len(client.recv()) == BIGGEST
    until(lambda: len(reader.data) == longest + 3, "it is carried")
    with open(bus / "B_x", "wb", buffering=0) as channel:
        for line in (b"k\t" + b"y" * longest, b"k\t" + b"z" * longest + b"!", b"k\\0\tx", b"k\tshort"):
            channel.write(line + b"\n")
    assert [len(packet) for packet in client.take(2)] == [BIGGEST, len(b"MSG k\0short")]
    sbus.counts(2, "not carried over: with a NUL in its key, or longer than 409600 bytes")
    sbus.close()


def test_what_is_too_long_for_the_bus(mounting: Mounting, serving: Serving, collect: Collect) -> None:
    bus = mounting("max_message=1000")
    sbus = serving("--channel", str(bus / "B_x"))
    reader = collect(bus / "B_x")
    client = sbus().sub(b"k")
    client.msg(b"k", b"1").msg(b"k", b"x" * 998).msg(b"k", b"\n" * 600).msg(b"k", b"y" * 997).msg(b"k", b"2").msg(
        b"k", b"\0" * 999
    )
    client.msg(b"k", b"3")
    assert len(client.take(7)) == 7, "clients get all of them"
    until(lambda: reader.data.endswith(b"3\n"), "the last line is there")
    assert reader.data == b"k\t1\nk\t" + b"y" * 997 + b"\nk\t2\nk\t3\n"
    sbus.counts(3, "not carried over: too long for the bus")


def test_a_flood_both_ways(bus: Mount, joined: Sbus, collect: Collect) -> None:
    reader = collect(bus / "B_x")
    client = joined().sub(b"in")
    lines = b"".join(b"in\t%d\n" % number for number in range(20_000))
    (bus / "B_x").write_bytes(lines)
    for number in range(20_000):
        client.msg(b"out", b"%d" % number)
        assert client.recv() == b"MSG in\0%d" % number
    until(lambda: reader.data.endswith(b"out\t19999\n"), "all lines are there")
    out = [line for line in reader.data.splitlines() if line.startswith(b"out")]
    assert out == [b"out\t%d" % number for number in range(20_000)]


def test_a_client_that_blocks_holds_the_channel_up_and_loses_nothing(bus: Mount, joined: Sbus) -> None:
    slow, other = joined().sub(b"in").choose(b"blocking/soft/block"), joined()
    lines = b"".join(b"in\t%d " % number + b"x" * 4000 + b"\n" for number in range(500))
    (bus / "B_x").write_bytes(lines)
    other.whoami()
    assert [int(slow.recv().split(b"\0")[1].split()[0]) for _ in range(500)] == list(range(500))


# ---------------------------------------------------------------------------------------------- when the bus goes


def test_without_a_bus_it_does_not_begin(place: Path) -> None:
    done = run(*COMMAND, "-fa", place / "socket", "--channel", place / "B_x")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "no bus is mounted" in done.stderr
    assert not (place / "socket").exists()
    assert not (place / "B_x").exists()
    done = run(*COMMAND, "-a", place / "socket", "-p", place / "pid", "--channel", place / "B_x")
    assert done.returncode == 1
    assert "no bus is mounted" in done.stderr
    assert sorted(each.name for each in place.iterdir()) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_ends_with_its_bus(mounting: Mounting, serving: Serving, is_killed: bool) -> None:
    bus = mounting()
    sbus = serving("--channel", str(bus / "B_x"))
    client = sbus().sub(b"a")
    if is_killed:
        bus.was_killed = True
        bus.daemon.kill()
    else:
        bus.daemon.terminate()
    assert sbus.process.wait(DEADLINE) == 1
    assert client.is_dismissed()
    assert "B_x" in sbus.words
    assert not sbus.path.exists()


def test_with_wait_it_outlives_its_bus(serving: Serving, mounting: Mounting, remounting: Remounting, place: Path) -> None:
    sbus = serving("--wait", "--channel", str(place / "bus0" / "B_x"))
    client = sbus().sub(b"k")
    client.msg(b"k", b"before there is a bus")
    assert client.recv() == b"MSG k\0before there is a bus"
    sbus.says("waiting")
    bus = mounting()
    until((bus / "B_x").exists, "it is there")
    # Else it might come before or behind what is said below.
    until(lambda: any(each["sent"] for each in bus.clients("B_x")), "what has waited is said")
    for times in range(1, 4):
        # It may find the next one without having waited for it.
        until(lambda times=times: sbus.words.count("B_x is open again") == times - 1, "it has found the bus")  # type: ignore[misc]
        with futebus.client.subscribe(bus / "B_x", bytes) as reader:
            futebus.client.publish(bus / "B_x", b"k\tfrom bus %d" % times)
            assert client.recv() == b"MSG k\0from bus %d" % times
            assert reader.read(timeout=DEADLINE) == b"k\tfrom bus %d" % times
            client.msg(b"k", b"for bus %d" % times)
            assert client.recv() == b"MSG k\0for bus %d" % times
            assert reader.read(timeout=DEADLINE) == b"k\tfor bus %d" % times
        if times < 3:
            bus = remounting(bus)


def test_what_is_said_while_the_bus_is_away_is_kept(serving: Serving, mounting: Mounting, place: Path) -> None:
    sbus = serving("--wait", "--channel", str(place / "bus0" / "B_x"))
    client = sbus()
    for number in range(100):
        client.msg(b"k", b"%d " % number + b"x" * 399_990)
    client.whoami()
    sbus.says("for a bus that is away or slow")
    bus = mounting("max_message=500000")
    until((bus / "B_x").exists, "it is there")
    # The first lines may be said before anybody can listen.
    until(lambda: [client for client in bus.clients("B_x") if client["sent"] >= 40], "what was kept is said")
    assert bus.clients("B_x")[0]["sent"] < 50


def test_a_channel_that_is_removed_is_made_anew(bus: Mount, joined: Sbus) -> None:
    client = joined().sub(b"k")
    (bus / "B_x").unlink()
    bus.wait_for_live("B_x", "peer")
    (bus / "B_x").write_bytes(b"k\tx\n")
    assert client.recv() == b"MSG k\0x"


def test_what_waits_in_a_channel_that_is_removed_is_for_the_clients(bus: Mount, joined: Sbus) -> None:
    client = joined().sub(b"k")
    leave_behind(joined.process, bus / "B_x", b"".join(b"k\t%099d\n" % number for number in range(5_000)))
    assert client.take(5_000) == [b"MSG k\0%099d" % number for number in range(5_000)]
    joined.says("has been removed, and is made anew")
    assert "not carried over" not in joined.words


def test_a_client_that_blocks_does_not_keep_it_at_a_channel_that_is_removed(bus: Mount, joined: Sbus) -> None:
    """What waits there is counted, in the bus and in the gateway."""
    slow, other = joined().sub(b"in").choose(b"blocking/soft/block"), joined().sub(b"k")
    lines = [b"in\t%d " % number + b"x" * 4000 + b"\n" for number in range(900)]
    with (bus / "B_x").open("wb", buffering=0) as channel:
        for first in range(0, 900, 10):  # with time to read them: no more wait in a bus than it has room for
            channel.write(b"".join(lines[first : first + 10]))
            other.whoami()
        (bus / "B_x").unlink()
        joined.says("has been removed, and is made anew")
    bus.wait_for_live("B_x", "peer")
    (bus / "B_x").write_bytes(b"k\tx\n")
    assert other.recv() == b"MSG k\0x"
    joined.says("not carried over: for they waited in a channel whose name was removed")
    said = re.search(r"([\d,]+) messages? not carried over", joined.words)
    assert said
    taken = [slow.recv() for _ in range(900 - int(said[1].replace(",", "")))]
    assert [int(each.split(b"\0")[1].split()[0]) for each in taken] == list(range(len(taken)))
    (bus / "B_x").write_bytes(b"in\tend\n")
    assert slow.recv() == b"MSG in\0end"


LATE = """
import sys
from futebus.client import leaving
leaving.LEAVE_SECONDS = 0.0
from futebus.commands.sbus import main
sys.exit(main())
"""
"""A server that leaves a channel which was removed at once."""


def test_what_is_left_in_a_channel_that_is_removed_is_counted_whoever_leaves_it(bus: Mount, serving: Serving) -> None:
    sbus = serving("--channel", str(bus / "B_x"), command=[sys.executable, "-c", LATE])
    client = sbus().sub(b"k")
    count = 900
    lines = b"".join(b"k\t%d " % number + b"x" * 4000 + b"\n" for number in range(count))
    leave_behind(sbus.process, bus / "B_x", lines)
    sbus.says("has been removed, and is made anew")
    bus.wait_for_live("B_x", "peer")
    futebus.client.publish(bus / "B_x", b"k\tend")
    taken = 0
    while client.recv() != b"MSG k\0end":
        taken += 1
    if taken < count:
        sbus.counts(count - taken, "not carried over")


def test_a_signal_while_the_bus_hangs(bus: Mount, joined: Sbus, collect: Collect) -> None:
    reader = collect(bus / "B_x")
    client = joined()
    for number in range(120):
        client.msg(b"k", b"%d" % number)
    reader.lines(120)
    with hanging(bus):
        client.msg(b"k", b"last").whoami()
        assert joined.end() == 0, joined.words
    assert "Traceback" not in joined.words


def test_one_that_is_killed_takes_nothing_with_it(bus: Mount, serving: Serving) -> None:
    sbus = serving("--channel", str(bus / "B_x"))
    sbus.process.send_signal(signal.SIGKILL)
    sbus.process.wait(DEADLINE)
    until(lambda: not bus.clients("B_x"), "the bus knows")
    again = serving("--channel", str(bus / "B_x"))
    client = again().sub(b"k")
    (bus / "B_x").write_bytes(b"k\tx\n")
    assert client.recv() == b"MSG k\0x"
    assert subprocess.run(["test", "-S", again.path], check=False).returncode == 0


def test_the_examples_of_the_manual(bus: Mount, place: Path, start: Start) -> None:
    serve, client, say, _other = (each.replace("/mnt/bus", str(bus.path)) for each in examples("futebus-sbus.1"))
    server = Shell(start, place, "server")
    server.type(serve)
    server.expect(f"futebus-sbus: serving on bus.socket, joined to {bus / 'B_sbus'}")
    shell = Shell(start, place, "client")
    for line in client.splitlines():
        shell.type(line)

    def is_shown() -> bool:  # it may not have subscribed yet
        assert bash(say).returncode == 0
        return "MSG door/front\0open" in shell.shown

    until(is_shown, "it is shown")
    server.type("^C")
    server.expect("futebus-sbus: ended")
    until(lambda: not (place / "bus.socket").exists(), "it has cleared up")
