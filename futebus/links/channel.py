"""The channel of a bus that is linked: what others say there, and what is to be said there.

The one rule: one link has it, and one client of the bus both reads and writes. A client of a B channel does not hear itself, so
all that it hears was said on this bus, and nothing of it came from elsewhere. A second link would hear what the first has
brought, and take it for that.

All calls on the bus are made in threads of their own: one that reads, one that writes, and one that opens the channel and looks
after it. Of a bus that hangs, they stand still, and nobody else. The one that reads waits in poll(2) and not in read(2): a read
that waits is in the hands of the daemon, and if that hangs then, the kernel does not let the process go.
"""

import math
import os
import select
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ..client import ClientError, Ended, NoBus, Publisher, Reader, Slave, TooLong, connect, publisher, subscribe
from ..client.leaving import Leaving
from ..core.lines import end
from ..host.voice import Voice
from ..nats.errors import NatsError

WAITING_BYTES = 32 << 20
"""Bytes of lines that wait for a bus that hangs, or is slower than the network. The oldest are dropped, as for a slow reader."""

MANY_BYTES = 4 << 20
"""Bytes that wait for a bus from which on servers are made to wait too, for a moment."""

ENTRY = 128
"""What lines take in memory beside their bytes."""

BLOCK = 128 * 1024
"""Bytes of lines that one write(2) brings, if so many wait. See `futebus.client.channel`."""

MUCH = 32 * 1024
"""Bytes that one read brings, from which on the next is tried at once. To ask poll(2) before costs a third of such a read."""

SOON_SECONDS = 1.0
"""How long ago a bus that takes lines has taken some, at most, if some wait."""

AWAY, SLOW, TOO_LONG = "the bus is away", "the bus hangs, or is too slow", "longer than the bus takes (max_message)"
ENDED = "the link has ended"
"""Why lines were not written."""

Joined = Slave[bytes] | Reader[bytes] | Publisher


class _Creates(TypedDict, total=False):
    mode: int


class _Removed(Exception):
    """The channel has no name any more, and what waited there was taken: who opens it now opens another."""


class Channel:
    """A B channel.

    Args:
        path: it.
        voice: says what happens.
        heard: is given what is said there, whole lines, in the thread that reads. The next are read when it has returned.
        ready: waits, in that thread, until `heard` can take more. It is given what tells whether that is of any use still.
        reads: whether anybody wants to hear it.
        writes: whether anything is to be said there.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether it waits for a bus that is not there, or has gone.
    """

    def __init__(
        self,
        path: Path,
        voice: Voice,
        heard: Callable[[bytes], object],
        ready: Callable[[Callable[[], bool]], object],
        *,
        reads: bool,
        writes: bool,
        mode: int | None,
        waits: bool,
    ) -> None:
        self.path = path
        self.unwritten: Counter[str] = Counter()
        """Lines that were to be said there and were not, and why."""
        self.dropped = 0
        """Lines that the bus has dropped for the link."""
        self.untaken = 0
        """Lines that waited for the link in a channel that was removed, and were not taken in time."""
        self._voice = voice
        self._heard = heard
        self._ready = ready
        self._reads = reads
        self._writes = writes
        self._mode = mode
        self._waits = waits
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_open = False
        self._is_between = False
        """Whether it was removed and is about to be open again: what is to be said is for the next one."""
        self._leaving = Leaving()
        """Once it was removed, only what waits there is still taken."""
        self._said_at = -math.inf
        """When lines were written last."""
        self._was_awaited = waits
        """Whether it is somebody's loss if it is not open. Who opens it does not hear what was said before."""
        self._stop = -1
        """Descriptor of an eventfd that ends the wait of who reads."""
        self.is_reading = False
        """Whether lines have been taken from the bus, or may have been, that `heard` has not been given yet."""
        self.left = 0
        """Lines that waited for the link in the bus, in the end."""
        self._is_over = False
        self._has_ended = threading.Event()
        self._failure: Exception | None = None
        self._claim: socket.socket | None = None

    def put(self, count: int, lines: bytes) -> None:
        """Has lines said there, soon. Nobody waits for it.

        Args:
            count: how many they are.
            lines: they.
        """
        if not count:
            return
        with self._changed:
            if not self._is_open and not self._is_between:
                self.unwritten[AWAY] += count * self._was_awaited
                return
            self._waiting.append((count, lines))
            self._size += len(lines) + ENTRY
            while self._size > WAITING_BYTES:
                old, gone = self._waiting.popleft()
                self._size -= len(gone) + ENTRY
                self.unwritten[SLOW] += old
            self._changed.notify_all()

    @property
    def has_place(self) -> bool:
        """Whether it is of use to have more lines said there."""
        return self._size < MANY_BYTES or not (self._is_open or self._is_between)

    @property
    def waiting(self) -> int:
        """How many lines wait to be said there."""
        with self._changed:
            return sum(count for count, _ in self._waiting)

    # ------------------------------------------------------------------------------------------ its life

    def run(self, opened: Callable[[], object]) -> None:
        """Keeps the channel open. To be called in a thread.

        Args:
            opened: is called when it is for the first time.

        Returns:
            When it is to be finished.

        Raises:
            ClientError: it cannot be had.
            NatsError: it has a link already; the bus has gone and is not waited for.
        """
        is_first = True
        while True:
            is_removed = False
            try:
                with self._open() as channel:
                    self._claim_it(channel)
                    with self._changed:
                        self._is_open, self._was_awaited, self._failure = True, True, None
                        self._is_between = False
                    if is_first:
                        is_first = False
                        opened()
                    else:
                        self._voice.say(f"{self.path} is open again")
                    self._use(channel)
                    return
            except _Removed:
                if self._is_over:
                    return
                is_removed = True
                self._voice.say(f"{self.path}: its name was removed; it is opened anew")
            except (Ended, NoBus) as error:
                # That a channel has ended means, of one without a master, that the bus is being unmounted.
                words = f"{self.path}: the bus is going" if isinstance(error, Ended) else str(error)
                if not self._waits:
                    raise NatsError(words) from None
                self._voice.warn(f"{words}; waiting")
            finally:
                self._let_go(is_removed=is_removed)
                if self._is_over:
                    self._has_ended.set()

    def finish(self, seconds: float) -> None:
        """Takes no more lines from the bus, and sees what is left there. Counts those that are not said there any more.

        Args:
            seconds: how long that is waited for at most: the bus may hang.
        """
        with self._changed:
            self._is_over = True
            is_open = self._is_open
            self._changed.notify_all()
        if is_open:
            self._has_ended.wait(seconds)
        self._count_waiting(SLOW)  # if it hangs

    def _count_waiting(self, why: str) -> None:
        """Gives up the lines that wait to be said there."""
        with self._changed:
            self.unwritten[why] += sum(count for count, _ in self._waiting)
            self._waiting.clear()
            self._size = 0
            self._changed.notify_all()

    def _open(self) -> Joined:
        wait = math.inf if self._waits else 0.0
        creates: _Creates = {} if self._mode is None else {"mode": self._mode}
        if not self._writes:
            return subscribe(self.path, bytes, wait=wait, say=self._voice.say, **creates)
        if not self._reads:
            return publisher(self.path, wait=wait, say=self._voice.say, **creates)
        return connect(self.path, bytes, wait=wait, say=self._voice.say, **creates)

    def _claim_it(self, channel: Joined) -> None:
        """Sees that no other link has the channel, by a name that one process can have and that goes with it.

        A lock on the file would not do: each who opens a channel has an inode of his own.
        """
        there = os.fstat(channel.fileno())
        name = f"\0futebus-link {os.major(there.st_dev)}:{os.minor(there.st_dev)} {there.st_ino}"
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            claim.bind(name)
            claim.listen(1)
        except OSError:
            claim.close()
            raise NatsError(f"{self.path} has a link already{_holder(name)}: one is enough for several subjects") from None
        self._claim = claim

    def _let_go(self, *, is_removed: bool) -> None:
        with self._changed:
            self._is_open = False
            self._is_between = is_removed and not self._is_over
        if self._claim:
            self._claim.close()
            self._claim = None
        if self._is_between:
            return
        late = ENDED if time.monotonic() - self._said_at < SOON_SECONDS else SLOW
        self._count_waiting(late if self._is_over else AWAY)

    def _use(self, channel: Joined) -> None:
        """Has the channel read and written, and looks after it, until that fails or is over."""
        self._leaving = leaving = Leaving()
        is_left = False
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        works = [self._read] * self._reads + [self._write] * self._writes
        threads = [threading.Thread(target=self._until_failed, args=(work, channel), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            while not self._is_over and not is_left:
                with self._changed:
                    self._changed.wait_for(lambda: self._failure or self._is_over, leaving.pause)
                    failure = self._failure
                if failure:
                    raise failure
                told = channel.inquire()
                self.dropped += leaving.dropped(told)
                if told.is_removed and not leaving.has_begun:
                    leaving.begin(told)
                is_left = leaving.has_begun and (not self._reads or leaving.is_over(told))
        finally:
            with self._changed:
                self._is_open, self._is_between = False, is_left
                self._changed.notify_all()
            os.eventfd_write(self._stop, 1)
            for thread in threads:
                thread.join()
            os.close(self._stop)
        told = channel.inquire()  # once more, when nobody reads any more
        self.dropped += leaving.dropped(told)
        if is_left:
            self.untaken += leaving.left(told) if self._reads else 0
            raise _Removed
        self.left = told.queued

    def _until_failed(self, work: Callable[[Joined], object], channel: Joined) -> None:
        try:
            work(channel)
        except Exception as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    # ------------------------------------------------------------------------------------------ both ways

    def _read(self, channel: Joined) -> None:
        os.set_blocking(channel.fileno(), False)
        poller = select.poll()
        for file in (channel.fileno(), self._stop):
            poller.register(file, select.POLLIN)
        is_much = False
        while True:
            self._ready(lambda: self._is_open and not self._is_over)
            if not is_much:
                poller.poll()
            if not self._is_open or self._is_over:
                return
            self.is_reading = True
            try:
                block = channel.read_block_nowait()
            except BlockingIOError:
                is_much = False
            else:
                is_much = len(block) > MUCH  # then there is more
                self._heard(block)
            finally:
                self.is_reading = False

    def _write(self, channel: Joined) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: (self._waiting and not self._leaving.has_begun) or not self._is_open)
                if not self._is_open:
                    return
                block: list[bytes] = []
                size = total = 0
                while self._waiting and (not block or size + len(self._waiting[0][1]) <= BLOCK):
                    count, lines = self._waiting.popleft()
                    block.append(lines)
                    size += len(lines)
                    total += count
                    self._size -= len(lines) + ENTRY
            self._say(channel, b"".join(block), total)

    def _say(self, channel: Joined, lines: bytes, count: int) -> None:
        start = 0
        while start < len(lines):
            try:
                channel.send_block(lines[start:] if start else lines)
                self._said_at = time.monotonic()
                return
            except TooLong as error:
                start = end(lines, start, error.accepted + 1)
                count -= error.accepted + 1
                with self._changed:
                    self.unwritten[TOO_LONG] += 1
            except ClientError as error:
                with self._changed:
                    self.unwritten[AWAY] += count - error.accepted
                raise


def _holder(name: str) -> str:
    """Which process has such a name."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
            asking.settimeout(1.0)
            asking.connect(name)
            process, _, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return ""
    return f", process {process}" if process else ""
