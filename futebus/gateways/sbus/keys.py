"""Routing keys and patterns.

The one rule: a pattern is compared with a key byte by byte. `*` stands for all up to the next `/` or the end, a `/` at the end of
a pattern for all that is below, and an empty pattern for all. The rules are those of sbus, "Routing keys".
"""

import re
from typing import NamedTuple

SECRET = b"!/cred/"
"""What keys begin with that only clients with certain credentials get."""

RESERVED = b"!/"
"""What keys begin with that are not for users of the bus to choose."""

_SECRET = re.compile(rb"!/cred/([0-9]{0,20})/([0-9]{0,20})/([0-9]{0,20})/(.*)", re.DOTALL)


class Credentials(NamedTuple):
    """Who has connected, as the kernel tells it (SO_PEERCRED of unix(7))."""

    gid: int
    uid: int
    pid: int

    @property
    def key(self) -> bytes:
        """What these credentials are called in keys, without a `/` at the end."""
        return b"!/cred/%d/%d/%d" % self


class NotOwn(ValueError):
    """A pattern is for messages to somebody else."""


def matches(pattern: bytes, key: bytes) -> bool:
    """Whether a message with this key is for who has subscribed to this pattern. Secrecy is not looked at.

    It takes as long as the pattern. `index.Index` finds the same for many patterns at once.
    """
    at = 0
    for byte in pattern:
        if at == len(key):
            return False
        if byte == 0x2A:  # *
            slash = key.find(b"/", at)
            at = len(key) if slash < 0 else slash
        elif byte == key[at]:
            at += 1
        else:
            return False
    return at == len(key) or not pattern or pattern.endswith(b"/")


def admitted(pattern: bytes, who: Credentials) -> tuple[bytes, ...]:
    """The patterns that somebody gets who subscribes to one.

    An ordinary pattern is the one. In one for secret messages, group, user and process must be his, or empty, which stands for
    his. As in the original server, empty ones are also meant literally: a key with an empty process is for all processes of a
    user.

    Raises:
        NotOwn: it is for secret messages, and not for his; or it is cut short, or has a `*` in the credentials.
    """
    if not pattern.startswith(SECRET):
        return (pattern,)
    found = _SECRET.fullmatch(pattern)
    if not found or any(given and int(given) != own for given, own in zip(found.groups()[:3], who, strict=True)):
        raise NotOwn
    own = b"%s/%s" % (who.key, found[4])
    return (own,) if own == pattern else (own, pattern)
