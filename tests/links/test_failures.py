"""Servers and buses that go, come back or hang; signals; readers that never read. Nothing of it makes writers wait."""

import contextlib
import os
import re
import signal
import socket
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path

import pytest

from futebus.links.outbox import WAITING_BYTES

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting, bash, hanging
from ..helpers.nats import Listening, Server, Serving
from ..helpers.programs import Start, leave_behind, stopped
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE, until
from .links import PATIENT, UNHURRIED, Link, Linking, linked
from .test_link import say


def peak(link: Link) -> int:
    """The most memory that a link has had, in bytes."""
    status = Path(f"/proc/{link.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


# ---------------------------------------------------------------------------------------------- servers


def test_a_server_that_is_killed_and_comes_back(mounting: Mounting, nats: Server, linking: Linking, collect: Collect) -> None:
    buses = [mounting(), mounting()]
    links = linked(linking, *((bus / "B_x", nats / "x") for bus in buses))
    there = collect(buses[1] / "B_x")
    say(buses[0] / "B_x", "before")
    there.lines(1)
    nats.kill()
    for link in links:
        link.wait_for("waiting")
    say(buses[0] / "B_x", "meanwhile")
    nats.begin()
    for link in links:
        link.wait_for(f"{nats / 'x'} is there again")
    # One link may be back before the other, and what it says then is for those who are there.
    say(buses[0] / "B_x", "after")
    until(lambda: b"after" in there.data, "it goes on")
    assert there.data in (b"before\nmeanwhile\nafter\n", b"before\nafter\n")
    if b"meanwhile" not in there.data:
        links[1].wait_for(f"1 line of others have not come to {buses[1] / 'B_x'}")
    for link in links:
        link.end()


HANGING = """
import socket, sys, threading

def hang(*arguments, **more):
    print("is asked", file=sys.stderr, flush=True)
    threading.Event().wait()

socket.getaddrinfo = hang
from futebus.commands.link import main
sys.exit(main())
"""
"""A link whose system looks up a name for ever."""


def test_one_that_waits_for_a_name_can_be_ended(bus: Mount, linking: Linking) -> None:
    link = linking("--wait", bus / "B_x", "nats://a.name/x", script=HANGING, is_ready=False)
    link.wait_for("is asked")
    link.end()
    assert link.words.count("is asked") == 1


def test_what_waits_for_a_server_is_bounded_and_the_rest_is_counted(
    mounting: Mounting, nats: Server, linking: Linking, listening: Listening, place: Path
) -> None:
    bus = mounting("max_queue=100")
    link = linking(bus / "B_x", nats / "x")
    nats.kill()
    link.wait_for("waiting")
    count, written = 0, 0

    def is_counted() -> bool:
        """Writers go on as ever."""
        nonlocal count
        say(bus / "B_x", *(f"{written + number:099}" for number in range(5000)))
        count += 1
        return "the bus has dropped them" in link.words

    until(is_counted, "lines are dropped, and that is said")
    assert peak(link) < 100 << 20
    with stopped(link.process):  # or it might be there before who listens
        nats.begin()
        outsider = listening(nats.url, "x")
    link.wait_for("is there again")
    link.end()
    until(lambda: outsider.data, "what has waited comes")


def test_a_server_that_hangs(bus: Mount, nats: Server, linking: Linking, listening: Listening) -> None:
    link = linking(bus / "B_x", nats / "x")
    outsider = listening(nats.url, "x")
    with nats.hanging():
        for _ in range(20):
            say(bus / "B_x", *["x" * 1000] * 1000)  # 20 MB, which no one takes, and nobody waits
    say(bus / "B_x", "after")
    until(lambda: outsider.data.endswith(b"after\n"), "it goes on")
    link.end()


def test_an_end_while_all_hangs(bus: Mount, nats: Server, linking: Linking) -> None:
    link = linking(bus / "B_x", nats / "x")
    with nats.hanging(), hanging(bus):
        link.end()


def test_an_end_while_it_begins_on_a_bus_that_hangs(bus: Mount, nats: Server, linking: Linking) -> None:
    with hanging(bus):
        link = linking(bus / "B_x", nats / "x", is_ready=False)
        threads = Path(f"/proc/{link.process.pid}/task")
        until(lambda: len(list(threads.iterdir())) >= 3, "it calls the bus, in the third of its threads")
        link.end()


def test_another_server_when_one_hangs_or_is_not_there(
    mounting: Mounting, serving: Serving, linking: Linking, collect: Collect
) -> None:
    first, second = serving(), serving()
    buses = [mounting(), mounting()]
    both = f"{first.url},{second.url}/x"
    one, _ = linked(linking, (buses[0] / "B_x", both), (buses[1] / "B_x", second / "x"))
    there = collect(buses[1] / "B_x")
    with first.hanging():
        say(buses[0] / "B_x", "hello")
        one.wait_for("does not answer; waiting")
        one.wait_for(f"is there again, by {second.url}")
        assert there.lines(1) == ["hello"], "which the first has never had"
    first.kill()
    linking(buses[0] / "B_y", both)


def test_another_server_of_the_cluster_that_nobody_has_named(
    bus: Mount, serving: Serving, linking: Linking, listening: Listening
) -> None:
    first = serving('cluster { name: c, listen: "127.0.0.1:-1" }')
    link = linking(bus / "B_x", first / "x")
    second = serving(f'cluster {{ name: c, listen: "127.0.0.1:-1", routes: ["{first.cluster}"] }}')
    outsider = listening(second.url, "x")

    def are_one() -> bool:
        say(bus / "B_x", "hello")
        return bool(outsider.messages)

    until(are_one, "the servers have found each other")
    first.kill()
    link.wait_for(f"is there again, by {second.url}")
    say(bus / "B_x", "goodbye")
    until(lambda: outsider.data.endswith(b"goodbye\n"), "it goes on")


def test_a_slow_subject_holds_up_no_other(bus: Mount, serving: Serving, linking: Linking, listening: Listening) -> None:
    slow, quick = serving(), serving()
    link = linking(bus / "B_x", slow / "x", quick / "x")
    outsider = listening(quick.url, "x")
    lines = [f"{number:099}" for number in range(10_000)]
    with slow.hanging():
        for number in range(30):  # 30 MB: more than waits for a subject
            say(bus / "B_x", *lines)
            until(lambda: len(outsider.data) == 1_000_000 * (number + 1), "it comes")  # noqa: B023 - called here
        link.wait_for(f"not sent to {slow / 'x'}: it is away, or too slow")
        link.end()


def test_reading_a_bus_that_hangs_loses_what_it_must_and_no_more(
    mounting: Mounting, nats: Server, linking: Linking, listening: Listening, collect: Collect
) -> None:
    bus, other = mounting(), mounting()
    link, _ = linked(linking, (bus / "B_x", nats / "x"), (other / "B_x", nats / "x"))
    here, there, outsider = collect(bus / "B_x"), collect(other / "B_x"), listening(nats.url)
    payload = b"x" * 999 + b"\n"
    with hanging(bus):
        for number in range(60):
            outsider.say("x", payload * 1000)
            until(lambda: there.size >= 1_000_000 * (number + 1), "others are not held up")  # noqa: B023 - called here
        link.wait_for(f"lines not said on {bus / 'B_x'}: the bus hangs, or is too slow")
        assert peak(link) < 200 << 20
    outsider.say("x", b"after")
    until(lambda: here.data.endswith(b"after\n"), "it goes on")


def test_what_comes_too_late_is_said_to_be_that(bus: Mount, nats: Server, linking: Linking) -> None:
    """Nothing was wrong with the server when the link was ended."""
    link = linking(bus / "B_x", nats / "x")
    with nats.hanging():
        say(bus / "B_x", "hello")
        link.end()
    assert f"1 line not sent to {nats / 'x'}: the link has ended\n" in link.words


def test_what_comes_too_late_for_a_bus_that_is_well_is_no_fault_of_the_bus(
    mounting: Mounting, nats: Server, linking: Linking, listening: Listening, collect: Collect
) -> None:
    bus = mounting("max_queue=4000000,max_queue_bytes=64M")
    reader, outsider = collect(bus / "B_x"), listening(nats.url)
    link = linking(bus / "B_x", nats / "x", script=UNHURRIED)
    block = b"".join(b"%06d xxx\n" % number for number in range(60_000))
    for _ in range(60):
        outsider.say("x", block)
    until(lambda: reader.size > 0, "it comes")
    link.end()
    assert "the bus hangs" not in link.words
    late = re.search(r"(\d+) lines not said on \S+: the link has ended\n", link.words)
    until(lambda: reader.size % len(block) == 0, "each message has come whole, or not at all")
    assert (reader.size // 11 + int(late[1] if late else 0)) % 60_000 == 0


def unsent(link: Link) -> int:
    """How many lines it has said not to be sent, for whatever reason."""
    said = re.findall(r"([\d,]+) lines? (?:of \S+ )?not sent", link.words)
    return sum(int(count.replace(",", "")) for count in said)


def test_what_waits_in_the_bus_in_the_end_is_said_too(bus: Mount, nats: Server, linking: Linking) -> None:
    """More than waits for a server that is away, and more than waits for a link."""
    link = linking(bus / "B_x", nats / "x", script=UNHURRIED)
    nats.kill()
    link.wait_for("; waiting")
    with (bus / "B_x").open("wb", buffering=0) as channel:
        for _ in range(400):
            channel.write((b"x" * 999 + b"\n") * 100)
    link.end()
    assert unsent(link) == 40_000, link.words


def test_what_waits_in_a_channel_that_is_removed_is_sent(
    bus: Mount, nats: Server, linking: Linking, listening: Listening
) -> None:
    link = linking(bus / "B_x", nats / "x", script=PATIENT)
    outsider = listening(nats.url, "x")
    lines = b"".join(b"%099d\n" % number for number in range(8_000))
    leave_behind(link.process, bus / "B_x", lines)
    link.wait_for("B_x is open again")
    outsider.wait_for(lines)
    link.end()
    assert "not sent" not in link.words


def test_what_comes_while_a_channel_is_opened_anew_is_for_the_next_one(
    bus: Mount, nats: Server, linking: Linking, listening: Listening
) -> None:
    link, outsider = linking(bus / "B_x", nats / "x", script=PATIENT), listening(nats.url)
    for times in range(1, 4):
        (bus / "B_x").unlink()
        while link.words.count("B_x is open again") < times:
            outsider.say("x", b"hello\n")
    link.end()
    assert "not said" not in link.words


def test_what_waits_too_long_in_a_channel_that_is_removed_is_said(bus: Mount, nats: Server, linking: Linking) -> None:
    """More than waits for a server that is away."""
    link = linking(bus / "B_x", nats / "x")
    nats.kill()
    link.wait_for("; waiting")
    with (bus / "B_x").open("wb", buffering=0) as channel:
        for number in range(400):
            channel.write((b"x" * 999 + b"\n") * 100)
            if number < WAITING_BYTES // 110_000:  # the link takes these
                until(lambda: not bus.clients("B_x", rw="rw")[0]["rlist_messages"], "it has taken them")
        (bus / "B_x").unlink()
        link.wait_for("B_x is open again")
    link.wait_for("not sent: they waited there when its name was removed")
    link.end()
    assert unsent(link) == 40_000, link.words


# ---------------------------------------------------------------------------------------------- buses


def test_without_its_bus_it_ends(mounting: Mounting, nats: Server, linking: Linking) -> None:
    bus = mounting()
    links = linked(linking, (bus / "B_x", nats / "x"), ("--write-only", bus / "B_y", nats / "x"))
    bus.unmount()
    assert "the bus is going" in links[0].fails()
    links[1].fails()


def test_with_wait_it_goes_on_with_the_next_bus(
    bus: Mount, nats: Server, linking: Linking, remounting: Remounting, listening: Listening, collect: Collect
) -> None:
    link = linking("--wait", bus / "B_x", nats / "x")
    again = remounting(bus)
    link.wait_for("B_x is open again")
    here, outsider = collect(again / "B_x"), listening(nats.url, "x")
    say(again / "B_x", "hello")
    outsider.wait_for(b"hello\n")
    outsider.say("x", b"hello, too")
    assert here.lines(2) == ["hello", "hello, too"]
    link.end()


def test_with_wait_bus_and_server_may_come_later(
    mounting: Mounting, place: Path, serving: Serving, linking: Linking, listening: Listening
) -> None:
    nats = serving()
    nats.kill()
    link = linking("--wait", place / "bus0" / "B_x", nats / "x", is_ready=False)
    link.wait_for("there is no directory")
    link.wait_for("Connection refused; waiting")
    bus = mounting()
    nats.begin()
    link.wait_for(" is linked to ")
    outsider = listening(nats.url, "x")
    say(bus / "B_x", "hello")
    outsider.wait_for(b"hello\n")
    link.end()


# ---------------------------------------------------------------------------------------------- readers and signals


def test_a_flood_past_a_reader_that_never_reads(
    mounting: Mounting, nats: Server, linking: Linking, collect: Collect, place: Path
) -> None:
    """Of lines that come, and of lines that go."""
    buses = [mounting(), mounting()]
    links = linked(linking, *((bus / "B_x", nats / "x") for bus in buses))
    idle = [os.open(bus / "B_x", os.O_RDONLY) for bus in buses]
    there = collect(buses[1] / "B_x")
    (place / "lines").write_bytes((b"x" * 99 + b"\n") * 10_000)
    flood = f"for i in $(seq 40); do cat {place / 'lines'}; done > {buses[0] / 'B_x'}"
    assert bash(flood).returncode == 0
    say(buses[0] / "B_x", "the last")
    until(lambda: there.data.endswith(b"the last\n"), "the flood is over")
    assert all(peak(link) < 200 << 20 for link in links)
    for file in idle:
        os.close(file)
    for link in links:
        link.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_and_what_was_said_before_is_sent(
    bus: Mount, nats: Server, linking: Linking, listening: Listening, number: signal.Signals
) -> None:
    link = linking(bus / "B_x", nats / "x", script=PATIENT)
    outsider = listening(nats.url, "x")
    say(bus / "B_x", "hello")
    until(lambda: bus.clients("B_x", received=1), "the link has taken it")
    link.end(number)
    outsider.wait_for(b"hello\n")
    assert link.words.count("\n") == 1


def test_a_signal_while_all_is_being_loaded(bus: Mount, nats: Server, start: Start) -> None:
    script = """
        import os, signal, sys

        class Finder:
            def find_spec(self, name, *_):
                if name == "asyncio":
                    os.kill(os.getpid(), signal.SIGTERM)

        sys.meta_path.insert(0, Finder())
        from futebus.commands.link import main
        sys.exit(main())
    """
    program = start(sys.executable, "-c", textwrap.dedent(script), bus / "B_x", nats / "x")
    out, words = program.communicate(timeout=DEADLINE)
    assert (program.returncode, out) == (0, ""), words


def test_a_signal_while_it_waits(place: Path, linking: Linking, serving: Serving) -> None:
    nats = serving()
    with nats.hanging():
        link = linking("--wait", place / "B_x", nats / "x", is_ready=False)
        link.wait_for("waiting")
        link.end()


NONSENSE = [
    b"INFO []\r\n",
    b'INFO {"max_payload": "many"}\r\n',
    b'INFO {"max_payload": null}\r\n',
    b'INFO {"max_payload": -1}\r\n',
    b'INFO {"max_payload": 1000, "connect_urls": ["[::1"]}\r\n',
    b"INFO {\r\n",
    b"x" * (1 << 17),
    b"SSH-2.0-OpenSSH\r\n",
]


@pytest.mark.parametrize("words", NONSENSE)
def test_what_speaks_no_nats_is_no_server(bus: Mount, linking: Linking, words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:

        def speak() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = stack.enter_context(listener.accept()[0])
                    connection.sendall(words)
                    connection.settimeout(DEADLINE)
                    if connection.recv(65536):
                        connection.sendall(b"PONG\r\n")

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        link = linking(bus.touch("B_log"), f"nats://127.0.0.1:{listener.getsockname()[1]}/log", is_ready=False)
        assert len(link.fails().splitlines()) == 1, link.words
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE)


def test_what_is_said_before_a_link_is_there_is_nobodys_loss(
    bus: Mount, nats: Server, linking: Linking, listening: Listening
) -> None:
    """As of whoever opens a channel later."""
    outsider = listening(nats.url)
    has_ended = threading.Event()

    def flood() -> None:
        while not has_ended.is_set():
            outsider.say("x", b"line\n" * 20)

    def is_heard(turn: int) -> bool:
        return bool(bus.channel(f"B_{turn}")["messages_in"] > 100)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        for turn in range(3):
            link = linking(bus / f"B_{turn}", nats / "x")
            until(partial(is_heard, turn), "it is heard")
            link.end()
            assert "the bus is away" not in link.words
    finally:
        has_ended.set()
        flooding.join()
