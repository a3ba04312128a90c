"""rlist and rbuf: the messages that wait for one client, oldest first and bounded, and the one that it is reading.

Messages wait as the runs that they were written in, shared by all who get them; a mailbox only remembers how far into its
oldest run it is.
"""

from collections import deque

from ._scan import end, lines
from .framing import Run, length_of

_last_cut: tuple[bytes, int, int, int] = b"", 0, 0, 0


def _cut(data: bytes, begin: int, count: int) -> int:
    """Where, in `data`, the first `count` messages behind `begin` end.

    Thousands of mailboxes that hold the same are cut at the same place, one after the other: so the last answer is kept.
    """
    global _last_cut
    last, last_begin, last_count, stop = _last_cut
    if last is not data or last_begin != begin or last_count != count:
        stop = end(data, begin, count)
        _last_cut = data, begin, count, stop
    return stop


class Mailbox:
    """One client's rlist and rbuf.

    `messages` and `size` (bytes) are what waits in rlist and counts towards the limits, `controls` and `control_size` the control
    messages among them, which do not. rbuf is the rest of a message that a reader has begun.
    """

    __slots__ = ("_begun", "_gone", "_max_messages", "_max_size", "_runs", "control_size", "controls", "messages", "rbuf", "size")

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
        self.rbuf = b""

    def __bool__(self) -> bool:
        """Whether a read finds something."""
        return bool(self._runs) or bool(self.rbuf)

    @property
    def was_empty(self) -> bool:
        """Whether a read would have found nothing before the last `put`."""
        return len(self._runs) == 1 and not self.rbuf

    @property
    def is_full(self) -> bool:
        """Whether not even a message of one byte would fit."""
        return self.messages >= self._max_messages or self.size >= self._max_size

    @property
    def room(self) -> int:
        """How many bytes are free."""
        return max(self._max_size - self.size, 0)

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
        """Adds a control message: in order with the others, counted apart."""
        self._runs.append(Run(message, 0))
        self.controls += 1
        self.control_size += len(message)

    def drop_oldest(self) -> int:
        """Drops the oldest messages of rlist until it is within its limits; the newest always stays.

        Returns:
            How many were dropped.
        """
        before = self.messages
        while self.messages > self._max_messages or (self.size > self._max_size and self.messages > 1):
            data, count = self._runs[0]
            surplus = self.messages - self._max_messages
            surplus_size = self.size - self._max_size
            left = count - self._gone
            if left < self.messages and (surplus >= left or surplus_size >= len(data) - self._begun):
                self._take_rest_of_run()
                continue
            stop = self._begun
            if surplus > 0:
                stop = _cut(data, self._begun, surplus)
            if surplus_size > stop - self._begun:
                stop = data.find(b"\n", self._begun + surplus_size - 1) + 1
            if stop == len(data) and left == self.messages:
                stop = data.rfind(b"\n", 0, -1) + 1
            self._take_up_to(stop)
        return before - self.messages

    def read(self, size: int, bulk: bool) -> tuple[bytes, int] | None:
        """Reads.

        Args:
            size: how many bytes at most, at least 1.
            bulk: whether one call may return many messages, whole ones, rather than at most one.

        Returns:
            The bytes, and how many messages left rlist for them; None when nothing waits.
        """
        if self.rbuf:
            piece = self.rbuf[:size]
            self.rbuf = self.rbuf[size:]
            return piece, 0
        if not self._runs:
            return None
        if bulk and (many := self._read_many(size)):
            return many
        data, count = self._runs[0]
        is_last = count - self._gone <= 1  # of its run; a control message is alone in one
        message = self._take_rest_of_run() if is_last else self._take_up_to(data.find(b"\n", self._begun) + 1)
        if len(message) > size:
            self.rbuf = message[size:]
            message = message[:size]
        return message, 1

    def _read_many(self, size: int) -> tuple[bytes, int] | None:
        """As many whole messages as fit into `size` bytes, or None if the first alone does not."""
        pieces: list[bytes] = []
        before = self.messages + self.controls
        while self._runs:
            data = self._runs[0].data
            if len(data) - self._begun <= size:
                piece = self._take_rest_of_run()
            else:
                stop = data.rfind(b"\n", self._begun, self._begun + size) + 1
                if not stop:
                    break
                piece = self._take_up_to(stop)
            pieces.append(piece)
            size -= len(piece)
            if not size:
                break
        if not pieces:
            return None
        taken = before - self.messages - self.controls
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), taken

    def _take_rest_of_run(self) -> bytes:
        data, count = self._runs.popleft()
        if not count:
            self.controls -= 1
            self.control_size -= len(data)
            return data
        rest = data[self._begun :]
        self.messages -= count - self._gone
        self.size -= len(rest)
        self._begun = self._gone = 0
        return rest

    def _take_up_to(self, stop: int) -> bytes:
        """Takes the messages of the oldest run that end at or before its byte `stop`, where one ends."""
        data, count = self._runs[0]
        piece = data[self._begun : stop]
        taken, _ = lines(data, self._begun, stop)
        if self._gone + taken == count:
            return self._take_rest_of_run()
        self._begun = stop
        self._gone += taken
        self.messages -= taken
        self.size -= len(piece)
        return piece
