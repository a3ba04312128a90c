"""How much a client can have of the server, each limit with the reason for its default."""

from typing import NamedTuple

MAX_PACKET = 409_600
"""Bytes of a packet: LIBSBUS_BUFFER_SIZE of libsbus, with which clients receive. A longer one would reach them cut."""

SEND_BUFFER = 212_992
"""What is asked for of SO_SNDBUF. The kernel makes twice that of it: place for one packet of `MAX_PACKET`, which it needs to take
it, and for some hundred short ones. It is what a user may ask for where `net.core.wmem_max` is Linux's default."""

PATTERN_BYTES = 8 << 20
"""Bytes of memory that all patterns of a client may take, about. Who had more could make each look into the index take longer: at
worst it goes through all of them."""

NODE_BYTES = 256
"""What one piece of a pattern, between slashes, takes beside its bytes."""

TURN = 0.005
"""Seconds for which packets are served before others in the program get their turn."""

RUN = 64
"""Packets of one client that are taken before others get their turn. With more, the round trip of others gets longer than a flood
gets faster."""

RUN_BYTES = 1 << 20
"""The same, in bytes: a few of the longest."""

WATCH_SECONDS = 0.5
"""How often it is looked who holds up others for too long, and whether there is a place for those who connect, while there is a
reason to."""

TELL_SECONDS = 10.0
"""How often it is said how many messages were lost."""


class Limits(NamedTuple):
    """What users can set."""

    max_clients: int = 4096
    """Each is a descriptor. Systems give a process at least so many (hard limit)."""
    max_clients_per_user: int = 1024
    """A user alone cannot keep others out. root can."""
    max_queue: int = 65536
    """Messages that wait for one client: as on a futebus."""
    max_queue_bytes: int = 4 << 20
    """And their bytes: as on a futebus, ten of the longest."""
    max_subscriptions: int = 16384
    """Patterns of one client, of which each takes up to some kilobytes."""
    patience: float = 30.0
    """Seconds for which others wait for a client that has asked for that and takes nothing. 0: nobody is waited for."""


def cost(pattern: bytes) -> int:
    """What a pattern counts for towards `PATTERN_BYTES`."""
    return len(pattern) + NODE_BYTES * (pattern.count(b"/") + 1)
