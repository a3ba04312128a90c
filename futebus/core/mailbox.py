"""rlist and rbuf: the messages that wait for one client, oldest first and bounded, and the one that it is reading.

Messages wait as the runs that they were written in, shared by all who get them; a mailbox only remembers how far into its
oldest run it is.
"""

from collections import deque
from itertools import islice

from .framing import Run, length_of
from .lines import end, lines

# Thousands of mailboxes that hold the same are cut at the same place, one after the other: so the last answers are kept.
_last_cut: tuple[bytes, int, int, int] = b"", 0, 0, 0
_last_count: tuple[bytes, int, int, int] = b"", 0, 0, 0

CONTROL_BYTES = 4096
"""How long a run of control messages gets: one of them alone in a run takes ten times its own size."""


def _cut(data: bytes, begin: int, count: int) -> int:
    """Where, in `data`, the first `count` messages behind `begin` end."""
    global _last_cut
    last, last_begin, last_count, stop = _last_cut
    if last is not data or last_begin != begin or last_count != count:
        stop = end(data, begin, count)
        _last_cut = data, begin, count, stop
    return stop


def _count(data: bytes, begin: int, stop: int) -> int:
    """How many messages, none of them empty, there are in `data` from `begin` up to `stop`, where one ends."""
    global _last_count
    last, last_begin, last_stop, count = _last_count
    if last is not data or last_begin != begin or last_stop != stop:
        count, _ = lines(data, begin, stop)
        _last_count = data, begin, stop, count
    return count


OWN_BYTES = 4096
"""A message that is read in pieces keeps the run that it came in, unless it is shorter than this: then it is copied."""

_JOINED_AT_ONCE = 1024

_MANY_RUNS = 64
"""Behind how many that are dropped one after the other it is looked whether all must go."""

RUNS_AT_ONCE = 2048
"""How many runs one bulk read hands out at most: a millisecond's worth. Tens of thousands of messages may each be a run."""


class Mailbox:
    """One client's rlist and rbuf.

    `messages` and `size` (bytes) are what waits in rlist and counts towards the limits, `controls` and `control_size` the control
    messages among them, which do not. rbuf is the rest of a message that a reader has begun.
    """

    __slots__ = (
        "_at",
        "_begun",
        "_end",
        "_gone",
        "_max_messages",
        "_max_size",
        "_message",
        "_runs",
        "control_size",
        "controls",
        "messages",
        "size",
    )

    def __init__(self, max_messages: int, max_size: int) -> None:
        self._max_messages = max_messages
        self._max_size = max_size
        self._runs: deque[Run] = deque()
        self._begun = 0  # bytes of the oldest run that are gone
        self._gone = 0  # messages of the oldest run that are gone
        self.messages = 0
        self.size = 0
        self.controls = 0
        self.control_size = 0
        # rbuf: what lies in _message from _at up to _end. A reader that takes a long message in small pieces copies only these.
        self._message = b""
        self._at = self._end = 0

    @property
    def rbuf(self) -> bytes:
        """The rest of the message that is being read."""
        return self._message[self._at : self._end]

    @property
    def rbuf_size(self) -> int:
        """How many bytes that is."""
        return self._end - self._at

    def __bool__(self) -> bool:
        """Whether a read finds something."""
        return bool(self._runs) or self._end > 0

    @property
    def was_empty(self) -> bool:
        """Whether a read would have found nothing before the last `put`."""
        return len(self._runs) == 1 and not self._end

    @property
    def is_full(self) -> bool:
        """Whether not even a message of one byte would fit."""
        return self.messages >= self._max_messages or self.size >= self._max_size

    @property
    def room(self) -> int:
        """How many bytes are free."""
        return max(self._max_size - self.size, 0)

    @property
    def places(self) -> int:
        """How many messages may still be added."""
        return max(self._max_messages - self.messages, 0)

    def has_whole(self, size: int) -> bool:
        """Whether the first message is no longer than `size` bytes, and nobody has begun it."""
        return not self._end and bool(self._runs) and self._runs[0].data.find(b"\n", self._begun, self._begun + size) >= 0

    def fits(self, size: int) -> bool:
        """Whether a message of `size` bytes fits. An empty rlist takes a message of any size."""
        return not self.messages or (self.messages < self._max_messages and self.size + size <= self._max_size)

    def fitting(self, run: Run) -> Run | None:
        """The first messages of `run`, as many as fit; None if not even one does."""
        data, count = run
        free = self._max_messages - self.messages
        space = self.room
        if count <= free and len(data) <= space:
            return run
        if free <= 0:
            return None
        stop = length_of(data, free) if count > free else len(data)
        if stop > space:
            stop = data.rfind(b"\n", 0, space) + 1
            if not stop and not self.messages:
                stop = data.find(b"\n") + 1
        if not stop:
            return None
        return Run(data[:stop], lines(data, 0, stop)[0])

    def put(self, run: Run) -> bool:
        """Adds messages behind the others, whatever the limits: see `fitting` and `drop_oldest`.

        Returns:
            Whether that calls for more: the mailbox was empty and somebody may wait for it, or it may be over its limits. A
            broadcast puts a message into thousands of mailboxes, of which hardly one does.
        """
        runs = self._runs
        data, messages = run
        runs.append(run)  # first: there may be no memory for it
        self.messages = messages = self.messages + messages
        self.size = size = self.size + len(data)
        return len(runs) == 1 or messages > self._max_messages or size > self._max_size

    def put_control(self, message: bytes) -> None:
        """Adds a control message: in order with the others, counted apart, in a run that counts no messages."""
        runs = self._runs
        if runs and not runs[-1].messages and len(runs[-1].data) < CONTROL_BYTES:
            runs[-1] = Run(runs[-1].data + message, 0)
        else:
            runs.append(Run(message, 0))
        self.controls += 1
        self.control_size += len(message)

    def drop_oldest(self) -> tuple[int, int]:
        """Drops the oldest messages of rlist until it is within its limits; the newest always stays.

        Returns:
            How many were dropped, and what that has cost, as in `Effects.work`: tens of thousands of messages may each be a run.
        """
        before = self.messages
        runs = work = 0
        while (surplus := self.messages - self._max_messages) > 0 or (self.size > self._max_size and self.messages > 1):
            data, count = self._runs[0]
            surplus_size = self.size - self._max_size
            left = count - self._gone
            left_size = len(data) - self._begun
            if left < self.messages and (surplus >= left or surplus_size >= left_size):
                self.messages -= left
                self.size -= left_size
                self._runs.popleft()
                self._begun = self._gone = 0
                runs += 1
                if runs == _MANY_RUNS:
                    work += self._drop_all_but_the_newest_run()
                continue
            last_cut, last_count = _last_cut, _last_count
            stop = self._begun
            if surplus > 0:
                stop = _cut(data, self._begun, surplus)
            if surplus_size > stop - self._begun:
                stop = data.find(b"\n", self._begun + surplus_size - 1) + 1
            if stop == len(data) and left == self.messages:
                stop = data.rfind(b"\n", 0, -1) + 1
            dropped = _count(data, self._begun, stop)
            if _last_cut is not last_cut or _last_count is not last_count:
                work += (stop - self._begun) >> 10
            self._drop_up_to(stop, dropped)
        return before - self.messages, work + (runs >> 3)

    def _drop_all_but_the_newest_run(self) -> int:
        """Drops the others if that alone is as much as there may be, so that they all go anyway. Returns what that has cost."""
        newest = self._runs[-1]
        count, size, others = newest.messages, len(newest.data), len(self._runs) - 1
        if not others or (count < self._max_messages and size < self._max_size):
            return 0
        self._runs.clear()
        self._runs.append(newest)  # into the block that it has kept
        self.messages, self.size = count, size
        self._begun = self._gone = 0
        return others >> 6

    def read(self, size: int, bulk: bool) -> tuple[bytes, int] | None:
        """Reads.

        Args:
            size: how many bytes at most, at least 1.
            bulk: whether one call may return many messages, whole ones, rather than at most one.

        Returns:
            The bytes, and how many messages left rlist for them; None when nothing waits.
        """
        if self._end:
            stop = min(self._at + size, self._end)
            piece = self._message[self._at : stop]
            self._at = stop
            if stop == self._end:
                self._message = b""
                self._at = self._end = 0
            return piece, 0
        if not self._runs:
            return None
        if bulk and (many := self._read_many(size)):
            return many
        data, count = self._runs[0]
        begin = self._begun
        stop = data.find(b"\n", begin) + 1
        length = stop - begin
        # First what needs memory: if there is none, the message stays where it is.
        piece = data[begin : begin + min(size, length)]
        message, at = (data, begin + size) if length > OWN_BYTES else (data[begin:stop], size)
        if count:
            self._drop_up_to(stop, 1)
        else:
            self._drop_controls_up_to(stop, 1)
        if length > size:
            self._message, self._at, self._end = message, at, at + length - size
        return piece, 1

    def _read_many(self, size: int) -> tuple[bytes, int] | None:
        """As many whole messages as fit into `size` bytes, or None if the first alone does not."""
        pieces: list[bytes] = []
        begin, left = self._begun, size
        messages, controls, control_size = -self._gone, 0, 0
        part = b""
        for data, count in islice(self._runs, RUNS_AT_ONCE):
            length = len(data) - begin
            if length > left:
                part = data[begin : data.rfind(b"\n", begin, begin + left) + 1]
                break
            pieces.append(data[begin:] if begin else data)
            messages += count
            if not count:
                controls += pieces[-1].count(b"\n")
                control_size += length
            left -= length
            begin = 0
            if not left:
                break
        if not pieces and not part:
            return None
        whole = len(pieces)
        many = _joined([*pieces, part] if part else pieces)
        # Only now, and with nothing in it that needs memory to speak of: what cannot be handed out stays.
        if whole:
            for _ in range(whole):
                self._runs.popleft()
            self.messages -= messages
            self.size -= size - left - control_size
            self.controls -= controls
            self.control_size -= control_size
            self._begun = self._gone = 0
        else:
            messages = 0
        if part:
            stop = self._begun + len(part)
            if self._runs[0].messages:
                some, _ = lines(part, 0, len(part))
                self._drop_up_to(stop, some)
                messages += some
            else:
                some = part.count(b"\n")
                self._drop_controls_up_to(stop, some)
                controls += some
        return many, messages + controls

    def _drop_up_to(self, stop: int, messages: int) -> None:
        """Drops so many messages of the oldest run, those that end at or before its byte `stop`."""
        self.messages -= messages
        self.size -= stop - self._begun
        if stop == len(self._runs[0].data):
            self._runs.popleft()
            self._begun = self._gone = 0
        else:
            self._begun = stop
            self._gone += messages

    def _drop_controls_up_to(self, stop: int, controls: int) -> None:
        """The same of control messages."""
        self.controls -= controls
        self.control_size -= stop - self._begun
        self._begun = stop
        if stop == len(self._runs[0].data):
            self._runs.popleft()
            self._begun = 0


def _joined(pieces: list[bytes]) -> bytes:
    """All of them in a row. Not at once if they are many: join() needs 80 bytes for each."""
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces) <= _JOINED_AT_ONCE:
        return b"".join(pieces)
    return b"".join([b"".join(pieces[begin : begin + _JOINED_AT_ONCE]) for begin in range(0, len(pieces), _JOINED_AT_ONCE)])
