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
from collections.abc import Callable, Collection, Sequence

from .errors import is_own
from .opening import Hand, Opening

with contextlib.suppress(ImportError):
    import ctypes  # now: to find it takes descriptors, and there may be none when it is needed


_SIGNALS = (tuple(range(signal.SIGRTMAX, signal.SIGRTMIN, -1)), (signal.SIGURG, signal.SIGWINCH))
"""With one of the first a thread is interrupted, of which nobody makes use. Of those, all programs of a user together can have
only so many on their way (`RLIMIT_SIGPENDING`). There is no such limit to the others, which programs sooner use."""


@functools.cache
def _means(numbers: Sequence[int]) -> tuple[Callable[[int, int, int], int], int] | None:
    """What sends a signal to a thread, and a signal that does nothing from now on, of which nobody else makes use.

    The handler stays: one that is on its way would end the process without. None where that cannot be had.

    Args:
        numbers: of the signals that may be taken.
    """
    if "ctypes" not in sys.modules:
        return None  # a Python that was built without
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "tgkill"):
        return None
    handle = libc.signal  # that of Python is for the main thread only, and has it run Python
    handle.restype, handle.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    harmless = ctypes.cast(libc.getpid, ctypes.c_void_p)
    for number in numbers:
        # A `struct sigaction`, which systems have in several forms: a handler, or flags before it, is in the beginning of all.
        action = ctypes.create_string_buffer(1024)
        if not libc.sigaction(number, None, action) and not any(action.raw[:16]):
            handle(number, harmless)
            return libc.tgkill, number
    return None


def wake(thread: int) -> None:
    """Interrupts the call that a thread of this process is in, if it is in one that waits.

    Args:
        thread: its number for the system. It may have ended.
    """
    for means in map(_means, _SIGNALS):
        if means and not means[0](os.getpid(), thread, means[1]):
            break


_reserve: list[int] = []
"""A descriptor that stands for nothing, for when there is no number left for another. One of them, once it could be had."""


def have_reserve() -> None:
    """Sees that there is one for when there is no number left. If there is none now, it is not there: try again later."""
    if not (_reserve and _is_nothing(_reserve[0])):
        try:
            _reserve[:] = map(os.open, *_NOTHING)  # whose number it was, if somebody has closed it, is not to be closed
        except OSError as error:
            if not is_own(error):
                raise


def _is_nothing(file: int) -> bool:
    """Whether a descriptor stands for nothing: somebody may have closed it, all that he found, and have another file there."""
    try:
        return bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_PATH)
    except OSError as error:
        if not is_own(error):
            raise
        return False


_NOTHING = ("/",), (os.O_PATH | os.O_CLOEXEC,)
"""What to open: calls on it fail with EBADF, and poll(2) tells of it at once."""


def beneath(hand: Hand, calls: Collection[Hand]) -> list[Hand]:
    """Which calls of this thread the handler of a signal has interrupted to make this one.

    Args:
        hand: of that.
        calls: all that are made.
    """
    return [each for each in (*calls,) if each is not hand and each.thread == hand.thread]


class Inside:
    """The calls that are made on one channel. A thread may be in more than one, if the handler of a signal makes one, too."""

    def __init__(self) -> None:
        # No lists: to remove something from one is a call, behind which the handler of a signal could come, or raise.
        self.readers: dict[Hand, None] = {}
        self.senders: dict[Hand, None] = {}
        self.others: dict[Hand, None] = {}
        """Who asks the bus about the channel, for one."""
        self.left: dict[Opening, bool] = {}
        """What is to be closed, and whether its descriptor stands for nothing by now, and is closed when nobody has it in hand:
        else the next file that is opened had its number."""

    def begin(self, forker: int) -> set[Opening]:
        """In a child of fork(2): the calls of other threads are not there any more.

        Args:
            forker: the number for the system that the thread of the child had in the parent. It may be in calls itself, if the
                handler of a signal has forked.

        Returns:
            What these have in hand. It is to be closed anew, if it was to be.
        """
        self.left = {}
        for calls in self._calls():
            for hand in [*calls]:
                if hand.thread == forker:
                    hand.thread = threading.get_native_id()
                else:
                    del calls[hand]
        return {hand.opening for calls in self._calls() for hand in calls if hand.opening}

    def _calls(self) -> tuple[dict[Hand, None], ...]:
        return self.readers, self.senders, self.others

    def is_held(self, opening: Opening) -> bool:
        """Whether anybody has an opening of the channel in hand."""
        return bool(self._hands(opening))

    def close(self, opening: Opening) -> None:
        """Has an opening of the channel closed, if it is open. Those who have it in hand come out of their calls, which fail.

        Args:
            opening: if anybody has it in hand, its descriptor stands for nothing then, and is closed when nobody has any more. If
                somebody else is just about to close it, it is closed when he has done so.
        """
        if opening.file >= 0:
            self.left.setdefault(opening, False)
        self.tidy()

    def tidy(self) -> None:
        """Closes what is to be closed, as far as nobody has it in hand. Who lets go of something calls it, if there is any."""
        try:
            self._tidy()
        except BaseException:  # the handler of a signal has raised, and others may rely on this one
            self._tidy()
            raise

    def _tidy(self) -> None:
        for opening in [*self.left.copy()]:
            while self._is_due(opening) and self._go_on(opening):
                pass

    def _go_on(self, opening: Opening) -> bool:
        """Does the next step with what is to be closed. Returns whether it is this call's to go on."""
        lock = opening.closing
        is_interrupted = lock._is_owned()  # type: ignore[attr-defined] # which `threading.Condition` is made of
        held = [False]
        try:
            # Noted in the same step: the handler of a signal may raise behind each call.
            held += map(lock.acquire, (False,))
            if not held[-1]:
                return False  # who has it looks once more when he has let go of it
            threads = {hand.thread for hand in self._hands(opening)}
            if threads and not self.left.get(opening):
                if not _void(opening):
                    return False  # to close it now would have them read another file: who comes out of his call does it
                for thread in threads - {threading.get_native_id()}:
                    wake(thread)
                self.left[opening] = True  # not before: who is interrupted does it again
            elif is_interrupted:
                return False  # this is the handler of a signal: whom it has interrupted closes it
            elif not threads:
                opening.close()
                self.left.pop(opening, None)
            return True
        finally:
            if held[-1]:
                lock.release()

    def _hands(self, opening: Opening) -> list[Hand]:
        return [hand for hand in (*self.readers, *self.senders, *self.others) if hand.opening is opening]

    def _is_due(self, opening: Opening) -> bool:
        return opening in self.left and not (self.left.get(opening) and self._hands(opening))


def _void(opening: Opening) -> bool:
    """Has the descriptor of an opening stand for nothing. Returns whether that could be done."""
    own = list[int]()
    try:
        try:
            own += map(os.open, *_NOTHING)
            nothing = own[0]
        except OSError as error:
            if not is_own(error) or not _reserve:
                raise
            nothing = _reserve[0]
            if not _is_nothing(nothing):
                raise
        os.dup2(nothing, opening.file, inheritable=False)  # read in the same step: a child of fork(2) has closed it
    except OSError as error:
        if not is_own(error):
            raise
        return False
    finally:
        for each in own:
            os.close(each)
    return True
