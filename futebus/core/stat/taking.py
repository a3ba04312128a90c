"""A record of the bus as it is at one moment, made in steps while the bus goes on.

The one rule: what is about to change is recorded first, as it still is. So the record is of the moment when it was begun, and
nobody waits until thousands of clients have been looked at.
"""

import heapq
from collections.abc import Generator
from operator import itemgetter

from ..bus import Bus
from ..channel import Channel
from ..client import Client
from ..kinds import Role
from .record import BusStat, ChannelStat, ClientStat

AT_ONCE = 100
"""How many clients are recorded between two chances to do something else: a tenth of a millisecond's worth."""

SORTED_AT_ONCE = 256
"""How many channels are sorted at once."""

_ROLES = {role: role.value for role in Role}
_NAME_AND_NUMBER = itemgetter(0, 1)


class TakingFailed(Exception):
    """The record could not be made: there was no memory for it, say."""


class _Clients:
    """The clients of a channel that were there at the moment, and what is recorded of them."""

    __slots__ = ("_now", "_taking", "channel", "row", "rows")

    def __init__(self, taking: "Taking", channel: Channel, row: ChannelStat, now: int) -> None:
        self._taking = taking
        self._now = now
        self.channel = channel
        self.row = row
        self.rows: dict[Client, ClientStat | None] = dict.fromkeys(channel.clients.values())

    def keep(self, client: Client) -> None:
        """A client is about to change."""
        try:
            self.record(client)
        except Exception as error:  # whose call this is must not suffer from it
            self._taking.fail(error)

    def record(self, client: Client) -> None:
        """Records a client if that has not been done, and if it was there at the moment."""
        if self.rows.get(client, self) is None:
            self.rows[client] = _client(self.channel.name, client, self._now)


class Taking:
    """A record that is being made. There is one at a time on a bus.

    Args:
        bus: the bus.
        now: the moment, in nanoseconds since the epoch.
        uptime: for how long there has been the bus, in nanoseconds, by a clock that nobody sets; if it is not known, since
            `bus.started_at`.
    """

    def __init__(self, bus: Bus, now: int, uptime: int | None = None) -> None:
        assert bus.taking is None
        self._uptime = now - bus.started_at if uptime is None else uptime
        self._bus = bus
        self._now = now
        self._is_shutting_down = bus.is_shutting_down
        self._named = len(bus.channels)
        self._gone = dict(bus.gone)
        self._left: dict[Channel, None] = dict.fromkeys(bus.every_channel.values())
        """Channels that have not been looked at."""
        self._begun: dict[Channel, _Clients] = {}
        """Channels that are recorded, and not all of their clients."""
        self._rows: list[ChannelStat] = []
        self._failure: Exception | None = None
        bus.taking = self

    def keep(self, channel: Channel) -> None:
        """A channel or some of its clients are about to change."""
        if channel in self._left:
            try:
                self._begin(channel)
            except Exception as error:  # whose call this is must not suffer from it
                self.fail(error)

    def _begin(self, channel: Channel) -> None:
        clients = _Clients(self, channel, _channel(channel, self._now), self._now)
        self._begun[channel] = clients
        channel.unrecorded = clients
        del self._left[channel]

    def fail(self, error: Exception) -> None:
        """It cannot be finished."""
        self._failure = error
        self.end()

    def end(self) -> None:
        """Ends it, finished or not: nothing is recorded any more. May be called again."""
        if self._bus.taking is self:
            self._bus.taking = None
        for channel in self._begun:
            channel.unrecorded = None
        self._left.clear()
        self._begun.clear()

    def steps(self) -> Generator[None, None, BusStat]:
        """Records the rest, and comes back every tenth of a millisecond, so that something else can be done.

        Returns:
            The record.

        Raises:
            TakingFailed: something went wrong.
        """
        work = 0
        while self._left or self._begun:
            if not self._begun:
                self._begin(next(iter(self._left)))
            channel, clients = next(iter(self._begun.items()))
            if len(clients.rows) > AT_ONCE:  # to list them takes a while
                yield
                self._check()
            for client in list(clients.rows):
                clients.record(client)
                work += 1
                if work >= AT_ONCE:
                    work = 0
                    yield
                    self._check()
            channel.unrecorded = None
            del self._begun[channel]
            rows = [row for row in clients.rows.values() if row is not None]
            if len(rows) > AT_ONCE:
                yield
            rows.sort(key=itemgetter(1))  # they came in this order, unless IDs have begun again
            if len(rows) > AT_ONCE:
                yield
            self._rows.append(clients.row._replace(clients=tuple(rows)))
            work += 2
            self._check()
        self.end()
        self._check()
        runs = []
        for begin in range(0, len(self._rows), SORTED_AT_ONCE):
            runs.append(sorted(self._rows[begin : begin + SORTED_AT_ONCE], key=_NAME_AND_NUMBER))
            yield
        channels = []
        for row in heapq.merge(*runs, key=_NAME_AND_NUMBER):
            channels.append(row)
            if len(channels) % AT_ONCE == 0:
                yield
        bus = self._bus
        return BusStat(
            taken_at=self._now,
            uptime=self._uptime,
            is_shutting_down=self._is_shutting_down,
            limits=bus.limits,
            named_channels=self._named,
            channels=tuple(channels),
            gone=self._gone,
        )

    def _check(self) -> None:
        if self._failure is not None:
            raise TakingFailed from self._failure


def take(bus: Bus, now: int) -> BusStat:
    """Records the bus at once.

    Args:
        bus: the bus.
        now: the time, in nanoseconds since the epoch.
    """
    taking = Taking(bus, now)
    try:
        steps = taking.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                record: BusStat = end.value
                return record
    finally:
        taking.end()


def _channel(channel: Channel, now: int) -> ChannelStat:
    # By place, as below.
    return ChannelStat(
        channel.name,
        channel.number,
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
        (),
    )


def _client(name: bytes, client: Client, now: int) -> ClientStat:
    mailbox = client.mailbox
    writing = client.waiting_write
    waiting = writing or next(iter(client.reading.values()), None)
    uid, _, pid = client.owner
    # By place, in the order of the fields: names would cost half as much again.
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
        "" if waiting is None else "write" if writing else "read",
        0 if waiting is None else now - waiting.since,
    )
