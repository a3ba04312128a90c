"""What a channel does with a message: the routes of `kinds.ROUTES`, carried out."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from . import address
from .client import Access, Client, Effects, Owner, Token, Write
from .errors import BusError, NobodyReads, NoSuchClient, TooManyForUser
from .framing import Run, length_of
from .kinds import Kind, Role
from .limits import LAST_ID, MAX_CONTROLS, Limits

READERS_AT_ONCE = 500
"""How many readers get a broadcast in one step: a millisecond's worth, or two if their queues are full."""

BROADCAST_WORK = 1000
"""Behind which reader a step ends before that, as in `Effects.work`: what is dropped may be tens of thousands of short runs."""


class Broadcast:
    """Messages on their way to more readers than one step can serve. What follows on the channel waits for them."""

    __slots__ = ("at", "channel", "readers", "run", "sender")

    def __init__(self, channel: "Channel", sender: Client, run: Run) -> None:
        self.channel = channel
        self.sender = sender
        self.run = run
        self.readers = list(channel.readers.values())
        """Those who read the channel when it was accepted."""
        self.at = 0
        """Which of them is next."""


class Unrecorded(Protocol):
    """Who makes a record of the bus, and has not come to all clients of the channel yet: see core/stat/taking.py."""

    def keep(self, client: Client) -> None:
        """A client is about to change."""


class Behind(NamedTuple):
    """The turn of the first of the writes that wait, on a channel, for a broadcast to reach its end."""

    channel: "Channel"


class Channel:
    """One channel: a file of the bus, or what is left of it while clients hold it open.

    `mode`, `uid`, `gid` and the times (nanoseconds) are the file's, for whoever shows it as one to keep. The counts are of
    whole messages: `messages_in` were accepted, `copies` put into rlists (one for each receiver, control messages too); of
    these, `messages_out` were read, `dropped` pushed out of a full rlist, `lost` when their client closed, and the rest wait.
    """

    def __init__(self, name: bytes, kind: Kind, number: int, owner: Owner, mode: int, limits: Limits, now: int) -> None:
        self.name = name
        self.kind = kind
        self.number = number
        """Never the same for two channels of a bus."""
        self.limits = limits
        self.mode = mode
        self.uid = owner.uid
        self.gid = owner.gid
        self.atime = self.mtime = self.ctime = self.created_at = now
        self.is_named = True
        """Whether the bus still lists it."""
        self.is_shut = False
        """Whether its master takes no more messages, or has closed."""
        self.is_dead = False
        """Whether its master has closed."""
        self.clients: dict[int, Client] = {}
        self.master: Client | None = None
        self.readers: dict[int, Client] = {}
        """The clients that read, but for the master: whom a broadcast reaches."""
        self.blocked: deque[Write] = deque()
        """The slaves' writes that wait for the master, in the order in which they are served."""
        self.is_admitting = False
        """Whether some of them will be served in their turn: see `Bus.go_on`."""
        self.armed_slaves: set[Client] = set()
        """The polled slaves that write: who must be told when the master's rlist gets a free place."""
        self.needy: set[Client] = set()
        """Slaves whose message has found no place for its size, and who were not told of one."""
        self.broadcast: Broadcast | None = None
        """What has not reached all of its readers yet."""
        self.behind: OrderedDict[Token, None] = OrderedDict()
        """Writes that wait for that, in their order. Each is called when it is its turn, and no sooner: to ask all of them each
        time would take the square of their number."""
        self.is_calling = False
        """Whether the first of them is about to have its turn."""
        self.unrecorded: Unrecorded | None = None
        """Who must see each client before it changes."""
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0
        self.copies = self.dropped = self.lost = 0
        self._last_id = 0

    # ------------------------------------------------------------------------------------------ coming and going

    def add(self, role: Role, access: Access, owner: Owner, bulk: bool, effects: Effects) -> Client:
        """Lets a client in.

        Raises:
            TooManyForUser: the master has left too many `{ID:o}` and `{ID:c}` unread.
        """
        told = self.listener if self.kind.tells_master else None
        if told and told.mailbox.controls >= MAX_CONTROLS:
            raise TooManyForUser("the channel's master does not read that clients open and close it")
        client = Client(self, self._free_id(), role, access, owner, bulk=bulk, opened_at=effects.now)
        self.clients[client.id] = client
        if role is Role.MASTER:
            self.master = client
        elif access.reads:
            self.readers[client.id] = client
        if told:
            try:
                told.deliver_control(address.opened(client.id), effects)
            except BaseException:
                # Nobody will ever close it.
                del self.clients[client.id]
                self.readers.pop(client.id, None)
                raise
        return client

    def _free_id(self) -> int:
        """The next ID, from 1 up; past the last one it begins again and skips those in use."""
        while True:
            self._last_id = self._last_id % LAST_ID + 1
            if self._last_id not in self.clients:
                return self._last_id

    def remove(self, client: Client, effects: Effects) -> None:
        """Lets a client go, with what waits for it and its partial message. If it was the master, the channel dies."""
        is_master = client.role is Role.MASTER
        was_shut = self.is_shut
        if is_master:
            self.master = None
            self.is_shut = self.is_dead = True
        if self.clients.pop(client.id, None):
            self.lost += client.mailbox.messages + client.mailbox.controls
        self.readers.pop(client.id, None)
        self.armed_slaves.discard(client)
        self.needy.discard(client)
        client.is_armed = False
        client.end_reads(effects)
        if is_master:
            self.end_of_messages(effects, was_shut=was_shut)
        elif self.kind.tells_master and (told := self.listener):
            told.deliver_control(address.closed(client.id), effects)

    def shut(self, effects: Effects) -> None:
        """Its master takes no more messages. Who writes to it finds out, and so does the master when it has read what waits."""
        self.is_shut = True
        for client in self.clients.values():
            if client.role is Role.SLAVE and client.access.writes:
                client.wake_poller(effects)
        if self.master and self.master.access.reads and not self.master.mailbox:
            self.master.end_reads(effects)
            self.master.wake_poller(effects)

    def end_of_messages(self, effects: Effects, *, was_shut: bool = False) -> None:
        """No message will come any more: whoever waits, in a read or a poll, is told.

        Who only reads and has something left to read notices nothing yet. Slaves know already that they cannot write if
        `was_shut`. While a broadcast is on its way, reads go on waiting: this is called again behind it.
        """
        for client in self.clients.values():
            try:
                if not self.broadcast:
                    client.end_reads(effects)
                reads, writes = client.access
                if (reads and not client.mailbox) or (writes and not (was_shut and client.role is Role.SLAVE)):
                    client.wake_poller(effects)
            except Exception as error:  # the others are to hear of it
                effects.failure = error

    # ------------------------------------------------------------------------------------------ messages

    def send(self, sender: Client, run: Run, effects: Effects, work: int | None = None, *, is_next: bool = False) -> int:
        """Routes messages.

        Args:
            sender: who wrote them.
            run: the messages as written.
            effects: gets what comes of it.
            work: at which `Effects.work` to stop, in front of a message.
            is_next: these are the ones that waited longest for the master; nobody else's may overtake those.

        Returns:
            How many bytes of `run` were accepted: whole messages. Less than all when the master has no place for the next
            message, or when something is wrong with it and it is not the first.

        Raises:
            BusError: something is wrong with the first message. Nothing was accepted.
        """
        route = sender.route
        if route.to_master:
            return self._send_to_master(sender, run, effects, is_next)
        if route.addressed:
            return self._send_addressed(sender, run, effects, work)
        self._broadcast(sender, run, effects)
        return self._accept(sender, run, effects)

    def check_master(self, sender: Client) -> None:
        """Drops what a slave has begun to write if there is no master to read it.

        Raises:
            NobodyReads: so it is.
        """
        if not self.listener:
            sender.begin_anew()
            raise NobodyReads("the channel has no master that reads")

    @property
    def listener(self) -> Client | None:
        """The master, if it reads, and takes more."""
        return self.master if self.master and self.master.access.reads and not self.is_shut else None

    @property
    def room(self) -> tuple[int, int]:
        """For how many bytes, and for how many messages, the master has place."""
        return (self.master.mailbox.room, self.master.mailbox.places) if self.master else (0, 0)

    def _accept(self, sender: Client, run: Run, effects: Effects) -> int:
        size = len(run.data)
        self.mtime = effects.now
        sender.sent += run.messages
        self.messages_in += run.messages
        self.bytes_in += size
        return size

    def _broadcast(self, sender: Client, run: Run, effects: Effects) -> None:
        if len(self.readers) <= READERS_AT_ONCE:
            self._deliver_to_all(self.readers.values(), sender, run, effects)
            return
        self.broadcast = Broadcast(self, sender, run)
        try:
            self.go_on(effects)
        except Exception as error:  # no memory, say
            if not self.broadcast.at:  # it has reached nobody, and nobody would go on with it
                self.broadcast = None
                raise
            effects.failure = error

    def _deliver_to_all(self, readers: Iterable[Client], sender: Client, run: Run, effects: Effects) -> None:
        """Has a broadcast reach readers, or as many of them as is enough for one step: then the others get it later."""
        # Client.deliver, spelled out: with thousands of readers the call costs more than what it does.
        reached = attended = 0
        enough = effects.work + BROADCAST_WORK
        if (unrecorded := self.unrecorded) is not None:
            readers = [*readers]
            for reader in readers:
                unrecorded.keep(reader)
        for reader in readers:
            if reader is sender:
                continue
            try:
                calls_for_more = reader.mailbox.put(run)
                reached += 1
                if calls_for_more:
                    attended += 1
                    reader.attend(effects)
                    if effects.work + attended >= enough and self._put_off(sender, run, reader, effects):
                        break
            except Exception as error:
                # No memory, say. The others are not to miss it, nor to get it twice because its sender tries again.
                effects.failure = error
        try:
            self.copies += run.messages * reached
            effects.work += (reached >> 3) + attended
        except MemoryError as error:  # they have it
            effects.failure = error

    def _put_off(self, sender: Client, run: Run, last: Client, effects: Effects) -> bool:
        """Has a broadcast reach the others later. Returns whether it does: there may be no memory for that.

        Args:
            sender: whose it is.
            run: its messages.
            last: the reader that it has come to.
            effects: as ever.
        """
        broadcast = self.broadcast
        try:
            if broadcast is None:
                broadcast = Broadcast(self, sender, run)
                effects.later.append(broadcast)
        except MemoryError:
            return False
        broadcast.at = broadcast.readers.index(last) + 1
        self.broadcast = broadcast
        return True

    def go_on(self, effects: Effects) -> None:
        """Has the broadcast that is on its way reach the next readers."""
        broadcast = self.broadcast
        if broadcast is None:
            return
        # First what there may be no memory for. Some may have closed since.
        end = broadcast.at + READERS_AT_ONCE
        there = [reader for reader in broadcast.readers[broadcast.at : end] if self.readers.get(reader.id) is reader]
        effects.later.append(broadcast)
        behind = Behind(self)
        begin, broadcast.at = broadcast.at, end
        try:
            self._deliver_to_all(there, broadcast.sender, broadcast.run, effects)
        except BaseException:  # before the first of them
            broadcast.at = begin
            raise
        if broadcast.at >= len(broadcast.readers):
            at = effects.later.index(broadcast)
            if self.behind and not self.is_calling:
                effects.later[at] = behind
                self.is_calling = True
            else:
                del effects.later[at]
            self.broadcast = None

    def call_behind(self, effects: Effects) -> None:
        """Has the first of those who wait for a broadcast go on, if there is one and nothing is in its way."""
        if self.behind and not self.is_calling and not self.broadcast:
            self.is_calling = True
            effects.later.append(Behind(self))

    def _send_to_master(self, sender: Client, run: Run, effects: Effects, is_next: bool) -> int:
        """A slave's messages, as many as the master has places for."""
        master = self.master
        assert master is not None
        prefix = address.sender(sender.id) if sender.route.stamped else b""
        if self.blocked and not is_next:
            self._note_need(sender, len(prefix) + run.data.find(b"\n") + 1)
            return 0
        accepted = 0
        while run.messages:
            stamped = _stamped(prefix, run)
            fitting = master.mailbox.fitting(stamped)
            if fitting is None:
                self._note_need(sender, stamped.data.find(b"\n") + 1)
                break
            if sender.needs:
                if not master.mailbox.fits(sender.needs):
                    sender.overtaken = min(sender.needs, sender.overtaken or sender.needs)
                sender.needs = 0
                if not sender.overtaken:
                    self.needy.discard(sender)
            try:
                master.deliver(fitting, effects)
            except Exception as error:
                if not accepted:
                    raise
                effects.failure = error
                break
            if fitting.messages == run.messages:
                return accepted + self._accept(sender, run, effects)
            # A read that waited may have made room for more.
            size = length_of(run.data, fitting.messages)
            accepted += self._accept(sender, Run(run.data[:size], fitting.messages), effects)
            run = Run(run.data[size:], run.messages - fitting.messages)
        return accepted

    def _note_need(self, sender: Client, size: int) -> None:
        self.needy.add(sender)
        sender.needs = size

    def _send_addressed(self, sender: Client, run: Run, effects: Effects, work: int | None) -> int:
        """Messages that name their receiver: an A channel's, and an S master's."""
        stamp = address.sender(sender.id) if sender.route.stamped else b""
        if same := address.split_run(run):
            target, texts = same
            self._deliver_to(target, sender, _stamped(stamp, Run(texts, run.messages)), effects)
            return self._accept(sender, run, effects)
        accepted, size = 0, len(run.data)
        while accepted < size:
            if (work is not None and effects.work >= work and accepted) or self.broadcast:
                effects.is_unfinished = True
                break
            effects.work += 1
            line = run.data[accepted : run.data.index(b"\n", accepted) + 1]
            try:
                target, text = address.split(line)
                # An S master's address without a text is an empty message, for which there must be a receiver all the same.
                message = None if stamp + text == b"\n" else Run(stamp + text, 1)
                self._deliver_to(target, sender, message, effects)
            except BusError:
                if accepted:
                    break
                raise
            except Exception as error:
                if not accepted:
                    raise
                effects.failure = error  # those before have arrived, and are not to be written again
                break
            if message is not None:
                self._accept(sender, Run(line, 1), effects)
            accepted += len(line)
        return accepted

    def _deliver_to(self, target: int | None, sender: Client, run: Run | None, effects: Effects) -> None:
        """Delivers to the client addressed, or to all; no run just looks for the receiver."""
        receiver = None if target is None else self._reader(target)
        if run is None:
            return
        if receiver is None:
            self._broadcast(sender, run, effects)
        else:
            receiver.deliver(run, effects)

    def _reader(self, client_id: int) -> Client:
        """The client that a message is addressed to."""
        client = self.clients.get(client_id)
        if client is None or client.role is Role.MASTER:
            raise NoSuchClient(f"no client {{{client_id:x}}} on the channel")
        if not client.access.reads:
            raise NobodyReads(f"client {{{client_id:x}}} does not read")
        return client

    # ------------------------------------------------------------------------------------------ readiness

    def is_writable(self, client: Client) -> bool:
        """Whether a write of this client would not wait."""
        if client.writing and (client.was_told_to_wait or client.waiting_write):
            return False
        master = self.listener
        if not client.route.to_master or master is None:
            return True
        if self.blocked or master.mailbox.is_full:
            return False
        return not client.needs or master.mailbox.fits(client.needs)

    def note_told(self, client: Client) -> None:
        """A poller of the client hears that it is writable: only the next change is news."""
        client.needs = 0
        client.was_told_to_wait = False
        if client.overtaken and self._finds_place(client.overtaken):
            client.overtaken = 0
        if not client.overtaken:
            self.needy.discard(client)

    def _finds_place(self, size: int) -> bool:
        """Whether a message of that size finds a place at the master, if there is one."""
        master = self.listener
        return master is None or master.mailbox.fits(size)

    def tell_writable(self, was_full: bool, effects: Effects) -> None:
        """After the master has read: wakes the pollers of the slaves that can write again and could not before."""
        if self.blocked or self.is_shut:
            return  # these come first, and when the last of them is served, everybody is looked at; or all know the end
        # A service with thousands of slaves that only wait for answers looks at none of them for each question.
        for client in list(self.armed_slaves if was_full else self.armed_slaves & self.needy):
            if client.waiting_write:
                client.was_told_to_wait = True  # then when that has ended
            elif self.is_writable(client) and (was_full or client.needs or self._finds_place(client.overtaken)):
                client.wake_poller(effects)
                self.note_told(client)


def _stamped(stamp: bytes, run: Run) -> Run:
    """The run with `stamp` in front of each message."""
    if not stamp:
        return run
    return Run(stamp + run.data[:-1].replace(b"\n", b"\n" + stamp) + b"\n", run.messages)
