"""What a delivery says of messages that a stream has no more."""

import contextlib
import functools
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from futebus.links.agreement import Known, agreed, begin_anew, known
from futebus.links.progress import Progress, Reached
from futebus.nats.consumer import BATCH, LATE_SECONDS
from futebus.nats.stream import Stream

from ..helpers.collectors import Collect, Collector
from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Listening, Server, Serving
from ..helpers.processes import state_of
from ..helpers.programs import stop, stopped
from ..helpers.published import ask
from ..helpers.waiting import until
from .links import Link, Linking
from .test_delivery import deliver, fill, numbered
from .test_purged import purge, say
from .test_returns import info_of

COMMAND = """
import sys
from futebus.commands.link import main
sys.argv[0] = "futebus-link"
sys.exit(main())
"""
"""What comes behind a program that changes something."""

BRIEF = """
import futebus.nats.consumer
futebus.nats.consumer.EXPIRES_SECONDS, futebus.nats.consumer.HEARTBEAT_SECONDS = 6.0, 2.9
"""
"""A delivery that asks anew more often."""

SLEEPING = """
import time
clock, last, slept = time.monotonic, time.monotonic(), 0.0
def monotonic():
    global last, slept
    now = clock()
    slept += now - last if now - last > 1 else 0
    last = now
    return now - slept
time.monotonic = monotonic
"""
"""A clock that stands still while its process does, as that of a machine that is asleep."""

PURGING = """
from futebus.links import delivery
known = delivery.known
async def purged(stream, *words):
    found = await known(stream, *words)
    await stream.jetstream.purge_stream(stream.name)
    return found
delivery.known = purged
"""
"""A delivery that begins when all goes that is there."""


STOPPING = """
import os, signal
from futebus.nats.consumer import BATCH, Consumer
state = Consumer._state
async def stopped(self):
    found = await state(self)
    if found.last > BATCH and found.last == self._through and self._is_asked:
        Consumer._state = state
        os.kill(os.getpid(), signal.SIGSTOP)
        await asyncio.sleep(0)
        while not self._waiting:
            await asyncio.sleep(0.001)
    return found
Consumer._state = stopped
import asyncio
"""
"""A delivery that is stopped when it has got all that it had asked for, and has asked for more and for the stream's state."""


def said(link: Link) -> int:
    """How many messages it has said to be removed."""
    return sum(int(count) for count in re.findall(r"(\d+) messages? of \S+ had been removed before", link.words))


def read_until(master: Collector, is_over: Callable[[bytes], bool], what: str, size: int = 100) -> bytes:
    """Reads a little at a time for a master that reads nothing yet, until something is so. Returns what has come."""
    found = b""

    def reads() -> bool:
        nonlocal found
        with contextlib.suppress(BlockingIOError):
            found += os.read(master.file, size)
        return is_over(found)

    until(reads, what)
    return found


def waiting(linking: Linking, bus: Mount, url: str, place: Path, master: Collector, line: bytes = b"0", **how: Any) -> Link:
    """A delivery of a stream that has one message, which has come. It waits for more."""
    server = url[: url.index("/LINES")]
    say(server, "lines.a", line)
    link = deliver(linking, bus / "U_x", url, place, **how)
    assert master.lines(1) == [line.decode()]
    until(lambda: info_of(server).num_waiting, "it waits for more")
    return link


def publish_each(url: str, *subjects: str, prefix: str = "") -> None:
    """Publishes a message on each subject; its line is the subject, without what all begin with."""

    async def work(stream: Stream) -> None:
        for subject in subjects:
            await stream.jetstream.publish(prefix + subject, subject.encode() + b"\n")

    ask(url, work)


def missed(bus: Mount, linking: Linking, url: str, master: Collector, place: Path) -> None:
    """Ten messages of a stream are delivered, and ten come when nobody delivers them any more."""
    server = url.rpartition("/")[0]
    fill(server, 10, each=1)
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(10)
    link.end()
    fill(server, 10, each=1, begin=10)


def held_back(linking: Linking, channel: Path, server: Server, place: Path, url: str) -> Link:
    """Delivers 1,100 messages to a channel whose master does not read: no more is handed out, and nothing more is there."""
    say(server.url, "lines.a", *(b"%d" % number for number in range(1100)))
    link = deliver(linking, channel, url, place)
    until(lambda: (info := info_of(server.url)).num_ack_pending == 1000 and not info.num_pending, "no more is handed out")
    return link


def test_what_retention_has_removed_is_said(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    missed(bus, linking, url, master, place)

    async def forget(stream: Stream) -> None:
        await stream.jetstream.purge_stream("LINES", seq=15)

    ask(keeping.url, forget)
    link = deliver(linking, bus / "U_x", url, place)
    assert master.lines(16) == [line.decode() for line in (numbered(0, 10) + numbered(14, 20)).splitlines()]
    link.wait_for("4 messages of")
    link.wait_for("4 lines of host:U_x, from 10 on, are missing in the stream")
    link.end()


@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_while_a_delivery_is_behind_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str
) -> None:
    """Whether it is of a subject nobody can tell any more."""
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES{subject}"

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"], max_msgs=40)
        await stream.jetstream.publish("lines.a", b"first\n")

    async def flood(stream: Stream) -> None:
        for number in range(300):
            await stream.jetstream.publish("lines.a", b"%d " % number + b"x" * 200_000 + b"\n")

    ask(keeping.url, work)
    link = deliver(linking, bus / "U_x", url, place)
    ask(keeping.url, flood)  # more than is taken ahead
    master.start()
    until(lambda: b"\n299 " in master.data and master.data.endswith(b"\n"), "the last one comes")
    found = [int(line.split()[0]) for line in master.data.splitlines()[1:]]
    assert found == sorted({*found})
    missing = 300 - len(found)
    assert missing > 0
    why = f"it was known whether they were of {subject[1:]}" if subject else "they could be delivered"
    said = re.compile(rf"(\d+) messages? of {re.escape(url)} had been removed before {re.escape(why)}\n")
    until(lambda: sum(int(count) for count in said.findall(link.words)) == missing, f"it says that {missing} were removed")
    link.end()


@pytest.mark.parametrize("comes_next", [False, True])
@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_before_a_delivery_hears_that_it_has_got_all_that_it_asked_for_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str, *, comes_next: bool
) -> None:
    """However soon it asks for more then; and whether anything comes behind it or not."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES{subject}"
    link = waiting(linking, bus, url, place, master)
    with stopped(link.process):
        say(keeping.url, "lines.a", *(b"%d" % number for number in range(1, 1 + BATCH)))
        until(lambda: not info_of(keeping.url).num_waiting, "it has got all that it has asked for")
        say(keeping.url, "lines.a", *(b"%d" % number for number in range(1 + BATCH, 101 + BATCH)))
        purge(keeping.url, before=102 + BATCH)
        if comes_next:
            say(keeping.url, "lines.a", b"%d" % (101 + BATCH))
    until(lambda: said(link) == 100, "it says that 100 were removed")
    if not comes_next:
        say(keeping.url, "lines.a", b"%d" % (101 + BATCH))
    assert [int(line) for line in master.lines(2 + BATCH)] == [*range(1 + BATCH), 101 + BATCH]
    link.end()
    assert said(link) == 100


def test_what_goes_behind_what_comes_while_the_stream_is_looked_at_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """All that is asked for then may come at once."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES/lines.a"
    link = waiting(linking, bus, url, place, master, script=STOPPING + COMMAND)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1, 1 + BATCH)))
    until(lambda: state_of(link.process.pid) == "T", "it is stopped")
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1 + BATCH, 1 + 2 * BATCH)))
    until(lambda: not info_of(keeping.url).num_waiting, "it has got all that it has asked for")
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1 + 2 * BATCH, 101 + 2 * BATCH)))
    purge(keeping.url, before=102 + 2 * BATCH)
    link.process.send_signal(signal.SIGCONT)
    until(lambda: said(link) == 100, "it says that 100 were removed")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(2 + 2 * BATCH)[-1] == "next"
    link.end()
    assert said(link) == 100


def test_what_was_too_long_for_what_is_asked_for_and_has_gone_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """The request has ended by it, long after anything else came."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES/lines.a"
    link = waiting(linking, bus, url, place, master)
    came = time.monotonic()
    with stopped(link.process):
        until(lambda: time.monotonic() > came + 2 * LATE_SECONDS, "it is long ago that one came")
        say(keeping.url, "lines.a", b"line\n" * 80_000)
        until(lambda: not info_of(keeping.url).num_waiting, "there is no room for it")
        purge(keeping.url, before=3)
    until(lambda: said(link) == 1, "it says that one was removed")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(2)[-1] == "next"
    link.end()
    assert said(link) == 1


@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_while_its_server_waits_for_confirmations_is_said(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str
) -> None:
    """When it handed out the last one that may be unconfirmed, it had none to tell of."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES{subject}"
    link = held_back(linking, bus / "U_x", keeping, place, url)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1400)))
    purge(keeping.url, before=1301)
    master.start()
    until(lambda: master.data.endswith(b"1399\n"), "the last one comes")
    assert [int(line) for line in master.data.split()] == [*range(1100), *range(1300, 1400)]
    why = f"it was known whether they were of {subject[1:]}" if subject else "they could be delivered"
    link.wait_for(f"200 messages of {url} had been removed before {why}")
    link.end()


def test_what_goes_is_said_though_nothing_comes_behind_it(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Once: the next delivery does not know it, and need not."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES/lines.a"
    link = held_back(linking, bus / "U_x", keeping, place, url)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1400)))
    purge(keeping.url, before=1401)
    master.start()
    master.lines(1100)
    link.wait_for(f"300 messages of {url} had been removed before it was known whether they were of lines.a")
    link.end()
    link = deliver(linking, bus / "U_x", url, place)
    say(keeping.url, "lines.a", b"next")
    assert master.lines(1101)[-1] == "next"
    link.end()
    assert "removed" not in link.words


def test_what_has_come_and_is_gone_before_it_is_written_is_said(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Though it is said already that what had not come is gone."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES/lines.a"
    link = held_back(linking, bus / "U_x", keeping, place, url)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1400)))
    purge(keeping.url, before=1401)
    begin = read_until(master, lambda _: "300 messages of" in link.words, "it says what is gone")
    link.end()
    again = deliver(linking, bus / "U_x", url, place)
    say(keeping.url, "lines.a", b"next")
    master.start()
    until(lambda: master.data.endswith(b"next\n"), "the next one comes")
    again.end()
    assert said(again) > 0
    assert said(link) + said(again) + len((begin + master.data).split()) == 1401


@pytest.mark.parametrize("script", [BRIEF, BRIEF + SLEEPING], ids=["stopped", "asleep"])
def test_what_comes_and_goes_while_a_delivery_stands_still_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, script: str
) -> None:
    """Also if it goes on before it finds that its server has not been heard of for long."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES/lines.a"
    link = waiting(linking, bus, url, place, master, b"first", script=script + COMMAND)
    stop(link.process.pid)
    until(lambda: not info_of(keeping.url).num_waiting, "its server waits for it no more")
    ended = time.monotonic()
    until(lambda: time.monotonic() > ended + 1, "it stands still for longer than a delivery asks for messages late as a rule")
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(100)))
    purge(keeping.url, before=102)
    link.process.send_signal(signal.SIGCONT)
    link.wait_for(f"100 messages of {url} had been removed before it was known whether they were of lines.a")
    link.end()


@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_while_a_delivery_begins_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str
) -> None:
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES{subject}"
    say(keeping.url, "lines.a", b"first")
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(1)
    link.end()
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(100)))
    link = linking("--deliver", url, "--state", place / "state", bus / "U_x", script=PURGING + COMMAND)
    say(keeping.url, "lines.a", b"next")
    assert master.lines(2) == ["first", "next"]
    why = f"it was known whether they were of {subject[1:]}" if subject else "they could be delivered"
    link.wait_for(f"100 messages of {url} had been removed before {why}")
    link.end()


@pytest.mark.parametrize("begins_anew", [False, True])
@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_while_the_first_delivery_is_behind_is_said(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str, *, begins_anew: bool
) -> None:
    """Though something was missing before that is nobody's loss; and also if it begins anew meanwhile."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES{subject}"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(3000)))
    purge(keeping.url, before=5)

    async def cut(stream: Stream) -> None:
        await stream.jetstream.delete_msg("LINES", 7)
        await stream.jetstream.delete_msg("LINES", 2990)

    ask(keeping.url, cut)
    link = deliver(linking, bus / "U_x", url, place)
    until(lambda: info_of(keeping.url).num_ack_pending == 1000, "no more is handed out")
    if begins_anew:
        link.end()
        assert "removed" not in link.words
        link = deliver(linking, bus / "U_x", url, place)
        until(lambda: info_of(keeping.url).num_ack_pending == 1000, "no more is handed out")
    purge(keeping.url, before=2001)
    master.start()
    until(lambda: master.data.endswith(b"2999\n"), "the last one comes")
    lost = 3000 - len(master.data.split()) - 6
    assert lost > 0
    why = f"it was known whether they were of {subject[1:]}" if subject else "they could be delivered"
    said = re.compile(rf"(\d+) messages? of {re.escape(url)} had been removed before {re.escape(why)}\n")
    until(lambda: sum(int(count) for count in said.findall(link.words)) == lost, f"it says that {lost} were removed")
    link.end()


def test_what_was_removed_here_and_there_is_added_up(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """What has not been said yet is said in the end."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", b"first")
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(1)
    link.end()
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(200)))

    async def cut(stream: Stream) -> None:
        for number in range(10, 201, 10):
            await stream.jetstream.delete_msg("LINES", number)

    ask(keeping.url, cut)
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(181)
    link.end()
    assert said(link) == 20
    assert link.words.count("removed") <= 2


@pytest.mark.parametrize("who", ["server", "delivery"])
@pytest.mark.parametrize("subject", ["", "/lines.a"])
def test_what_goes_before_the_first_message_is_written_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str, who: str
) -> None:
    """A first delivery waits for a master, and its server or it itself is started anew."""
    url = f"{keeping.url}/LINES{subject}"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(100)))
    words = "--deliver", url, "--state", place / "state", "--wait", bus / "U_x"
    link = linking(*words, is_ready=False)

    def has_taken() -> bool:
        with contextlib.suppress(ValueError):
            return info_of(keeping.url).num_ack_pending == 100
        return False

    until(has_taken, "they are taken")
    purge(keeping.url, before=101)
    if who == "server":
        keeping.kill()
        link.wait_for(f"{keeping.url}: ")  # it waits already: for a master
        keeping.begin()
    else:
        link.end()
        link = linking(*words, is_ready=False)
    master = collect(bus / ".U_x")
    link.wait_for(" is delivered to ")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(1) == ["next"]
    until(lambda: said(link) == 100, "it says what was removed")
    link.end()


def test_what_was_missing_before_is_known_after_a_kill(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Exactly: not twice, and nothing else is taken for it. But for the line that it is killed over: it may have come or not."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"%d " % number + b"x" * 50_000 for number in range(1, 1001)))

    async def cut(stream: Stream) -> None:
        for number in range(20, 70):
            await stream.jetstream.delete_msg("LINES", number)

    ask(keeping.url, cut)
    link = deliver(linking, bus / "U_x", url, place)
    begin = read_until(master, lambda found: b"\n70 " in found, "the master is behind what was missing", 1 << 20)
    link.process.kill()
    link.process.wait()
    purge(keeping.url, before=901)
    master.start()
    again = deliver(linking, bus / "U_x", url, place)
    until(lambda: b"\n1000 " in master.data and master.data.endswith(b"\n"), "the last one comes")
    again.end()
    found = {int(line.split()[0]) for line in (begin + master.data).splitlines()}
    assert said(link) == 0
    assert len(found) + said(again) - (1000 - 50) in (0, 1)


def test_what_is_not_said_when_a_delivery_is_killed_is_said_by_the_next(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """It says such things now and then."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES/lines.a"
    link = held_back(linking, bus / "U_x", keeping, place, url)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1200)))
    purge(keeping.url, before=1201)
    begin = read_until(master, lambda _: said(link) > 0, "it says what is gone")
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1200, 2300)))
    until(lambda: info_of(keeping.url).num_ack_pending == 1000, "no more is handed out again")
    purge(keeping.url, before=2301)
    master.start()
    until(lambda: not info_of(keeping.url).num_ack_pending, "all is written that was handed out")
    link.process.kill()
    link.process.wait()
    again = deliver(linking, bus / "U_x", url, place)
    say(keeping.url, "lines.a", b"next")
    until(lambda: master.data.endswith(b"next\n"), "the next one comes")
    again.end()
    found = len((begin + master.data).split())
    assert found + said(link) + said(again) == 2301


def test_what_goes_is_said_of_a_whole_stream_too_though_nothing_comes_behind_it(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    link = held_back(linking, bus / "U_x", keeping, place, url)
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1400)))
    purge(keeping.url, before=1401)
    master.start()
    master.lines(1100)
    link.wait_for(f"300 messages of {url} had been removed before they could be delivered")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(1101)[-1] == "next"
    link.end()
    assert said(link) == 300


@pytest.mark.parametrize("how", ["at once", "anew", "refused"])
def test_what_was_missing_before_a_server_lost_messages_hides_no_loss(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, how: str
) -> None:
    """Nor is anything left out if the delivery ends while it writes the first one of those that came then, or cannot begin."""
    bus = mounting("max_queue=100")
    url = f"{keeping.url}/LINES"
    ask(keeping.url, lambda stream: stream.jetstream.add_stream(name="LINES", subjects=["lines", "lines.>"], max_consumers=1))
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(600)))
    master, other = collect(bus / ".U_x"), collect(bus / ".U_y", at_once=False)
    link = deliver(linking, bus / "U_x", url, place, "--consumer", "one")
    master.lines(600)
    link.end()

    async def cut(stream: Stream) -> None:
        for number in range(100, 400):
            await stream.jetstream.delete_msg("LINES", number)

    ask(keeping.url, cut)
    with keeping.losing():
        say(keeping.url, "lines.a", *(b"%d" % number for number in range(600, 650)))
        link = deliver(linking, bus / "U_x", url, place, "--consumer", "one")
        master.lines(650)
        link.end()
        assert said(link) == 0
    many = b"\n".join(b"other0" for _ in range(500))  # more than a channel takes that nobody reads
    say(keeping.url, "lines.a", many, *(b"other%d" % number for number in range(1, 1500)))
    if how == "refused":

        async def occupy(stream: Stream) -> None:
            await stream.jetstream.delete_consumer("LINES", "one")
            await stream.jetstream.add_consumer("LINES", durable_name="other", ack_policy="explicit")

        ask(keeping.url, occupy)
        link = deliver(linking, bus / "U_y", url, place, "--consumer", "one", is_ready=False)
        assert "maximum consumers" in link.fails()
        ask(keeping.url, lambda stream: stream.jetstream.delete_consumer("LINES", "other"))
    link = deliver(linking, bus / "U_y", url, place, "--consumer", "one")
    until(lambda: info_of(keeping.url).num_ack_pending == 1000, "no more is handed out")
    if how == "anew":
        link.end()
        ask(keeping.url, lambda stream: stream.jetstream.delete_msg("LINES", 650))  # the last one that had been written
        link = deliver(linking, bus / "U_y", url, place, "--consumer", "one")
        until(lambda: info_of(keeping.url).num_ack_pending == 1000, "no more is handed out")
    purge(keeping.url, before=1901)
    other.start()
    until(lambda: other.data.endswith(b"other1499\n"), "the last one comes")
    link.end()
    found = {*other.data.split()}
    assert len(found) + said(link) == 1500


def test_what_is_said_before_a_reconnection_is_not_said_again(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Though what had come and was not written has gone meanwhile, too."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    link = held_back(linking, bus / "U_x", keeping, place, f"{keeping.url}/LINES")
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100, 1400)))
    purge(keeping.url, before=1401)
    begin = read_until(master, lambda _: "300 messages of" in link.words, "it says what is gone")
    keeping.kill()
    link.wait_for("; waiting")
    keeping.begin()
    say(keeping.url, "lines.a", b"next")
    master.start()  # what is just being written is waited for
    until(lambda: master.data.endswith(b"next\n"), "the next one comes")
    link.end()
    assert said(link) + len((begin + master.data).split()) == 1401


def test_a_stream_that_is_made_anew_comes_whole_though_the_delivery_ends_while_it_writes_its_first_message(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """What is known of the one before says nothing of this one, also where messages of it are missing."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(30)))
    link = deliver(linking, bus / "U_x", url, place)
    until(lambda: (info := info_of(keeping.url)).ack_floor and info.ack_floor.stream_seq == 30, "all are written")
    link.end()

    async def again(stream: Stream) -> None:
        await stream.jetstream.delete_stream("LINES")
        await stream.make(["lines", "lines.>"], max_msgs_per_subject=1)
        await stream.jetstream.publish("lines.a", b"\n".join(b"first" for _ in range(500)))
        for number in range(2, 41):  # number 30 is gone when number 35 has come
            await stream.jetstream.publish(f"lines.{30 if number == 35 else number}", b"second%d" % number)

    ask(keeping.url, again)
    link = deliver(linking, bus / "U_x", url, place)
    until(lambda: info_of(keeping.url).num_ack_pending == 39, "they are taken")
    link.end()
    link = deliver(linking, bus / "U_x", url, place)
    master.start()
    until(lambda: master.data.endswith(b"second40\n"), "the last one comes")
    link.end()
    wanted = [b"%d" % number for number in range(30)] + [b"first"] * 500
    assert master.data.split() == wanted + [b"second%d" % number for number in range(2, 41) if number != 30]
    assert "removed" not in link.words
    assert "has lost" not in link.words


def test_a_first_start_that_fails_is_none(bus: Mount, linking: Linking, serving: Serving, collect: Collect, place: Path) -> None:
    """What goes before the one that does not is nobody's loss."""
    denied = 'permissions: { publish: { deny: "$JS.API.CONSUMER.>" } }'
    users = f"authorization {{ users: [ {{user: a, password: b, {denied}}}, {{user: c, password: d}} ] }}"
    server = serving(users, jetstream=True)
    allowed = server.as_user("c:d")
    say(allowed, "lines.a", *(b"%d" % number for number in range(100)))
    words = "--state", place / "state", bus / "U_x"
    link = linking("--deliver", server.as_user("a:b") + "/LINES", *words, is_ready=False)
    assert "does not let us" in link.fails()
    assert not [*(place / "state").iterdir()]
    purge(allowed, before=91)
    master = collect(bus / ".U_x")
    link = linking("--deliver", allowed + "/LINES", *words)
    assert master.lines(10) == [f"{number}" for number in range(90, 100)]
    link.end()
    assert "removed" not in link.words


PATIENCE = 1.0
PATIENT = f"""
import futebus.nats.consumer
futebus.nats.consumer.LATE_SECONDS = {PATIENCE}
"""
"""It takes a message for late later: a busy machine may let it wait."""


@pytest.mark.parametrize("size", [5, 400_000], ids=["short", "long"])
def test_what_goes_of_others_is_not_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, size: int
) -> None:
    """A delivery that has all that is for it has lost nothing. For a long one it must ask anew, if there is no room for it."""
    master = collect(bus / ".U_x")
    rare = b"rare\n" * (size // 5)

    async def begin(stream: Stream) -> None:
        await stream.make(["lines.>"], max_msgs=40)

    async def say(stream: Stream) -> None:
        for number in range(100):
            await stream.jetstream.publish("lines.b", b"%d\n" % number)
        await stream.jetstream.publish("lines.a", rare)

    ask(keeping.url, begin)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines.a", place, script=PATIENT + COMMAND)
    until(lambda: info_of(keeping.url).num_waiting, "it waits for more")
    for count in range(4):
        ask(keeping.url, say)
        assert set(master.lines((count + 1) * size // 5)) == {"rare"}
        came = time.monotonic()
        until(lambda: time.monotonic() > came + 2 * PATIENCE, "they are far enough from each other")  # noqa: B023
    link.end()
    assert "removed" not in link.words


def test_what_goes_of_others_later_is_not_said_either(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """When its server has waited for confirmations, and waits no more."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    ask(keeping.url, lambda stream: stream.make(["lines", "lines.>"], max_msgs=2000))
    link = held_back(linking, bus / "U_x", keeping, place, f"{keeping.url}/LINES/lines.a")
    master.start()
    until(lambda: info_of(keeping.url).num_ack_pending == 0, "all are confirmed")
    say(keeping.url, "lines.b", *(b"other" for _ in range(2500)))
    say(keeping.url, "lines.a", b"last")
    assert master.lines(1101)[-1] == "last"
    link.end()
    assert "removed" not in link.words


@pytest.mark.parametrize("how", ["limit", "hand"])
def test_what_was_removed_between_others_is_said(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, how: str
) -> None:
    """Once, and of that alone which was there when the first delivery had begun."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"

    async def begin(stream: Stream) -> None:
        await stream.make(["lines.>"], max_msgs_per_subject=3 if how == "limit" else -1)
        for _ in range(4):
            await stream.jetstream.publish("lines.rare", b"rare\n")
        if how == "hand":
            await stream.jetstream.delete_msg("LINES", 2)

    async def go_on(stream: Stream) -> None:
        for number in range(10):
            await stream.jetstream.publish("lines.busy", b"%d\n" % number)
        for sequence in range(5, 12) if how == "hand" else ():
            await stream.jetstream.delete_msg("LINES", sequence)

    ask(keeping.url, begin)
    link = deliver(linking, bus / "U_x", url, place)
    assert master.lines(3) == ["rare"] * 3
    link.end()
    assert "removed" not in link.words
    ask(keeping.url, go_on)
    link = deliver(linking, bus / "U_x", url, place)
    assert master.lines(6)[3:] == ["7", "8", "9"]
    link.wait_for(f"7 messages of {url} had been removed before they could be delivered")
    ask(keeping.url, lambda stream: stream.jetstream.publish("lines.busy", b"10\n"))
    assert master.lines(7)[6:] == ["10"]
    link.end()
    assert link.words.count("removed") == 1, link.words


def test_what_was_removed_is_said_once(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    """Also if nothing comes between two starts, and its server is started anew."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    missed(bus, linking, url, master, place)
    ask(keeping.url, lambda stream: stream.jetstream.purge_stream("LINES"))
    link = deliver(linking, bus / "U_x", url, place)
    link.wait_for("10 messages of")
    keeping.kill()
    link.wait_for("; waiting")
    keeping.begin()
    link.wait_for("is there again")
    link.end()
    assert link.words.count("removed") == 1, link.words
    link = deliver(linking, bus / "U_x", url, place)
    fill(keeping.url, 10, each=1, begin=20)
    assert master.lines(20)[10:] == [line.decode() for line in numbered(20, 30).splitlines()]
    link.end()
    assert "removed" not in link.words


def test_what_is_removed_behind_all_that_is_there_is_said(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Of a whole stream, though its first message is there, and nothing comes behind."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1100)))
    link = deliver(linking, bus / "U_x", url, place, script=BRIEF + COMMAND)
    until(lambda: (info := info_of(keeping.url)).num_ack_pending == 1000 and not info.num_pending, "no more is handed out")
    say(keeping.url, "lines.b", *(b"%d" % number for number in range(300)))
    purge(keeping.url, subject="lines.b")
    master.start()
    master.lines(1100)
    link.wait_for(f"300 messages of {url} had been removed before they could be delivered")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(1101)[-1] == "next"
    link.end()
    assert said(link) == 300


def test_what_a_server_loses_twice_comes_while_nothing_is_taken(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Where it is not known when the server had got the last message that was taken, those before it tell what it has."""
    bus = mounting("max_queue=100")
    master, other = collect(bus / ".U_x"), collect(bus / ".U_y", at_once=False)
    url = f"{keeping.url}/LINES"
    many = b"\n".join(b"many" for _ in range(500))  # more than a channel takes that nobody reads

    def lines(word: bytes, begin: int, end: int) -> list[bytes]:
        return [word + b"%d" % number for number in range(begin, end)]

    say(keeping.url, "lines.a", *lines(b"a", 1, 151))
    first = keeping.copied()
    say(keeping.url, "lines.a", *lines(b"a", 151, 200), many, *lines(b"a", 201, 211))
    second = keeping.copied()
    say(keeping.url, "lines.a", *lines(b"a", 211, 301))
    link = deliver(linking, bus / "U_x", url, place, "--consumer", "one")
    assert master.lines(799)[-1] == "a300"
    link.end()
    keeping.take_back(second)
    say(keeping.url, "lines.a", *lines(b"b", 211, 311))
    purge(keeping.url, before=200)
    link = deliver(linking, bus / "U_y", url, place, "--consumer", "one")
    until(lambda: (info_of(keeping.url).num_ack_pending or 0) > 100, "the first one waits for the channel")
    link.end()
    keeping.take_back(first)
    say(keeping.url, "lines.a", *lines(b"c", 151, 261))
    link = deliver(linking, bus / "U_y", url, place, "--consumer", "one")
    other.start()
    until(lambda: other.data.endswith(b"c260\n"), "the last one comes")
    link.end()
    assert [line for line in other.data.splitlines() if line.startswith(b"c")] == lines(b"c", 151, 261)


def test_what_a_server_has_lost_once_is_not_said_again(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Nor does anything come twice for it, of a subject whose messages are few among others'."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES/lines.a.*"

    publish = functools.partial(publish_each, keeping.url)
    ask(keeping.url, lambda stream: stream.make(["lines.>"], max_msgs_per_subject=1))
    publish(*(f"lines.a.{number}" for number in range(30)))
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(30)
    link.end()
    with keeping.losing():
        publish(*(f"lines.a.lost{number}" for number in range(60)))
        link = deliver(linking, bus / "U_x", url, place)
        master.lines(90)
        link.end()
    publish(*(f"lines.b.{number}" for number in range(60)), "lines.a.hot")
    link = deliver(linking, bus / "U_x", url, place)
    for count in range(91, 151):
        assert master.lines(count)[-1] == "lines.a.hot"
        publish("lines.a.hot")
    master.lines(151)
    link.end()
    assert link.words.count(" has others than were delivered") == 1
    for count in range(152, 154):
        publish("lines.a.hot")
        link = deliver(linking, bus / "U_x", url, place)
        assert master.lines(count)[-1] == "lines.a.hot"
        link.end()
        assert "has others" not in link.words
    assert len(master.data.splitlines()) == 153


def test_what_goes_of_a_new_stream_before_a_consumer_can_be_made_is_said(
    bus: Mount, linking: Linking, keeping: Server, listening: Listening, collect: Collect, place: Path
) -> None:
    """And once, that it is a new one."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(30)))
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(30)

    async def again(stream: Stream) -> None:
        await stream.jetstream.delete_stream("LINES")
        await stream.jetstream.add_stream(name="LINES", subjects=["lines", "lines.>"], max_consumers=1)
        await stream.jetstream.add_consumer("LINES", durable_name="other", ack_policy="explicit")

    with stopped(link.process):
        ask(keeping.url, again)
    link.wait_for("maximum consumers")
    tries = listening(keeping.url, "$JS.API.CONSUMER.DURABLE.CREATE.>")
    say(keeping.url, "lines.a", *(b"new%d" % number for number in range(100)))
    purge(keeping.url, before=51)
    until(lambda: len(tries.messages) > 1, "it has tried again")
    ask(keeping.url, lambda stream: stream.jetstream.delete_consumer("LINES", "other"))
    assert master.lines(80)[30:] == [f"new{number}" for number in range(50, 100)]
    link.wait_for("50 messages of")
    link.end()
    assert said(link) == 50
    assert link.words.count("is another stream than before") == 1


def test_a_stream_that_has_used_up_its_numbers_is_told(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """It is enough to purge it up to a wrong one."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", b"line")
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(1)
    link.end()
    purge(keeping.url, before=2**63 + 100)
    link = deliver(linking, bus / "U_x", url, place, is_ready=False)
    assert f"{url} has used up its numbers" in link.fails()


def test_what_is_missing_before_a_message_that_is_being_written_was_noted_with_it(keeping: Server, place: Path) -> None:
    """Also by a version that did not note which numbers these were."""
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(20)))
    progress = Progress(place / "state")

    async def work(stream: Stream) -> Known:
        state = await stream.state()
        progress.note(created=state.created, sequence=10, current=15, time=(await stream.stored(10) or (0, 0))[1])
        await stream.jetstream.purge_stream("LINES", seq=18)
        return await known(stream, await stream.state(), progress, pytest.fail)

    assert ask(keeping.url, work) == Known(10, 17)
    assert progress.reached.unsaid == 3, "the one that is being written, and two behind it"
    progress.close()


def test_others_come_of_which_few_are_left_where_a_server_has_lost_messages(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """None of the messages that are remembered from there is left: those that came later than all that were delivered tell."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"

    publish = functools.partial(publish_each, keeping.url, prefix="lines.")
    ask(keeping.url, lambda stream: stream.make(["lines.>"], max_msgs_per_subject=1))
    publish(*(f"{number}" for number in range(10)))
    link = deliver(linking, bus / "U_x", url, place)
    master.lines(10)
    link.end()
    with keeping.losing():
        link = deliver(linking, bus / "U_x", url, place)
        for count in range(11, 253):
            publish("lost")
            master.lines(count)
        link.end()
    others = [f"other{number}" for number in (42, 82, 133, 139)]
    publish(*(f"other{number}" if f"other{number}" in others else "hot" for number in range(11, 411)))
    link = deliver(linking, bus / "U_x", url, place)
    assert master.lines(257)[252:] == [*others, "hot"]
    link.wait_for("has others than were delivered from message 42 on")
    link.end()
    publish("hot")
    link = deliver(linking, bus / "U_x", url, place)
    assert master.lines(258)[257:] == ["hot"]
    link.end()
    assert "others" not in link.words


@pytest.mark.parametrize("takes_over", [False, True])
def test_others_come_of_which_none_is_behind_the_first_that_a_delivery_has_written(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, *, takes_over: bool
) -> None:
    """Behind its begin, or where another had come to, nothing was written before that one."""
    master, other = collect(bus / ".U_x"), collect(bus / ".U_y")
    url = f"{keeping.url}/LINES/a.>"

    publish = functools.partial(publish_each, keeping.url)

    async def make(stream: Stream) -> None:
        await stream.jetstream.add_stream(name="LINES", subjects=["a.>", "b.>"], max_msgs_per_subject=1)

    ask(keeping.url, make)
    publish(*(f"b.{number}" for number in range(1, 11)))
    words = "--deliver", url, "--consumer", "one", "--state"
    with keeping.losing():
        publish(*(f"{'a' if takes_over else 'b'}.{number}" for number in range(11, 21)))
        if takes_over:
            link = linking(*words, place / "other", bus / "U_y")
            other.lines(10)
            until(lambda: (info := info_of(keeping.url)).ack_floor and info.ack_floor.stream_seq == 20, "all are confirmed")
            link.end()
        link = linking(*words, place / "state", *["--take-over"] * takes_over, bus / "U_x")
        publish("a.lost")
        assert master.lines(1) == ["a.lost"]
        link.end()
    others = [f"a.other{number}" for number in range(11, 21)]
    publish(*others, *["a.hot"] * 4)
    link = linking(*words, place / "state", *["--take-over"] * takes_over, bus / "U_x")
    assert master.lines(12)[1:] == [*others, "a.hot"]
    link.end()


def test_who_takes_over_goes_by_what_the_other_had_and_not_by_what_he_remembers(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Which a server has lost since then; nor does it help that the last one that the other had is removed."""
    master, other = collect(bus / ".U_x"), collect(bus / ".U_y")
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(1, 51)))
    with keeping.losing():
        say(keeping.url, "lines.a", *(b"lost%d" % number for number in range(51, 101)))
        link = deliver(linking, bus / "U_x", url, place, "--consumer", "one")
        master.lines(100)
        link.end()
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(51, 151)))
    words = "--deliver", url, "--state", place / "other", "--consumer", "one", "--take-over", bus / "U_y"
    link = linking(*words)
    assert other.lines(150)[-1] == "150"
    until(lambda: (info := info_of(keeping.url)).ack_floor and info.ack_floor.stream_seq == 150, "all are confirmed")
    link.end()
    ask(keeping.url, lambda stream: stream.jetstream.delete_msg("LINES", 150))
    link = deliver(linking, bus / "U_x", url, place, "--consumer", "one", "--take-over")
    say(keeping.url, "lines.a", b"next")
    assert master.lines(101)[100:] == ["next"]
    link.end()


@pytest.mark.parametrize("how", ["restart", "reconnection"])
def test_what_is_gone_behind_everything_is_said_once(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, how: str
) -> None:
    """Though another gap lies before it."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", b"first")
    link = deliver(linking, bus / "U_x", url, place)
    until(lambda: (info := info_of(keeping.url)).ack_floor and info.ack_floor.stream_seq == 1, "it is written")
    link.end()
    say(keeping.url, "lines.a", *(b"%d " % number + b"x" * 5000 for number in range(2, 801)))
    say(keeping.url, "lines.b", *(b"%d" % number for number in range(801, 901)))

    async def cut(stream: Stream) -> None:
        for number in (*range(350, 360), *range(801, 901)):
            await stream.jetstream.delete_msg("LINES", number)

    ask(keeping.url, cut)
    link = deliver(linking, bus / "U_x", url, place, script=BRIEF + COMMAND)
    link.wait_for("100 messages of")
    begin = read_until(master, lambda found: b"\n362 " in found, "the master is behind the gap", 1 << 14)
    count = 0
    if how == "restart":
        link.end()
        count, link = said(link), deliver(linking, bus / "U_x", url, place)
    else:
        keeping.kill()
        link.wait_for("; waiting")
        keeping.begin()
    master.start()
    until(lambda: b"\n800 " in master.data and master.data.endswith(b"\n"), "all come")
    say(keeping.url, "lines.a", b"next")
    until(lambda: master.data.endswith(b"next\n"), "the next one comes")
    link.end()
    assert count + said(link) == 110
    assert len((begin + master.data).splitlines()) == 901 - 110


def test_by_what_a_loss_is_known_is_kept_until_it_is_acted_upon(keeping: Server, place: Path) -> None:
    """As long as its consumer cannot be made, say, though the clock was behind, and the last message is removed meanwhile."""
    progress = Progress(place / "state")

    async def work(stream: Stream) -> list[Known]:
        for number in range(1, 51):
            await stream.jetstream.publish("lines.a", b"%d" % number)
        state = await stream.state()
        for number in range(1, 51):
            progress.mark(state.created, number, (await stream.stored(number) or (0, 0))[1])
        for number in range(51, 101):
            await stream.jetstream.publish("lines.a", b"%d" % number)
            progress.mark(state.created, number, 7 + number)  # they were others once
        progress.note(created=state.created, sequence=100, time=107, since=1, latest=2**62)
        found = [await known(stream, await stream.state(), progress, words.append)]
        progress.flush()
        progress.close()
        again = Progress(place / "state")
        await stream.jetstream.delete_msg("LINES", 100)
        found.append(await known(stream, await stream.state(), again, words.append))
        begin_anew(await stream.state(), 50, again, None)
        found.append(await known(stream, await stream.state(), again, words.append))
        again.close()
        return found

    words: list[str] = []
    say(keeping.url, "lines.a")
    assert ask(keeping.url, work) == [Known(50, 50, is_new=True), Known(50, 50, is_new=True), Known(50, 50)]
    assert len(words) == 2


@pytest.mark.parametrize(("since", "same"), [(0, 10), (1, 5), (6, 5), (8, 5), (11, 10)])
def test_messages_that_came_later_tell_something_from_a_known_one_on(keeping: Server, place: Path, since: int, same: int) -> None:
    """Before it, somebody else has delivered them, or a version that did not note when the latest had come.

    But when something is told, those before it are others, too.
    """
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(10)))

    async def work(stream: Stream) -> int:
        state = await stream.state()
        there = await stream.stored(5)
        assert there
        reached = Reached(state.created, 10, time=there[1], subjects=">", since=since, latest=there[1])
        await stream.jetstream.delete_msg("LINES", 10)
        return await agreed(stream, state, reached)

    assert ask(keeping.url, work) == same


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_begun_before_a_loss_hides_nothing_behind_it(
    keeping: Server, place: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """Nor does up to where nothing was to be said, if it is killed when it has noted that it goes back."""
    say(keeping.url, "lines.a", *(b"%d" % number for number in range(150)))
    progress = Progress(place / "state")

    async def work(stream: Stream) -> int:
        state = await stream.state()
        there = await stream.stored(50)
        assert there
        progress.mark(state.created, *there)
        progress.note(created=state.created, sequence=100, time=7, current=101, position=3, intent=3)
        progress.look(state.created, 100)
        progress.flush()
        assert await known(stream, state, progress, lambda words: None) == Known(50, 50, is_new=True)
        with monkeypatch.context() as patch:
            if is_killed:
                patch.setattr(progress, "forget_behind", lambda *words: pytest.fail("it is killed"))
            with contextlib.suppress(pytest.fail.Exception):
                begin_anew(state, 50, progress, None)
        progress.close()
        again = Progress(place / "state")
        await stream.jetstream.purge_stream("LINES", seq=141)
        assert await known(stream, await stream.state(), again, pytest.fail) == Known(50, 140)
        again.close()
        return again.reached.unsaid

    assert ask(keeping.url, work) == 90
