"""One open file description on a channel: its three buffers, its counts, and the calls of it that wait."""

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from .errors import Broken, BusError
from .framing import Run, WriteBuffer
from .halves import Halves
from .kinds import ROUTES, Role
from .mailbox import Mailbox

if TYPE_CHECKING:
    from .channel import Behind, Broadcast, Channel

Token = object
"""What a caller names a waiting call by. The core only keeps it and hands it back."""


class Access(NamedTuple):
    """What a client was opened for."""

    reads: bool
    writes: bool


class Owner(NamedTuple):
    """Who opens: user, group and process."""

    uid: int
    gid: int
    pid: int


class Readiness(NamedTuple):
    """What a poller of a client is told: see the table of poll conditions in futebus(7)."""

    readable: bool
    hung_up: bool
    writable: bool
    broken: bool


class Waiting(NamedTuple):
    """A read that waits."""

    token: Token
    client: "Client"
    since: int
    """When it began, in nanoseconds."""
    size: int
    """How many bytes it asked for."""


class Piece(NamedTuple):
    """Which part of a longer write the bytes are: it may come in several, and whose they are is known by who writes them."""

    who: object
    begin: int
    """Where in the whole they begin."""
    may_go_on: bool
    """Whether there may be more behind them."""
    continues: bool = False
    """Whether nobody has written between the piece before and them."""


class Write:
    """A write that is not done yet: it waits for the master, for its next turn, or for an earlier write of the same client."""

    __slots__ = ("answer", "client", "data", "is_counted", "is_further", "may_wait", "number", "piece", "since", "taken", "token")

    def __init__(
        self,
        token: Token,
        client: "Client",
        since: int,
        data: bytes,
        taken: int,
        *,
        may_wait: bool,
        piece: Piece | None = None,
        is_further: bool = False,
        number: int = 0,
    ) -> None:
        self.token = token
        self.client = client
        self.since = since
        """When it began, in nanoseconds."""
        self.data = data
        self.taken = taken
        """How many bytes of `data` have been accepted."""
        self.may_wait = may_wait
        """Whether it waits for the master; else it ends when there is no place."""
        self.is_counted = False
        """Whether its bytes count as its user's: it came while the client had another write."""
        self.piece = piece
        """Which part of a longer one it is; None if it is whole."""
        self.is_further = is_further
        """Whether it goes on with what the piece before has begun."""
        self.number = number
        """How many had stood behind others when it did, it included; 0 since its turn has come."""
        self.answer: int | BusError | None = None
        """What it ends with, if that is known and there was no memory to end it."""


class Rest(Write):
    """What may still come of a write of which a piece has been taken. The client's other writes wait for it, as for the piece."""

    __slots__ = ()

    def __init__(self, client: "Client", since: int, who: object, begin: int) -> None:
        super().__init__(object(), client, since, b"", 0, may_wait=True, piece=Piece(who, begin, may_go_on=True))


class Effects:
    """What else came of a call, made at `now`. False when nothing did."""

    __slots__ = ("failure", "finished", "held", "is_unfinished", "later", "now", "ready", "work")

    def __init__(self, now: int) -> None:
        self.now = now
        self.work = 0
        """What the call has cost so far, in about the time that one message to one client takes (2 µs)."""
        self.is_unfinished = False
        """Whether a write took less than it could, so that others get their turn."""
        self.later: list[Token | Channel | Broadcast | Behind] = []
        """What is to be gone on with after others had their turn: see `Bus.go_on`."""
        self.failure: Exception | None = None
        """What has gone wrong inside with a call of somebody else, who is told `Broken`."""
        self.finished: list[tuple[Token, bytes | int | BusError]] = []
        """Waiting calls that have ended, in order: what a read got, how many bytes a write had accepted, or the error."""
        self.ready: list[Client] = []
        """Clients that became ready since they were armed by `Bus.poll`: whoever polls them must look again."""
        self.held: list[Client] = []
        """Clients of which somebody waits for the `Rest` of another's write: see `Bus.end_rest`."""

    def __bool__(self) -> bool:
        return bool(self.finished or self.ready or self.later or self.held or self.failure)


class Client:
    """One open file description.

    The counts are of whole messages: `sent` were accepted from it, `received` it has read (or begun to), `dropped` were pushed
    out of its full rlist.
    """

    __slots__ = (
        "access",
        "bulk",
        "channel",
        "dropped",
        "halves",
        "id",
        "is_armed",
        "mailbox",
        "needs",
        "opened_at",
        "overtaken",
        "owner",
        "reading",
        "received",
        "role",
        "route",
        "sent",
        "was_told_no",
        "was_told_to_wait",
        "wbuf",
        "writing",
    )

    def __init__(
        self,
        channel: "Channel",
        client_id: int,
        role: Role,
        access: Access,
        owner: Owner,
        *,
        bulk: bool,
        opened_at: int,
    ) -> None:
        limits = channel.limits
        self.channel = channel
        self.id = client_id
        self.role = role
        self.route = ROUTES[channel.kind.letter, role]
        self.access = access
        self.owner = owner
        self.bulk = bulk
        self.opened_at = opened_at
        self.wbuf = WriteBuffer(limits.max_message)
        self.halves: Halves | None = None
        """What interrupted writes have begun, if any have."""
        # A client that does not read has a mailbox that stays empty.
        self.mailbox = Mailbox(limits.max_queue, limits.max_queue_bytes)
        self.reading: OrderedDict[Token, Waiting] = OrderedDict()
        """Reads that wait, the oldest first. Threads may have thousands, and a signal may end any of them."""
        self.writing: deque[Write] = deque()
        """Writes that are not done yet, the oldest first. Processes that share the description may have one each."""
        self.was_told_no = False
        """Whether who polled last was told that it is not writable, whatever for."""
        self.was_told_to_wait = False
        """Whether somebody was told that it is not writable because of these."""
        self.is_armed = False
        self.needs = 0
        """The size of the message that last found no place at the master; 0 once one was accepted, or a poller was told."""
        self.overtaken = 0
        """The size of one that had found none when a shorter one was accepted: who waits for the change has not heard of one."""
        self.sent = self.received = self.dropped = 0

    @property
    def may_wait(self) -> bool:
        """Whether a write of this client can come to wait: a slave's can, for the master."""
        return self.access.writes and self.route.to_master

    @property
    def rest(self) -> Rest | None:
        """What may still come of a write by this description, before all others."""
        first = self.writing[0] if self.writing else None
        return first if isinstance(first, Rest) else None

    @property
    def waiting_write(self) -> Write | None:
        """The first write that waits for anything."""
        return next((write for write in self.writing if not isinstance(write, Rest)), None)

    def begin_anew(self) -> None:
        """What was begun has been accepted, or is dropped."""
        self.wbuf.finish()
        if self.halves:
            self.halves.owner = None

    def keep(self) -> None:
        """What is seen of it from outside is about to change: see `Channel.unrecorded`."""
        unrecorded = self.channel.unrecorded
        if unrecorded is not None:
            unrecorded.keep(self)

    def deliver(self, run: Run, effects: Effects) -> None:
        """Puts messages into rlist, hands them to reads that wait, and drops the oldest if that is too many."""
        self.keep()
        calls_for_more = self.mailbox.put(run)
        self.channel.copies += run.messages
        if calls_for_more:
            self.attend(effects)

    def attend(self, effects: Effects) -> None:
        """Does what `Mailbox.put` has called for."""
        mailbox = self.mailbox
        if mailbox.was_empty:
            self._became_readable(effects)
        if self.role is not Role.MASTER:
            dropped, work = mailbox.drop_oldest()
            self.dropped += dropped
            self.channel.dropped += dropped
            effects.work += work

    def deliver_control(self, message: bytes, effects: Effects) -> None:
        """Puts a control message into rlist, past flow control."""
        self.keep()
        was_readable = bool(self.mailbox)
        self.mailbox.put_control(message)
        self.channel.copies += 1
        if not was_readable:
            self._became_readable(effects)

    def _became_readable(self, effects: Effects) -> None:
        while self.reading and self.mailbox:
            waiting = next(iter(self.reading.values()))
            answer: bytes | BusError | None
            try:
                answer = self.take(waiting.size, effects.now)
            except Exception as error:
                # No memory, say. The message stays for the next read, and nobody waits for ever.
                effects.failure, answer = error, Broken()
            assert answer is not None
            effects.finished.append((waiting.token, answer))
            del self.reading[waiting.token]
        if self.mailbox:
            self.wake_poller(effects)

    def take(self, size: int, now: int) -> bytes | None:
        """Reads up to `size` bytes; None if there is nothing."""
        taken = self.mailbox.read(size, self.bulk)
        if taken is None:
            return None
        piece, messages = taken
        self.received += messages
        self.channel.atime = now
        self.channel.messages_out += messages
        self.channel.bytes_out += len(piece)
        return piece

    def wake_poller(self, effects: Effects) -> None:
        """Tells whoever polls this client, once for each time it was armed."""
        if self.is_armed:
            effects.ready.append(self)
            self.is_armed = False
            self.channel.armed_slaves.discard(self)

    def is_over(self, *, is_shutting_down: bool) -> bool:
        """Whether no message will come for it any more."""
        if self.role is Role.MASTER:
            return self.channel.is_shut or is_shutting_down
        # What is still on its way to some of the readers comes before their end.
        return (self.channel.is_dead or is_shutting_down) and not self.channel.broadcast

    def readiness(self, *, is_shutting_down: bool) -> Readiness:
        """What it could do without waiting. It counts as told."""
        reads, writes = self.access
        is_over = self.is_over(is_shutting_down=is_shutting_down)
        refuses = is_shutting_down or (self.channel.is_shut and self.role is Role.SLAVE)
        waits = bool(self.mailbox)
        writable = writes and (refuses or self.channel.is_writable(self))
        self.was_told_no = writes and not writable
        if writable:
            self.channel.note_told(self)
        elif self.waiting_write:
            self.was_told_to_wait = True
        return Readiness(
            readable=reads and (waits or is_over),
            hung_up=reads and is_over and not waits,
            writable=writable,
            broken=writes and refuses,
        )

    def end_reads(self, effects: Effects) -> None:
        """No message will come any more: reads that wait get end of file."""
        self.keep()
        effects.finished.extend((token, b"") for token in self.reading)
        self.reading.clear()
