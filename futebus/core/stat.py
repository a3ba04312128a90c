"""`_stat`: one frozen record of the whole bus, and its rendering for people."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .bus import Bus
from .channel import Channel
from .client import Client
from .kinds import Role
from .limits import Limits
from .text import counted, duration, escape, size, table


class ClientStat(NamedTuple):
    """One client. Sizes are bytes, times nanoseconds. A tuple: all of them are made at once, and everybody waits so long."""

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

    uptime: int
    is_shutting_down: bool
    limits: Limits
    named_channels: int
    channels: tuple[ChannelStat, ...]
    """By name; of those that share one, the oldest first."""


def take(bus: Bus, now: int) -> BusStat:
    """Records the bus as it is now (nanoseconds since the epoch)."""
    channels = {*bus.channels.values(), *(client.channel for client in bus.clients)}
    return BusStat(
        uptime=now - bus.started_at,
        is_shutting_down=bus.is_shutting_down,
        limits=bus.limits,
        named_channels=len(bus.channels),
        channels=tuple(
            _channel(channel, now) for channel in sorted(channels, key=lambda channel: (channel.name, channel.number))
        ),
    )


def _channel(channel: Channel, now: int) -> ChannelStat:
    # By place, as below.
    return ChannelStat(
        channel.name,
        channel.kind.meaning,
        "dead" if channel.is_dead else "live" if channel.is_named else "removed",
        channel.mode,
        channel.uid,
        channel.gid,
        now - channel.created_at,
        channel.messages_in,
        channel.bytes_in,
        channel.copies,
        channel.messages_out,
        channel.bytes_out,
        channel.dropped,
        channel.lost,
        tuple([_client(channel.name, channel.clients[number], now) for number in sorted(channel.clients)]),
    )


_ROLES = {role: role.value for role in Role}


def _client(name: bytes, client: Client, now: int) -> ClientStat:
    mailbox = client.mailbox
    waiting = client.writing[0] if client.writing else client.reading[0] if client.reading else None
    uid, _, pid = client.owner
    # By place, in the order above: names would cost half as much again.
    return ClientStat(
        name,
        client.id,
        _ROLES[client.role],
        pid,
        uid,
        *client.access,
        client.bulk,
        len(client.wbuf.partial),
        mailbox.rbuf_size,
        mailbox.messages + mailbox.controls,
        mailbox.size + mailbox.control_size,
        client.sent,
        client.received,
        client.dropped,
        "" if waiting is None else "write" if client.writing else "read",
        0 if waiting is None else now - waiting.since,
    )


def render(stat: BusStat, *, version: str, mountpoint: str, command: Callable[[int], bytes]) -> Iterator[str]:
    """The text of `_stat`, in pieces: with thousands of clients it takes a while, and others should not have to wait.

    Args:
        stat: what to show.
        version: of futebus.
        mountpoint: where the bus is mounted.
        command: tells the command name of a process ID, empty if it is not known.
    """
    limits = stat.limits
    clients = [client for channel in stat.channels for client in channel.clients]
    yield f"futebus {version} on {escape(mountpoint.encode('utf-8', 'surrogateescape'))}, up {duration(stat.uptime)}"
    yield ", shutting down\n" if stat.is_shutting_down else "\n"
    yield f"{counted(len(clients), 'client')} (at most {limits.max_clients}, {limits.max_clients_per_user} a user), "
    yield f"{counted(stat.named_channels, 'channel')} (at most {limits.max_channels})\n"
    yield f"a message: at most {size(limits.max_message)}; waiting for a client: "
    yield f"at most {limits.max_queue} messages, {size(limits.max_queue_bytes)}\n"
    if stat.channels:
        yield "\n"
        yield from _channel_table(stat.channels)
    if clients:
        yield "\n"
        yield from _client_table(clients, command)


def _channel_table(channels: tuple[ChannelStat, ...]) -> Iterator[str]:
    return table(
        "CHANNEL STATE MODE OWNER CLIENTS IN BYTES-IN COPIES OUT BYTES-OUT DROPPED LOST AGE TYPE".split(),
        (
            [
                escape(channel.name),
                channel.state,
                f"{channel.mode:04o}",
                f"{channel.uid}:{channel.gid}",
                str(len(channel.clients)),
                str(channel.messages_in),
                size(channel.bytes_in),
                str(channel.copies),
                str(channel.messages_out),
                size(channel.bytes_out),
                str(channel.dropped),
                str(channel.lost),
                duration(channel.age),
                channel.type,
            ]
            for channel in channels
        ),
        right="CLIENTS IN BYTES-IN COPIES OUT BYTES-OUT DROPPED LOST AGE",
    )


def _client_table(clients: list[ClientStat], command: Callable[[int], bytes]) -> Iterator[str]:
    commands: dict[int, str] = {}  # of processes that were asked for already: one may have thousands of clients
    channels: dict[bytes, str] = {}  # and of channels

    def channel_of(name: bytes) -> str:
        if name not in channels:
            channels[name] = escape(name)
        return channels[name]

    def command_of(pid: int) -> str:
        if pid not in commands:
            commands[pid] = escape(command(pid)) or "?"
        return commands[pid]

    return table(
        "CHANNEL ID ROLE PID UID COMMAND RW WBUF RBUF RLIST RLIST-BYTES SENT RECEIVED DROPPED WAITS".split(),
        (
            [
                channel_of(client.channel),
                f"{client.id:x}",
                client.role,
                str(client.pid),
                str(client.uid),
                command_of(client.pid),
                f"{'r' if client.reads else '-'}{'w' if client.writes else '-'}{'+' if client.bulk else ''}",
                size(client.wbuf),
                size(client.rbuf),
                str(client.rlist),
                size(client.rlist_size),
                str(client.sent),
                str(client.received),
                str(client.dropped),
                f"{client.waits_to} {duration(client.waits_for)}" if client.waits_to else "-",
            ]
            for client in clients
        ),
        right="ID PID UID WBUF RBUF RLIST RLIST-BYTES SENT RECEIVED DROPPED",
    )
