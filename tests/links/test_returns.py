"""Deliveries that come back: to a stream that another has had, or that is not what it was."""

import shutil
from pathlib import Path

import pytest

from futebus.nats.stream import Stream

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Server
from ..helpers.published import ask, proxied
from ..helpers.waiting import until
from .links import Linking
from .test_delivery import deliver, fill, publish, wait_for


def test_take_overs_go_on_where_the_other_had_come_to(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Also if nothing came before the next start, and if the one before had just been started and got nothing new."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10, each=1)
    link = deliver(linking, bus / "U_x", url, place)
    wait_for(master, data)
    link.end()
    for more in ((), ("--take-over",), ()):
        state = place / ("other" if more or (place / "other").exists() else "state")
        linking("--deliver", url, "--state", state, *more, bus / "U_x").end()
    data += fill(keeping.url, 10, each=1, begin=10)
    link = linking("--deliver", url, "--state", place / "other", bus / "U_x")
    wait_for(master, data)
    link.end()


@pytest.mark.parametrize("more", [(), ("--wait",)])
def test_one_that_runs_and_is_taken_over_ends(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, more: tuple[str, ...]
) -> None:
    """Nothing can come to it any more, also when the other one has ended."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", url, place, *more)
    wait_for(master, data)
    other = linking("--deliver", url, "--state", place / "other", "--take-over", bus / "U_x")
    assert " of another delivery: --consumer names another one" in link.fails()
    assert list((place / "state").iterdir())  # what it has written is not to be forgotten
    data += fill(keeping.url, 10, begin=10)
    wait_for(master, data)
    other.end()


def test_what_was_only_taken_ahead_is_not_confirmed(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """The consumer begins behind what has been written, also when there is a new connection."""
    bus = mounting("max_queue=1000")
    master = collect(bus / ".U_x", at_once=False)
    data = fill(keeping.url, 10_000, 100)
    with proxied(keeping) as network:
        link = deliver(linking, bus / "U_x", f"nats://127.0.0.1:{network.port}/LINES", place)
        until(lambda: bus.channel("U_x")["messages_in"] >= 1000, "its queue is full")
        network.cut()
        network.mend()
        link.wait_for("waiting")
    link.process.kill()
    link.process.wait()
    link = linking("--deliver", f"{keeping.url}/LINES", "--state", place / "new", "--take-over", bus / "U_x")
    master.start()
    until(lambda: master.data.endswith(data[-200:]), "the last one comes")
    seen = dict.fromkeys(master.data.splitlines())
    assert list(seen) == data.splitlines()
    link.end()


def test_what_one_says_of_another_ones_lines_counts_on_his_own_subject(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    master = collect(bus / ".U_x")

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        await publish(stream, b"one\n", 0, subject="lines.a")
        await publish(stream, b"forged\n", 10**15, subject="lines.b")
        await publish(stream, b"two\n", 1, subject="lines.a")
        await publish(stream, b"ahead\n", 9, subject="lines.a")
        await publish(stream, b"known\n", 2, subject="lines.a")
        await publish(stream, b"ten\n", 10, subject="lines.a")

    ask(keeping.url, work)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place)
    wait_for(master, b"one\nforged\ntwo\nahead\nten\n")
    link.wait_for("7 lines of host:U_x, from 2 on, are missing in the stream")
    link.wait_for("1 line of host came again")
    link.end()


def test_a_stream_that_has_lost_its_end_and_has_grown_again(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Its server has lost its power: other messages have the numbers of those that were delivered."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 2, each=1)
    keeping.process.terminate()
    keeping.process.wait()
    files = place / "nats1" / "jetstream"
    shutil.copytree(files, place / "before")
    keeping.begin()
    data += fill(keeping.url, 3, each=1, begin=2)
    link = deliver(linking, bus / "U_x", url, place)
    wait_for(master, data)
    link.end()
    keeping.kill()
    shutil.rmtree(files)
    (place / "before").rename(files)
    keeping.begin()
    fill(keeping.url, 3, each=3, begin=2)
    data += fill(keeping.url, 4, each=1, source=1)
    link = deliver(linking, bus / "U_x", url, place)
    wait_for(master, data)
    link.wait_for("has others than were delivered from message 3 on")
    link.end()
