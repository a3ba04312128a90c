"""Deliveries that come back: to a stream that another has had, or that is not what it was."""

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js.api import ConsumerConfig, ConsumerInfo

from futebus.links.delivery import WAITING_BYTES
from futebus.links.progress import SPOOLS, Progress
from futebus.links.sparing import FEW
from futebus.nats import runs
from futebus.nats.consumer import BATCH, Consumer, Disputed, Taken
from futebus.nats.handed import Handed
from futebus.nats.limits import add_consumer, most_at_once
from futebus.nats.owner import Owner
from futebus.nats.runs import Where
from futebus.nats.state import Message
from futebus.nats.stream import Stream

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Server, arrived
from ..helpers.published import ask, proxied
from ..helpers.waiting import DEADLINE, until
from .links import Link, Linking
from .test_delivery import deliver, delivered, fill, numbered, publish, wait_for


def say(url: str, data: bytes) -> None:
    """Adds a line of an outsider, which has no number."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", data)

    ask(url, work)


def test_take_overs_go_on_where_the_other_had_come_to(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Also if nothing came before the next start, and if the one before had just been started and got nothing new."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 10, each=1)
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


SLOW = """
import asyncio, os, sys
from futebus.commands.link import main
from futebus.{module} import {name}
import futebus.{module} as module

async def slowly(*arguments):
    print("is slow", file=sys.stderr, flush=True)
    while not os.path.exists({file!r}):
        await asyncio.sleep(0.001)
    return await {name}(*arguments)

module.{name} = slowly
sys.exit(main())
"""
"""A link that waits for a file before it does something."""


@pytest.fixture
def slow_link(linking: Linking, place: Path) -> Callable[..., tuple[Link, Path]]:
    """Starts a link that stands still in the middle of something: `slow_link("links.delivery", "known", ...)`.

    Returns:
        It, and the file that it waits for.
    """

    def begin(module: str, name: str, *words: str | Path) -> tuple[Link, Path]:
        file = place / "go on"
        script = SLOW.format(module=module, name=name, file=str(file))
        link = linking(*words, script=script, is_ready=False)
        link.wait_for("is slow")
        return link, file

    return begin


def test_one_that_makes_its_consumer_anew_while_it_is_taken_over_ends(
    bus: Mount, linking: Linking, slow_link: Callable[..., tuple[Link, Path]], keeping: Server, collect: Collect, place: Path
) -> None:
    """What it has written and confirmed by then does not come again."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", url, place, "--wait")
    wait_for(master, data)
    # It has removed the consumer, and not made its own.
    other, goes_on = slow_link(
        "nats.consumer", "add_consumer", "--deliver", url, "--state", place / "other", "--take-over", bus / "U_x"
    )
    link.wait_for(" is there again")
    data += fill(keeping.url, 10, each=5, begin=10)
    wait_for(master, data)
    until(lambda: confirmed_of(keeping.url) == 3, "it has confirmed them")
    goes_on.touch()
    assert " of another delivery: --consumer names another one" in link.fails()
    other.wait_for(" is delivered to ")
    data += fill(keeping.url, 10, begin=20)
    wait_for(master, data)
    other.end()


MANY = 300_000
"""Lines that are several times what is taken ahead."""


def takes_no_more(url: str, each: int) -> bool:
    """Whether a delivery has taken all that it takes ahead, of messages of so many bytes, with 500 lines.

    One of them is being written, and 1,000 lines are in the channel's queue.
    """
    info = info_of(url)
    return info.num_waiting == 0 and handed_out(info) * each > WAITING_BYTES + 3 * each


def test_one_that_has_taken_all_it_can_and_asks_for_nothing_takes_nothing_from_who_takes_over(
    mounting: Mounting,
    linking: Linking,
    slow_link: Callable[..., tuple[Link, Path]],
    keeping: Server,
    collect: Collect,
    place: Path,
) -> None:
    """When it asks again, it asks the other's consumer, under the same name, while the other begins with that."""
    bus, there = mounting("max_queue=1000"), mounting()
    master, new_master = collect(bus / ".U_x", at_once=False), collect(there / ".U_x")
    data = fill(keeping.url, MANY)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, "--wait", "--consumer", "one")
    each = len(data) * 500 // MANY
    until(lambda: takes_no_more(keeping.url, each), "it takes no more")
    other, goes_on = slow_link(
        "nats.consumer",
        "most_at_once",
        *("--deliver", f"{keeping.url}/LINES", "--state", place / "other", "--consumer", "one", "--take-over", there / "U_x"),
    )
    master.start()
    assert " of another delivery: --consumer names another one" in link.fails()
    before = master.settled()
    assert data.startswith(before)
    goes_on.touch()
    other.wait_for(" is delivered to ")
    until(lambda: confirmed_of(keeping.url) == MANY // 500, "all is confirmed")
    behind = new_master.settled()
    assert data.endswith(behind)
    assert len(before) + len(behind) >= len(data)
    other.end()


def test_what_an_old_one_asks_for_by_the_name_of_a_new_one_is_not_passed_on(keeping: Server) -> None:
    """Also if both have been handed out as many, so that the numbers tell nothing."""

    async def take(messages: AsyncIterator[tuple[Message, Handed]]) -> list[int]:
        return [(await anext(messages))[0].sequence for _ in range(1 + BATCH)]

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        for number in range(3 * BATCH):
            await stream.jetstream.publish("lines", b"%d" % number)
        old, new = (Consumer(stream, "one", Owner(owner), None) for owner in ("old", "new"))
        await old.begin(1)
        old_messages = old.messages()
        await take(old_messages)
        await new.remove()
        await new.begin(1)
        new_messages = new.messages()
        assert await take(new_messages) == list(range(1, 2 + BATCH))
        with pytest.raises(Taken):
            await anext(old_messages)
        with pytest.raises(Disputed):
            await anext(new_messages)

    ask(keeping.url, work)


def test_a_new_one_that_is_replaced_before_it_asks_passes_nothing_on(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def and_replaced(stream: Stream, name: str, wanted: int) -> int:
        found = await most_at_once(stream, name, wanted)
        config = (await stream.jetstream.consumer_info(stream.name, name)).config
        await stream.jetstream.delete_consumer(stream.name, name)
        await stream.jetstream.add_consumer(stream.name, replace(config, description="another"))
        return found

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", b"one")
        with pytest.raises(Taken):
            await Consumer(stream, "one", Owner("own"), None).begin(1)

    monkeypatch.setattr("futebus.nats.consumer.most_at_once", and_replaced)
    ask(keeping.url, work)


@pytest.mark.parametrize("begin", [1, 3])
def test_one_that_makes_its_consumer_when_another_has_looked_for_it_keeps_it(
    keeping: Server, monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    """Servers refuse to make the second one, or make one of the two."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        for number in range(5):
            await stream.jetstream.publish("lines", b"%d" % number)
        old, new = (Consumer(stream, "one", Owner(owner), None) for owner in ("old", "new"))

        async def behind_the_old_one(stream: Stream, config: ConsumerConfig) -> ConsumerInfo:
            monkeypatch.setattr("futebus.nats.consumer.add_consumer", add_consumer)
            await old.begin(begin)
            return await add_consumer(stream, config)

        monkeypatch.setattr("futebus.nats.consumer.add_consumer", behind_the_old_one)
        with pytest.raises(Disputed if begin == 1 else Taken):
            await new.begin(1)

    ask(keeping.url, work)


def test_one_that_is_replaced_when_it_has_just_been_made_is_tried_again(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who replaces it removes it first."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        consumer = Consumer(stream, "one", Owner("me"), None)

        async def behind_the_other(stream: Stream, name: str, wanted: int) -> int:
            await stream.jetstream.delete_consumer("LINES", name)
            return await most_at_once(stream, name, wanted)

        monkeypatch.setattr("futebus.nats.consumer.most_at_once", behind_the_other)
        with pytest.raises(Disputed):
            await consumer.begin(1)

    ask(keeping.url, work)


@pytest.mark.parametrize("lines", [20_000, 130_000, MANY])
def test_what_waits_for_the_channel_is_not_written_when_it_is_taken_over(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path, lines: int
) -> None:
    """Also if it takes no more ahead, and so asks for nothing; and it ends, though its channel takes nothing."""
    bus, there = mounting("max_queue=1000"), mounting()
    master, new_master = collect(bus / ".U_x", at_once=False), collect(there / ".U_x")
    data = fill(keeping.url, lines)
    words = ("--deliver", f"{keeping.url}/LINES", "--consumer", "one", "--state")
    link = linking(*words, place / "state", "--wait", bus / "U_x")
    each = len(data) * 500 // lines
    until(lambda: info_of(keeping.url).num_pending == 0 or takes_no_more(keeping.url, each), "it has taken all, or takes no more")
    until(lambda: bus.channel("U_x")["messages_in"] >= 1000, "its queue is full")
    other = linking(*words, place / "other", "--take-over", there / "U_x")
    assert " of another delivery: --consumer names another one" in link.fails()
    master.start()
    until(lambda: new_master.data.endswith(data[-200:]), "the last one comes")
    # What was being written, and what the queue had before: a message of 500 lines, and 1,000 lines.
    before = master.settled()
    assert before.count(b"\n") <= 1500
    assert data.startswith(before)
    assert data.endswith(new_master.data)
    other.end()


def test_one_of_two_with_the_same_state_ends(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """It was copied with its host, which each other's lock does not reach."""
    buses = (mounting(), mounting())
    masters = [collect(bus / ".U_x") for bus in buses]
    data = fill(keeping.url, 10)
    words = ("--deliver", f"{keeping.url}/LINES", "--consumer", "one", "--wait", "--state")
    for bus, state in zip(buses, ("one", "two"), strict=True):
        linking(*words, place / state, "--take-over", bus / "U_x").end()
    [one], [two] = ((place / state).iterdir() for state in ("one", "two"))
    shutil.rmtree(one)
    shutil.copytree(two, one)
    links = [
        linking(*words, place / state, bus / "U_x", is_ready=False) for state, bus in zip(("one", "two"), buses, strict=True)
    ]
    until(lambda: any(link.process.poll() is not None for link in links), "one of them ends")
    links.sort(key=lambda link: link.process.poll() is None)
    assert " of a delivery that runs with a copy of this one's state: one of the two needs" in links[0].fails(3)
    data += fill(keeping.url, 10, begin=10)
    until(lambda: any(master.data.endswith(data[-20:]) for master in masters), "the other goes on")
    links[1].end()


@pytest.mark.parametrize("is_copied_live", [False, True])
def test_a_server_that_has_again_the_consumer_of_the_process_before(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, *, is_copied_live: bool
) -> None:
    """It has lost its power: nobody else has made that."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", url, place, "--wait")
    wait_for(master, data)
    link.end()
    before = info_of(keeping.url).config.description
    with keeping.losing(is_copied_live=is_copied_live):
        link = deliver(linking, bus / "U_x", url, place, "--wait")
        assert info_of(keeping.url).config.description != before
    link.wait_for(" is there again")
    with keeping.losing(is_copied_live=is_copied_live):  # and now one that the process before had replaced itself
        until(lambda: link.words.count(" is there again") >= (1 if is_copied_live else 2), "it is there again")
        link.end()
        link = deliver(linking, bus / "U_x", url, place, "--wait")
    link.wait_for(" is there again")
    data += fill(keeping.url, 10, begin=10)
    wait_for(master, data)
    link.end()


@pytest.mark.parametrize("is_copied_live", [False, True])
@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_server_that_has_again_the_consumer_of_another_that_was_taken_over_from(
    bus: Mount,
    linking: Linking,
    keeping: Server,
    collect: Collect,
    place: Path,
    *,
    is_started_again: bool,
    is_copied_live: bool,
) -> None:
    """It has lost its power. Nobody goes on with that, so who has taken over does."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", url, place)
    wait_for(master, data)
    until(lambda: confirmed_of(keeping.url) == keeping.kept_floor() == 1, "it has confirmed them")
    link.end()
    words = ("--deliver", url, "--state", place / "other", "--wait")
    with keeping.losing(is_copied_live=is_copied_live):
        link = linking(*words, "--take-over", bus / "U_x")
        if is_started_again:
            link.end()
    if is_started_again:
        link = linking(*words, bus / "U_x")
    else:
        link.wait_for(" is there again")
    data += fill(keeping.url, 10, begin=10)
    wait_for(master, data)
    link.end()
    # One that the other makes now is its own.
    other = deliver(linking, bus / "U_x", url, place, "--take-over")
    link = linking(*words, bus / "U_x", is_ready=False)
    assert " of another delivery: --consumer names another one" in link.fails()
    other.end()


def test_one_that_runs_and_is_taken_over_with_an_old_copy_of_its_state_ends(
    mounting: Mounting, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """And does not take back what was taken on purpose."""
    buses = (mounting(), mounting())
    masters = [collect(bus / ".U_x") for bus in buses]
    data = fill(keeping.url, 10, each=1)
    words = ("--deliver", f"{keeping.url}/LINES", "--consumer", "one", "--wait", "--state")
    link = linking(*words, place / "state", buses[0] / "U_x")
    wait_for(masters[0], data)
    link.end()
    shutil.copytree(place / "state", place / "old")
    link = linking(*words, place / "state", buses[0] / "U_x")
    data += fill(keeping.url, 10, each=1, begin=10)
    wait_for(masters[0], data)
    other = linking(*words, place / "old", "--take-over", buses[1] / "U_x")
    assert " of another delivery: --consumer names another one" in link.fails()
    assert "gone; waiting" not in other.words
    last = fill(keeping.url, 10, each=1, begin=20)
    until(lambda: masters[1].data.endswith(last), "it goes on")
    assert (masters[0].data + last).endswith(masters[1].data)
    other.end()


KILLED = """
import os, sys
from futebus.commands.link import main
import futebus.{module} as module

async def die(*arguments):
    if {is_done}:
        await real(*arguments)
    os.kill(os.getpid(), 9)

real, {place} = {place}, die
sys.exit(main())
"""
MAKING, MADE, BEGINNING = (
    KILLED.format(module=module, place=f"module.{place}", is_done=is_done)
    for module, place, is_done in (
        ("nats.consumer", "add_consumer", False),
        ("nats.consumer", "add_consumer", True),
        ("links.delivery", "Delivery._first", False),
    )
)
"""Links that are killed: before their consumer is made, when it is, and before anything is known."""


@pytest.mark.parametrize(
    "before",
    [
        [(MADE, ()), (BEGINNING, ("--take-over",))],
        [(MADE, ("--take-over",)), (BEGINNING, ("--take-over",))],
        [(MADE, ("--take-over",)), (MAKING, ("--take-over",)), (MADE, ())],
    ],
)
def test_whenever_it_is_killed_nobody_else_has_its_consumer(
    bus: Mount,
    linking: Linking,
    keeping: Server,
    collect: Collect,
    place: Path,
    before: list[tuple[str, tuple[str, ...]]],
) -> None:
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 10, each=1)
    for script, options in before:
        deliver(linking, bus / "U_x", url, place, *options, script=script, is_ready=False).process.wait()
    link = deliver(linking, bus / "U_x", url, place)
    data += fill(keeping.url, 10, each=1, begin=10)
    wait_for(master, data)
    link.end()


@pytest.mark.parametrize("is_of_before", [False, True])
def test_who_could_not_take_over_is_who_he_was(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, *, is_of_before: bool
) -> None:
    """Also with a state of a version that remembered no consumers."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 10, each=1)
    if is_of_before:
        progress = Progress(next((place / "state").iterdir()))
        progress.consumers.clear()
        progress.flush()
        progress.close()
    keeping.process.terminate()
    keeping.process.wait()
    assert "refused" in deliver(linking, bus / "U_x", url, place, "--take-over", is_ready=False).fails()
    keeping.begin()
    link = deliver(linking, bus / "U_x", url, place)
    data += fill(keeping.url, 10, each=1, begin=10)
    wait_for(master, data)
    link.end()


def test_who_takes_over_with_a_copy_of_its_state_that_was_made_while_it_ran(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """When more has been confirmed than it had asked for then."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 10, each=1)
    link = deliver(linking, bus / "U_x", url, place)
    wait_for(master, data)
    shutil.copytree(place / "state", place / "old")
    data += fill(keeping.url, 300, each=1, begin=10)
    wait_for(master, data)
    link.end()
    link = linking("--deliver", url, "--state", place / "old", "--take-over", bus / "U_x")
    data += fill(keeping.url, 10, each=1, begin=310)
    wait_for(master, data)
    link.end()


def test_who_takes_over_with_an_old_copy_of_its_state_goes_on_where_the_newer_one_had_come_to(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = b""
    for begin in (0, 10):
        data += fill(keeping.url, 10, each=1, begin=begin)
        link = deliver(linking, bus / "U_x", url, place)
        wait_for(master, data)
        link.end()
        if not (place / "old").exists():
            shutil.copytree(place / "state", place / "old")
    link = linking("--deliver", url, "--state", place / "old", "--take-over", bus / "U_x")
    data += fill(keeping.url, 10, each=1, begin=20)
    wait_for(master, data)
    link.end()


def test_who_takes_over_what_is_its_own_says_what_was_removed(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """The server counts that as confirmed."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 2, each=1)
    rest = fill(keeping.url, 8, each=1, begin=2)
    ask(keeping.url, lambda stream: stream.jetstream.purge_stream(stream.name, seq=9))
    link = deliver(linking, bus / "U_x", url, place, "--take-over")
    wait_for(master, data + b"".join(rest.splitlines(keepends=True)[6:]))
    link.wait_for("6 messages of ")
    assert " had been removed before they could be delivered" in link.words
    link.end()


def test_one_that_is_ended_while_it_makes_its_consumer_leaves_it(
    bus: Mount,
    linking: Linking,
    slow_link: Callable[..., tuple[Link, Path]],
    keeping: Server,
    collect: Collect,
    place: Path,
) -> None:
    """Without one, nobody who takes over would know how far it has come."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 10)
    link, goes_on = slow_link("nats.consumer", "add_consumer", "--deliver", url, "--state", place / "state", bus / "U_x")
    link.process.terminate()
    goes_on.touch()
    link.end()
    other = linking("--deliver", url, "--state", place / "other", "--take-over", bus / "U_x")
    data += fill(keeping.url, 10, begin=10)
    wait_for(master, data)
    other.end()


def test_what_has_been_written_is_confirmed_when_it_ends(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Whatever is under way: so nothing comes twice to who takes over from one that has ended."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = fill(keeping.url, 5000, each=10)
    for state in ("state", "other", "state", "other"):
        size = master.size
        link = linking("--deliver", url, "--consumer", "one", "--state", place / state, "--take-over", bus / "U_x")
        until(lambda size=size: master.size > size, "it writes")  # type: ignore[misc]
        link.end()
        progress = Progress(next((place / state).iterdir()))
        until(lambda there=progress.reached.sequence: confirmed_of(keeping.url) == there, "it is confirmed")  # type: ignore[misc]
        progress.close()
    link = linking("--deliver", url, "--consumer", "one", "--state", place / "new", "--take-over", bus / "U_x")
    until(lambda: master.data.endswith(data[-150:]), "the last one comes")
    link.end()
    again = master.data.count(b"\n") - 5000
    # A message that it ended in the middle of comes from its beginning.
    assert 0 <= again < 4 * 10
    assert list(dict.fromkeys(master.data.splitlines())) == data.splitlines()


@pytest.mark.parametrize("has_more", [False, True])
def test_who_takes_back_goes_on_where_the_other_had_come_to(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, *, has_more: bool
) -> None:
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    data = delivered(linking, bus / "U_x", keeping, place, master, 20, each=10)
    other = linking("--deliver", url, "--state", place / "other", "--take-over", bus / "U_x")
    if has_more:
        data += fill(keeping.url, 20, each=10, begin=20)
        wait_for(master, data)
        until(lambda: confirmed_of(keeping.url) == 4, "it has confirmed them")
    other.end()
    link = deliver(linking, bus / "U_x", url, place, "--take-over")
    data += fill(keeping.url, 20, each=10, begin=data.count(b"\n"))
    wait_for(master, data)
    link.end()
    assert "missing" not in link.words


def info_of(url: str) -> ConsumerInfo:
    """What the server says of the only consumer of a stream."""

    async def work(stream: Stream) -> ConsumerInfo:
        [info] = await stream.jetstream.consumers_info(stream.name)
        return info

    return ask(url, work)


def handed_out(info: ConsumerInfo) -> int:
    """How many messages a consumer has handed out."""
    return info.delivered.consumer_seq if info.delivered else 0


def confirmed_of(url: str) -> int:
    """Up to which message the only consumer of a stream was confirmed."""
    floor = info_of(url).ack_floor
    return floor.stream_seq if floor else 0


def test_what_its_consumer_has_handed_to_somebody_else_comes_all_the_same(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """As it does with two that were made one, which servers do that are asked by both at the same time."""
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place)
    wait_for(master, data)
    name = info_of(keeping.url).name

    async def work(stream: Stream) -> bytes:
        client = stream.connection.client
        inbox = await client.subscribe(client.new_inbox())
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.LINES.{name}", b'{"batch":1}', reply=inbox.subject)
        await arrived(client)
        for number in range(10, 20):  # some to the one, some to the other
            await publish(stream, numbered(number, number + 1), number)
        return bytes((await inbox.next_msg(DEADLINE)).data)

    assert ask(keeping.url, work) in [numbered(number, number + 1) for number in range(10, 20)]
    data += numbered(10, 20)
    wait_for(master, data)
    link.wait_for(f"messages of its consumer {name} have gone elsewhere; waiting")
    link.end()


@pytest.mark.parametrize("is_removed", [False, True])
def test_one_whose_consumer_has_become_another_s_ends(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, *, is_removed: bool
) -> None:
    master = collect(bus / ".U_x")
    data = fill(keeping.url, 10)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place, "--wait")
    wait_for(master, data)
    name = info_of(keeping.url).name

    async def work(stream: Stream) -> None:
        info = await stream.jetstream.consumer_info(stream.name, name)
        await stream.jetstream.add_consumer(stream.name, replace(info.config, description="another"))
        if is_removed:
            await stream.jetstream.delete_consumer(stream.name, name)
            await stream.jetstream.add_consumer(stream.name, replace(info.config, description="another"))

    ask(keeping.url, work)
    assert " of another delivery: --consumer names another one" in link.fails()
    assert master.data == data


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


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clock_of_a_stream_that_has_lost_its_end_has_stepped(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path, hours: int
) -> None:
    """Those that were lost seem older than all that the stream has, or younger than what it got since."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    for name in (b"one\n", b"two\n"):
        say(keeping.url, name)
    with keeping.losing():
        for name in (b"three\n", b"four\n", b"five\n"):
            say(keeping.url, name)
        link = deliver(linking, bus / "U_x", url, place)
        wait_for(master, b"one\ntwo\nthree\nfour\nfive\n")
        link.end()
    [state] = (place / "state").iterdir()
    progress = Progress(state)
    step = hours * 3600 * 10**9
    for sequence, time in (*progress.marks[2:], (progress.reached.sequence, progress.reached.time)):
        progress.mark(progress.reached.created, sequence, time + step)
    progress.note(time=progress.reached.time + step)
    progress.flush()
    progress.close()
    for name in (b"six\n", b"seven\n", b"eight\n", b"nine\n"):
        say(keeping.url, name)
    link = deliver(linking, bus / "U_x", url, place)
    link.wait_for("has others than were delivered from message 3 on")
    wait_for(master, b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    link.end()


def test_a_stream_that_loses_its_end_just_when_its_delivery_was_taken_over(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Others have the numbers then of what was delivered: the last of it is known by its time, too."""
    master = collect(bus / ".U_x")
    url = f"{keeping.url}/LINES"
    say(keeping.url, b"one\n")
    with keeping.losing():
        say(keeping.url, b"two\n")
        link = deliver(linking, bus / "U_x", url, place)
        wait_for(master, b"one\ntwo\n")
        until(lambda: confirmed_of(keeping.url) == 2, "it has confirmed them")
        link.end()
        linking("--deliver", url, "--state", place / "other", "--take-over", bus / "U_x").end()
    for name in (b"three\n", b"four\n"):
        say(keeping.url, name)
    link = linking("--deliver", url, "--state", place / "other", bus / "U_x")
    link.wait_for("has others than were delivered from message 1 on")
    wait_for(master, b"one\ntwo\none\nthree\nfour\n")
    link.end()


def test_a_stream_that_is_made_anew_while_a_delivery_begins(
    bus: Mount, linking: Linking, slow_link: Callable[..., tuple[Link, Path]], keeping: Server, collect: Collect, place: Path
) -> None:
    """Numbers of the one before say nothing of the one that the consumer is made of."""
    master = collect(bus / ".U_x")
    data = delivered(linking, bus / "U_x", keeping, place, master, 10, each=1)
    words = "--deliver", f"{keeping.url}/LINES", "--state", place / "state", bus / "U_x"
    link, file = slow_link("nats.consumer", "add_consumer", *words)
    ask(keeping.url, lambda stream: stream.jetstream.delete_stream("LINES"))
    lines = [b"new%d\n" % number for number in range(15)]
    for line in lines[:5]:
        say(keeping.url, line)
    file.touch()
    wait_for(master, data + b"".join(lines[:5]))
    for line in lines[5:]:
        say(keeping.url, line)
    wait_for(master, data + b"".join(lines))
    link.end()
    deliver(linking, bus / "U_x", f"{keeping.url}/LINES", place).end()
    wait_for(master, data + b"".join(lines))


async def quiet(stream: Stream) -> None:
    """Makes a stream that keeps 100 messages, with one of `lines.mine`."""
    await stream.make(["lines.>"], max_msgs=100)
    await stream.jetstream.publish("lines.mine", b"mine\n")


async def others(stream: Stream) -> None:
    """Adds 1,000 messages of another subject."""
    for _ in range(1000):
        await stream.jetstream.publish("lines.others", b"x\n")


def test_messages_of_other_subjects_that_were_removed_are_not_said_to_be_lost(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    master = collect(bus / ".U_x")
    ask(keeping.url, quiet)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines.mine", place)
    wait_for(master, b"mine\n")
    link.end()
    ask(keeping.url, others)  # nobody can tell any more what these were
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines.mine", place)
    link.wait_for("had been removed before it was known whether they were of lines.mine")
    assert "900 messages of nats://" in link.words
    assert "could be delivered" not in link.words
    until(lambda: info_of(keeping.url).num_waiting, "it has seen what there is, and waits for more")
    link.end()
    # Now it is known that there is nothing else, up to the last one.
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines.mine", place)
    ask(keeping.url, lambda stream: stream.jetstream.publish("lines.mine", b"more\n"))
    wait_for(master, b"mine\nmore\n")
    assert "removed" not in link.words
    link.end()


def test_one_who_floods_a_stream_with_invented_spools_has_nothing_left_out_or_forgotten(
    bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path
) -> None:
    """Nor does he fill the log."""
    reader = collect(bus / "B_x")
    flood = b""

    async def work(stream: Stream) -> None:
        nonlocal flood
        await stream.make(["lines.>"])
        await publish(stream, b"one\n", 0, subject="lines.a")
        for number in range(2 * SPOOLS):
            where = Where(f"{number:032}", 0, 1, 1, "host", "U_x")
            flood += b"%d\n" % number
            await stream.jetstream.publish("lines.mine", b"%d\n" % number, headers=runs.headers(where))
        for number in range(100):
            where = Where("0" * 32, 10 * number + 10, 1, 1, "liar", "U_x")
            flood += b"x\n"
            await stream.jetstream.publish("lines.mine", b"x\n", headers=runs.headers(where))
        await publish(stream, b"one\ntwo\n", 0, subject="lines.a")  # the stream had lost it
        await publish(stream, b"four\n", 3, subject="lines.a")

    ask(keeping.url, work)
    link = deliver(linking, bus / "B_x", f"{keeping.url}/LINES/lines.>", place)
    wait_for(reader, b"one\n" + flood + b"two\nfour\n")
    link.wait_for("1 line of host came again")
    link.wait_for("1 line of host:U_x, from 2 on, are missing in the stream")
    assert link.words.count("of liar:U_x, from") == FEW
    link.end()
