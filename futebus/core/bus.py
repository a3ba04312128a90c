"""The bus: names, clients, limits, and the calls on them."""

from collections.abc import Callable
from typing import Protocol

from .channel import Behind, Broadcast, Channel
from .client import Access, Client, Effects, Owner, Piece, Readiness, Token, Waiting
from .errors import (
    AlreadyThere,
    Forbidden,
    NobodyReads,
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
from .kinds import SHOWN, Name, Role, parse_name
from .limits import Limits
from .totals import Totals
from .writes import Writes

# Numbers below are for whoever shows the bus as a directory: the directory itself, and `_stat` and its like.
FIRST_CHANNEL_NUMBER = 16


class Taking(Protocol):
    """Who makes a record of the bus while it goes on: see core/stat/taking.py."""

    def keep(self, channel: Channel) -> None:
        """A channel or some of its clients are about to change."""


class Bus:
    """One bus.

    Times are nanoseconds since the epoch. Every call that can wait takes a `token`: without one it raises `WouldBlock` instead
    of waiting. A call that waits returns None, and its end comes as an effect of some later call, under its token.

    `process_of` tells the process of who writes, as `Piece.who` names him.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        bulk: bool = False,
        now: int = 0,
        process_of: Callable[[object], object] = lambda who: who,
    ) -> None:
        self.limits = limits or Limits()
        self.bulk = bulk
        self.started_at = now
        self.changed_at = now
        """When a name last came or went."""
        self.channels: dict[bytes, Channel] = {}
        self.every_channel: dict[int, Channel] = {}
        """By number: those that somebody has open though they have lost their name, too."""
        self.gone: dict[bytes, Totals] = {}
        """What the channels have counted that are no more, by the letters of their types."""
        self.clients: set[Client] = set()
        self.taking: Taking | None = None
        """Who is making a record of the bus, and must see what is about to change: see `keep`."""
        self._clients_of: dict[int, int] = {}
        self._writes = Writes(self.limits, process_of)
        self._next_number = FIRST_CHANNEL_NUMBER

    @property
    def is_shutting_down(self) -> bool:
        """Whether nothing is accepted any more."""
        return self._writes.is_shutting_down

    def keep(self, channel: Channel) -> None:
        """A channel is about to change: each call below says so by itself; who changes a channel's attributes says so, too."""
        if self.taking is not None:
            self.taking.keep(channel)

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
            Forbidden: it is `_stat` or its like.
            NoMaster: it is a U or S channel, there is none, and this is not how to become its master.
            AlreadyThere: it has a master already, or it is there and `exclusive`.
            TooManyChannels, TooManyClients, TooManyForUser, ShuttingDown: see there.
        """
        if (shown := name.removeprefix(b"+")) in SHOWN:
            raise Forbidden(f"{shown.decode()} is made by the bus")
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
        try:
            return self._add_client(channel, role, access, owner, parsed.bulk, effects), effects
        except BaseException:
            # Or else a channel without its master would keep the name. It never was, so it counts as none.
            self._unname(channel, now, was=False)
            raise

    def _add_channel(self, name: Name, owner: Owner, mode: int, now: int) -> Channel:
        channel = Channel(name.channel, name.kind, self._next_number, owner, mode, self.limits, now)
        self._next_number += 1
        self.channels[name.channel] = channel
        self.every_channel[channel.number] = channel
        self.changed_at = now
        return channel

    def open(self, channel: Channel, access: Access, owner: Owner, now: int, *, bulk: bool = False) -> tuple[Client, Effects]:
        """Opens a channel that is there: as a slave, if it has a master.

        Raises:
            NoMaster: its master takes no more, or has closed.
            TooManyClients, TooManyForUser, ShuttingDown: see there.
        """
        self._check_room(owner)
        if channel.is_shut:
            raise NoMaster
        self.keep(channel)
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
        try:
            self.clients.add(client)
        except BaseException:  # no memory, say: nobody will ever close it
            channel.remove(client, effects)
            raise
        self._clients_of[owner.uid] = self._clients_of.get(owner.uid, 0) + 1
        self._writes.forget_finished(effects)
        return client

    def unlink(self, name: bytes, now: int) -> None:
        """`rm`: takes the name away. Whoever has the channel open goes on.

        Raises:
            NoSuchName: there is no such channel.
        """
        channel, _ = self.look_up(name)
        self._unname(channel, now)

    def _unname(self, channel: Channel, now: int, *, was: bool = True) -> None:
        if channel.is_named:
            self.keep(channel)
            del self.channels[channel.name]
            channel.is_named = False
            channel.ctime = self.changed_at = now
            self._forget(channel, was=was)

    def _forget(self, channel: Channel, *, was: bool = True) -> None:
        """Forgets a channel that nobody can find and nobody has open, but for what it has counted if it ever was one."""
        if not channel.is_named and not channel.clients and channel.number in self.every_channel:
            del self.every_channel[channel.number]
            if not was:
                return
            letter = channel.kind.letter
            self.gone[letter] = self.gone.get(letter, Totals()).plus(channel)

    def close(self, client: Client, now: int) -> Effects:
        """The last close of an open file description."""
        effects = Effects(now)
        channel = client.channel
        self.keep(channel)
        client.keep()
        had_writes = bool(client.writing)
        if client is channel.master:
            self._unname(channel, now)
        self._writes.close(client)  # if something fails in here, this is called again
        channel.remove(client, effects)
        if client in self.clients:
            self.clients.discard(client)
            uid = client.owner.uid
            self._clients_of[uid] -= 1
            if not self._clients_of[uid]:
                del self._clients_of[uid]
        self._forget(channel)
        if channel.is_dead:
            self._writes.fail(list(channel.blocked), NobodyReads("the master has closed the channel"), effects)
        elif had_writes:
            effects.later.append(channel)
            self._writes.admit_or_later(channel, True, effects)
        self._writes.forget_finished(effects)
        return effects

    def shut(self, client: Client, now: int) -> Effects:
        """Its master takes no more messages: for who writes to the channel, or looks for it, it has closed.

        The master reads what has been accepted, and then end of file. What it writes reaches its slaves as before.

        Raises:
            Forbidden: the client is no master.
        """
        if client.role is not Role.MASTER:
            raise Forbidden("it is its master who ends a channel")
        channel = client.channel
        effects = Effects(now)
        self._unname(channel, now)
        if not channel.is_shut:
            self.keep(channel)
            channel.shut(effects)
            self._writes.fail(list(channel.blocked), NobodyReads("the master takes no more"), effects)
            self._writes.forget_finished(effects)
        return effects

    # ------------------------------------------------------------------------------------------ messages

    def write(
        self,
        client: Client,
        data: bytes,
        now: int,
        token: Token | None = None,
        *,
        may_wait: bool = True,
        work: int | None = None,
        piece: Piece | None = None,
    ) -> tuple[int | None, Effects]:
        """Takes bytes, line by line.

        Args:
            client: who writes.
            data: what.
            now: the time.
            token: under which the call may be answered later. Without one it takes what it can at once.
            may_wait: whether it waits while there is no place at the master.
            work: how much may be done at once, as in `Effects.work`; the rest in turn with others (`Effects.later`). Without a
                token, `Effects.is_unfinished` tells that there is more to do.
            piece: which part of a longer write they are, if they may be one. No other write by the description comes between two
                pieces: see `end_rest`.

        Returns:
            How many bytes were accepted, less than all of them if the next line is refused or, without waiting, finds no place.
            None when the call will be answered later.

        Raises:
            WouldBlock: there is no place at the master. Nothing was accepted, and nothing forgotten.
            BusError: nothing was accepted, and the partial message before it is dropped.
            NotOpenForThis: the client does not write.
        """
        if not client.access.writes:
            raise NotOpenForThis
        self.keep(client.channel)
        client.keep()
        effects = Effects(now)
        return self._writes.begin(client, data, token, effects, may_wait=may_wait, work=work, piece=piece), effects

    def end_rest(self, client: Client, now: int) -> Effects:
        """Nothing more comes of a write of which a piece was taken, but from who is to begin anew: others have their turn.

        To be called when that is known of one of `Effects.held`, or one that has raised `WouldBlock` for it: the bus cannot know.
        """
        effects = Effects(now)
        client.keep()
        self._writes.end_rest(client, effects)
        return effects

    def go_on(self, what: Token | Channel | Broadcast | Behind, now: int, *, work: int | None = None) -> Effects:
        """Goes on with what some call before has put into `Effects.later`.

        Args:
            what: of that.
            now: the time.
            work: how much of a write may be done at once, as in `Effects.work`.
        """
        effects = Effects(now)
        if isinstance(what, Channel):
            self.keep(what)
        elif isinstance(what, Broadcast | Behind):
            self.keep(what.channel)
        elif waiting := self._writes.waiting.get(what):
            self.keep(waiting.client.channel)
        self._writes.go_on(what, effects, work)
        return effects

    def read(
        self, client: Client, size: int, now: int, token: Token | None = None, *, is_rest: bool = False
    ) -> tuple[bytes | None, Effects]:
        """Reads up to `size` bytes.

        Args:
            client: who reads.
            size: how many at most.
            now: the time.
            token: under which the call may be answered later.
            is_rest: whether this is what was left of a call that has been filled so far: it gets the rest of a message that was
                begun, or whole ones in bulk, or nothing.

        Returns:
            The bytes, none at the end of file (no message will come any more); None when the call waits.

        Raises:
            WouldBlock: there is nothing to read.
            NotOpenForThis: the client does not read.
        """
        if not client.access.reads:
            raise NotOpenForThis
        channel = client.channel
        self.keep(channel)
        client.keep()
        effects = Effects(now)
        is_master = client.role is Role.MASTER
        was_full = is_master and client.mailbox.is_full
        if is_rest and not client.mailbox.rbuf_size and not (client.bulk and client.mailbox.has_whole(size)):
            return b"", effects
        frees_place = is_master and bool(channel.blocked or channel.armed_slaves)
        if frees_place:
            effects.later.append(channel)  # before anything is taken: who waits is not forgotten, and what is taken not lost
        piece = client.take(size, now)
        if piece is None:
            effects.later.clear()
            if client.is_over(is_shutting_down=self.is_shutting_down):
                return b"", effects
            if token is None:
                raise WouldBlock
            waiting = Waiting(token, client, now, size)
            self._writes.waiting[token] = waiting
            client.reading[token] = waiting
            return None, effects
        if frees_place:
            self._writes.admit_or_later(channel, was_full, effects)
        if not client.mailbox and client.is_over(is_shutting_down=self.is_shutting_down):
            client.wake_poller(effects)  # now it has hung up
        return piece, effects

    def cancel(self, token: Token, now: int) -> tuple[int, Effects] | None:
        """Ends a waiting call: a signal came.

        What a further piece of a longer write has begun with the one before is its process's then: it is in nobody else's way
        until that writes again.

        Args:
            token: under which the call waits.
            now: the time.

        Returns:
            How many bytes were accepted of a write by then, 0 for a read, and what else comes of it; None if the call does not
            wait (any more).
        """
        waiting = self._writes.waiting.get(token)
        if waiting is None:
            return None
        effects = Effects(now)
        client = waiting.client
        self.keep(client.channel)
        client.keep()
        if isinstance(waiting, Waiting):
            client.reading.pop(token, None)
            del self._writes.waiting[token]
            return 0, effects
        self._writes.cancel(waiting, effects)
        return waiting.taken, effects

    # ------------------------------------------------------------------------------------------ readiness

    def poll(self, client: Client, *, arm: bool = False) -> Readiness:
        """Tells what a client could do without waiting.

        With `arm`, the next change from not ready to ready is reported once, as `Effects.ready`.
        """
        if arm:
            client.is_armed = True
            if client.may_wait:
                client.channel.armed_slaves.add(client)
        return client.readiness(is_shutting_down=self.is_shutting_down)

    # ------------------------------------------------------------------------------------------ the end

    def shut_down(self, now: int) -> Effects:
        """The bus goes down: nothing is accepted any more; readers get what waits for them, then end of file."""
        effects = Effects(now)
        self._writes.is_shutting_down = True
        for channel in {client.channel for client in self.clients}:
            self.keep(channel)
            self._writes.fail(list(channel.blocked), ShuttingDown(), effects)
            channel.end_of_messages(effects)
        # And those that wait for their turn only.
        for client in self.clients:
            self._writes.fail(list(client.writing), ShuttingDown(), effects)
        self._writes.forget_finished(effects)
        return effects

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._writes.waiting)
