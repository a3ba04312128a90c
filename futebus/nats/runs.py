r"""How lines are messages of a stream: whole lines as they were written, `\n` included, and headers that say which they are.

| header | what it says |
|---|---|
| `Futebus-Spool` | the identity of the spool that they are of: 32 hexadecimal digits, or another source's own name for itself |
| `Futebus-Line` | the number of the first of them in that spool, counted from 0 |
| `Futebus-Lines` | how many they are |
| `Futebus-Time` | when the first was taken, in nanoseconds since the epoch |
| `Futebus-Host`, `Futebus-Channel` | where they were written: the host's name, the channel's |

The one rule: what a stream has can be told from it alone. So who publishes asks it how far he had come, and whoever reads it
needs nothing else. A message without these headers is an outsider's: it has lines all the same, but no numbers.
"""

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from ..core.lines import lines as lines_of

SPOOL, LINE, LINES, TIME = "Futebus-Spool", "Futebus-Line", "Futebus-Lines", "Futebus-Time"
HOST, CHANNEL = "Futebus-Host", "Futebus-Channel"

MOST = 2**63 - 1
"""The greatest number of a line, and of nanoseconds: what others keep them in has 64 bits."""

_SOURCE = re.compile(r"[0-9A-Za-z_-]{1,64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_NAME = re.compile(r"[!-~]{1,765}")


class Where(NamedTuple):
    """Which lines a message has, as its headers say."""

    spool: str
    line: int
    """The number of the first of them. They are counted from 0."""
    lines: int
    """How many they are."""
    time: int
    """When the first was taken, in nanoseconds since the epoch."""
    host: str
    channel: str

    @property
    def next(self) -> int:
        """The number of the line behind them."""
        return self.line + self.lines

    @property
    def name(self) -> str:
        """What no other message is called, but this one when it is tried again."""
        return f"{self.spool}.{self.line}"


def longest(spool: str, host: str, channel: str) -> Where:
    """What says of a spool's lines where they are, with numbers as long as they can be."""
    return Where(spool, MOST, MOST, MOST, host, channel)


def headers(where: Where) -> dict[str, str]:
    """The headers of a message with these lines. Names that are not plain ASCII are percent-encoded: headers are text."""
    return {
        SPOOL: where.spool,
        LINE: str(where.line),
        LINES: str(where.lines),
        TIME: str(where.time),
        HOST: encoded(where.host),
        CHANNEL: encoded(where.channel),
    }


def read(told: Mapping[str, str] | None) -> Where | None:
    """Which lines a message has.

    Args:
        told: its headers.

    Returns:
        None if it is an outsider's, or its headers are not as we write them.
    """
    told = told or {}
    names = _names(told.get(SPOOL, ""), told.get(HOST, ""), told.get(CHANNEL, ""))
    numbers = [told.get(name, "") for name in (LINE, LINES, TIME)]
    if names is None or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    line, count, time = map(int, numbers)
    if max(line + count, time) > MOST:
        return None
    spool, host, channel = names
    return Where(spool, line, count, time, host, channel)


@functools.lru_cache(maxsize=64)
def _names(spool: str, host: str, channel: str) -> tuple[str, str, str] | None:
    """The names as headers have them, decoded; None if they cannot be names. Messages have the same ones again and again."""
    if not _SOURCE.fullmatch(spool) or not _NAME.fullmatch(host) or not _NAME.fullmatch(channel):
        return None
    names = decoded(host), decoded(channel)
    # What no file can be called is no channel's name, and no directory's that is made of it.
    return None if any("\0" in name for name in names) else (spool, *names)


def encoded(name: str) -> str:
    """A name as a header has it. Bytes that are no text stay what they are."""
    plain = (
        chr(byte) if 0x21 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in name.encode(errors="surrogateescape")
    )
    return "".join(plain) or "%00"


def decoded(text: str) -> str:
    """A name that a header has. The reverse of `encoded`."""
    name = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return name.decode(errors="surrogateescape") if name != b"\0" else ""


def outside(payload: bytes) -> tuple[int, bytes]:
    r"""The lines of an outsider's message.

    Returns:
        How many they are, and they themselves: without the empty ones, and the last one too with its `\n`.
    """
    if payload and not payload.endswith(b"\n"):
        payload += b"\n"
    count, end = lines_of(payload, 0, len(payload)) if payload else (0, 0)
    if end != len(payload):
        payload = re.sub(rb"\n{2,}", b"\n", payload).lstrip(b"\n")
        count = lines_of(payload, 0, len(payload))[0] if payload else 0
    return count, payload
