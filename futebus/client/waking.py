"""Gets threads out of calls on a descriptor that another one closes.

The one rule: who makes such calls pays nothing for that. close(2) does not end a read(2) that waits, and to ask poll(2) before
each read would cost more than the read. So the number is made to stand for something that cannot be read or written, and the
thread is sent a signal that does nothing: its call is interrupted, Python makes it again, and it fails.
"""

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator


@functools.cache
def _means() -> tuple[Callable[[int, int, int], int], int] | None:
    """What sends a signal to a thread, and a signal that does nothing from now on, of which nobody else makes use.

    The handler stays: one that is on its way would end the process without. None where that cannot be had.
    """
    import ctypes  # few programs need it

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


class Inside:
    """Who is inside of calls on one descriptor: at most one thread that reads and one that sends."""

    def __init__(self) -> None:
        self.reader = 0
        """The number of the thread for the system; 0: none."""
        self.sender = 0
        self.retired: list[int] = []
        """Descriptors that stand for nothing, and are somebody's still: else the next file that is opened had their number."""
        self._burying = threading.Lock()

    def retire(self, file: int) -> bool:
        """Has those who are inside come out of their calls, which fail.

        Args:
            file: the descriptor. It stands for nothing then, and is closed when they have come out.

        Returns:
            Whether anybody is inside: if not, nothing was done.
        """
        threads = {self.reader, self.sender} - {0}
        if not threads:
            return False
        try:
            nothing = os.open("/", os.O_PATH | os.O_CLOEXEC)  # fails with EBADF, and poll(2) tells of it at once
        except OSError:
            return False
        try:
            self.retired.append(file)
            os.dup2(nothing, file, inheritable=False)
        finally:
            os.close(nothing)
        for thread in threads - {threading.get_native_id()}:
            wake(thread)
        self.bury()
        return True

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Notes that this thread is in no call meanwhile, and has no descriptor in hand: what it has been in can be closed."""
        thread = threading.get_native_id()
        reads, sends = self.reader == thread, self.sender == thread
        if reads:
            self.reader = 0
        if sends:
            self.sender = 0
        try:
            yield
        finally:
            if self.retired:
                self.bury()
            if reads:
                self.reader = thread
            if sends:
                self.sender = thread

    def bury(self) -> None:
        """Closes what has been retired, if nobody is inside any more. Who comes out calls it, if there is something."""
        with self._burying:
            while self.retired and not self.reader and not self.sender:
                with contextlib.suppress(OSError):
                    os.close(self.retired.pop())
