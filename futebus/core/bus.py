"""The bus: names, clients, limits, and the calls on them."""

import enum
from collections import deque
from collections.abc import Iterable

from .channel import Behind, Broadcast, Channel
from .client import Access, Client, Effects, Owner, Readiness, Token, Waiting, Write
from .errors import (
    AlreadyThere,
    Broken,
    BusError,
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
from .kinds import STAT, Name, Role, parse_name
from .limits import SHARED_WRITE_BYTES, Limits

# Numbers below are for whoever shows the bus as a directory: the directory itself and `_stat`.
FIRST_CHANNEL_NUMBER = 3

ADMITTED_WORK = 500
"""How much of the writes that have waited is accepted at once, as in `Effects.work`: a millisecond's worth."""

RUN_WORK = 3
"""What it costs to find a run of lines and to route it, however short it is."""

PORTION_WORK = 128
"""How much of one of them, before the next has its turn: at most a run of lines (128 KiB), or so many runs that are shorter."""


class _Outcome(enum.Enum):
    """How far a write has come."""

    DONE = enum.auto()
    HAS_MORE = enum.auto()
    """It can go on after others had their turn."""
    MUST_WAIT = enum.auto()
    """There is no place at the master."""
    REFUSED = enum.auto()
    """Something is wrong with the next line."""


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
        self._shared_bytes_of: dict[int, int] = {}
        """By user: the bytes of writes that wait for another write by the same description."""
        self._waiting: dict[Token, Waiting | Write] = {}
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
        try:
            return self._add_client(channel, role, access, owner, parsed.bulk, effects), effects
        except BaseException:
            self._unname(channel, now)  # or else a channel without its master would keep the name
            raise

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
        had_writes = bool(client.writing)
        if client is channel.master:
            channel.go_on(effects, to_its_end=True)
            self._unname(channel, now)
        # Nobody waits for these calls any more. (If something fails in here, it is called again.)
        for token in (*(read.token for read in client.reading), *(write.token for write in client.writing)):
            self._waiting.pop(token, None)
        client.reading.clear()
        if had_writes:
            for write in client.writing:
                self._uncount(write)
            channel.blocked = deque(write for write in channel.blocked if write.client is not client)
            client.writing.clear()
        channel.remove(client, effects)
        if client in self.clients:
            self.clients.discard(client)
            uid = client.owner.uid
            self._clients_of[uid] -= 1
            if not self._clients_of[uid]:
                del self._clients_of[uid]
        if channel.is_dead:
            self._fail_writes(list(channel.blocked), NobodyReads("the master has closed the channel"), effects)
        elif had_writes:
            self._admit(channel, True, effects)
        self._forget_finished(effects)
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
        effects = Effects(now)
        if client.writing:
            # Another process writes by the same description. Its lines come first, all of them.
            if token is None or not may_wait:
                client.was_told_to_wait = True
                raise WouldBlock
            self._keep_shared_write(Write(token, client, now, data, 0, may_wait=True))
            return None, effects
        self._check_end(client)
        try:
            taken, outcome = self._take_bytes(client, data, 0, effects, work)
        except BusError as error:
            if effects.failure is None or token is None:
                raise
            # Something has come of it, for others: that is not to be lost with the error.
            self._forget_finished(effects)
            effects.finished.append((token, error.with_traceback(None)))
            return None, effects
        if effects.finished:
            self._forget_finished(effects)
        if outcome is _Outcome.HAS_MORE and token is not None:
            self._keep_write(Write(token, client, now, data, taken, may_wait=may_wait))
            self._put_off(token, client.channel, effects)
            return None, effects
        if outcome is _Outcome.MUST_WAIT and may_wait and token is not None:
            write = Write(token, client, now, data, taken, may_wait=True)
            self._keep_write(write)
            client.channel.blocked.append(write)
            return None, effects
        if outcome is _Outcome.MUST_WAIT and not taken:
            raise WouldBlock
        effects.is_unfinished = outcome is _Outcome.HAS_MORE
        return taken, effects

    def _keep_write(self, write: Write) -> None:
        self._waiting[write.token] = write
        write.client.writing.append(write)

    def _keep_shared_write(self, write: Write) -> None:
        """Keeps one that waits for another of the same client.

        Raises:
            TooManyForUser: the user has too much of that. None of them is a client, so nothing else bounds them.
        """
        uid = write.client.owner.uid
        size = self._shared_bytes_of.get(uid, 0) + len(write.data)
        if uid and size > self.limits.max_clients_per_user * SHARED_WRITE_BYTES:
            raise TooManyForUser("too many writes of the user wait for others by the same descriptor")
        self._shared_bytes_of[uid] = size
        write.is_counted = True
        self._keep_write(write)

    def _uncount(self, write: Write) -> None:
        if write.is_counted:
            uid = write.client.owner.uid
            self._shared_bytes_of[uid] -= len(write.data)
            if not self._shared_bytes_of[uid]:
                del self._shared_bytes_of[uid]

    def _check_end(self, client: Client) -> None:
        """Drops what a client has begun to write if nobody will ever read it.

        Raises:
            ShuttingDown, NobodyReads: so it is.
        """
        if self.is_shutting_down:
            client.wbuf.drop()
            raise ShuttingDown
        if client.may_wait:
            client.channel.check_master(client)

    def _take_bytes(
        self, client: Client, data: bytes, start: int, effects: Effects, work: int | None, *, is_next: bool = False
    ) -> tuple[int, _Outcome]:
        """Takes what can be accepted now, from `start` on, with about so much work. Returns up to where, and how it ended.

        Raises:
            BusError: something is wrong with the line at `start`. The partial message before it is dropped.
        """
        channel, wbuf = client.channel, client.wbuf
        taken = start
        if work is not None:
            work += effects.work
        try:
            while True:
                if (channel.broadcast or (channel.behind and not is_next)) and not client.route.to_master:
                    # What is on its way comes first, also before the writer is told that it has been accepted.
                    return taken, _Outcome.HAS_MORE
                if taken == len(data):
                    break
                if work is not None and effects.work >= work and taken > start:
                    return taken, _Outcome.HAS_MORE
                # What the master has no place for need not be looked at: it will be written again.
                run, stop = wbuf.next_run(data, taken, *channel.room) if client.may_wait else wbuf.next_run(data, taken)
                if run is not None:
                    effects.work += RUN_WORK
                    effects.is_unfinished = False
                    accepted = channel.send(client, run, effects, work, is_next=is_next)
                    if accepted < len(run.data):
                        # A run of several messages has nothing of an earlier call in it.
                        if effects.is_unfinished:
                            return taken + accepted, _Outcome.HAS_MORE
                        waits = client.may_wait and effects.failure is None
                        return taken + accepted, _Outcome.MUST_WAIT if waits else _Outcome.REFUSED
                    wbuf.finish()
                taken = stop
                effects.work += 1
        except BusError:
            if taken == start:
                wbuf.drop()
                raise
            return taken, _Outcome.REFUSED
        except Exception as error:
            # No memory, say. What has been delivered stays so, and the effects of it are not to be lost.
            effects.failure = error
            if taken == start:
                wbuf.drop()
                raise Broken from None
            return taken, _Outcome.REFUSED
        return taken, _Outcome.DONE

    def _put_off(self, token: Token, channel: Channel, effects: Effects) -> None:
        """Has a write go on later: in its turn, or when the broadcast that is on its way has reached its end."""
        if channel.broadcast or channel.behind:
            channel.behind.append(token)
        else:
            effects.later.append(token)

    def go_on(self, what: Token | Channel | Broadcast | Behind, now: int, *, work: int | None = None) -> Effects:
        """Goes on with what some call before has put into `Effects.later`.

        Args:
            what: of that.
            now: the time.
            work: how much of a write may be done at once, as in `Effects.work`.
        """
        effects = Effects(now)
        if isinstance(what, Channel):
            what.is_admitting = False
            self._admit(what, True, effects)
            return effects
        if isinstance(what, Broadcast):
            if what.channel.broadcast is what:
                what.channel.go_on(effects)
            self._forget_finished(effects)
            return effects
        if isinstance(what, Behind):
            channel = what.channel
            channel.is_calling = False
            while channel.behind and not channel.broadcast:
                if isinstance(write := self._waiting.get(channel.behind.popleft()), Write):  # or else a signal has ended it
                    self._go_on_with(write, effects, work, is_next=True)
                    break
            channel.call_behind(effects)
            return effects
        write = self._waiting.get(what)
        if isinstance(write, Write):
            self._go_on_with(write, effects, work)
        return effects

    def _go_on_with(self, write: Write, effects: Effects, work: int | None, *, is_next: bool = False) -> None:
        outcome = self._advance(write, effects, work, is_next=is_next)
        if outcome is _Outcome.HAS_MORE:
            self._put_off(write.token, write.client.channel, effects)
        elif outcome is _Outcome.MUST_WAIT:
            write.client.channel.blocked.append(write)
        self._forget_finished(effects)

    def _advance(self, write: Write, effects: Effects, work: int | None, *, is_next: bool = False) -> _Outcome:
        """Takes what can be accepted now of a write that is under way, and answers it if that is all there will be."""
        client = write.client
        try:
            self._check_end(client)
            write.taken, outcome = self._take_bytes(client, write.data, write.taken, effects, work, is_next=is_next)
        except BusError as error:
            # The traceback holds this frame, and with it the effects that hold the error.
            self._end_write(write, write.taken or error.with_traceback(None), effects)
            return _Outcome.REFUSED
        if outcome is _Outcome.MUST_WAIT and not write.may_wait:
            outcome = _Outcome.REFUSED
        if outcome in (_Outcome.DONE, _Outcome.REFUSED):
            self._end_write(write, write.taken or WouldBlock(), effects)
        return outcome

    def _end_write(self, write: Write, answer: int | BusError | None, effects: Effects) -> None:
        """Ends a write that is under way, with an answer if anybody waits for one. The client's next write begins in its turn."""
        client = write.client
        was_first = client.writing[0] is write
        client.writing.remove(write)
        self._uncount(write)
        if answer is not None:
            effects.finished.append((write.token, answer))
        if client.writing and was_first:
            effects.later.append(client.writing[0].token)
        elif not client.writing and client.was_told_to_wait:
            client.was_told_to_wait = False
            if client.channel.is_writable(client):
                client.wake_poller(effects)

    def _fail_writes(self, writes: Iterable[Write], error: BusError, effects: Effects) -> None:
        """Ends writes for good: with the count of what was accepted of them, or else with `error`."""
        for write in writes:
            client = write.client
            if write in client.channel.blocked:
                client.channel.blocked.remove(write)
            client.wbuf.drop()
            self._end_write(write, write.taken or error, effects)

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
            waiting = Waiting(token, client, now, size)
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
        limit = effects.work + ADMITTED_WORK
        while channel.blocked and not channel.is_admitting:
            if effects.work >= limit:
                channel.is_admitting = True
                effects.later.append(channel)
                break
            write = channel.blocked[0]
            taken = write.taken
            outcome = self._advance(write, effects, PORTION_WORK, is_next=True)
            if outcome is _Outcome.MUST_WAIT and write.taken == taken:
                break
            channel.blocked.popleft()
            if outcome in (_Outcome.HAS_MORE, _Outcome.MUST_WAIT):
                # Others have their turn, also in the middle of a long write.
                channel.blocked.append(write)
        if channel.armed_slaves:
            channel.tell_writable(was_full, effects)
        self._forget_finished(effects)

    def cancel(self, token: Token, now: int) -> tuple[int, Effects] | None:
        """Ends a waiting call: a signal came.

        Returns:
            How many bytes were accepted of a write by then, 0 for a read, and what else comes of it; None if the call does not
            wait (any more).
        """
        waiting = self._waiting.pop(token, None)
        if waiting is None:
            return None
        effects = Effects(now)
        client = waiting.client
        if isinstance(waiting, Waiting):
            if waiting in client.reading:
                client.reading.remove(waiting)
            return 0, effects
        self._end_write(waiting, None, effects)
        if waiting in client.channel.blocked:
            client.channel.blocked.remove(waiting)
            # The first of the queue may have been too long for the place that there is; the next may fit.
            self._admit(client.channel, True, effects)
        return waiting.taken, effects

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
        elif client.writing:
            client.was_told_to_wait = True
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
            channel.go_on(effects, to_its_end=True)
            self._fail_writes(list(channel.blocked), ShuttingDown(), effects)
            channel.end_of_messages(effects)
        # And those that wait for their turn only.
        for client in self.clients:
            self._fail_writes(list(client.writing), ShuttingDown(), effects)
        self._forget_finished(effects)
        return effects

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._waiting)
