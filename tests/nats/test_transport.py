"""Bytes between nats-py and a socket: all of them, in order, once; and what is wrong is told."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlparse

import pytest
from nats.errors import ProtocolError

from futebus.nats.transport import LONGEST_LINE, Direct, Extent, Part

from ..helpers.ports import free_port
from ..helpers.waiting import DEADLINE

SIZE = 5 << 20
"""More than the system takes at once."""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Direct, socket.socket]]:
    """A connection, and the other side of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        direct = Direct()
        await direct.connect(urlparse(f"nats://127.0.0.1:{server.getsockname()[1]}"), 0, DEADLINE)
        other, _ = server.accept()
    with other:
        other.setblocking(False)
        try:
            yield direct, other
        finally:
            direct.close()
            await direct.wait_closed()


def run(work: Callable[[Direct, socket.socket], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with connected() as (direct, other), asyncio.timeout(DEADLINE):
            await work(direct, other)

    asyncio.run(whole())


async def all_of(other: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    found = b""
    while len(found) < size and (more := await loop.sock_recv(other, 1 << 20)):
        found += more
    return found


def extent(path: Path, data: bytes, start: int, size: int) -> Extent:
    path.write_bytes(data)
    return Extent(Part(os.open(path, os.O_RDONLY), start, start + size), start, size)


def test_all_is_sent_in_order(tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    part = extent(tmp_path / "file", data, 5000, SIZE - 5000)
    pieces: list[bytes | Extent] = [b"head", part, b"\r\n", b"", *[b"%d " % number for number in range(500)], data]
    whole = b"".join(piece.read() if isinstance(piece, Extent) else piece for piece in pieces)

    async def work(direct: Direct, other: socket.socket) -> None:
        direct.writelines(pieces)
        assert direct.unsent > 0
        draining = asyncio.ensure_future(direct.drain())
        direct.write(b"end")  # behind it
        assert await all_of(other, len(whole) + 3) == whole + b"end"
        await draining
        assert direct.unsent == 0

    run(work)


def test_part_of_a_file_is_what_it_says(tmp_path: Path) -> None:
    data = os.urandom(20_000)
    for start in (0, 1, 4095, 4096, 4097, 9000):
        part = extent(tmp_path / "file", data, start, 3000)
        assert len(part) == 3000
        assert bytes(part.view()) == part.read() == data[start : start + 3000]


def test_a_file_that_is_too_short(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="greater than file size"):
        extent(tmp_path / "file", b"x" * 100, 50, 51)


def test_a_file_is_closed_when_nobody_wants_it(tmp_path: Path) -> None:
    def is_open() -> bool:
        # Others of this process may close what they have meanwhile.
        return tmp_path / "file" in [Path(f"/proc/self/fd/{name}").resolve() for name in os.listdir("/proc/self/fd")]

    part = extent(tmp_path / "file", b"x" * 100, 0, 100)
    assert is_open()
    del part
    assert not is_open()


def test_a_file_that_gets_shorter_ends_the_connection_and_not_the_process(tmp_path: Path) -> None:
    part = extent(tmp_path / "file", os.urandom(3 << 20), 0, 3 << 20)
    os.truncate(tmp_path / "file", 1 << 20)
    with pytest.raises(OSError, match="Input/output error"):
        part.read()

    async def work(direct: Direct, other: socket.socket) -> None:
        direct.writelines([b"head", part])
        reading = asyncio.ensure_future(all_of(other, 4 << 20))
        with pytest.raises(OSError, match="Input/output error"):
            await direct.drain()
        direct.close()
        assert len(await reading) < 3 << 20

    run(work)


def test_what_comes_is_put_where_it_is_wanted() -> None:
    data = os.urandom(SIZE)

    async def work(direct: Direct, other: socket.socket) -> None:
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(other, b"line\r\nahead" + data))
        assert await direct.readline() == b"line\r\n"
        found = bytearray(5 + SIZE)
        done = 0
        while done < len(found):
            count = await direct.receive(memoryview(found)[done : done + 3_000_000])
            assert count
            done += count
        assert bytes(found) == b"ahead" + data
        await sending
        other.close()
        assert not direct.at_eof()
        assert await direct.receive(memoryview(found)) == 0
        assert direct.at_eof()

    run(work)


def test_others_are_served_while_there_is_always_more() -> None:
    async def work(direct: Direct, other: socket.socket) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        await asyncio.get_running_loop().sock_sendall(other, b"x" * 1000)
        ticking = asyncio.ensure_future(tick())
        for _ in range(1000):
            await direct.receive(memoryview(bytearray(1)))
        ticking.cancel()
        assert ticks >= 999

    run(work)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_who_waits_when_it_is_ended_is_told(how: str) -> None:
    async def work(direct: Direct, other: socket.socket) -> None:
        direct.write(b"x" * SIZE)
        waiting = [asyncio.ensure_future(work) for work in (direct.receive(memoryview(bytearray(9))), direct.drain())]
        await asyncio.sleep(0)
        getattr(direct, how)()
        assert await waiting[0] == 0
        with pytest.raises(ConnectionResetError):  # what it has not sent is not sent
            await waiting[1]
        with pytest.raises(ConnectionResetError):
            direct.write(b"x")
        # Its number is free, and the loop knows nothing of it any more.
        async with connected() as (again, another):
            another.send(b"well\n")
            assert await again.readline() == b"well\n"

    run(work)


def test_a_connection_that_is_reset() -> None:
    async def work(direct: Direct, other: socket.socket) -> None:
        direct.write(b"x" * SIZE)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        other.close()
        with pytest.raises(ConnectionResetError):
            await direct.drain()

    run(work)


def test_a_line_has_an_end() -> None:
    async def work(direct: Direct, other: socket.socket) -> None:
        sending = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(other, b"x" * SIZE))
        with pytest.raises(ProtocolError):
            await direct.readline()
        sending.cancel()
        assert SIZE > LONGEST_LINE

    run(work)


def test_a_line_that_ends_with_the_connection() -> None:
    async def work(direct: Direct, other: socket.socket) -> None:
        other.send(b"INFO {")
        other.close()
        assert await direct.readline() == b"INFO {"
        assert await direct.readline() == b""

    run(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_who_is_not_there(host: str) -> None:
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(Direct().connect(urlparse(f"nats://{host}:{free_port()}"), 0, DEADLINE))


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", ".a", "a" * 64, "ü" * 64])
def test_a_name_that_nobody_has(host: str) -> None:
    with pytest.raises(socket.gaierror):
        asyncio.run(Direct().connect(urlparse(f"nats://{host}:4222"), 0, DEADLINE))


def test_the_sixth_version_of_addresses() -> None:
    async def work() -> None:
        try:
            server = socket.create_server(("::1", 0), family=socket.AF_INET6)
        except OSError:  # a machine without it
            return
        with server:
            direct = Direct()
            await direct.connect(urlparse(f"nats://[::1]:{server.getsockname()[1]}"), 0, DEADLINE)
            direct.close()

    asyncio.run(work())
