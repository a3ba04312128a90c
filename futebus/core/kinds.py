"""What the four channel types mean, as tables: who may open them, who gets a message, and what a name asks for."""

import enum
from typing import NamedTuple

from .errors import NameTooLong, NoChannelType
from .limits import MAX_NAME

STAT = b"_stat"
SHOWN = (b"_metrics", STAT, b"_stat.json")
"""What a bus makes by itself, and nobody else can: see core/stat."""


class Kind(NamedTuple):
    """A channel type. `letter` begins the channel's name."""

    letter: bytes
    meaning: str
    has_master: bool
    """Created by its master and only so, gone with it; the others are slaves."""
    tells_master: bool
    """The master gets `{ID:o}` and `{ID:c}` when a slave opens and closes."""


KINDS = {
    kind.letter: kind
    for kind in (
        Kind(b"U", "one-to-many with a master", has_master=True, tells_master=False),
        Kind(b"A", "addressed many-to-many", has_master=False, tells_master=False),
        Kind(b"S", "service with addressed slaves", has_master=True, tells_master=True),
        Kind(b"B", "broadcast", has_master=False, tells_master=False),
    )
}


LETTERS = tuple(letter.decode() for letter in KINDS)
"""What the names of channels begin with."""


class Role(enum.Enum):
    """What a client is on its channel."""

    MASTER = "master"
    SLAVE = "slave"
    PEER = "peer"


class Route(NamedTuple):
    """How a message travels."""

    addressed: bool
    """The sender writes `{ID}` or `{*}` in front, which is taken off."""
    to_master: bool
    """It goes to the master, under flow control. Else to the client addressed, or to everybody else who reads."""
    stamped: bool
    """The receiver finds `{SENDER}` in front."""


ROUTES = {
    (b"U", Role.SLAVE): Route(addressed=False, to_master=True, stamped=False),
    (b"U", Role.MASTER): Route(addressed=False, to_master=False, stamped=False),
    (b"A", Role.PEER): Route(addressed=True, to_master=False, stamped=True),
    (b"S", Role.SLAVE): Route(addressed=False, to_master=True, stamped=True),
    (b"S", Role.MASTER): Route(addressed=True, to_master=False, stamped=False),
    (b"B", Role.PEER): Route(addressed=False, to_master=False, stamped=False),
}


def has_master(channel: str) -> bool:
    """Whether channels of such a name have masters. It is the name of a channel, without `+` and `.`."""
    return KINDS[channel[:1].encode()].has_master


def is_addressed(channel: str) -> bool:
    """Whether who writes to channels of such a name, and is no master, writes addresses."""
    return ROUTES[channel[:1].encode(), Role.SLAVE if has_master(channel) else Role.PEER].addressed


class Name(NamedTuple):
    """What a file name asks for."""

    channel: bytes
    """The name of the channel, without `+` and `.`."""
    kind: Kind
    as_master: bool
    """`.NAME`: become the channel's master."""
    bulk: bool
    """`+NAME`: one read may return many messages."""


def parse_name(name: bytes) -> Name:
    """Reads a file name.

    Raises:
        NameTooLong: over 255 bytes.
        NoChannelType: it is the name of no channel, those of `SHOWN` included.
    """
    if len(name) > MAX_NAME:
        raise NameTooLong
    rest = name.removeprefix(b"+")
    channel = rest.removeprefix(b".")
    kind = KINDS.get(channel[:1])
    as_master = channel != rest
    if kind is None or (as_master and not kind.has_master):
        raise NoChannelType
    return Name(channel, kind, as_master, bulk=rest != name)
