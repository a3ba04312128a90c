r"""What waits to be sent to one peer.

The one rule: it is bounded. When it is full the oldest messages are dropped and counted, as the bus does with a reader that is
slow; answers never are, so who does not read them is not listened to.
"""

from collections import deque

import trio

from ...core.text import counted

ENTRY = 128
"""Bytes that a piece counts beside its own: what Python needs to keep it. Else a queue of short lines took thirty times its
limit."""

SENT = 256 * 1024
"""Bytes that are sent at once. What is being sent cannot be dropped any more; 64 KiB are a third slower."""

MAX_ANSWERS = 64 * 1024
"""Bytes of answers that may wait. Who does not read them waits with his next command: `help` has a hundredth of it."""


class Outbox:
    """The queue of a peer.

    Args:
        most: bytes of messages that may wait.
    """

    def __init__(self, most: int) -> None:
        self.lost = 0
        """Messages that were dropped."""
        self._most = most
        self._pieces: deque[tuple[bytes, bool]] = deque()
        """Whole lines, and whether they are answers."""
        self._start = 0
        """Up to where the first piece is gone: a line's beginning."""
        self._size = 0
        self._answers = 0
        self._untold = 0
        self._untold_unseen = 0
        self._untold_by_bus = 0
        self._changed = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._pieces or self._untold or self._untold_unseen or self._untold_by_bus)

    @property
    def size(self) -> int:
        """Bytes of messages that wait, with what they cost beside."""
        return self._size

    @property
    def is_unread(self) -> bool:
        """Whether the peer should read answers before it asks for more."""
        return self._answers > MAX_ANSWERS

    def put(self, messages: bytes) -> None:
        """Queues whole messages. If there is no place, the oldest that wait are dropped; the last is always kept."""
        self._pieces.append((messages, False))
        self._size += len(messages) + ENTRY
        if self._size > self._most:
            self._drop()
        self.wake()

    def answer(self, words: str) -> None:
        """Queues a line or more of the server's own."""
        data = words.encode("utf-8", "backslashreplace")
        self._pieces.append((data, True))
        self._answers += len(data) + ENTRY
        self.wake()

    def count_unseen(self, messages: int) -> None:
        """Notes that messages were dropped before it was known whether they were wanted."""
        self.lost += messages
        self._untold_unseen += messages
        self.wake()

    def count_unread(self, lines: int) -> None:
        """Notes that the bus has dropped lines before anybody here saw them. It is no fault of the peer's."""
        self._untold_by_bus += lines
        self.wake()

    def take(self) -> bytes:
        """Takes up to `SENT` bytes of whole lines, or one line that is longer; nothing if nothing waits."""
        taken = []
        left = SENT
        if self._untold:
            taken.append(f"lost {counted(self._untold, 'message')}: you read too slowly\n".encode())
            self._untold = 0
        if self._untold_unseen:
            what = counted(self._untold_unseen, "message")
            taken.append(f"lost at most {what}: your subscriptions take too long\n".encode())
            self._untold_unseen = 0
        if self._untold_by_bus:
            what = counted(self._untold_by_bus, "message")
            taken.append(f"lost at most {what}: more was said than the gateway could take\n".encode())
            self._untold_by_bus = 0
        while self._pieces and left > 0:
            data, is_answer = self._pieces[0]
            stop = len(data)
            if stop - self._start > left:
                stop = data.rfind(b"\n", self._start, self._start + left) + 1
                if not stop:
                    if taken:
                        break
                    stop = data.find(b"\n", self._start + left) + 1
            taken.append(data[self._start : stop] if self._start or stop < len(data) else data)
            left -= stop - self._start
            self._shorten(stop - self._start, is_answer)
            if stop == len(data):
                self._forget(is_answer)
            else:
                self._start = stop
        self.wake()
        return taken[0] if len(taken) == 1 else b"".join(taken)

    async def change(self) -> None:
        """Waits until something is put into it, taken out of it, or somebody says `wake`."""
        await self._changed.wait()

    def wake(self) -> None:
        """Wakes who waits for a change."""
        if self._changed.statistics().tasks_waiting:
            self._changed.set()
            self._changed = trio.Event()

    def _shorten(self, length: int, is_answer: bool) -> None:
        if is_answer:
            self._answers -= length
        else:
            self._size -= length

    def _forget(self, is_answer: bool) -> None:
        """The first piece is gone."""
        self._pieces.popleft()
        self._start = 0
        self._shorten(ENTRY, is_answer)

    def _drop(self) -> None:
        """Drops the oldest messages until the rest has a place."""
        answers = b""
        lost = 0
        while self._size > self._most:
            data, is_answer = self._pieces[0]
            if is_answer:  # kept, in one piece with others: there is never more than one to step over again
                answers += data[self._start :]
                self._answers -= ENTRY
                self._pieces.popleft()
                self._start = 0
                continue
            is_last = len(self._pieces) == 1
            need = self._start + self._size - self._most
            stop = data.find(b"\n", need - 1) + 1 if need < len(data) else len(data)
            if is_last:
                stop = min(stop, data.rfind(b"\n", 0, -1) + 1)
            if stop > self._start:
                lost += data.count(b"\n", self._start, stop)
                self._size -= stop - self._start
                self._start = stop
            if stop == len(data):
                self._forget(is_answer=False)
            elif is_last:
                break
        if answers:
            if self._start:  # what is before it must be a piece from its beginning on
                data, is_answer = self._pieces[0]
                self._pieces[0], self._start = (data[self._start :], is_answer), 0
            self._pieces.appendleft((answers, True))
            self._answers += ENTRY
        if lost:
            self.lost += lost
            self._untold += lost
