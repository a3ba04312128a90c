"""`_metrics`: the bus for Prometheus and its like, as OpenMetrics 1.0 text.

The one rule: what comes and goes gets no series of its own. A channel has its own ones once it is `SETTLED` old, so long as it
has a name, and if it is among the `MOST_CHANNELS` oldest; no client has. What all channels of a type have counted, those that
are no more included, never counts down.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..kinds import KINDS
from ..text import escape
from ..totals import Totals
from .record import BusStat, ClientStat, Daemon

SETTLED = 60 * 1_000_000_000
"""Nanoseconds: channels that are made for one answer are younger when they go, and a scrape comes every 15 to 60 s."""

MOST_CHANNELS = 500
"""Some 7,000 series. The oldest ones, so that it is always the same ones."""


class Family(NamedTuple):
    """Metrics of one name."""

    name: str
    type: str
    unit: str
    help: str


Sample = tuple[Mapping[str, str], int | float]

_COUNTS = [
    ("messages_in", "messages", "", "Messages accepted from writers."),
    ("bytes_in", "in_bytes", "bytes", "Bytes of messages accepted from writers."),
    ("copies", "copies", "", "Messages put into the queues of receivers, one for each receiver."),
    ("messages_out", "delivered_messages", "", "Messages read, one for each receiver."),
    ("bytes_out", "out_bytes", "bytes", "Bytes read, by all receivers."),
    ("dropped", "dropped_messages", "", "Messages pushed out of full queues."),
    ("lost", "lost_messages", "", "Messages that waited in queues whose clients closed."),
]
"""Field, name, unit and meaning of what channels count."""


def as_metrics(stat: BusStat, daemon: Daemon) -> Iterator[str]:
    """The text of `_metrics`, in pieces, some of them empty."""
    yield from _family(
        Family("futebus_info", "gauge", "", "The bus; always 1."),
        [({"version": daemon.version, "mountpoint": escape(daemon.mountpoint.encode("utf-8", "surrogateescape"))}, 1)],
    )
    yield from _family(
        Family("futebus_uptime_seconds", "gauge", "seconds", "For how long there has been the bus."), [_one(stat.uptime / 1e9)]
    )
    yield from _family(
        Family("futebus_shutting_down", "gauge", "", "Whether the bus accepts nothing any more."),
        [_one(int(stat.is_shutting_down))],
    )
    limits = stat.limits
    for name, value, what in (
        ("futebus_clients_limit", limits.max_clients, "How many clients there may be."),
        ("futebus_channels_limit", limits.max_channels, "How many channels there may be."),
        ("futebus_queue_messages_limit", limits.max_queue, "How many messages may wait for one client."),
        ("futebus_queue_limit_bytes", limits.max_queue_bytes, "How many bytes may wait for one client."),
    ):
        yield from _family(Family(name, "gauge", "bytes" if name.endswith("_bytes") else "", what), [_one(value)])
    yield from _family(
        Family("futebus_inside", "gauge", "", "What the daemon keeps."),
        [({"what": what}, count) for what, count in daemon.inside.items()],
    )

    types = [letter.decode() for letter in KINDS]
    totals = {letter: stat.gone.get(letter.encode(), Totals()) for letter in types}
    named = dict.fromkeys(types, 0)
    clients: dict[str, list[ClientStat]] = {letter: [] for letter in types}
    for index, channel in enumerate(stat.channels):
        letter = channel.name[:1].decode()
        totals[letter] = totals[letter].plus(channel)
        named[letter] += channel.state == "live"
        clients[letter] += channel.clients
        if index % 100 == 99:
            yield ""
    yield from _family(
        Family("futebus_channels", "gauge", "", "Channels that have a name, by type."),
        [({"type": letter}, named[letter]) for letter in types],
    )
    yield from _family(
        Family("futebus_made_channels", "counter", "", "Channels that there have been, by type."),
        [({"type": letter}, totals[letter].channels) for letter in types],
    )
    for field, name, unit, meaning in _COUNTS:
        yield from _family(
            Family(f"futebus_{name}", "counter", unit, f"{meaning} By type, with channels that are no more."),
            [({"type": letter}, getattr(totals[letter], field)) for letter in types],
        )
    yield from _of_clients("futebus", [({"type": letter}, clients[letter]) for letter in types])

    settled = [channel for channel in stat.channels if channel.state == "live" and channel.age >= SETTLED]
    settled.sort(key=lambda channel: channel.number)
    del settled[MOST_CHANNELS:]
    yield from _family(
        Family("futebus_untold_channels", "gauge", "", "Channels without series of their own: not a minute old, or too many."),
        [_one(sum(named.values()) - len(settled))],
    )
    labels = []
    for channel in settled:
        labels.append({"channel": escape(channel.name), "type": channel.name[:1].decode()})
        if len(labels) % 10 == 0:
            yield ""
    for field, name, unit, meaning in _COUNTS:
        yield from _family(
            Family(f"futebus_channel_{name}", "counter", unit, meaning),
            [(each, getattr(channel, field)) for each, channel in zip(labels, settled, strict=True)],
        )
    yield from _of_clients("futebus_channel", [(each, channel.clients) for each, channel in zip(labels, settled, strict=True)])
    yield "# EOF\n"


def _of_clients(prefix: str, groups: "list[tuple[dict[str, str], Iterable[ClientStat]]]") -> Iterator[str]:
    """What is told of clients, by groups of them."""
    figures: list[tuple[dict[str, str], list[int | float]]] = []
    for labels, clients in groups:
        count = reading = writing = messages = size = most = 0
        longest = 0.0
        for client in clients:
            count += 1
            messages += client.rlist
            size += client.rlist_size
            most = max(most, client.rlist_size)
            if client.waits_to == "read":
                reading += 1
            elif client.waits_to:
                writing += 1
                longest = max(longest, client.waits_for / 1e9)
            if count % 500 == 0:
                yield ""
        figures.append((labels, [count, messages, size, most, reading, writing, longest]))
    for index, (name, unit, meaning) in enumerate(
        [
            ("clients", "", "Open file descriptions."),
            ("queued_messages", "", "Messages that wait in the queues of clients."),
            ("queued_bytes", "bytes", "Bytes that wait in the queues of clients."),
            ("longest_queue_bytes", "bytes", "Bytes in the longest of these queues."),
            ("waiting_readers", "", "Clients that wait for a message."),
            ("blocked_writers", "", "Clients whose write waits."),
            ("longest_block_seconds", "seconds", "For how long the one has waited that waits longest in a write."),
        ]
    ):
        yield from _family(
            Family(f"{prefix}_{name}", "gauge", unit, meaning), [(labels, values[index]) for labels, values in figures]
        )


def _one(value: int | float) -> Sample:
    return {}, value


def _family(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    """One family of metrics, in pieces. One without samples is left out."""
    suffix = "_total" if family.type == "counter" else ""
    head = f"# TYPE {family.name} {family.type}\n"
    if family.unit:
        head += f"# UNIT {family.name} {family.unit}\n"
    head += f"# HELP {family.name} {_escaped(family.help)}\n"
    lines = []
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{family.name}{suffix}{{{inner}}} {value}\n" if inner else f"{family.name}{suffix} {value}\n")
        if len(lines) % 10 == 0:
            yield head + "".join(lines)
            head = ""
            lines.clear()
    if lines:
        yield head + "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
