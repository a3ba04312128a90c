"""What a bus tells of itself, in `_stat.json`: taken apart, and held against what a bus can be.

The one rule: any user may mount something that calls itself a bus, so nothing is taken for what it says it is. What is shown of a
name is `escape`d here, once: no name draws on a screen or passes for another. What is opened by its name is the name of a channel
and of nothing else. What is no number here is none, and what is a word has no more than letters and digits. Nothing is longer or
more than what a bus can have, and no more than a line of it is taken apart at a time, so that it costs what it is long.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..core.kinds import KINDS
from ..core.limits import MAX_NAME
from ..core.stat.programs import FORMAT, VERSION
from ..core.text import clipped, escape
from ..core.totals import Totals
from ..host.mounted import NoBus


class Bounds(NamedTuple):
    """How much a bus may have to be looked at."""

    bytes: int
    """Of `_stat.json`."""
    metrics: int
    """Bytes of `_metrics`."""
    channels: int
    """Each is a row that somebody has to sort and to draw."""
    clients: int
    past: int
    """Of how many channels it is kept how they have been."""


NAMED = Bounds(32 << 20, 12 << 20, 32_768, 65_536, 4096)
"""Of a bus that somebody has named, or that belongs to root or to who looks. With its default limits, one has 4,096 channels with
names and 16,384 clients, and tells 10 MiB."""

FOUND = Bounds(12 << 20, 2 << 20, 4096 + 512, 16_384, 256)
"""Of others' buses: with so many of them as there are places, each is bounded as one with default limits is."""

MOST_LINE = 64 * 1024
"""Characters of one line. The first one has the mount point, and a path of 4 KiB may need 32."""

MOST_NESTED = 16
"""How deep lists and objects are in each other in a line. What is deeper may be understood in one place of a program and not in
the next, which has been called from more others."""

MOST_COMMAND = 64
"""Bytes of a command name. Linux has 16, and 64 for its own threads."""

MOST_PATH = 4096
"""Bytes of a mount point."""

MOST_WORDS = 200
"""Characters of what is told of somebody who tells nonsense."""


@dataclass(frozen=True, slots=True)
class Client:
    """One open file description on a channel: see futebus(7)."""

    id: str
    """As in addresses."""
    role: str
    pid: int
    uid: int
    command: str
    """Fit to be shown; `?` if it is not known."""
    reads: bool
    writes: bool
    bulk: bool
    wbuf_bytes: int
    rbuf_bytes: int
    rlist_messages: int
    rlist_bytes: int
    sent: int
    received: int
    dropped: int
    waits: str
    """`read`, `write`, or nothing."""
    waits_seconds: float

    @property
    def access(self) -> str:
        """As the column RW of `_stat`: `r-`, `rw+`."""
        return f"{'r' if self.reads else '-'}{'w' if self.writes else '-'}{'+' if self.bulk else ''}"


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel: see futebus(7)."""

    number: int
    """Never the same for two channels of a bus."""
    name: str
    """Fit to be shown."""
    file: bytes
    """As it is called on the bus."""
    type: str
    """U, A, S or B."""
    state: str
    """`live`, `removed` or `dead`."""
    mode: str
    uid: int
    gid: int
    age_seconds: float
    messages_in: int
    bytes_in: int
    copies: int
    messages_out: int
    bytes_out: int
    dropped: int
    lost: int
    clients: tuple[Client, ...]

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages, and how many bytes, wait for its clients."""
        return sum(client.rlist_messages for client in self.clients), sum(client.rlist_bytes for client in self.clients)

    @property
    def blocked(self) -> list[Client]:
        """The clients whose writes wait, the longest first."""
        return sorted((client for client in self.clients if client.waits == "write"), key=lambda client: -client.waits_seconds)


@dataclass(frozen=True)
class Look:
    """A bus at one moment."""

    mountpoint: str
    """Fit to be shown."""
    futebus: str
    """The version of the daemon."""
    daemon_pid: int
    taken_at: float
    """Seconds since the epoch."""
    uptime_seconds: float
    is_shutting_down: bool
    limits: Mapping[str, int]
    """By the names of the mount options."""
    gone: Totals
    """What the channels have counted that are no more."""
    channels: tuple[Channel, ...]

    @cached_property
    def totals(self) -> Totals:
        """What all channels have counted, since the bus began."""
        totals = self.gone
        for channel in self.channels:
            totals = totals.plus(channel)
        return totals

    @cached_property
    def named(self) -> int:
        """How many channels have a name, and live."""
        return sum(channel.state == "live" for channel in self.channels)

    @cached_property
    def clients(self) -> int:
        """How many there are."""
        return sum(len(channel.clients) for channel in self.channels)

    def sum_up(self) -> None:
        """Finds out what is the same for as long as there is this look, so that nobody has to wait for it later."""
        _ = self.totals, self.named, self.clients

    def fullness(self, client: Client) -> float:
        """How full the queue of a client is: 1 is full, by messages or by bytes, whichever is nearer."""
        by_messages = client.rlist_messages / self.limits["max_queue"]
        return min(max(by_messages, client.rlist_bytes / self.limits["max_queue_bytes"]), 1.0)


Row = Mapping[str, Any]
"""A line of `_stat.json`."""

T = TypeVar("T")


def parsed(text: bytes, mountpoint: Path, bounds: Bounds = NAMED) -> Look:
    """What `_stat.json` says.

    Args:
        text: all of it.
        mountpoint: where the bus is, for the words.
        bounds: how much it may have.

    Raises:
        NoBus: it is none that is understood here.
    """
    try:
        head, channels = rows(text, _client, bounds)
        if (head["format"], head["version"]) != (FORMAT, VERSION):
            known = f"speaks version {_clipped(head['version'])} of {_clipped(head['format'])}, not {VERSION}"
            raise NoBus(f"the bus on {mountpoint} {known}", None)
        gone = [Totals(**{key: _count(totals, key) for key in Totals._fields}) for totals in head["gone"].values()]
        return Look(
            mountpoint=escape(name_of(head, "mountpoint")[:MOST_PATH]),
            futebus=_clipped(head["futebus"]),
            daemon_pid=_count(head, "daemon_pid"),
            taken_at=_number(head, "taken_at"),
            uptime_seconds=_number(head, "uptime_seconds"),
            is_shutting_down=head["shutting_down"] is True,
            limits={key: max(_count(head["limits"], key), 1) for key in _LIMITS},
            gone=Totals(*map(sum, zip(*gone, strict=True))) if gone else Totals(),
            channels=tuple(_channel(row, clients) for row, clients in channels),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # Of what was told, an error may have all in its words.
        why = _clipped(f"{type(error).__name__}: {clipped(str(error), MOST_WORDS)}")
        raise NoBus(f"what the bus on {mountpoint} tells is not understood: {why}", None) from None


def _clipped(told: object) -> str:
    return escape(clipped(str(told), MOST_WORDS).encode("utf-8", "backslashreplace"))


def rows(text: bytes, of_client: Callable[[Row], T], bounds: Bounds = NAMED) -> tuple[Row, Iterator[tuple[Row, list[T]]]]:
    """The lines of `_stat.json`: it has one for each channel and each client, see futebus(7).

    They are taken apart one by one, and none is kept: `[],[],[]` is 25 times as much once it is lists, and as long as JSON is
    taken apart nobody else in this process does anything.

    Args:
        text: all of it.
        of_client: makes of the line of a client what is kept of it; it may raise a ValueError.
        bounds: how much it may have.

    Returns:
        What it says of the bus; and of each channel what it says, and what is kept of its clients, as one asks for it.

    Raises:
        ValueError: it is something else. So may be found out only when one asks for channels.
    """
    if text.count(b"\n") > bounds.channels + bounds.clients + 2:
        raise ValueError("it has more channels and clients than are looked at here")
    head, *lines = text.decode("ascii").removesuffix("\n").split("\n")
    if lines and (not head.endswith("[") or lines.pop() != "]}"):
        raise ValueError("its lines are others")
    return _row(head, "]}"), _channels(lines, of_client, bounds)


def _finite(text: str) -> float:
    if math.isfinite(value := float(text)):
        return value
    raise ValueError("a number of it has no end")


_JSON = json.JSONDecoder(parse_constant=lambda word: None, parse_float=_finite)
"""`NaN` and `Infinity` are no JSON, and none of what a bus tells; neither is what becomes one, as 1e999 does."""


def _channels(lines: Iterable[str], of_client: Callable[[Row], T], bounds: Bounds) -> Iterator[tuple[Row, list[T]]]:
    counted, row, clients = [0, 0], None, list[T]()
    for line in lines:
        line = line.removesuffix(",")
        is_client = line.startswith(" ")
        if is_client is not (row is not None):
            raise ValueError("its lines are others")
        counted[is_client] += 1
        if counted[0] > bounds.channels or counted[1] > bounds.clients:
            raise ValueError("it has more channels or clients than are looked at here")
        if is_client:
            client = line.removesuffix("]}")
            clients.append(of_client(_row(client)))
            is_last = client != line
        else:
            row = _row(line, "]}")
            is_last = not line.endswith("[")
        if is_last:
            assert row is not None
            yield row, clients
            row, clients = None, []
    if row is not None:
        raise ValueError("its lines are others")


def _row(line: str, rest: str = "") -> Row:
    """A line, and what ends it if others follow that belong to it."""
    if len(line) > MOST_LINE:
        raise ValueError("a line of it is too long")
    row = _JSON.decode(line + rest if line.endswith("[") else line)
    if type(row) is not dict or row.get("channels") or row.get("clients"):
        raise ValueError("its lines are others")
    # Most lines have too few brackets to be looked at; names may be full of them.
    if line.count("[") + line.count("{") > MOST_NESTED and _is_deep(row):
        raise ValueError("its lines are others")
    return row


def _is_deep(row: Row) -> bool:
    level: list[Any] = [row]
    for _ in range(MOST_NESTED):
        within = [each.values() if type(each) is dict else each for each in level]
        level = [each for values in within for each in values if type(each) in (dict, list)]
    return bool(level)


def name_of(row: Row, key: str) -> bytes:
    """A name in `_stat.json`, as the bytes that it is."""
    stray = row.get(f"{key}_hex")
    return bytes.fromhex(stray) if stray is not None else str(row[key]).encode()


def _number(row: Row, key: str) -> Any:
    value = row[key]
    if type(value) not in (int, float) or not 0 <= value < 1 << 64:
        raise ValueError(f"{key} is no number")
    return value


def _count(row: Row, key: str) -> int:
    value = _number(row, key)
    if type(value) is not int:
        raise ValueError(f"{key} is no count")
    return value


def _word(row: Row, key: str) -> str:
    value = row[key]
    if type(value) is not str or not (value.isascii() and value.isalnum() and len(value) <= 16):
        raise ValueError(f"{key} is no word")
    return value


_LIMITS = "max_message max_queue max_queue_bytes max_clients max_clients_per_user max_channels".split()
_CHANNEL = "number uid gid messages_in bytes_in copies messages_out bytes_out dropped lost".split()
_CLIENT = "pid uid wbuf_bytes rbuf_bytes rlist_messages rlist_bytes sent received dropped".split()


def _channel(row: Row, clients: list[Client]) -> Channel:
    file, letter = name_of(row, "name"), _word(row, "type")
    # It is what is opened by who watches it: the kernel would take a path, from this directory or from any other.
    if letter.encode() not in KINDS or file[:1] != letter.encode() or b"/" in file or b"\0" in file or len(file) > MAX_NAME:
        raise ValueError("a name is that of no channel")
    return Channel(
        name=escape(file),
        file=file,
        clients=tuple(clients),
        type=letter,
        state=_word(row, "state"),
        mode=_word(row, "mode"),
        age_seconds=_number(row, "age_seconds"),
        **{key: _count(row, key) for key in _CHANNEL},
    )


def _client(row: Row) -> Client:
    return Client(
        id=f"{int(_word(row, 'id'), 16):x}",
        role=_word(row, "role"),
        command=escape(name_of(row, "command")[:MOST_COMMAND]) or "?",
        reads=row["reads"] is True,
        writes=row["writes"] is True,
        bulk=row["bulk"] is True,
        waits=_word(row, "waits") if row["waits"] else "",
        waits_seconds=_number(row, "waits_seconds"),
        **{key: _count(row, key) for key in _CLIENT},
    )
