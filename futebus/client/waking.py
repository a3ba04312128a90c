"""Gets threads out of calls on a descriptor that another one closes.

The one rule: who makes such calls pays nothing for that. close(2) does not end a read(2) that waits, and to ask poll(2) before
each read would cost more than the read. So the number is made to stand for something that cannot be read or written, and the
thread is sent a signal that does nothing: its call is interrupted, Python makes it again, and it fails.
"""

import contextlib
import fcntl
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable

from .channel import Hand, Opening
from .errors import is_own

with contextlib.suppress(ImportError):
    import ctypes  # now: to find it takes descriptors, and there may be none when it is needed


@functools.cache
def _means() -> tuple[Callable[[int, int, int], int], int] | None:
    """What sends a signal to a thread, and a signal that does nothing from now on, of which nobody else makes use.

    The handler stays: one that is on its way would end the process without. None where that cannot be had.
    """
    if "ctypes" not in sys.modules:
        return None  # a Python that was built without
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "tgkill"):
        return None
    handle = libc.signal  # that of Python is for the main thread only, and has it run Python
    handle.restype, handle.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    harmless = ctypes.cast(libc.getpid, ctypes.c_void_p)
    for number in range(signal.SIGRTMAX, signal.SIGRTMIN, -1):
        before = handle(number, harmless)
        if before is None:  # SIG_DFL
            return libc.tgkill, number
        handle(number, before)
    return None


def wake(thread: int) -> None:
    """Interrupts the call that a thread of this process is in, if it is in one that waits.

    Args:
        thread: its number for the system. It may have ended.
    """
    if means := _means():
        kill, number = means
        kill(os.getpid(), thread, number)


_reserve: list[int] = []
"""A descriptor that stands for nothing, for when there is no number left for another. One of them, once it could be had."""


def have_reserve() -> None:
    """Sees that there is one for when there is no number left. If there is none now, it is not there: try again later."""
    if not _reserve:
        try:
            _reserve.extend(map(os.open, *_NOTHING))
        except OSError as error:
            if not is_own(error):
                raise


_NOTHING = ("/",), (os.O_PATH | os.O_CLOEXEC,)
"""What to open: calls on it fail with EBADF, and poll(2) tells of it at once."""


def beneath(hand: Hand, calls: list[Hand]) -> list[Hand]:
    """Which calls of this thread the handler of a signal has interrupted to make this one.

    Args:
        hand: of that.
        calls: all that are made.
    """
    return [each for each in (*calls,) if each is not hand and each.thread == hand.thread]


class Inside:
    """The calls that are made on one channel. A thread may be in more than one, if the handler of a signal makes one, too."""

    def __init__(self) -> None:
        self.readers: list[Hand] = []
        self.senders: list[Hand] = []
        self.retired: list[Opening] = []
        """Their descriptors stand for nothing, and are somebody's still: else the next file that is opened had their number."""
        self._closing = threading.RLock()
        """Held by who closes, or makes a number stand for nothing: the number must not become another file's meanwhile."""

    def is_held(self, opening: Opening) -> bool:
        """Whether anybody has an opening of the channel in hand."""
        return any(hand.opening is opening for hand in (*self.readers, *self.senders))

    def close(self, opening: Opening) -> None:
        """Closes an opening of the channel. Those who have it in hand come out of their calls, which fail.

        Args:
            opening: if anybody has it in hand, its descriptor stands for nothing then, and is closed when nobody has any more.
        """
        with self._closing:
            threads = {hand.thread for hand in (*self.readers, *self.senders) if hand.opening is opening}
            if opening not in self.retired:
                if not threads or not _void(opening):
                    opening.close()
                    return
                self.retired.append(opening)
            for thread in threads - {threading.get_native_id()}:
                wake(thread)
            self.bury()

    def bury(self) -> None:
        """Closes what has been retired, and nobody has in hand any more. Who lets go of something calls it, if there is any."""
        with self._closing:
            held = [hand.opening for hand in (*self.readers, *self.senders)]
            for opening in [each for each in self.retired if each not in held]:
                opening.close()
                with contextlib.suppress(ValueError):
                    self.retired.remove(opening)  # the handler of a signal may be here, too


def _void(opening: Opening) -> bool:
    """Has the descriptor of an opening stand for nothing, if it has one still. Returns whether that could be done."""
    own = list[int]()
    try:
        try:
            own += map(os.open, *_NOTHING)
            nothing = own[0]
        except OSError as error:
            if not is_own(error) or not _reserve:
                raise
            nothing = _reserve[0]
            if not fcntl.fcntl(nothing, fcntl.F_GETFL) & os.O_PATH:  # somebody has closed it, and it is another file's
                raise
        if (file := opening.file) >= 0:  # or the handler of a signal has closed it; behind this, none comes before the call
            os.dup2(nothing, file, inheritable=False)
    except OSError as error:
        if not is_own(error):
            raise
        return False
    finally:
        for each in own:
            os.close(each)
    return True
