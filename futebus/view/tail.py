"""What a channel says, as it goes by.

The one rule: it disturbs nobody. The channel is only read, and never made; what comes faster than it can be shown is counted and
let go, by us or by the bus, and of what is long the beginning is kept. All that touches the bus is done in a thread that nobody
waits for, and that takes its time: what calls itself a channel may have something to read for ever, and no end.

A name is listened to: a channel that has lost it is heard to the end of what it has, and then the next one of this name is.
"""

import contextlib
import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..client.entry import enter
from ..client.inquire import inquire
from ..core.kinds import KINDS
from ..core.limits import MAX_NAME
from ..core.text import clipped, printable
from ..host.mounted import NoBus, find_bus
from .errands import PATIENCE, Errand
from .told import Channel

SHOWN_BYTES = 2000
"""How much of a line is shown."""

READ_BYTES = 1 << 20

RETRY_SECONDS = 1.0
"""How often it is tried to open a channel that is not there, and looked whether a channel has still its name."""

ASKED_SECONDS = 0.05
"""How long lines may come before the bus is asked how many it has dropped: so far from its place a gap may be shown."""

AGAIN_SECONDS = 0.1
"""How long one waits who was told that there is something to read, and then that there is nothing."""

BYTES_PER_SECOND = 256 << 20
"""How fast it is read: more than writers have ever brought a reader. A bus drops the oldest for who is slower, and counts it."""

READ_COST = 64 << 10
"""What a read costs beside its bytes, in bytes: 4,096 small ones are a second's worth. Meanwhile more comes for the next one."""

BURST_SECONDS = 0.25

MOST_WORDS = 300
"""Characters of what is said of why a channel cannot be heard."""

GONE = "the bus has gone"
NO_CHANNEL = "there is no such channel"


def refusal(channel: Channel) -> str:
    """Why a channel cannot be watched, in a sentence; nothing if it can be."""
    if KINDS[channel.file[:1]].has_master:
        return (
            f"{channel.name} cannot be watched without taking part: "
            "a slave that only reads hears what the master says to all, and nothing of what others say"
        )
    if channel.state != "live":
        return f"{channel.name} cannot be opened any more: its name was removed"
    return ""


class Line(NamedTuple):
    """A message, as far as it is shown."""

    text: bytes
    """Its beginning, up to the end of a character if the bytes are characters. Without the newline."""
    rest: int
    """How many bytes are left out."""


class Taken(NamedTuple):
    """What has come since it was asked for last."""

    lines: list[Line]
    """The newest last."""
    skipped: int
    """How many messages came before these and are not shown, since they were too fast for us or for the bus."""


class Lines:
    """The last lines of what comes in pieces, between a thread that reads and somebody who shows them.

    Args:
        kept: how many.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._lines: deque[Line] = deque(maxlen=kept)
        self._skipped = 0
        self._begin = b""
        """Of the message whose end has not come: what may be shown of it."""
        self._length = 0
        """How long that message is up to now."""
        self.heard = 0
        """Messages that have come, those that were skipped included."""

    def add(self, data: bytes) -> None:
        """Adds what was read."""
        head, newline, rest = data.partition(b"\n")
        self._begin += head[: max(SHOWN_BYTES + 1 - len(self._begin), 0)]
        self._length += len(head)
        if not newline:
            return
        whole, newline, rest = rest.rpartition(b"\n")
        last = whole.rsplit(b"\n", self._kept)[-self._kept :] if newline else []
        count = 1 + bool(newline) + whole.count(b"\n")
        lines = [_line(self._begin, self._length), *(_line(line, len(line)) for line in last)][-self._kept :]
        self._begin, self._length = rest[: SHOWN_BYTES + 1], len(rest)
        with self._lock:
            self._skipped += count - len(lines) + max(len(self._lines) + len(lines) - self._kept, 0)
            self._lines.extend(lines)
            self.heard += count

    def forget(self) -> None:
        """The beginning of a message is that of another channel."""
        self._begin, self._length = b"", 0

    def skip(self, count: int) -> None:
        """Counts what has come and was not read."""
        with self._lock:
            self._skipped += count
            self.heard += count

    @property
    def waiting(self) -> tuple[int, int]:
        """How many lines wait to be taken, and how many were skipped before them."""
        with self._lock:
            return len(self._lines), self._skipped

    def take(self) -> Taken:
        """Takes what has come."""
        with self._lock:
            taken = Taken(list(self._lines), self._skipped)
            self._lines.clear()
            self._skipped = 0
        return taken


def _shown(words: str) -> str:
    return printable(clipped(words, MOST_WORDS))


def _line(text: bytes, length: int) -> Line:
    end = min(len(text), SHOWN_BYTES)
    while len(text) > end > SHOWN_BYTES - 4 and text[end] & 0xC0 == 0x80:
        end -= 1
    return Line(text[:end], length - end)


class Pace:
    """How fast something is read: so many bytes a second, and so many reads.

    Args:
        now: what the clock shows, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._free, self._last = BYTES_PER_SECOND * BURST_SECONDS, now

    def spend(self, size: int, now: float) -> float:
        """Notes a read of so many bytes. Returns for how many seconds to rest before the next one."""
        self._free = min(self._free + (now - self._last) * BYTES_PER_SECOND, BYTES_PER_SECOND * BURST_SECONDS)
        self._free -= size + READ_COST
        self._last = now
        return max(-self._free / BYTES_PER_SECOND, 0.0)


class Tail:
    """A channel that is listened to, from its start to `stop`.

    Args:
        mountpoint: where the bus is mounted.
        file: the channel's name: an A or B channel's.
        kept: how many lines wait to be shown.
        is_patient: whether a channel that is not there, or has gone, is waited for.
        on_news: called, in a thread, when there is something new: lines, or how it goes.
    """

    def __init__(
        self,
        mountpoint: Path,
        file: bytes,
        *,
        kept: int,
        is_patient: bool,
        on_news: Callable[[], object] = lambda: None,
    ) -> None:
        self._mountpoint, self._is_patient, self._on_news = mountpoint, is_patient, on_news
        self._file = file
        # In bulk, if there is place for the `+`.
        self._name = os.fsdecode(b"+" + file if len(file) < MAX_NAME else file)
        self.lines = Lines(kept)
        self.words = "opening it"
        """How it goes, or why it has ended: fit to be shown."""
        self.is_open = False
        self.is_over = False
        """Whether there comes nothing more."""
        self.is_removed = False
        """Whether the channel that is open has no name any more. The next one of its name is waited for."""
        self._lock = threading.Lock()
        self._wake: int | None = None
        """What makes the thread look whether it is to stop. The thread has it, and may be gone with it."""
        self._is_stopped = False
        self._back = time.monotonic()
        """When the thread was last known not to wait for the bus."""
        self._errand = Errand(mountpoint)
        try:
            self._errand.send(self._run)
        except NoBus as error:
            self._end(str(error))

    def stop(self) -> None:
        """Ends it, without waiting: a bus that hangs is left to the thread."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                if not self._errand.is_expected:
                    self._errand.expect()
                if self._wake is not None:
                    os.eventfd_write(self._wake, 1)

    @property
    def is_stuck(self) -> bool:
        """Whether the bus does not answer. It is waited for all the same."""
        return not self.is_over and time.monotonic() > self._back + RETRY_SECONDS + PATIENCE

    @property
    def is_forlorn(self) -> bool:
        """Whether what is waited for is no longer what the path leads to. To be asked only of one that is stuck: it costs."""
        return self._errand.is_forlorn

    # ------------------------------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            with self._lock:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._listen_on()
            self._end(self.words)
        except Exception as error:
            self._end(str(error) or type(error).__name__)
        finally:
            with self._lock:
                if self._wake is not None:
                    os.close(self._wake)
                self._wake = None

    def _listen_on(self) -> None:
        while not self._is_stopped:
            try:
                if self._listen():
                    continue
                words = GONE
            except NoBus as error:
                words = str(error)
            except OSError as error:
                words = NO_CHANNEL if error.errno == errno.ENOENT else f"it cannot be read: {error.strerror}"
            self.is_open = self.is_removed = False
            self._say(f"{words}; waiting" if self._is_patient else words)
            if not self._is_patient:
                return
            self._let_stay()
            self._pause(RETRY_SECONDS)

    def _listen(self) -> bool:
        """Listens to the end of the channel, or until it is stopped.

        Returns:
            Whether another one has its name now.

        Raises:
            NoBus: there is none.
            OSError: the channel cannot be opened, or not be read any more.
        """
        with self._lock:
            if not self._is_stopped:
                self._errand.expect()
        self._errand.arrive()
        file = enter(self._mountpoint, self._name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            known = inquire(file)
            self._let_stay()
            self.lines.forget()
            self.is_open, self.is_removed = True, False
            self._say(f"listening as client {known.id:x}")
            return self._read(file, self.words)
        finally:
            os.close(file)

    def _read(self, file: int, listening: str) -> bool:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        assert self._wake is not None
        poll.register(self._wake, select.POLLIN)
        dropped, has_read = 0, False
        asked = looked = time.monotonic()
        pace = Pace(asked)
        while not self._is_stopped:
            self._back = time.monotonic()
            # Who has just read asks soon what was dropped, if no more comes.
            rest = ASKED_SECONDS if has_read else RETRY_SECONDS
            is_readable = any(number == file for number, _ in poll.poll(rest * 1000))
            if not is_readable or time.monotonic() > asked + ASKED_SECONDS:
                known, asked, has_read = inquire(file), time.monotonic(), False
                if lost := max(known.dropped - dropped, 0):
                    self.lines.skip(lost)
                    self._tell()
                dropped = known.dropped
                if known.is_removed != self.is_removed:
                    self.is_removed = known.is_removed
                    self._say(f"{listening}; its name was removed" if known.is_removed else listening)
                if known.is_removed and not known.queued_bytes and asked > looked + RETRY_SECONDS:
                    looked = asked
                    if self._has_successor():
                        return True
            if not is_readable:
                continue
            try:
                data = os.read(file, READ_BYTES)
            except BlockingIOError:
                self._pause(AGAIN_SECONDS)
                continue
            if not data:
                return False
            has_read = True
            self.lines.add(data)
            self._tell()
            if rest := pace.spend(len(data), time.monotonic()):
                self._pause(rest)
        return False

    def _has_successor(self) -> bool:
        """Whether there is another channel of the name of one that was removed."""
        bus = find_bus(self._mountpoint)
        try:
            os.stat(self._file, dir_fd=bus, follow_symlinks=False)
        except FileNotFoundError:
            return False
        finally:
            os.close(bus)
        return True

    def _let_stay(self) -> None:
        with self._lock:
            if not self._is_stopped:
                self._errand.let_stay()

    def _pause(self, seconds: float) -> None:
        """Rests, or until it is stopped."""
        poll = select.poll()
        assert self._wake is not None
        poll.register(self._wake, select.POLLIN)
        poll.poll(seconds * 1000)
        self._back = time.monotonic()

    def _say(self, words: str) -> None:
        self.words = _shown(words)
        self._tell()

    def _end(self, words: str) -> None:
        self.words = _shown(words)  # first: who sees that it is over reads why
        self.is_open, self.is_over = False, True
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # who wanted to know has ended
            self._on_news()
