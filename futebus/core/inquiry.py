"""What a client may know of itself, and the 48 bytes in which an ioctl(2) on its open file tells it.

The one rule: all of it belongs to the one open file description that is asked, so no name and no other client can forge it, and
the answer costs the same however big the bus is.
"""

import struct
from typing import NamedTuple

from .client import Client
from .kinds import Role

FORM = struct.Struct("=I4c5Q")
"""In the byte order of the machine: id; type, role, access, state; dropped, sent, received, queued, queued_bytes."""

REQUEST = 0x8000_0000 | FORM.size << 16 | 0xF5 << 8 | 1
"""The number of the ioctl(2): `_IOR(0xF5, 1, char[48])`."""

SHUT = 0xF5 << 8 | 2
"""The number of the ioctl(2) by which a master takes no more messages, `_IO(0xF5, 2)`: see `Bus.shut`."""

_ROLES = {role: role.value[0].encode() for role in Role}
_READS, _WRITES, _BULK = 1, 2, 4
_ENDED, _REMOVED, _SHUT = 1, 2, 4


class Inquiry(NamedTuple):
    """What one client, one open file description, may know of itself."""

    id: int
    """Its ID on the channel, which messages on A and S channels are addressed to."""
    letter: str
    """The channel's type: `U`, `A`, `S` or `B`."""
    role: Role
    reads: bool
    writes: bool
    bulk: bool
    """Whether one read may return many messages."""
    has_ended: bool
    """Whether the channel's master is gone, or the bus goes down, and so nothing will come any more."""
    is_removed: bool
    """Whether the channel has no name any more."""
    is_shut: bool
    """Whether its master takes no more messages, or is gone. A bus of an older futebus does not tell that."""
    dropped: int
    """Messages for it that were pushed out of its full rlist."""
    sent: int
    """Messages accepted from it."""
    received: int
    """Messages that it has read, or begun to."""
    queued: int
    """Messages that wait for it, control messages included; one that it has begun to read is not among them."""
    queued_bytes: int
    """Bytes that wait for it, those of the message that it has begun to read included."""


def answer(client: Client, *, is_shutting_down: bool) -> bytes:
    """What a client is told."""
    channel, mailbox = client.channel, client.mailbox
    access = _READS * client.access.reads | _WRITES * client.access.writes | _BULK * client.bulk
    has_ended = (channel.is_dead or is_shutting_down) and not channel.broadcast
    state = _ENDED * has_ended | _REMOVED * (not channel.is_named) | _SHUT * channel.is_shut
    return FORM.pack(
        client.id,
        channel.kind.letter,
        _ROLES[client.role],
        bytes((access,)),
        bytes((state,)),
        client.dropped,
        client.sent,
        client.received,
        mailbox.messages + mailbox.controls,
        mailbox.size + mailbox.control_size + mailbox.rbuf_size,
    )


def read(told: bytes) -> Inquiry:
    """Reads what `answer` has written.

    Raises:
        ValueError: it has not.
    """
    try:
        number, letter, role, (access,), (state,), *counts = FORM.unpack(told)
        return Inquiry(
            number,
            letter.decode("ascii"),
            next(known for known, initial in _ROLES.items() if initial == role),
            bool(access & _READS),
            bool(access & _WRITES),
            bool(access & _BULK),
            bool(state & _ENDED),
            bool(state & _REMOVED),
            bool(state & _SHUT),
            *counts,
        )
    except (struct.error, UnicodeDecodeError, StopIteration):
        raise ValueError("not what a bus says of a client") from None


def left_of(before: Inquiry, now: Inquiry, *, is_begun: bool | None = None) -> int:
    """How many of the lines that waited for a reader before still wait, or were given up: the oldest go first.

    Args:
        before: what the bus told then.
        now: what it tells now.
        is_begun: whether one of them was handed out in part, if that is known.
    """
    left = max(before.queued - _gone(before, now), 0)
    if is_begun is None:
        return left or int(now.queued_bytes > 0 and not now.queued)
    return left + int(is_begun and now.queued_bytes > 0)


def is_taken(before: Inquiry, now: Inquiry) -> bool:
    """Whether a reader has all that waited for it before, to its last byte, though others may have come meanwhile.

    Args:
        before: what the bus told then.
        now: what it tells now.
    """
    return not now.queued_bytes or _gone(before, now) > before.queued  # then it has begun one that came later


def _gone(before: Inquiry, now: Inquiry) -> int:
    """How many messages a reader has begun to read meanwhile, or has lost."""
    return (now.received - before.received) + (now.dropped - before.dropped)
