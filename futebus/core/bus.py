"""The bus: names, clients, limits, and the calls on them."""

from .channel import Channel
from .client import Access, Client, Effects, Owner, Readiness, Token, Waiting
from .errors import (
    AlreadyThere,
    BusError,
    Forbidden,
    NoChannelType,
    NoMaster,
    NoSuchName,
    NotOpenForThis,
    ShuttingDown,
    TooManyChannels,
    TooManyClients,
    TooManyForUser,
    WouldBlock,
)
from .kinds import STAT, Name, Role, parse_name
from .limits import Limits

# Numbers below are for whoever shows the bus as a directory: the directory itself and `_stat`.
FIRST_CHANNEL_NUMBER = 3

ADMITTED_WORK = 500
"""How much of a write that has waited is accepted at once, as in `Effects.work`: a millisecond's worth."""


class Bus:
    """One bus.

    Times are nanoseconds since the epoch. Every call that can wait takes a `token`: without one it raises `WouldBlock` instead
    of waiting. A call that waits returns None, and its end comes as an effect of some later call, under its token.
    """

    def __init__(self, limits: Limits | None = None, *, bulk: bool = False, now: int = 0) -> None:
        self.limits = limits or Limits()
        self.bulk = bulk
        self.started_at = now
        self.changed_at = now
        """When a name last came or went."""
        self.channels: dict[bytes, Channel] = {}
        self.clients: set[Client] = set()
        self.is_shutting_down = False
        self._clients_of: dict[int, int] = {}
        self._waiting: dict[Token, Waiting] = {}
        self._next_number = FIRST_CHANNEL_NUMBER

    # ------------------------------------------------------------------------------------------ names

    def look_up(self, name: bytes) -> tuple[Channel, bool]:
        """Finds what a file name means.

        Returns:
            The channel, and whether the name asks for bulk reads.

        Raises:
            NoSuchName: there is none, or no channel can have this name. `.NAME` only exists in the act of creating.
            NameTooLong: over 255 bytes.
        """
        try:
            parsed = parse_name(name)
        except NoChannelType:
            raise NoSuchName from None
        channel = self.channels.get(parsed.channel)
        if channel is None or parsed.as_master:
            raise NoSuchName
        return channel, parsed.bulk

    def create(
        self, name: bytes, access: Access, owner: Owner, mode: int, now: int, *, exclusive: bool = False
    ) -> tuple[Client, Effects]:
        """`open(name, O_CREAT)`: opens the channel, which is created if there is none.

        Args:
            name: the file name: `B_log`, `.U_log`, `+A_chat`.
            access: what for.
            owner: who; owns the channel if it is created.
            mode: its permission bits, if it is created.
            now: the time.
            exclusive: `O_EXCL`.

        Raises:
            NoChannelType: no channel can have this name.
            Forbidden: it is `_stat`.
            NoMaster: it is a U or S channel, there is none, and this is not how to become its master.
            AlreadyThere: it has a master already, or it is there and `exclusive`.
            TooManyChannels, TooManyClients, TooManyForUser, ShuttingDown: see there.
        """
        if name.removeprefix(b"+") == STAT:
            raise Forbidden("_stat is made by the bus")
        parsed = parse_name(name)
        if self.is_shutting_down:
            raise ShuttingDown
        channel = self.channels.get(parsed.channel)
        if channel is not None:
            if parsed.as_master:
                raise AlreadyThere("the channel has a master already")
            if exclusive:
                raise AlreadyThere
            return self.open(channel, access, owner, now, bulk=parsed.bulk)
        if parsed.kind.has_master and not parsed.as_master:
            raise NoMaster
        self._check_room(owner)
        if len(self.channels) >= self.limits.max_channels:
            raise TooManyChannels
        channel = self._add_channel(parsed, owner, mode, now)
        role = Role.MASTER if parsed.as_master else Role.PEER
        effects = Effects(now)
        return self._add_client(channel, role, access, owner, parsed.bulk, effects), effects

    def _add_channel(self, name: Name, owner: Owner, mode: int, now: int) -> Channel:
        channel = Channel(name.channel, name.kind, self._next_number, owner, mode, self.limits, now)
        self._next_number += 1
        self.channels[name.channel] = channel
        self.changed_at = now
        return channel

    def open(self, channel: Channel, access: Access, owner: Owner, now: int, *, bulk: bool = False) -> tuple[Client, Effects]:
        """Opens a channel that is there: as a slave, if it has a master.

        Raises:
            NoMaster: its master has closed.
            TooManyClients, TooManyForUser, ShuttingDown: see there.
        """
        self._check_room(owner)
        if channel.is_dead:
            raise NoMaster
        effects = Effects(now)
        role = Role.SLAVE if channel.kind.has_master else Role.PEER
        return self._add_client(channel, role, access, owner, bulk, effects), effects

    def _check_room(self, owner: Owner) -> None:
        if self.is_shutting_down:
            raise ShuttingDown
        if len(self.clients) >= self.limits.max_clients:
            raise TooManyClients
        if owner.uid and self._clients_of.get(owner.uid, 0) >= self.limits.max_clients_per_user:
            raise TooManyForUser

    def _add_client(self, channel: Channel, role: Role, access: Access, owner: Owner, bulk: bool, effects: Effects) -> Client:
        client = channel.add(role, access, owner, bulk or self.bulk, effects)
        self.clients.add(client)
        self._clients_of[owner.uid] = self._clients_of.get(owner.uid, 0) + 1
        self._forget_finished(effects)
        return client

    def unlink(self, name: bytes, now: int) -> None:
        """`rm`: takes the name away. Whoever has the channel open goes on.

        Raises:
            NoSuchName: there is no such channel.
        """
        channel, _ = self.look_up(name)
        self._unname(channel, now)

    def _unname(self, channel: Channel, now: int) -> None:
        if channel.is_named:
            del self.channels[channel.name]
            channel.is_named = False
            channel.ctime = self.changed_at = now

    def close(self, client: Client, now: int) -> Effects:
        """The last close of an open file description."""
        effects = Effects(now)
        channel = client.channel
        was_full = client.blocked_write is not None
        self._abandon(client)
        channel.remove(client, effects)
        if was_full:
            self._admit(channel, was_full, effects)
        self.clients.discard(client)
        uid = client.owner.uid
        self._clients_of[uid] -= 1
        if not self._clients_of[uid]:
            del self._clients_of[uid]
        if channel.is_dead:
            self._unname(channel, now)
        self._forget_finished(effects)
        return effects

    def _abandon(self, client: Client) -> None:
        """Forgets the calls of a client that is going away: nobody waits for them any more."""
        for waiting in [*client.reading, *([client.blocked_write] if client.blocked_write else [])]:
            del self._waiting[waiting.token]
        client.reading.clear()
        if client.blocked_write:
            client.channel.blocked.remove(client.blocked_write)
            client.blocked_write = None

    # ------------------------------------------------------------------------------------------ messages

    def write(
        self, client: Client, data: bytes, now: int, token: Token | None = None, *, work: int | None = None
    ) -> tuple[int | None, Effects]:
        """Takes bytes, line by line.

        Args:
            client: who writes.
            data: what.
            now: the time.
            token: under which the call may wait.
            work: how much may be done at once, as in `Effects.work`. If `Effects.is_unfinished` then, the rest of `data` is to
                be written next, after others had their turn.

        Returns:
            How many bytes were accepted, at least one; None when the call waits.

        Raises:
            WouldBlock: there is no place at the master. Nothing was accepted, and nothing forgotten.
            BusError: nothing was accepted, and the partial message before it is dropped.
            NotOpenForThis: the client does not write.
        """
        if not client.access.writes:
            raise NotOpenForThis
        if self.is_shutting_down:
            client.wbuf.drop()
            raise ShuttingDown
        if client.may_wait:
            client.channel.check_master(client)
        effects = Effects(now)
        taken = self._take_bytes(client, data, effects, work)
        if not taken and data:
            if token is None:
                raise WouldBlock
            waiting = Waiting(token, client, now, 0, data)
            self._waiting[token] = waiting
            client.blocked_write = waiting
            client.channel.blocked.append(waiting)
            return None, effects
        if effects.finished:
            self._forget_finished(effects)
        return taken, effects

    def _take_bytes(
        self, client: Client, data: bytes, effects: Effects, work: int | None = None, *, is_next: bool = False
    ) -> int:
        """As many bytes as can be accepted now, with about so much work; 0 when the first message must wait."""
        channel, wbuf = client.channel, client.wbuf
        taken = 0
        if work is not None:
            work += effects.work
        try:
            while taken < len(data):
                # What the master has no place for need not be looked at: it will be written again.
                run, stop = wbuf.next_run(data, taken, channel.room if client.may_wait else None)
                if run is not None:
                    accepted = channel.send(client, run, effects, work, is_next=is_next)
                    if accepted < len(run.data):
                        taken += accepted
                        break
                    wbuf.finish()
                taken = stop
                effects.work += 1
                if work is not None and effects.work >= work and taken < len(data):
                    effects.is_unfinished = True
                    break
        except BusError:
            if not taken:
                wbuf.drop()
                raise
        return taken

    def read(self, client: Client, size: int, now: int, token: Token | None = None) -> tuple[bytes | None, Effects]:
        """Reads up to `size` bytes.

        Returns:
            The bytes, none at the end of file (the master is gone, or the bus is going down); None when the call waits.

        Raises:
            WouldBlock: there is nothing to read.
            NotOpenForThis: the client does not read.
        """
        if not client.access.reads:
            raise NotOpenForThis
        effects = Effects(now)
        channel = client.channel
        is_master = client.role is Role.MASTER
        was_full = is_master and client.mailbox.is_full
        piece = client.take(size, now)
        if piece is None:
            if channel.is_dead or self.is_shutting_down:
                return b"", effects
            if token is None:
                raise WouldBlock
            waiting = Waiting(token, client, now, size, b"")
            self._waiting[token] = waiting
            client.reading.append(waiting)
            return None, effects
        if is_master:
            self._admit(channel, was_full, effects)
        if (channel.is_dead or self.is_shutting_down) and not client.mailbox:
            client.wake_poller(effects)  # now it has hung up
        return piece, effects

    def _admit(self, channel: Channel, was_full: bool, effects: Effects) -> None:
        """The master's rlist may have places: first for the writes that wait for one, in their order, then for pollers."""
        was_full = was_full or bool(channel.blocked)
        while channel.blocked:
            waiting = channel.blocked[0]
            try:
                # It may return a short count, so it need not be gone on with.
                taken: int | BusError = self._take_bytes(waiting.client, waiting.data, effects, ADMITTED_WORK, is_next=True)
            except BusError as error:
                taken = error
            if taken == 0:
                break
            channel.blocked.popleft()
            waiting.client.blocked_write = None
            effects.finished.append((waiting.token, taken))
        if channel.armed_slaves:
            channel.tell_writable(was_full, effects)
        self._forget_finished(effects)

    def cancel(self, token: Token, now: int) -> Effects | None:
        """Ends a waiting call as if it had never been made: a signal came.

        Returns:
            What comes of it; None if the call does not wait (any more).
        """
        waiting = self._waiting.pop(token, None)
        if waiting is None:
            return None
        effects = Effects(now)
        client = waiting.client
        if waiting.data:
            client.blocked_write = None
            client.channel.blocked.remove(waiting)
            # The first of the queue may have been too long for the place that there is; the next may fit.
            self._admit(client.channel, True, effects)
        else:
            client.reading.remove(waiting)
        return effects

    def _forget_finished(self, effects: Effects) -> None:
        for token, _ in effects.finished:
            self._waiting.pop(token, None)

    # ------------------------------------------------------------------------------------------ readiness

    def poll(self, client: Client, *, arm: bool = False) -> Readiness:
        """Tells what a client could do without waiting.

        With `arm`, the next change from not ready to ready is reported once, as `Effects.ready`.
        """
        channel = client.channel
        reads, writes = client.access
        ended = channel.is_dead or self.is_shutting_down
        if arm:
            client.is_armed = True
            if client.may_wait:
                channel.armed_slaves.add(client)
        waits = bool(client.mailbox)
        writable = writes and (ended or channel.is_writable(client))
        if writable:
            client.needs = 0  # it is told: only the next change is news
        return Readiness(
            readable=reads and (waits or ended),
            hung_up=reads and ended and not waits,
            writable=writable,
            broken=writes and ended,
        )

    # ------------------------------------------------------------------------------------------ the end

    def shut_down(self, now: int) -> Effects:
        """The bus goes down: nothing is accepted any more; readers get what waits for them, then end of file."""
        effects = Effects(now)
        self.is_shutting_down = True
        for channel in {client.channel for client in self.clients}:
            channel.fail_blocked(ShuttingDown(), effects)
            channel.end_of_messages(effects)
        self._forget_finished(effects)
        return effects

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting)
