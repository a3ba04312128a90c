"""The packets of sbus.

The one rule: each packet is one message, of one of the four kinds in "Protocol" of sbus, or it is none. What is none is not
guessed at.
"""

import enum
import re
from typing import NamedTuple

_FORM = re.compile(rb"(MSG|SUB|UNSUB|CMSG) ([^\0]*)(\0)?")


class Kind(enum.Enum):
    """What a packet is for."""

    MSG = b"MSG"
    SUB = b"SUB"
    UNSUB = b"UNSUB"
    CMSG = b"CMSG"


class Packet(NamedTuple):
    """What a packet says."""

    kind: Kind
    key: bytes
    """The routing key, or the pattern."""
    start: int
    """Where the payload begins. There is none in what subscribes, and it is ignored."""


_KINDS = {kind.value: kind for kind in Kind}


def parse(packet: bytes) -> Packet | None:
    """Reads a packet. Returns None if it is none of the four kinds. A message must have a payload, if an empty one."""
    found = _FORM.match(packet)
    if not found:
        return None
    word, key, end = found.groups()
    if end is None and word == b"MSG":
        return None
    return Packet(_KINDS[word], key, found.end())


def message(key: bytes, payload: bytes) -> bytes:
    """The packet of a message."""
    return b"MSG %s\0%s" % (key, payload)
