r"""`_stat.json`: the bus for programs.

The one rule: what somebody else has named is data, never form. All of it is ASCII, since names are whatever somebody has called
them and `cat` shows it on terminals. A name that is UTF-8 stands there as it is, for JSON to escape. One that is not has U+FFFD
for what is none, and beside it `name_hex`, which no other has: so no name can pass for another.
"""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

from .record import BusStat, ChannelStat, ClientStat, Daemon

FORMAT = "futebus-stat"
VERSION = 1
"""Of the form: another number once a field means something else or is gone. Fields may be added without."""


def named(key: str, name: bytes) -> dict[str, str]:
    """A name as fields: `{key: text}`, and `{key}_hex` if it is no UTF-8."""
    try:
        return {key: name.decode()}
    except UnicodeDecodeError:
        return {key: name.decode(errors="replace"), f"{key}_hex": name.hex()}


def for_programs(stat: BusStat, daemon: Daemon) -> Iterator[str]:
    """The text of `_stat.json`, in pieces."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "futebus": daemon.version,
        "daemon_pid": daemon.pid,
        **named("mountpoint", daemon.mountpoint.encode("utf-8", "surrogateescape")),
        "taken_at": _seconds(stat.taken_at),
        "uptime_seconds": _seconds(stat.uptime),
        "shutting_down": stat.is_shutting_down,
        "limits": asdict(stat.limits),
        "named_channels": stat.named_channels,
        "gone": {letter.decode(): totals._asdict() for letter, totals in sorted(stat.gone.items())},
        "inside": dict(daemon.inside),
    }
    yield json.dumps(head)[:-1] + ', "channels": ['
    # One process may have thousands of clients.
    command_of = functools.cache(lambda pid: named("command", daemon.command(pid)))
    before = "\n"
    for channel in stat.channels:
        yield before + json.dumps(_channel(channel))[:-1] + ', "clients": ['
        before = ",\n"
        between = "\n "
        for client in channel.clients:
            yield between + json.dumps(_client(client, command_of))
            between = ",\n "
        yield "]}"
    yield "\n]}\n" if stat.channels else "]}\n"


def _channel(channel: ChannelStat) -> dict[str, object]:
    return {
        **named("name", channel.name),
        "number": channel.number,
        "type": channel.name[:1].decode(),
        "state": channel.state,
        "mode": f"{channel.mode:04o}",
        "uid": channel.uid,
        "gid": channel.gid,
        "age_seconds": _seconds(channel.age),
        "messages_in": channel.messages_in,
        "bytes_in": channel.bytes_in,
        "copies": channel.copies,
        "messages_out": channel.messages_out,
        "bytes_out": channel.bytes_out,
        "dropped": channel.dropped,
        "lost": channel.lost,
    }


def _client(client: ClientStat, command_of: Callable[[int], dict[str, str]]) -> dict[str, object]:
    return {
        "id": f"{client.id:x}",
        "role": client.role,
        "pid": client.pid,
        "uid": client.uid,
        **command_of(client.pid),
        "reads": client.reads,
        "writes": client.writes,
        "bulk": client.bulk,
        "wbuf_bytes": client.wbuf,
        "rbuf_bytes": client.rbuf,
        "rlist_messages": client.rlist,
        "rlist_bytes": client.rlist_size,
        "sent": client.sent,
        "received": client.received,
        "dropped": client.dropped,
        "waits": client.waits_to or None,
        "waits_seconds": _seconds(client.waits_for),
    }


def _seconds(nanoseconds: int) -> float:
    return round(max(nanoseconds, 0) / 1e9, 6)
