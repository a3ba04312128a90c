"""Deliveries: what a stream has comes to a channel, each line once, whoever dies."""

import itertools
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamConfig, StreamSource

from futebus.core.lines import lines as scan
from futebus.links.delivery import LOOK_SECONDS
from futebus.nats import runs
from futebus.nats.runs import Where
from futebus.nats.stream import Stream

from ..helpers.collectors import Collect, Collector
from ..helpers.mounts import Mount, Mounting, run
from ..helpers.nats import Server
from ..helpers.programs import Start
from ..helpers.published import ask, proxied
from ..helpers.recorders import Recording, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.writers import WRITER
from .links import LINK, Link, Linking

SPOOL, OTHER = "0" * 32, "1" * 32


def numbered(begin: int, end: int, source: int = 0) -> bytes:
    """Lines that are known again."""
    return b"".join(b"%d %d %s\n" % (source, number, b"x" * (number % 150)) for number in range(begin, end))


async def publish(stream: Stream, data: bytes, line: int, spool: str = SPOOL, subject: str = "lines") -> int:
    """Adds lines as a recorder does."""
    last = await stream.last(subject)
    where = Where(spool, line, scan(data, 0, len(data))[0], 1, "host", "U_x")
    return await stream.publish(subject, data, runs.headers(where), last.sequence if last else 0, where.name)


def fill(url: str, count: int, each: int = 500, begin: int = 0, source: int = 0) -> bytes:
    """Makes a stream with so many lines, or adds them. Returns them."""
    spool, subject = ((SPOOL, "lines"), (OTHER, "lines.b"))[source]

    async def work(stream: Stream) -> None:
        await stream.make(["lines", "lines.>"])
        for line in range(begin, begin + count, each):
            await publish(stream, numbered(line, min(line + each, begin + count), source), line, spool, subject)

    ask(url, work)
    return numbered(begin, begin + count, source)


def deliver(linking: Linking, channel: Path, url: str, place: Path, *more: str, **how: Any) -> Link:
    """Starts a delivery of the stream's lines."""
    return linking("--deliver", url, "--state", str(place / "state"), *more, channel, **how)


def wait_for(collector: Collector, data: bytes) -> None:
    """Waits until these lines have come, and sees that nothing else has."""
    until(lambda: collector.size >= len(data), f"{len(data)} bytes come, and not {collector.size}")
    assert collector.data == data


def delivered(
    linking: Linking, channel: Path, server: Server, place: Path, collector: Collector, count: int, each: int = 500
) -> bytes:
    """Makes a stream with so many lines, and has them delivered by one that ends then. Returns them."""
    data = fill(server.url, count, each)
    link = deliver(linking, channel, f"{server.url}/LINES", place)
    wait_for(collector, data)
    link.end()
    return data


def test_what_a_stream_has_comes(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 10_000)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines", place)
    wait_for(master, data)
    data += fill(keeping.url, 100, begin=10_000)
    wait_for(master, data)
    link.end()
    data += fill(keeping.url, 100, begin=10_100)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines", place)
    wait_for(master, data)
    link.end()


def test_a_subject_of_a_stream_that_has_it_from_another_one(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Such a one listens to nothing itself."""
    reader = collect(bus / "B_x")

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        await stream.jetstream.add_stream(StreamConfig(name="COPY", mirror=StreamSource(name="LINES")))
        for number in range(6):
            await stream.jetstream.publish(f"lines.{'ab'[number % 2]}", b"%d\n" % number)

    ask(keeping.url, work)
    link = deliver(linking, bus / "B_x", f"{keeping.url}/COPY/lines.b", place)
    wait_for(reader, b"1\n3\n5\n")
    link.end()


def test_outsiders_and_filters(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    reader = collect(bus / "B_x")
    link = deliver(linking, bus / "B_x", f"{keeping.url}/LINES/lines.>", place)

    async def work(stream: Stream) -> None:
        await stream.publish("lines.a", b"one\n\ntwo", {}, 0, "one")
        await publish(stream, b"three\n", 0, subject="lines.b.c")
        await stream.publish("lines.d", b"four", {**runs.headers(Where(SPOOL, 0, 7, 1, "h", "U_x"))}, 0, "four")
        await stream.publish("lines.a", b"\n\n", {}, 1, "blank")
        await stream.publish("lines.a", b"five\n", {}, 4, "five")

    ask(keeping.url, work)
    wait_for(reader, b"one\ntwo\nthree\nfour\nfive\n")
    link.end()
    # What others have said so far is not known to have come, nor not to have.
    other = deliver(linking, bus / "B_x", f"{keeping.url}/LINES", place, is_ready=False)
    assert "is of lines.>, and not of >: lines would be left out, or come twice; --consumer names another" in other.fails()
    taking = (f"{keeping.url}/LINES/lines.d", "--state", place / "elsewhere", "--take-over", bus / "B_x")
    taken = linking("--deliver", *taking, is_ready=False)
    assert " of lines.>, and not of lines.d: --consumer names another one" in taken.fails()
    link = deliver(linking, bus / "B_x", f"{keeping.url}/LINES/lines.>", place)
    ask(keeping.url, lambda stream: publish(stream, b"six\n", 1, subject="lines.b.c"))
    wait_for(reader, b"one\ntwo\nthree\nfour\nfive\nsix\n")
    link.end()


SPOKEN = f"""
import logging, sys
from futebus.commands.link import main
from futebus.host.voice import Voice
from futebus.links import delivery, running

def warn(self, words, really=Voice.warn):
    really(self, words)
    for handler in logging.getLogger().handlers:
        handler._outlet.flush({DEADLINE})

Voice.warn = warn
delivery.END_SECONDS = running.GRACE = {DEADLINE}
sys.exit(main())
"""
"""A link that goes on when what it warns of has been said, since it may be killed then, and that ends in its own time."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_is_killed_again_and_again(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, number: signal.Signals
) -> None:
    bus = mounting("max_queue=300")
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 100_000) + fill(keeping.url, 100_000, 3000, source=1)
    chance = random.Random(number)
    words = ""
    for _ in range(12):
        link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, is_ready=False, script=SPOKEN)
        more = min(master.size + chance.choice((1, 100_000, 1_000_000)), len(data))
        until(lambda more=more: master.size >= more, "lines come")  # type: ignore[misc]
        link.process.send_signal(number)
        link.process.wait()
        words += link.words
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, script=SPOKEN)
    until(lambda: master.data.endswith(numbered(99_999, 100_000, 1)), "the last one comes")
    link.end()
    words += link.words
    again = sum(map(int, re.findall(r"(\d+) lines? (?:is|are) sent again", words)))
    found = master.data.splitlines()
    if number == signal.SIGTERM:
        assert not again, words
    seen: set[bytes] = set()
    new = [line for line in found if not (line in seen or seen.add(line))]  # type: ignore[func-returns-value]
    assert new == data.splitlines()
    assert len(found) - len(new) <= again, words


Trouble = Callable[[Server], None]


def _killed(server: Server) -> None:
    server.kill()
    server.begin()


def test_the_server_dies(mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    bus = mounting("max_queue=300")
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 200_000)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place)
    for _ in range(4):
        more = min(master.size + 500_000, len(data))
        until(lambda more=more: master.size >= more, "lines come")  # type: ignore[misc]
        _killed(keeping)
    data += fill(keeping.url, 1000, begin=200_000)
    wait_for(master, data)
    link.end()


def test_the_network_fails(mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    bus = mounting("max_queue=300")
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 200_000)
    with proxied(keeping) as network:
        link = deliver(linking, bus / "U_x", f"nats://127.0.0.1:{network.port}/LINES", place)
        for round_ in range(6):
            more = min(master.size + 400_000, len(data))
            until(lambda more=more: master.size >= more, "lines come")  # type: ignore[misc]
            if round_ == 3:
                network.swallow()
                link.wait_for("does not answer")
            network.cut()
            network.mend()
        wait_for(master, data)
        link.end()


def test_back_pressure(mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    """A master that does not read keeps lines in the stream, and gets all of them later."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    data = fill(keeping.url, 400_000, 4000)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place)
    until(lambda: bus.channel("U_x")["messages_in"] >= 100, "its queue is full")

    async def pending(stream: Stream) -> int:
        [info] = await stream.jetstream.consumers_info("LINES")
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    assert ask(keeping.url, pending) == 100
    master.start()
    wait_for(master, data)
    until(lambda: ask(keeping.url, pending) == 0, "all is confirmed")
    link.end()


def test_a_master_that_goes_and_comes(mounting: Mounting, linking: Linking, keeping: Server, place: Path) -> None:
    bus = mounting()
    one = Collector(bus / ".U_x")
    one.start()
    fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, "--wait")
    one.lines(10)
    one.close()
    fill(keeping.url, 10, begin=10)
    link.wait_for("waiting")
    other = Collector(bus / ".U_x")
    other.start()
    wait_for(other, numbered(10, 20))
    other.close()
    link.end()


def test_a_name_that_is_removed_while_lines_come(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """They come without a pause that is long enough to find time for a look."""
    link = deliver(linking, bus / "B_x", f"{keeping.url}/LINES/lines", place)
    (bus / "B_x").unlink()
    reader = collect(bus / "B_x")
    numbers = itertools.count()

    def comes() -> bool:
        fill(keeping.url, 1, begin=next(numbers))
        time.sleep(LOOK_SECONDS / 10)
        return bool(reader.size)

    until(comes, "something comes")
    link.wait_for("its name was removed; it is opened anew")
    link.end()


def test_a_stream_that_has_lost_its_end_and_gets_it_again(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """As after a loss of power at its server. The recorder publishes again what is missing, cut in other places."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    fill(keeping.url, 100, each=10)
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(100)
    link.end()
    again = [url, "--state", str(place / "state")]

    async def lose(stream: Stream) -> None:
        await stream.jetstream.delete_stream("LINES")

    ask(keeping.url, lose)
    fill(keeping.url, 80, each=80)
    fill(keeping.url, 30, each=25, begin=80)
    link = linking("--deliver", *again, bus / "U_x")
    link.wait_for("is another stream than before")
    wait_for(master, numbered(0, 110))
    link.end()


def test_a_second_one_is_refused(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    master = collect(bus / ".U_x")
    fill(keeping.url, 10)
    url = f"{keeping.url}/LINES"
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(10)
    second = deliver(linking, bus / "U_x", url, place, is_ready=False)
    assert f" is in use: process {link.process.pid} delivers to this channel\n" in second.fails()
    elsewhere = linking("--deliver", url, "--state", place / "elsewhere", bus / "U_x", is_ready=False)
    assert " of another delivery: --consumer names another one" in elsewhere.fails()
    assert not list((place / "elsewhere").iterdir())
    link.end()
    fill(keeping.url, 10, begin=10)
    taken = linking("--deliver", url, "--state", place / "elsewhere", "--take-over", bus / "U_x")
    wait_for(master, numbered(0, 20))
    taken.end()
    third = deliver(linking, bus / "U_x", url, place, is_ready=False)
    assert " of another delivery" in third.fails()
    assert list((place / "state").iterdir())  # what it has written is not to be forgotten


def test_from_writers_on_two_buses_to_a_master_on_a_third(
    mounting: Mounting, linking: Linking, recording: Recording, keeping: Server, collect: Collect, place: Path, start: Start
) -> None:
    """While recorders' processes, the server and the delivery die in turn."""
    one, two, third = mounting("max_queue=500"), mounting("max_queue=500"), mounting("max_queue=500")
    master = collect(third / ".U_all")
    recorders, running = [], []
    for number, bus in enumerate((one, two)):
        to = ("--to", f"{keeping.url}/LINES/lines.{number}", "--stream-subjects", "lines.>")
        recorders.append(recording(bus / "U_x", *to, spool=place / f"spool{number}"))
        running += [start(sys.executable, "-c", WRITER, f"{number}{name}", "20000", bus / "U_x", "0.02") for name in range(2)]
    url = f"{keeping.url}/LINES/lines.>"
    words = ""
    for round_ in range(6):
        link = deliver(linking, third / "U_all", url, place, "--wait", is_ready=False, script=SPOKEN)
        before = master.size
        # All may have come, if rounds take long.
        until(lambda before=before: master.size > before + 10_000 or master.data.count(b"\n") >= 80_000, "lines come")  # type: ignore[misc]
        kill(recorders[round_ % 2].publisher())
        kill(recorders[round_ % 2].drain())
        link.process.kill()
        link.process.wait()
        words += link.words
        if round_ % 2:
            _killed(keeping)
    link = deliver(linking, third / "U_all", url, place, "--wait")
    assert [writer.wait(DEADLINE) for writer in running] == [0] * 4
    expected = {b"%d%d %d" % (bus, name, number) for bus in range(2) for name in range(2) for number in range(20_000)}
    count = len(expected)
    # Some may come twice. Those are not to be taken for others that have not come yet.
    until(lambda: master.data.count(b"\n") >= count and len({*master.data.splitlines()}) >= count, "all has come")
    link.end()
    for recorder in recorders:
        recorder.end()
    words += link.words
    again = sum(map(int, re.findall(r"(\d+) lines? (?:is|are) sent again", words)))
    found = [b" ".join(line.split(b" ")[:2]) for line in master.data.splitlines()]
    assert set(found) == expected
    assert len(found) - len(expected) <= again, words
    seen = dict.fromkeys(found)
    for writer in (b"00", b"01", b"10", b"11"):
        numbers = [int(line.split()[1]) for line in seen if line.startswith(writer + b" ")]
        assert numbers == list(range(20_000))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--deliver", "nats://h", "U_x"], 2, "argument --deliver: not nats://SERVER/STREAM[/SUBJECT]: 'nats://h'"),
        (["--deliver", "nats://h/S/a.>.b", "U_x"], 2, "argument --deliver: * stands for a word and > for the last ones"),
        (["--deliver", "nats://h/S", "U_x", "nats://h/x"], 2, "--deliver has a channel alone, and not 'nats://h/x' too"),
        (["--deliver", "nats://h/S", "A_x"], 2, "A_x: a U or B channel, please: an A channel has addresses"),
        (["--deliver", "nats://h/S", "S_x"], 2, "S_x: a U or B channel, please: an S channel has one master"),
        (["--deliver", "nats://h/S", "x"], 2, "x: a U or B channel, please: its name begins with U or B"),
        (["--deliver", "nats://h/S", "--read-only", "B_x"], 2, "argument --read-only: not allowed with argument --deliver"),
        (["--deliver", "nats://h/S", "--consumer", "a.b", "B_x"], 2, "argument --consumer: letters, digits, - and _, and"),
        (["--state", "x", "B_x", "nats://h/x"], 2, "--state is for --deliver only"),
        (["--stream-replicas", "3", "B_x", "nats://h/x"], 2, "--stream-replicas is for --deliver only"),
        (["--deliver", "nats://h/S/x.>", "--stream-subjects", "x.*", "B_x"], 2, "--stream-subjects x.* does not include x.>"),
        (["B_x"], 2, "the following arguments are required: URL"),
        (["--deliver", "nats://h/S"], 2, "the following arguments are required: CHANNEL (see"),
        (["--deliver", "nats://h/S", "--state", "/proc/none", "B_x"], 1, "/proc/none"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(words: list[str], status: int, said: str) -> None:
    done = run(*LINK, *words)
    assert done.stderr.startswith(f"futebus-link: {said}"), done.stderr
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)


def test_streams_that_are_of_no_use(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    collect(bus / ".U_x")

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.add_stream(name="MEMORY", subjects=["memory"], storage="memory")
        await stream.jetstream.add_stream(name="WORK", subjects=["work"], retention="workqueue")

    ask(keeping.url, work)
    for address, words in {
        "NONE": "there is no such stream",
        "LINES/other": "does not listen to other, but to lines",
        "MEMORY": "is kept in memory",
        "WORK": "forgets what somebody has read",
    }.items():
        assert words in deliver(linking, bus / "U_x", f"{keeping.url}/{address}", place, is_ready=False).fails()
    keeping.kill()
    assert "Connection refused" in deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, is_ready=False).fails()
    assert not list((place / "state").iterdir())  # who could not begin leaves nothing


INSISTENT = """
import sys
from futebus.commands.link import main
from futebus.links import delivery, target

def open(self, really=target.Target.open):
    print("is opened", file=sys.stderr, flush=True)
    return really(self)

delivery.LONG_SECONDS = 0.01
target.Target.open = open
sys.exit(main())
"""
"""A link that often tries what is too long, and says that it does."""


def test_a_line_that_is_too_long_is_told_of_once(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """It is tried again and again, and others wait for it."""
    bus = mounting("max_message=1000")
    master = collect(bus / ".U_x")

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", b"one\n" + b"x" * 3000 + b"\nthree\n")

    ask(keeping.url, work)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, script=INSISTENT)
    until(lambda: link.words.count("is opened") > 5, "it is tried")
    assert link.words.count("waits until the bus takes it, and so do all behind it") == 1
    assert master.data == b"one\n"
    link.end()
