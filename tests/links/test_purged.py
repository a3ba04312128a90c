"""Deliveries of a stream of which somebody purges what he does not want any more: what is there comes all the same.

When the messages of one subject are purged, servers have a consumer go on behind all that they have, of whatever subject, and
count that as confirmed (nats-server 2.9.10).
"""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from futebus.nats.stream import Stream

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Server
from ..helpers.published import ask
from ..helpers.waiting import until
from .links import Linking
from .test_delivery import deliver
from .test_returns import confirmed_of, handed_out, info_of

LONG = 20_000
"""Bytes of a line of which so few are taken ahead that some are left."""


def say(url: str, subject: str, *lines: bytes) -> None:
    """Adds lines of an outsider to a stream, and makes it."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines", "lines.>"])
        for some in (lines[place : place + 100] for place in range(0, len(lines), 100)):
            await asyncio.gather(*(stream.jetstream.publish(subject, line) for line in some))

    ask(url, work)


def purge(url: str, *, subject: str | None = None, before: int | None = None, keep: int | None = None) -> None:
    """Removes messages: of a subject, before one, all but the last ones."""
    ask(url, lambda stream: stream.jetstream.purge_stream(stream.name, seq=before, subject=subject, keep=keep))


@pytest.mark.parametrize("subject", ["", "/lines.>"])
@pytest.mark.parametrize("is_by_subject", [False, True])
def test_what_is_there_comes_to_one_that_runs(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str, *, is_by_subject: bool
) -> None:
    """And what is not there any more is said, also of the first that a delivery has ever had to do with."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    say(keeping.url, "lines", b"first")
    say(keeping.url, "lines.a", *(b"a%d " % number + b"x" * LONG for number in range(1000)))
    say(keeping.url, "lines.b", *(b"b%d" % number for number in range(5)))
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES{subject}", place)
    until(
        lambda: (info := info_of(keeping.url)).num_waiting == 0 and handed_out(info) * LONG > 8 << 20,
        "it has taken all that it takes ahead",
    )
    if is_by_subject:
        purge(keeping.url, subject="lines.a")
    else:
        purge(keeping.url, before=1002)
    say(keeping.url, "lines.b", b"b5")
    master.start()
    until(lambda: master.data.endswith(b"b5\n"), "the last one comes")
    found = [line.split()[0] for line in master.data.splitlines()]
    first = [] if subject else [b"first"]
    taken = len(found) - len(first) - 6
    assert found == [*first, *(b"a%d" % number for number in range(taken)), *(b"b%d" % number for number in range(6))]
    if not subject:
        link.wait_for(f"{1000 - taken} messages of {keeping.url}/LINES had been removed before they could be delivered")
    link.end()


@pytest.mark.parametrize("subject", ["", "/lines.>"])
def test_what_is_there_comes_to_one_whose_server_waits_for_confirmations(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str
) -> None:
    """It has asked for more, and something came, when the server has handed out so many that it hands out no more."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)
    say(keeping.url, "lines.a", *(b"a%d" % number for number in range(900)))
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES{subject}", place)
    until(lambda: (info := info_of(keeping.url)).num_waiting == 1 and handed_out(info) == 900, "it has all, and asks for more")
    say(keeping.url, "lines.a", *(b"a%d" % number for number in range(900, 1400)))
    say(keeping.url, "lines.b", *(b"b%d" % number for number in range(100)))
    until(lambda: info_of(keeping.url).num_ack_pending == 1000, "the server hands out no more")
    purge(keeping.url, subject="lines.a")
    say(keeping.url, "lines.b", *(b"b%d" % number for number in range(100, 110)))
    master.start()
    until(lambda: master.data.endswith(b"b109\n"), "the last one comes")
    found = master.data.split()
    written = len(found) - 110
    assert found == [*(b"a%d" % number for number in range(written)), *(b"b%d" % number for number in range(110))]
    if not subject:
        link.wait_for(f"{1400 - written} messages of {keeping.url}/LINES had been removed before they could be delivered")
    link.end()


@pytest.mark.parametrize("subject", ["", "/lines.>"])
@pytest.mark.parametrize(
    "what",
    [
        {"subject": "lines.a"},
        {"subject": "lines.a", "keep": 20},
        {"subject": "lines.a", "before": 1450},
        {"subject": "lines.none"},
    ],
    ids=["all", "all but some", "those before", "nothing"],
)
def test_what_lies_between_what_is_purged_comes(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, subject: str, what: dict[str, Any]
) -> None:
    """Its consumer goes on with the first that is left of the subject, with what comes next, or in spite of that nothing was."""
    bus = mounting("max_queue=100")
    master = collect(bus / ".U_x", at_once=False)

    async def mix(stream: Stream) -> None:
        await stream.make(["lines", "lines.>"])
        for number in range(750):
            for name in "ab":
                await stream.jetstream.publish(f"lines.{name}", b"%s%d" % (name.encode(), number))

    ask(keeping.url, mix)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES{subject}", place)
    until(lambda: info_of(keeping.url).num_ack_pending == 1000, "the server hands out no more")
    purge(keeping.url, **what)
    master.start()
    say(keeping.url, "lines.b", b"b750")
    until(lambda: master.data.endswith(b"b750\n"), "the last one comes")
    found = master.data.split()
    assert [line for line in found if line.startswith(b"b")] == [b"b%d" % number for number in range(751)]
    others = [int(line[1:]) for line in found if line.startswith(b"a")]
    assert others == sorted(set(others))
    if what["subject"] == "lines.none":
        assert len(others) == 750
    link.end()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("options", [(), ("--take-over",)])
def test_what_is_there_comes_to_one_that_is_started_again(
    bus: Mount,
    linking: Linking,
    keeping: Server,
    collect: Collect,
    place: Path,
    options: tuple[str, ...],
    *,
    is_restarted: bool,
) -> None:
    """Its own state tells better than the server how far it has come."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines", b"first")
    say(keeping.url, "lines.a", b"a1", b"a2", b"a3")
    link = deliver(linking, bus / "U_x", url, place, *options)
    until(lambda: master.data == b"first\na1\na2\na3\n", "all come")
    link.end()
    say(keeping.url, "lines.a", *(b"a%d" % number for number in range(4, 9)))
    say(keeping.url, "lines.b", *(b"b%d" % number for number in range(5)))
    if is_restarted:
        keeping.restart()
    purge(keeping.url, subject="lines.a")
    assert confirmed_of(keeping.url) == 14, "the server takes all for confirmed"
    link = deliver(linking, bus / "U_x", url, place, *options)
    until(lambda: master.data.endswith(b"b4\n"), "the last one comes")
    assert master.data == b"first\na1\na2\na3\nb0\nb1\nb2\nb3\nb4\n"
    link.wait_for("5 messages of ")
    assert " had been removed before they could be delivered" in link.words
    link.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_there_comes_to_one_that_had_taken_it_ahead(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, number: signal.Signals
) -> None:
    """The server takes all that it has handed out for confirmed, too."""
    bus = mounting("max_queue=2")
    master = collect(bus / ".U_x", at_once=False)
    url = f"{keeping.url}/LINES"
    say(keeping.url, "lines.a", *(b"a%d" % number for number in range(20)))
    say(keeping.url, "lines.b", *(b"b%d" % number for number in range(5)))
    link = deliver(linking, bus / "U_x", url, place)
    until(lambda: handed_out(info_of(keeping.url)) == 25, "it has taken all")
    link.process.send_signal(number)
    link.process.wait()
    purge(keeping.url, subject="lines.a")
    assert confirmed_of(keeping.url) == 25, "the server takes all for confirmed"
    link = deliver(linking, bus / "U_x", url, place, "--take-over")
    master.start()
    until(lambda: master.data.endswith(b"b4\n"), "the last one comes")
    found = master.data.split()
    written = len(found) - 5
    assert found == [*(b"a%d" % number for number in range(written)), *(b"b%d" % number for number in range(5))]
    link.end()
