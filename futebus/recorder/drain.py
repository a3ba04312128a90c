"""Takes what a channel says into a spool, and goes on when the disk is full, the bus is away, or the channel has a new master.

The one rule: what the bus has handed out is in the spool; what it has not handed out stays with it. While the spool cannot take
more, a channel that it masters makes its writers wait, and any other drops its oldest lines, which are counted.
"""

import contextlib
import errno
import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from ..client.entry import NoBus, enter
from ..client.inquire import inquire
from ..core.errors import BusError
from ..core.kinds import parse_name
from ..spool import SpoolWriter

RETRY_SECONDS = (0.05, 1.0)
"""How soon, and later how seldom, it is tried again to open a channel or to find room on the disk."""

LOOK_SECONDS = 1.0
"""How often the bus is asked, while lines come, how many it has dropped."""

REMOVED_SECONDS = 2.0
"""How often it is asked, while none come, whether somebody has removed the channel."""

_FOR_GOOD = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""What waiting does not mend."""

Say = Callable[[str], None]


class ChannelError(Exception):
    """Why a channel cannot be read, in one sentence; it will not get better by itself."""


class BusAway(Exception):
    """Why a channel cannot be read now, in one sentence; it may be there later."""


def check_channel(channel: Path, is_master: bool) -> None:
    """Checks what can be said of a channel without a bus: its name, and whether it has a master.

    Raises:
        ChannelError: it cannot be drained so.
    """
    name = os.fsencode(channel.name)
    try:
        parsed = parse_name(name)
    except BusError:
        parsed = None
    if parsed is None or name[:1] in (b".", b"+"):
        raise ChannelError(f"{channel}: no channel has this name; its first letter is U, A, S or B")
    if is_master and name[:1] not in (b"U", b"S"):
        raise ChannelError(f"{channel}: only U and S channels have a master")


def open_channel(channel: Path, is_master: bool, mode: int | None = None, *, creates: bool = True) -> int:
    """Opens a channel for bulk reading, non-blocking.

    A and B channels are created if need be, U and S channels by becoming their master.

    Args:
        channel: the file, in the directory where the bus is mounted.
        is_master: whether to become the master of a U or S channel.
        mode: the permissions that a channel gets if it is created; None: what the umask leaves of 666.
        creates: whether an A or B channel may be created.

    Raises:
        BusAway: there is no bus, no such channel, or nobody is master of it.
        ChannelError: it is refused for good: no permission, for one.
    """
    has_master = channel.name[0] in "US"
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if is_master or (creates and not has_master) else 0)
    try:
        return enter(channel.parent, f"+{'.' * is_master}{channel.name}", flags, mode)
    except NoBus as error:
        if error.number in _FOR_GOOD:
            raise ChannelError(f"{channel}: {os.strerror(error.number or 0)}") from None
        raise BusAway(f"{channel}: {error}") from None
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise BusAway(f"{channel}: it has a master already") from None
        if error.errno in _FOR_GOOD:
            raise ChannelError(f"{channel}: {error.strerror}") from None
        if error.errno in (errno.ENOENT, errno.ESPIPE) and not flags & os.O_CREAT:
            raise BusAway(f"{channel}: {'it has no master' if has_master else 'there is no such channel'}") from None
        raise BusAway(f"{channel}: {error.strerror}") from None


def join(
    channel: Path, is_master: bool, mode: int | None, *, say: Say, wait: Callable[[float], bool], left: float | None = None
) -> int | None:
    """Opens a channel, as `open_channel` does, as soon as that is possible.

    Args:
        channel: the file, in the directory where the bus is mounted.
        is_master: whether to become the master of a U or S channel.
        mode: the permissions of a channel that is created, as for `open_channel`.
        say: is told what is waited for and, after an absence, that it is over and what was missed.
        wait: waits for so many seconds, and tells whether to go on.
        left: when an absence began, as time.monotonic() told it then. A short one is not spoken of until it is over.

    Returns:
        The descriptor; None if `wait` gave up.

    Raises:
        ChannelError: it is refused for good.
    """
    said = ""
    pause, longest = RETRY_SECONDS
    while True:
        try:
            descriptor = open_channel(channel, is_master, mode)
        except BusAway as error:
            if str(error) != said and (left is None or time.monotonic() - left > LOOK_SECONDS):
                said = str(error)
                say(f"{said}; waiting")
        else:
            if left is not None:
                say(
                    f"{channel}: back after {time.monotonic() - left:.1f} s; "
                    "what the bus still held when it went, and what was written until now, is not in the spool"
                )
            return descriptor
        if not wait(pause):
            return None
        pause = min(pause * 1.5, longest)


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
        self._is_master, self._mode, self._say, self._on_lines = is_master, mode, say, on_lines
        self._given = descriptor
        self._tell_end = say if tells_end else lambda words: None
        self._is_stopping = False
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._noted = self._dropped = noted
        self._looked = 0.0
        self._must_look = False
        self._has_said_removed = False

    def stop(self) -> None:
        """Makes `run` return soon. May be called from a signal handler or another thread."""
        self._is_stopping = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def close(self) -> None:
        """Gives up what the drain itself holds. Call it when `run` has returned."""
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
        while not self._is_stopping:
            descriptor = join(self.channel, self._is_master, self._mode, say=self._say, wait=self._wait, left=left)
            if descriptor is None:
                break
            try:
                self._dropped = 0
                if self._drain(descriptor, only_until_idle):
                    break
            finally:
                os.close(descriptor)
            left = time.monotonic()
        return True

    def _wait(self, seconds: float) -> bool:
        """Waits for so long, or until it is to stop. Returns whether to go on."""
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(self._wake, select.POLLIN)
        poller.poll(seconds * 1000)
        return not self._is_stopping

    def _drain(self, descriptor: int, only_until_idle: bool) -> bool:
        """Takes what comes. Returns whether it is to end: False if the channel has ended."""
        self.is_joined = True
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
        while not self._is_stopping:
            try:
                self.spool.prepare()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._wait_for_room(error)
                continue
            try:
                size = self.spool.read_from(descriptor)
            except BlockingIOError:
                self.is_idle = True
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
                self._tell_end(f"{self.channel}: the channel has ended")
                return False
            self._on_lines()
            self._must_look = not self._is_master
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._look(descriptor)
        return True

    def _wait_for_room(self, error: OSError) -> None:
        waits = "its writers wait" if self._is_master else "the bus keeps the newest lines and drops the others"
        self._say(f"{self.spool.path}: {error.strerror}; {waits} until there is room")
        pause, longest = RETRY_SECONDS
        while self._wait(pause):
            try:
                self.spool.prepare()
            except OSError as again:
                if again.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
            else:
                self._say(f"{self.spool.path}: there is room again")
                return
            pause = min(pause * 1.5, longest)

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
            if not self._has_said_removed:
                self._has_said_removed = True
                self._say(f"{self.channel}: its name has been removed; who has it open is heard, and nobody else can be")
            return False
        if self.channel.name[0] in "US" and not os.path.lexists(self.channel):
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
            self.spool.note_lost(now - self._dropped)
            self._say(f"{self.channel}: {now - self._dropped} lines were lost: they came faster than they could be stored")
            self._dropped = now
