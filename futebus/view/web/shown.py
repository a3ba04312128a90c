"""What a page is told of a bus, as JSON.

The one rule: it is bounded. Of very many channels and clients the busiest are told, and how many are not.
"""

import pwd
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..told import Channel, Client, Look
from ..watching import NOTHING, Rates, Watch

if TYPE_CHECKING:
    from .feeds import Bus

MOST_CHANNELS = 500
"""Some 200 kB a second for each page."""

MOST_OF_ALL = 4000
"""Of how many channels of all buses together: 2 KiB each at worst. The page takes no event of more than 32 Mi characters."""

MOST_CLIENTS = 500

Shown = Mapping[str, Any]


def most_shown(buses: Sequence["Bus"]) -> int:
    """How many channels of each bus are told: each has the same part, and what some do not need is there for the others."""
    counts, left = sorted(len(bus.look.channels) for bus in buses if bus.look), MOST_OF_ALL
    for place, count in enumerate(counts):
        part = left // (len(counts) - place)
        if count > part:
            return min(part, MOST_CHANNELS)
        left -= min(count, MOST_CHANNELS)
    return MOST_CHANNELS


def bus_shown(bus: "Bus", most: int) -> Shown:
    """A bus and its channels, as many as that."""
    look = bus.look
    if look is None:
        return {"name": bus.name, "trouble": bus.trouble}
    return {
        "name": bus.name,
        "trouble": bus.trouble,
        "futebus": look.futebus,
        "uptime": look.uptime_seconds,
        "going": look.is_shutting_down,
        "clients": look.clients,
        "count": look.named,
        "rates": _rounded(bus.watch.whole.rates),
        "totals": look.totals._asdict(),
        "channels": [_channel(bus, look, channel) for channel in _busiest(look, bus.watch, most)],
        "untold": max(len(look.channels) - most, 0),
    }


def _busiest(look: Look, watch: Watch, most: int) -> list[Channel]:
    def weight(channel: Channel) -> tuple[float, int, int]:
        rates = watch.channels.get(channel.number, NOTHING).rates
        return -rates.messages_in - rates.messages_out, -len(channel.clients), channel.number

    channels = list(look.channels)
    return sorted(channels, key=weight)[:most] if len(channels) > most else channels


def _channel(bus: "Bus", look: Look, channel: Channel) -> Shown:
    messages, size = channel.waiting
    blocked = channel.blocked
    return {
        "number": channel.number,
        "name": channel.name,
        "type": channel.type,
        "state": channel.state,
        "mode": channel.mode,
        "user": user(channel.uid),
        "age": channel.age_seconds,
        "clients": len(channel.clients),
        "rates": _rounded(bus.watch.channels.get(channel.number, NOTHING).rates),
        "messages_in": channel.messages_in,
        "bytes_in": channel.bytes_in,
        "messages_out": channel.messages_out,
        "bytes_out": channel.bytes_out,
        "dropped": channel.dropped,
        "lost": channel.lost,
        "waiting": messages,
        "waiting_bytes": size,
        "full": round(max(map(look.fullness, channel.clients), default=0.0), 3),
        "blocked": len(blocked),
        "blocked_seconds": blocked[0].waits_seconds if blocked else 0,
        "kept": bool(bus.keepers) and any(client.pid in bus.keepers for client in channel.clients),
    }


def clients_shown(bus: "Bus", channel: str, number: int | None = None) -> Shown:
    """The clients of a channel; see `find`."""
    look = bus.look
    found = find(look, channel, number) if look else None
    if look is None or found is None:
        return {"bus": bus.name, "channel": channel, "number": 0, "clients": [], "untold": 0}
    clients = sorted(found.clients, key=lambda client: -client.sent - client.received)[:MOST_CLIENTS]
    return {
        "bus": bus.name,
        "channel": channel,
        "number": found.number,
        "clients": [_client(bus, look, found, client) for client in clients],
        "untold": len(found.clients) - len(clients),
    }


def _client(bus: "Bus", look: Look, channel: Channel, client: Client) -> Shown:
    keeper = bus.keepers.get(client.pid)
    return {
        "id": client.id,
        "role": client.role,
        "pid": client.pid,
        "user": user(client.uid),
        "command": client.command,
        "access": client.access,
        "sent": client.sent,
        "received": client.received,
        "dropped": client.dropped,
        "waiting": client.rlist_messages,
        "waiting_bytes": client.rlist_bytes,
        "full": round(look.fullness(client), 3),
        "waits": client.waits,
        "waits_seconds": client.waits_seconds,
        "keeper": keeper.told(channel.file) if keeper else None,
    }


def find(look: Look, channel: str, number: int | None = None) -> Channel | None:
    """The channel that has a name now, by that name as it is shown; or that of a number, which may have lost its name."""

    def is_meant(each: Channel) -> bool:
        return each.name == channel and (each.state == "live" if number is None else each.number == number)

    return next((each for each in look.channels if is_meant(each)), None)


def past_shown(bus: "Bus", channel: str, number: int | None) -> Shown:
    """How it has been; see `find`."""
    found = find(bus.look, channel, number) if bus.look and channel else None
    course = bus.watch.channels.get(found.number, NOTHING) if found else NOTHING
    return {
        "bus": bus.name,
        "uptime": bus.look.uptime_seconds if bus.look else 0,
        "past": [_rounded(rates) for rates in bus.watch.whole.past],
        "channel": channel,
        "channel_past": [_rounded(rates) for rates in course.past],
    }


_users: dict[int, str] = {}
"""The names of users, by their numbers."""

MOST_USERS = 10_000
"""How many names are remembered. Any user may mount a bus that tells of all numbers that there are."""

MOST_ASKED = 500
"""How many names are asked for at a time."""


def warm_users(look: Look) -> None:
    """Asks for the names of all users that are not known yet. It is done in a thread: where names come from may be far away."""
    users = {channel.uid for channel in look.channels}
    users.update(client.uid for channel in look.channels for client in channel.clients)
    for number in sorted(users - _users.keys())[:MOST_ASKED]:
        if len(_users) >= MOST_USERS:
            _users.clear()
        _users[number] = _asked(number)


def user(number: int) -> str:
    """The name of a user, or the number. Asks nobody."""
    return _users.get(number) or str(number)


def _asked(number: int) -> str:
    try:
        name = pwd.getpwuid(number).pw_name
    except (KeyError, OSError):
        return str(number)
    return name if name.isprintable() else str(number)


def _rounded(rates: Rates) -> list[float]:
    return [round(rate, 2) for rate in rates]
