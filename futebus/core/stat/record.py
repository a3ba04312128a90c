"""What a record of the bus holds. Sizes are bytes, times nanoseconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..limits import Limits
from ..totals import Totals


class ClientStat(NamedTuple):
    """One client. A tuple: there may be sixteen thousand of them."""

    channel: bytes
    id: int
    role: str
    pid: int
    uid: int
    reads: bool
    writes: bool
    bulk: bool
    wbuf: int
    rbuf: int
    rlist: int
    """Messages that wait in rlist, control messages included."""
    rlist_size: int
    sent: int
    received: int
    dropped: int
    waits_to: str
    """`read` or `write` while a call of the client waits, else empty."""
    waits_for: int
    """How long it has waited."""


class ChannelStat(NamedTuple):
    """One channel and its clients. The counts are of whole messages, all but `…_in` summed over the receivers.

    Nothing is ever lost count of: `copies` is `messages_out + dropped + lost` and what the clients' `rlist` add up to.
    """

    name: bytes
    number: int
    """Never the same for two channels of a bus: several that were removed may share a name."""
    type: str
    state: str
    """`live`; `removed` once its name is gone; `dead` once its master is."""
    mode: int
    uid: int
    gid: int
    age: int
    messages_in: int
    bytes_in: int
    copies: int
    messages_out: int
    bytes_out: int
    dropped: int
    lost: int
    clients: tuple[ClientStat, ...]


@dataclass(frozen=True, slots=True)
class BusStat:
    """The bus at one moment."""

    taken_at: int
    """When that was: nanoseconds since the epoch."""
    uptime: int
    is_shutting_down: bool
    limits: Limits
    named_channels: int
    channels: tuple[ChannelStat, ...]
    """By name; of those that share one, the oldest first."""
    gone: Mapping[bytes, Totals]
    """What the channels have counted that are no more, by the letters of their types: with `channels`, nothing counts down."""


class Daemon(NamedTuple):
    """Who serves the bus: what the bus itself does not know."""

    version: str
    """Of futebus."""
    mountpoint: str
    pid: int
    inside: Mapping[str, int]
    """What it keeps, by its own names: for whoever looks for what it should have let go."""
    command: Callable[[int], bytes]
    """Tells the command name of a process ID; empty if it is not known."""
