"""Who wants too much, sends too slowly or does not read: cut off, and nobody else notices."""

import fcntl
import http.client
import select
import socket
import subprocess
import sys
import termios
from pathlib import Path
from typing import cast

import pytest
import trio.testing

from futebus.view.web.pages import MOST_STREAMS
from futebus.view.web.server import HEADER_BYTES, MOST_CONNECTIONS, PIECE_BYTES, SEND_SECONDS, WHOLE_SECONDS, _Browser

from ...helpers.mounts import Mount
from ...helpers.programs import Start
from ...helpers.waiting import DEADLINE, until
from .webs import Web


def is_over(connection: socket.socket) -> bool:
    """Reads to the end, whether that is a close or a reset."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def is_cut(connection: socket.socket) -> bool:
    """Whether the other side has reset it; what has come is not looked at."""
    poller = select.poll()
    poller.register(connection, 0)
    return bool(poller.poll(0))


def descriptors(served: Web) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def unread(connection: socket.socket) -> int:
    """How many bytes have come, and were not read."""
    return int.from_bytes(fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def slow(served: Web, request: bytes) -> socket.socket:
    """A browser that asks, and does not read."""
    made = socket.socket()
    made.settimeout(DEADLINE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", served.port))
    made.sendall(request)
    return made


def test_heads_that_are_too_long(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    head = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n" % served.port
    long = [
        head + b"X-Long: " + b"x" * (HEADER_BYTES + 8192) + b"\r\n\r\n",
        head + b"".join(b"X-%d: y\r\n" % number for number in range(2 * HEADER_BYTES // 8)) + b"\r\n",
        b"GET /" + b"x" * (HEADER_BYTES + 8192) + b" HTTP/1.1\r\n\r\n",
        b"x" * (HEADER_BYTES + 8192),
    ]
    for data in long:
        with served.raw(b"") as connection:
            try:
                connection.sendall(data)
                answer = connection.recv(100)
            except (ConnectionResetError, BrokenPipeError):
                answer = b""
            assert answer[:13] in (b"", b"HTTP/1.1 431 ", b"HTTP/1.1 400 "), answer
    assert served.ask("/metrics", {"X-Short": "x" * 1000}).status == 200
    # To the byte, however it comes: one that is only a little too long has come to its end when it is looked at.
    own = len("/metrics") + sum(len(f"{name}: {value}\r\n") for name, value in headers(served))
    for more, status in ((0, 200), (1, 431)):
        assert served.ask("/metrics", {"X-Long": "x" * (HEADER_BYTES - own - len("X-Long: \r\n") + more)}).status == status
    served.end()


def headers(served: Web) -> list[tuple[str, str]]:
    """What each request of ours has."""
    return [("Host", f"127.0.0.1:{served.port}"), ("Accept-Encoding", "identity")]


def test_who_says_nothing_is_cut_off(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    connections = [served.raw(words) for words in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow")]
    for connection in connections:
        assert is_over(connection)
        connection.close()
    served.end()


def test_who_says_nothing_after_an_answer_is_cut_off(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    own = b"localhost:%d" % served.port
    answers = {
        b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 200,
        b"HEAD / HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 200,
        b"HEAD /events HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 200,
        b"GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 200,
        b"GET /tail HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 401,
        b"GET /nothing HTTP/1.1\r\nHost: %s\r\n\r\n" % own: 404,
        b"GET / HTTP/1.1\r\nHost: stranger\r\n\r\n": 421,
        b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n" % own: 405,
        b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % own: 200,
        b"GET / HTTP/1.0\r\nHost: %s\r\n\r\n" % own: 200,
    }
    connections = {served.raw(request): status for request, status in answers.items()}
    for connection, status in connections.items():
        assert connection.recv(1 << 16, socket.MSG_PEEK).startswith(b"HTTP/1.1 %d " % status)
    for connection in connections:
        assert is_over(connection)
        connection.close()
    served.end()


PREFACE = b"PRI * HTTP/2.0\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"


SOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
UPGRADES = [UPGRADE, SOCKET + b"\r\n", SOCKET + KEY + b"\r\n", SOCKET + KEY + b"Sec-WebSocket-Protocol: \xff\r\n\r\n"]


@pytest.mark.parametrize("words", [PREFACE, PREFACE + b"SM\r\n\r\n" + bytes(3) + b"\4" + bytes(5), *UPGRADES])
def test_nothing_but_http_1_is_spoken(bus: Mount, place: Path, start: Start, words: bytes) -> None:
    served = Web(start, place, bus.path)
    before = descriptors(served)
    if words in UPGRADES:
        words = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\n" % served.port + words
    with served.raw(words) as connection:
        assert words.startswith(PREFACE) or connection.recv(1000, socket.MSG_PEEK).startswith(b"HTTP/1.1 200 ")
        assert is_over(connection)
    until(lambda: descriptors(served) <= before, "all are gone")
    assert served.ask("/metrics").status == 200
    served.end()
    assert "error" not in served.words


def test_a_large_answer_is_sent_in_pieces_each_with_its_time() -> None:
    sizes = []

    class Stream:
        socket = None

        async def send_all(self, data: bytes) -> None:
            sizes.append(len(data))
            await trio.sleep(SEND_SECONDS / 2)

    async def main() -> None:
        await _Browser(cast(trio.SocketStream, Stream()), lambda: None).send_all(bytes(10 * PIECE_BYTES + 1))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sizes == [PIECE_BYTES] * 10 + [1]


def test_who_takes_a_little_now_and_then_is_cut_off() -> None:
    sizes = []

    class Stream:
        socket = socket.socket()

        async def send_all(self, data: bytes) -> None:
            sizes.append(len(data))
            await trio.sleep(SEND_SECONDS - 1)

    async def main() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await _Browser(cast(trio.SocketStream, Stream()), lambda: None).send_all(bytes(1000 * PIECE_BYTES))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(sizes) <= WHOLE_SECONDS / (SEND_SECONDS - 1) + 1


def test_who_has_nothing_more_to_say_may_read(bus: Mount, place: Path, start: Start) -> None:
    """As `nc -N` does it."""
    served = Web(start, place, bus.path)
    for path in ("/metrics", "/stat.json", "/app.js", "/nothing"):
        with served.raw(b"GET %s HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % (path.encode(), served.port)) as connection:
            connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            body = answer.read()
            assert (answer.status, len(body)) == (404 if path == "/nothing" else 200, int(answer.headers["content-length"]))
            assert is_over(connection)
    before = descriptors(served)
    with served.raw(b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.shutdown(socket.SHUT_WR)
        assert is_over(connection), "what has no end is not sent to who has gone"
    with served.raw(b"GET /metr") as connection:
        connection.shutdown(socket.SHUT_WR)
        assert is_over(connection)
    until(lambda: descriptors(served) <= before, "all are gone")
    served.end()


def test_who_sends_a_body_takes_no_place_for_ever(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    before = descriptors(served)
    head = b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\nTransfer-Encoding: chunked\r\n\r\n" % served.port
    for _ in range(5):
        with served.raw(head) as connection:
            try:
                for _ in range(1000):
                    connection.sendall(b"1\r\nx\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert is_over(connection)
    until(lambda: descriptors(served) <= before, "all are gone")
    served.end()


def test_pages_that_do_not_read_are_dropped(bus: Mount, place: Path, start: Start) -> None:
    for number in range(500):
        bus.touch(f"B{number}" + "x" * 200)
    served = Web(start, place, bus.path)
    request = b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port
    sleepers = [slow(served, request) for _ in range(3)]
    with served.stream("/events") as good:
        until(lambda: good.bus() and all(map(is_cut, sleepers)), "they are dropped, and others are not")
        assert len(good.bus()["channels"]) == 500
    for sleeper in sleepers:
        sleeper.close()
    served.end()


def test_pages_that_go_while_something_is_sent_take_no_place_for_ever(bus: Mount, place: Path, start: Start) -> None:
    for number in range(500):
        bus.touch(f"B{number}" + "x" * 200)
    served = Web(start, place, bus.path)
    request = b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port
    with served.stream("/events") as good:
        good.bus()
        before = descriptors(served)
        sleepers = [slow(served, request) for _ in range(3)]
        for _ in range(3):
            good.bus()  # more than the kernel keeps: what is sent to the others waits
        for sleeper in sleepers:
            sleeper.shutdown(socket.SHUT_WR)
        good.bus()
        for sleeper in sleepers:
            sleeper.close()  # with something unread, so that it is reset
        until(lambda: good.bus() and descriptors(served) <= before, "their places are free")
    served.end()


def test_who_asks_before_an_answer_and_goes_takes_no_place_for_ever(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    before = descriptors(served)
    request = b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port
    for _ in range(3):
        with served.raw(2 * request) as connection:
            assert connection.recv(12) == b"HTTP/1.1 200"
    until(lambda: descriptors(served) <= before, "all are gone")
    served.end()


@pytest.mark.parametrize("error", [trio.BrokenResourceError, trio.BusyResourceError])
def test_who_cannot_be_sent_to_is_left(error: type[Exception]) -> None:
    left = []

    class Stream:
        socket = None

        async def send_all(self, data: bytes) -> None:
            raise error

    async def main() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await _Browser(cast(trio.SocketStream, Stream()), lambda: left.append(True)).send_all(b"x")

    trio.run(main)
    assert left


def test_it_ends_though_a_page_does_not_read(bus: Mount, place: Path, start: Start) -> None:
    for number in range(500):
        bus.touch(f"B{number}" + "x" * 200)
    served = Web(start, place, bus.path)
    with (
        slow(served, b"GET /events HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port) as sleeper,
        served.stream("/events") as good,
    ):

        def is_full() -> bool:
            good.bus()
            return unread(sleeper) > 1000

        until(is_full, "it has something to read")
        served.end()


def test_so_many_pages_and_no_more(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    looking = [served.stream("/events") for _ in range(MOST_STREAMS)]
    for events in looking:
        assert events.status == 200
        events.next("buses")
    answer = served.ask("/events")
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.text == f"{MOST_STREAMS} pages look at this already; try again later\n"
    assert served.ask("/metrics").status == 200
    assert served.ask("/events", method="HEAD").status == 503
    for events in looking:
        events.close()

    def has_place() -> bool:
        with served.stream("/events") as again:
            return again.status == 200

    until(has_place, "there are places again")
    assert served.ask("/events", method="HEAD").status == 200
    served.end()


STRANGER = """
import os, socket, sys
os.setuid(65534)
ask = f"GET /events HTTP/1.1\\r\\nHost: localhost:{sys.argv[1]}\\r\\n\\r\\n".encode()
connections = []
for _ in range(int(sys.argv[2])):
    one = socket.socket()
    one.connect(("127.0.0.1", int(sys.argv[1])))
    one.sendall(ask)
    print(one.recv(12).decode()[-3:])
    connections.append(one)
print("all", flush=True)
sys.stdin.read()
"""


def test_one_user_does_not_take_all_places(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    stranger = start(sys.executable, "-c", STRANGER, str(served.port), str(MOST_STREAMS), stdin=subprocess.PIPE)
    assert stranger.stdout
    said = [line.strip() for line in iter(stranger.stdout.readline, "all\n")]
    assert said == ["200"] * (MOST_STREAMS // 2) + ["503"] * (MOST_STREAMS // 2)
    with served.stream("/events") as mine:
        assert mine.status == 200
        assert mine.bus()["name"] == str(bus.path)
    stranger.communicate(timeout=DEADLINE)
    served.end()


def test_so_many_connections_and_no_more(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)

    def is_full() -> bool:
        # Who says nothing is cut off after a while: on a machine that has much to do there may be places again by now.
        connections = [served.raw(b"") for _ in range(MOST_CONNECTIONS)]
        is_refused = not _answers(served)
        for connection in connections:
            connection.close()
        return is_refused

    until(is_full, "there is no place")
    until(lambda: _answers(served), "there are places again")
    served.end()


def _answers(served: Web) -> bool:
    try:
        return served.ask("/").status == 200
    except (OSError, http.client.HTTPException):
        return False
