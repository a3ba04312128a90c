"""Takes what a channel says into a spool, and goes on when the disk is full, the bus is away, or the channel has a new master.

The one rule: what the bus has handed out is in the spool; what it has not handed out stays with it. While the spool cannot take
more, a channel that it masters makes its writers wait, and any other drops its oldest lines, which are counted.
"""

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..client.channel import RETRY_SECONDS
from ..client.inquire import inquire
from ..core.inquiry import Inquiry, is_taken, left_of
from ..core.kinds import has_master
from ..core.text import counted, were
from ..host.patience import Patience
from ..spool import SpoolWriter
from ..spool.files import FULL
from ..spool.layout import READ_BYTES
from .channel import SAID_SECONDS, Say, check_channel, join
from .ending import asked, end, in_words

LOOK_SECONDS = 1.0
"""How often the bus is asked, while lines come, how many it has dropped."""

GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV)
"""What a read says when the bus has gone. Whatever else it says, the bus goes on, and what it has not handed out waits there."""

READ_LEAST = 4096
"""How few bytes one read asks for while the bus cannot hand out as many as usual: it may be short of memory."""

TOO_FAST = "they came faster than they could be stored"
"""Why lines are lost that the bus has dropped."""

REMOVED_SECONDS = 2.0
"""How often it is asked whether somebody has removed the channel."""


def while_full(is_master: bool) -> str:
    """What happens, in words, to the lines of a channel that is open while the disk has no room for them."""
    return "its writers wait" if is_master else "the bus keeps the newest lines and drops the others"


class Drain:
    """One channel on its way into one spool.

    Args:
        channel: the file, in the directory where the bus is mounted.
        spool: where its lines go. The caller opens and closes it.
        is_master: whether to become the master of a U or S channel.
        mode: the permissions of a channel that is created, as for `open_channel`.
        say: is told, in one sentence, what somebody should know: that the bus is away, that it is back, what was lost.
        on_lines: is called when there are new lines in the spool, and when there are no more for now. It may return in how many
            seconds, at the latest, it wants to be called again, lines or not.
        on_full: is called, again and again, while the spool has no room for lines: it may see to it that others go.
        descriptor: the channel, already open; it stays the caller's, and when it ends so does the drain.
        tells_end: whether it is said that the channel has ended.
        noted: with `descriptor`, how many of the lines that the bus has dropped for it the spool counts already.
    """

    def __init__(
        self,
        channel: Path,
        spool: SpoolWriter,
        *,
        is_master: bool = False,
        mode: int | None = None,
        say: Say = lambda words: None,
        on_lines: Callable[[], float | None] = lambda: None,
        on_full: Callable[[], object] = lambda: None,
        descriptor: int | None = None,
        tells_end: bool = True,
        noted: int = 0,
    ) -> None:
        check_channel(channel, is_master)
        self.channel = channel
        self.spool = spool
        self.is_joined = False
        """Whether the channel is open: who writes to it now is heard."""
        self.is_idle = False
        """Whether everything that the bus had was taken when it was last asked."""
        self.has_said_full = False
        """Whether it has said that there is no room, and not yet that there is."""
        self._is_master, self._mode, self._say, self._on_lines, self._on_full = is_master, mode, say, on_lines, on_full
        self._given = descriptor
        self._tell_end = say if tells_end else lambda words: None
        self._is_stopping = False
        self._patience: Patience | None = None
        """How long what waits is still taken, once it is to end."""
        self._before: Inquiry | None = None
        """What the bus told of the channel when that began."""
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._waking = threading.Lock()
        """Held by who writes to the pipe or closes it: its number is another file's afterwards."""
        self._is_closed = False
        self._noted = self._dropped = noted
        self._looked = 0.0
        self._must_look = False
        self._removal_looked = 0.0
        self._left: Inquiry | None = None
        """What the bus told of a channel that is removed, when that was seen while lines came."""
        self._has_said_removed = False
        self._most = READ_BYTES

    def stop(self) -> None:
        """Makes `run` return soon. May be called from a signal handler or another thread, and after `close`."""
        self._is_stopping = True
        self._awaken()

    def finish(self, seconds: float) -> None:
        """Makes `run` return when what waits in the channel now is taken, or after so many seconds. Otherwise as `stop`.

        Nobody can open or write to a channel that it masters from then on. `on_lines` is not called any more.
        """
        self._patience = Patience(seconds)
        self._awaken()

    def _awaken(self) -> None:
        if self._waking.acquire(blocking=False):  # or else somebody does it, or nobody is there to be woken
            try:
                if not self._is_closed:
                    with contextlib.suppress(BlockingIOError):
                        os.write(self._waker, b"!")
            finally:
                self._waking.release()

    def close(self) -> None:
        """Gives up what the drain itself holds. Call it when `run` has returned."""
        with self._waking:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._wake)
                os.close(self._waker)

    def run(self, *, only_until_idle: bool = False) -> bool:
        """Drains, until `stop` is called or, if it was given the descriptor, the channel ends.

        Args:
            only_until_idle: end as soon as everything that the bus has is taken.

        Returns:
            True; False if the channel has ended, which it does only for a descriptor that was given.

        Raises:
            ChannelError: the channel is refused for good.
            OSError: the spool cannot be written, for another reason than a full disk.
        """
        if self._given is not None:
            self._dropped = self._noted
            return self._drain(self._given, only_until_idle)
        left: float | None = None
        while not self._is_ending:
            descriptor = join(self.channel, self._is_master, self._mode, say=self._say, wait=self._wait, left=left)
            if descriptor is None:
                break
            try:
                self._dropped = 0
                if self._drain(descriptor, only_until_idle):
                    break
            finally:
                os.close(descriptor)
            # What comes next is from another bus, or another channel of that name, and does not go on where this one ended.
            if size := self.spool.cut():
                self._say(f"{self.spool.path}: {size} bytes were cut off, of a line whose end never came")
            left = time.monotonic()
        return True

    @property
    def _is_ending(self) -> bool:
        return self._is_stopping or self._patience is not None

    def _wait(self, seconds: float) -> bool:
        """Waits for so long, or until it is to end. Returns whether to go on."""
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(self._wake, select.POLLIN)
        poller.poll(seconds * 1000)
        return not self._is_ending

    def _pause(self, seconds: float) -> bool:
        """As `_wait`, with the channel open: what waits there is to be taken also in the end, if that can be in time."""
        if self._patience is None or self._before is None:
            return self._wait(seconds)
        self._wait(min(seconds, self._patience.pause()))
        return not self._is_stopping and self._patience.left() > 0

    def _drain(self, descriptor: int, only_until_idle: bool) -> bool:
        """Takes what comes. Returns whether it is to end: False if the channel has ended."""
        self.is_joined = True
        self._left, self._removal_looked = None, time.monotonic()
        self._must_look = not self._is_master  # it may be dropping while the disk has no room for the first
        try:
            return self._take_all(descriptor, only_until_idle)
        finally:
            self.is_joined = False
            if self._must_look:
                self._look(descriptor)

    def _take_all(self, descriptor: int, only_until_idle: bool) -> bool:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._is_stopping and not self._has_finished(descriptor):
            try:
                self.spool.prepare()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._wait_for_room(error)
                continue
            if self.has_said_full:
                self.has_said_full = False
                self._say(f"{self.spool.path}: there is room again")
            try:
                size = self._read(descriptor)
                if size is None:
                    continue
            except BlockingIOError:
                self.is_idle = True
                if self._is_ending:  # since before the read, or not: then there may be lines by now
                    continue
                again = self._on_lines()
                if only_until_idle:
                    return True
                patience = min(LOOK_SECONDS if self._must_look else REMOVED_SECONDS, REMOVED_SECONDS if again is None else again)
                if not poller.poll(patience * 1000):
                    if self._must_look:
                        self._look(descriptor)
                    if self._is_removed(descriptor):
                        return False
                self.is_idle = False
                continue
            except OSError as error:
                if error.filename is not None:
                    raise
                self._tell_end(f"{self.channel}: the bus has gone ({error.strerror})")
                return False
            if not size:
                if self._is_shut(descriptor):
                    self.is_idle = True
                else:
                    self._tell_end(f"{self.channel}: the channel has ended")
                return False
            if not self._is_ending:
                self._on_lines()
            self._must_look = not self._is_master
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._look(descriptor)
            if not only_until_idle and self._has_left(descriptor):
                return False
        self._tell_left(descriptor)
        return True

    def _has_finished(self, descriptor: int) -> bool:
        """Whether it is to end, and has taken what waited when that began, or is late."""
        if self._patience is None:
            return False
        if self._before is None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 1 << 16)  # from here on, only `stop` awakens
            if self._is_master:
                end(descriptor)
            self._before = asked(descriptor)
        now = asked(descriptor)
        return self._before is None or now is None or not left_of(self._before, now) or not self._patience.left()

    def _is_shut(self, descriptor: int) -> bool:
        """Whether it is one of us, maybe one before, who has ended the channel."""
        told = asked(descriptor)
        return self._is_master and told is not None and not told.has_ended

    def _tell_left(self, descriptor: int) -> None:
        """Says what is left of what waited when the end began: with the channel, it is given up."""
        if self._before and (now := asked(descriptor)) and (left := left_of(self._before, now)):
            with contextlib.suppress(OSError):  # it may be for a full disk that they are left
                self.spool.note_lost(left)
            self._say(f"{self.channel}: {in_words(left)}")

    def _read(self, descriptor: int) -> int | None:
        """One read of the channel into the spool. As long as the bus is there and cannot answer, it is asked again.

        Returns:
            The number of bytes; None if it is to stop.
        """
        pause, longest = RETRY_SECONDS
        over = ""
        """What is said when the bus can answer, if anything is."""
        while not self._is_stopping:
            try:
                size = self.spool.read_from(descriptor, most=self._most)
            except OSError as error:
                if error.filename is not None or error.errno in GONE:
                    raise
                if error.errno == errno.EAGAIN:
                    if over:
                        self._say(over)
                    raise
                self.spool.check()
                if not over:
                    over = f"{self.channel}: it can be read again"
                    self._say(f"{self.channel}: it cannot be read ({error.strerror}); what waits there is not lost; trying again")
                self._most = max(self._most // 8, READ_LEAST)
                if not self._pause(pause):
                    break
                pause = min(pause * 1.5, longest)
                continue
            if over:
                self._say(over)
            self._most = min(self._most * 2, READ_BYTES)
            return size
        return None

    def _wait_for_room(self, error: OSError) -> None:
        pause, longest = RETRY_SECONDS
        begin = time.monotonic()
        self._on_full()
        while self._pause(pause):
            try:
                self.spool.prepare()
            except OSError as again:
                if again.errno not in FULL:
                    raise
            else:
                return
            # Where old lines make room for new ones, that is how it goes all the time.
            if not self.has_said_full and time.monotonic() - begin > SAID_SECONDS:
                self.has_said_full = True
                self._say(f"{self.spool.path}: {error.strerror}; {while_full(self._is_master)} until there is room")
            self._on_full()
            pause = min(pause * 1.5, longest)
        if not self.has_said_full:
            self.has_said_full = True
            self._say(f"{self.spool.path}: {error.strerror}")

    def _has_left(self, descriptor: int) -> bool:
        """Whether the channel was removed, and what waited when that was seen is taken: its writers may go on for ever."""
        if self._is_ending:
            return False
        if self._left is None:
            if time.monotonic() - self._removal_looked < REMOVED_SECONDS:
                return False
            self._removal_looked = time.monotonic()
            if not self._is_removed(descriptor):
                return False
            self._left = asked(descriptor)
        now = asked(descriptor)
        return self._left is None or now is None or is_taken(self._left, now)

    def _is_removed(self, descriptor: int) -> bool:
        """Whether somebody has removed the channel and it should be opened again: who writes to it now writes to another.

        A master stays with those who have it open: what they write, they may do so knowing that it is not lost.
        """
        try:
            if os.fstat(descriptor).st_nlink:
                return False
        except OSError:
            return False  # the next read will tell why
        if self._is_master:
            told = None if self._has_said_removed else asked(descriptor)
            if told and not told.is_shut:  # or else it is the recorder that has done it
                self._has_said_removed = True
                self._say(f"{self.channel}: its name has been removed; who has it open is heard, and nobody else can be")
            return False
        if has_master(self.channel.name) and not os.path.lexists(self.channel):
            return False
        self._tell_end(f"{self.channel}: the channel has been removed")
        return True

    def _look(self, descriptor: int) -> None:
        """Notes in the spool what the bus has dropped meanwhile. A master loses nothing."""
        self._must_look = False
        if self._is_master:
            return
        self._looked = time.monotonic()
        try:
            now = inquire(descriptor).dropped
        except OSError:
            return  # the bus has gone; so have the lines that it might tell of
        if now > self._dropped:
            try:
                self.spool.note_lost(now - self._dropped)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._must_look = True
                return
            lost = now - self._dropped
            self._say(f"{self.channel}: {counted(lost, 'line')} {were(lost)} lost: {TOO_FAST}")
            self._dropped = now
