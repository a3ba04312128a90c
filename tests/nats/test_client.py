"""What a server says, however it comes in pieces, and what is sent: as nats-py reads and writes it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client as NatsClient
from nats.errors import ProtocolError

from futebus.nats.client import MOST_KEPT, MOST_MESSAGE, READ_BYTES, Parser, read_headers, write_headers

Said = tuple[Any, ...]

HEADERS = b"NATS/1.0\r\nFutebus-Line: 7\r\n\r\n"
STREAM = (
    b'INFO {"server_id": "x"}\r\nPING\r\n'
    b"MSG a.b 1 5\r\nhello\r\n"
    b"MSG a.b 22 _INBOX.x.y 0\r\n\r\n"
    b"HMSG c 3 %d %d\r\n%s\r\n+OK\r\n"
    % (len(HEADERS), len(HEADERS) + 3, HEADERS + b"\r\n\0")
    + b"HMSG c 3 r %d %d\r\n%s\r\nPONG\r\n" % (len(HEADERS), len(HEADERS), HEADERS)
    + b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
)
ALL: list[Said] = [
    ("info", {"server_id": "x"}),
    ("ping",),
    ("message", 1, b"a.b", b"", b"hello", None),
    ("message", 22, b"a.b", b"_INBOX.x.y", b"", None),
    ("message", 3, b"c", b"", b"\r\n\0", HEADERS),
    ("message", 3, b"c", b"r", b"", HEADERS),
    ("pong",),
    ("error", "'permissions violation for publish to \"x\"'"),
]


class Hearer:
    """Writes down what a parser tells."""

    def __init__(self) -> None:
        self.heard: list[Said] = []
        self.parser = Parser(self)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.heard.append(("message", sid, subject, reply, data, headers))

    async def _process_info(self, info: dict[str, Any]) -> None:
        self.heard.append(("info", info))

    async def _process_ping(self) -> None:
        self.heard.append(("ping",))

    async def _process_pong(self) -> None:
        self.heard.append(("pong",))

    async def _process_err(self, words: str) -> None:
        self.heard.append(("error", words))

    async def _feed(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            while piece:
                room = self.parser.room()
                assert len(room)
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                piece = piece[count:]
                await self.parser.took(count)

    def feed(self, *pieces: bytes) -> list[Said]:
        asyncio.run(self._feed(iter(pieces)))
        return self.heard


def message(data: bytes) -> bytes:
    return b"MSG x 1 %d\r\n%s\r\n" % (len(data), data)


def test_it_comes_whole() -> None:
    assert Hearer().feed(STREAM) == ALL


def test_it_comes_in_two_pieces() -> None:
    for cut in range(len(STREAM)):
        assert Hearer().feed(STREAM[:cut], STREAM[cut:]) == ALL


def test_it_comes_byte_by_byte_and_more_follows() -> None:
    hearer = Hearer()
    assert hearer.feed(*(bytes([byte]) for byte in STREAM), b"MSG x 1 3\r\nab") == ALL
    assert hearer.feed(b"c\r\n")[-1] == ("message", 1, b"x", b"", b"abc", None)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 60_000, READ_BYTES - 20, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES]), max_size=6),
    steps=st.lists(st.sampled_from([1, 7, 1000, 70_000, READ_BYTES, 5 * READ_BYTES]), min_size=1, max_size=3),
)
def test_messages_of_all_sizes_come_in_pieces_of_all_sizes(sizes: list[int], steps: list[int]) -> None:
    texts = [bytes([65 + place]) * size for place, size in enumerate(sizes)]
    said = b"".join(map(message, texts))
    step = max(max(steps), len(said) // 50)
    pieces = [said[at : at + step] for at in range(0, len(said), step)]
    assert [heard[4] for heard in Hearer().feed(*pieces)] == texts


def test_the_room_for_a_long_message_is_given_back() -> None:
    hearer = Hearer()
    long = b"x" * (2 * MOST_KEPT)
    hearer.feed(message(long), message(b"short"))
    assert [heard[4] for heard in hearer.heard] == [long, b"short"]
    assert len(hearer.parser.room()) == READ_BYTES


@pytest.mark.parametrize(
    "line",
    [
        b"MSG x 1\r\n",
        b"MSG x 1 y z 5\r\n",
        b"MSG x one 5\r\nhello\r\n",
        b"MSG x 1 -5\r\n",
        b"MSG x 1 5\r\nhelloXX",
        b"MSG x 1 %d\r\n" % (MOST_MESSAGE + 1),
        b"MSG x 1 " + b"9" * 5000 + b"\r\n",
        b"HMSG x 1 6 5\r\n",
        b"HMSG x 1 5\r\n",
        b"HMSG x 1 r 5 -6\r\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"+OKAY\r\n",
        b"x" * 5000 + b"\r\n",
        b"x" * (READ_BYTES + 1),
        b"\xff\xfe\0\r\n",
    ],
)
@pytest.mark.parametrize("step", [1 << 20, 4999])
def test_what_is_no_nats_ends_it(line: bytes, step: int) -> None:
    with pytest.raises(ProtocolError):
        Hearer().feed(*(line[at : at + step] for at in range(0, len(line), step)))


def test_a_line_without_an_end_takes_no_more_memory_than_that() -> None:
    hearer = Hearer()
    with pytest.raises(ProtocolError):
        hearer.feed(*[b"x" * 1000] * 10_000)
    assert len(hearer.parser._buffer) == READ_BYTES


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@given(st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True), TEXT, max_size=4))
def test_headers_are_read_and_written_as_by_nats_py(headers: dict[str, str]) -> None:
    block = write_headers(headers)
    if block is not None:
        stripped = {name: value.strip() for name, value in headers.items()}
        assert read_headers(block) == stripped == NatsClient._parse_header_lines(block.partition(b"\r\n")[2])


@given(st.binary(max_size=60).map(lambda rest: b"NATS/1.0\r\n" + rest + b"\r\n\r\n"))
def test_headers_that_are_read_quickly_are_what_nats_py_reads(block: bytes) -> None:
    quick = read_headers(block)
    if quick is not None:
        assert quick == NatsClient._parse_header_lines(block.partition(b"\r\n")[2])


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
        b"NATS/1.0\r\nA:b\r\n\r\n",
        b"NATS/1.0\r\nA: b \r\n\r\n",
        b"NATS/1.0\r\nA b: c\r\n\r\n",
        "NATS/1.0\r\nA: ü\r\n\r\n".encode(),
        b"NATS/1.0\r\nA: b\r\n",
        b"NATS/1.0",
        b"",
    ],
)
def test_unusual_headers_are_left_to_nats_py(block: bytes) -> None:
    assert read_headers(block) is None


@pytest.mark.parametrize("headers", [{"A": "b\r\nC: d"}, {"A": "b\n"}, {"A": " b"}, {"A": "ü"}])
def test_headers_that_nats_py_changes_are_left_to_it(headers: dict[str, str]) -> None:
    assert write_headers(headers) is None
