"""Who is to get a message. What costs nothing is done at once, the rest in turns.

The one rule: a peer waits for its own subscriptions, not for those of others. Each has a millisecond at a time to be sorted for,
and whoever has more to sort waits for his next turn.
"""

import time
from collections import deque
from collections.abc import Iterator

import trio

from .lines import Block
from .outbox import Outbox
from .subscriptions import Wishes

TURN = 0.001
"""Seconds of one peer's turn, and after which others than sorters are served."""

MAX_ANSWERS_BEHIND = 16
"""Answers that may wait behind messages which are still to be sorted: each is a step to whoever drops some of these."""


class Backlog:
    """What is still to be sorted for one peer, and its way out.

    Args:
        outbox: where it goes.
        most: bytes that may wait to be sorted. Past that the oldest are dropped, unseen.
    """

    def __init__(self, outbox: Outbox, most: int) -> None:
        self.outbox = outbox
        self._most = most
        self._waiting: deque[tuple[Block | str, Wishes]] = deque()
        self._size = 0
        self._answers = 0
        self._work: Iterator[bytes | None] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_unread(self) -> bool:
        """Whether too many answers wait behind what is still to be sorted."""
        return self._answers > MAX_ANSWERS_BEHIND

    def offer(self, block: Block, wishes: Wishes) -> bool:
        """Takes messages for somebody who wants what `wishes` says. Returns whether there is something to be sorted."""
        if wishes.are_all and not self._waiting:
            self.outbox.put(block.data)
            return False
        if wishes.are_none:
            return False
        self._waiting.append((block, wishes))
        self._size += len(block.data)
        while self._size > self._most and len(self._waiting) > 2:
            self._drop_second()
        return True

    def answer(self, words: str, wishes: Wishes) -> None:
        """Has an answer sent, behind what came before it."""
        if self._waiting:
            self._waiting.append((words, wishes))
            self._answers += 1
        else:
            self.outbox.answer(words)

    def _drop_second(self) -> None:
        """Drops the oldest block that is not being sorted."""
        first = self._waiting.popleft()
        answers = []
        while isinstance(self._waiting[0][0], str):
            answers.append(self._waiting.popleft())
        block = self._waiting.popleft()[0]
        assert isinstance(block, Block)
        self._size -= len(block.data)
        self.outbox.count_unseen(block.data.count(b"\n"))
        for answer in reversed(answers):
            self._waiting.appendleft(answer)
        self._waiting.appendleft(first)

    def sort(self, end: float) -> None:
        """Sorts for so long: until `time.perf_counter()` tells `end`, or nothing is left."""
        while self._waiting:
            what, wishes = self._waiting[0]
            if isinstance(what, str):
                self._answers -= 1
                self.outbox.answer(what)
            else:
                self._work = self._work or wishes.select(what)
                for messages in self._work:
                    if messages is None:
                        if time.perf_counter() > end:
                            return
                    elif messages:
                        self.outbox.put(messages)
                self._work = None
                self._size -= len(what.data)
            self._waiting.popleft()
            if time.perf_counter() > end:
                break
        if not self._waiting:
            self.outbox.wake()  # somebody may wait for the last of it


class Sorter:
    """Has all backlogs sorted, in turns."""

    def __init__(self) -> None:
        self._turns: deque[Backlog] = deque()
        self._there: set[Backlog] = set()
        self._wanted = trio.Event()

    def add(self, backlog: Backlog) -> None:
        """Has a backlog sorted until nothing is left of it."""
        if backlog not in self._there:
            self._there.add(backlog)
            self._turns.append(backlog)
            self._wanted.set()

    def remove(self, backlog: Backlog) -> None:
        """Its peer has gone."""
        if backlog in self._there:
            self._there.discard(backlog)
            self._turns.remove(backlog)

    async def run(self) -> None:
        """Sorts for ever."""
        while True:
            await self._wanted.wait()
            end = time.perf_counter() + TURN
            while self._turns:
                backlog = self._turns.popleft()
                backlog.sort(time.perf_counter() + TURN)
                if backlog:
                    self._turns.append(backlog)
                else:
                    self._there.discard(backlog)
                if time.perf_counter() > end:
                    break
            if not self._turns:
                self._wanted = trio.Event()
            await trio.lowlevel.checkpoint()
