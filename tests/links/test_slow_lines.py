"""Slow lines between a host and a server: who waits for a message that takes long sees that it is on its way."""

import asyncio
import logging
import socket
import time
from pathlib import Path

import pytest

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.connection import Servers
from futebus.nats.pace import Pace
from futebus.nats.reader import Reader
from futebus.nats.stream import Stream

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting
from ..helpers.nats import Server, Serving, tls
from ..helpers.published import Proxy, ask, lines_in, messages, proxied
from ..helpers.recorders import Recording
from ..helpers.waiting import until
from .links import Linking
from .test_delivery import deliver, wait_for

RATE = 20_000
"""Bytes a second: a message takes longer than a server has to answer."""

LINES = [b"%d " % number + b"x" * 130_000 + b"\n" for number in range(2)]
ALL = b"".join(LINES)


def url(net: Proxy, path: str = "") -> str:
    return f"nats://127.0.0.1:{net.port}{path}"


def fill(server: Server) -> None:
    """Makes a stream with these lines, and others between."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines", "lines.>"])
        for line in LINES:
            await stream.jetstream.publish("lines.other", b"no")
            await stream.jetstream.publish("lines", line)

    ask(server.url, work)


def test_to_a_delivery(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    """Also behind a gap, where it is asked what is there."""
    master = collect(bus / ".U_x")
    fill(keeping)
    with proxied(keeping, down=RATE) as net:
        link = deliver(linking, bus / "U_x", url(net, "/LINES/lines"), place, is_ready=False)
        wait_for(master, ALL)
        link.end()
        assert net.is_held, net.told
        assert "waiting" not in link.words or net.connections > 1, net.told


def test_to_a_delivery_that_goes_on(bus: Mount, linking: Linking, keeping: Server, collect: Collect, place: Path) -> None:
    """It sees whether the stream has the last message that it had."""
    master = collect(bus / ".U_x")
    fill(keeping)
    link = deliver(linking, bus / "U_x", f"{keeping.url}/LINES/lines", place)
    wait_for(master, ALL)
    link.end()
    ask(keeping.url, lambda stream: stream.jetstream.publish("lines", b"more\n"))
    with proxied(keeping, down=RATE) as net:
        link = deliver(linking, bus / "U_x", url(net, "/LINES/lines"), place, is_ready=False)
        wait_for(master, ALL + b"more\n")
        link.end()
        assert net.is_held, net.told


def test_from_a_recorder(bus: Mount, recording: Recording, keeping: Server) -> None:
    with proxied(keeping, up=RATE) as net:
        recorder = recording(bus / "U_x", "--to", url(net, "/LINES/lines"))
        for line in LINES:
            (bus / "U_x").write_bytes(line)
        until(lambda: lines_in(messages(keeping.url)) == ALL, "all is in the stream")
        recorder.end()
        assert net.is_held, net.told


def test_to_a_reader(keeping: Server, caplog: pytest.LogCaptureFixture) -> None:
    """As Spark's are."""
    caplog.set_level(logging.DEBUG, "futebus.nats")  # why it has made another connection, if it has
    fill(keeping)
    with proxied(keeping, down=RATE) as net:
        reader = Reader(address.read_servers(url(net)), Access(), "LINES", "a test")
        found = [message.data for message in reader.messages(1, 5, "lines")]
        reader.close()
        assert found == LINES
        assert net.is_held, net.told
        assert reader.connections == net.connections, net.told


def test_of_links(bus: Mount, mounting: Mounting, linking: Linking, nats: Server, collect: Collect) -> None:
    other = mounting()
    with proxied(nats, up=RATE) as up, proxied(nats, down=RATE) as down:
        links = [linking(bus / "B_x", url(up, "/x")), linking(other / "B_x", url(down, "/x"))]
        there = collect(other / "B_x")
        with open(bus / "B_x", "wb", buffering=0) as channel:
            for line in LINES:
                channel.write(line)
        wait_for(there, ALL)
        for link in links:
            link.end()
        assert up.is_held, up.told
        assert down.is_held, down.told


@pytest.mark.parametrize("is_tls", [False, True])
def test_of_one_message(serving: Serving, papers: Path, *, is_tls: bool) -> None:
    """Of which the system takes little at a time, with TLS and without."""
    server = serving(tls(papers) if is_tls else "", jetstream=True)

    async def work(port: int) -> int:
        scheme, access = ("tls", Access(tls_ca=papers / "ca.pem")) if is_tls else ("nats", Access())
        connection = await Servers(address.read_servers(f"{scheme}://127.0.0.1:{port}"), access, "a test").connect()
        transport = connection.client._transport
        writer = transport._streams._io_writer if transport._streams else None
        one = transport._plain if writer is None else writer.get_extra_info("socket")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 13)
        stream = Stream(connection, "LINES")
        await stream.make(["lines"])
        number = await stream.publish("lines", b"x" * 600_000, {}, 0, "long")
        await connection.close()
        return number

    with proxied(server, up=50_000) as net:
        assert asyncio.run(work(net.port)) == 1


def test_a_server_that_hangs_is_known_whatever_it_is_sent(bus: Mount, linking: Linking, nats: Server) -> None:
    """What its system takes meanwhile is no sign of life."""
    link = linking(bus / "B_x", nats / "x")
    with nats.hanging(), open(bus / "B_x", "wb", buffering=0) as channel:

        def is_known() -> bool:
            channel.write(b"x" * 999 + b"\n")
            time.sleep(0.05)  # 20 kB a second
            return "does not answer; waiting" in link.words

        until(is_known, "it is known")
    link.wait_for("there again")
    link.end()


@pytest.mark.parametrize(
    ("took", "bytes_"),
    [
        ([], 256 << 10),
        ([(256 << 10, 0.001)], 8 << 20),  # as much as is allowed
        ([(1 << 20, 1.0)], 2 << 20),
        ([(100, 0.05)], 256 << 10),  # a short one tells how far it is, and not how much the line carries
        ([(1 << 20, 0.5), (4 << 20, 10.0)], round((4 << 20) / 5)),
        ([(256 << 10, 60.0)], 64 << 10),
        ([(8 << 20, 3.0)], round((8 << 20) * 2 / 3)),
        ([(0, 0.0)], 256 << 10),
    ],
)
def test_no_more_is_asked_for_than_comes_soon(took: list[tuple[int, float]], bytes_: int) -> None:
    pace = Pace(8 << 20)
    for size, seconds in took:
        pace.took(size, seconds, seconds)
    assert pace.bytes == bytes_
