"""`_stat`: the bus for people. Nothing should read it but eyes: see `programs`."""

import functools
from collections.abc import Callable, Iterator

from ..text import clipped, counted, duration, escape, printable, size, table
from .record import BusStat, ChannelStat, Daemon

MOST_NAME = 80
"""Characters of a name that are shown. One of 255 bytes may have a thousand, and the table would be as wide, for everybody."""


def _shown(name: bytes) -> str:
    return clipped(escape(name), MOST_NAME)


def for_people(stat: BusStat, daemon: Daemon) -> Iterator[str]:
    """The text of `_stat`, in pieces: with thousands of clients it takes a while, and others should not have to wait."""
    limits = stat.limits
    count = sum(len(channel.clients) for channel in stat.channels)
    yield f"futebus {daemon.version} on {printable(daemon.mountpoint)}, up {duration(stat.uptime)}"
    yield ", shutting down\n" if stat.is_shutting_down else "\n"
    yield f"{counted(count, 'client')} (at most {limits.max_clients}, {limits.max_clients_per_user} a user), "
    yield f"{counted(stat.named_channels, 'channel')} (at most {limits.max_channels})\n"
    yield f"a message: at most {size(limits.max_message)}; waiting for a client: "
    yield f"at most {limits.max_queue} messages, {size(limits.max_queue_bytes)}\n"
    if stat.channels:
        yield "\n"
        yield from _channel_table(stat.channels)
    if count:
        yield "\n"
        yield from _client_table(stat.channels, daemon.command)
    yield f"\ninside: {', '.join(f'{count} {what}' for what, count in daemon.inside.items())}\n"


def _channel_table(channels: tuple[ChannelStat, ...]) -> Iterator[str]:
    return table(
        "CHANNEL STATE MODE OWNER CLIENTS IN BYTES-IN COPIES OUT BYTES-OUT DROPPED LOST AGE TYPE".split(),
        (
            (
                _shown(channel.name),
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
            )
            for channel in channels
        ),
        right="CLIENTS IN BYTES-IN COPIES OUT BYTES-OUT DROPPED LOST AGE",
    )


def _client_table(channels: tuple[ChannelStat, ...], command: Callable[[int], bytes]) -> Iterator[str]:
    # One channel, and one process, may have thousands of clients.
    channel_of = functools.cache(_shown)
    command_of = functools.cache(lambda pid: escape(command(pid)) or "?")

    return table(
        "CHANNEL ID ROLE PID UID COMMAND RW WBUF RBUF RLIST RLIST-BYTES SENT RECEIVED DROPPED WAITS".split(),
        (
            (
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
            )
            for channel in channels
            for client in channel.clients
        ),
        right="ID PID UID WBUF RBUF RLIST RLIST-BYTES SENT RECEIVED DROPPED",
    )
