"""The signals that end a command in an orderly way, and how the main thread waits for them.

The one rule: no signal is overslept. Python runs what a signal is to do in the main thread, when that has something to do anyway;
but the kernel may interrupt any other thread instead. Who waits with a lock, as `queue.get` does, may then wait for ever; and who
waits with sigwaitinfo(2) never gets what was delivered to another thread, be it one that was joined and has not left the process
yet. So a process that ever waits like that has its signals blocked for life, in all threads, and takes them from a `SignalFile`.
Nor is a call such as read(2) interrupted by a signal that comes between Python's last look for one and the call. And a child that
is born forgets those which have come to it before it knows that it is one.
"""

import contextlib
import ctypes
import errno
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")

_SIGSET_BYTES = 128
_SIGINFO_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class _Time(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Endings:
    """The signals that end a command, from now on to the end of the process: none of them ends it by itself any more.

    So there is no moment at which one that arrives has its default action, and leaves behind what has to be cleared away.
    """

    def __init__(self) -> None:
        self.numbers = ending_signals()
        self.first: signal.Signals | None = None
        """The one that came first."""
        self._wake: Callable[[], object] | None = None
        for number in self.numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = signal.Signals(number)
        if self._wake:
            self._wake()
            self._wake = None  # if it has failed, the next one tries again

    def forget(self) -> None:
        """Ignores them: the command ends. Python would give them their default action again when it finishes."""
        for number in self.numbers:
            signal.signal(number, signal.SIG_IGN)

    def on_first(self, wake: Callable[[], object]) -> None:
        """Has a function called, from a signal handler, when the first one comes; at once if it has come already."""
        self._wake = wake
        if self.first is not None:
            wake()
            self._wake = None


def ending_signals() -> set[signal.Signals]:
    """The signals that end a command in an orderly way.

    SIGHUP and SIGINT, unless the command was started to ignore them, by nohup(1) or by the `&` of a script; and SIGTERM.
    """
    interrupts = (signal.SIGHUP, signal.SIGINT)
    return {signal.SIGTERM, *(number for number in interrupts if signal.getsignal(number) != signal.SIG_IGN)}


def fork() -> int:
    """As `os.fork`, in which no signal that ends a command is lost: what comes to the child meanwhile comes when it is there.

    Returns:
        0 in the child, else its process ID.

    Raises:
        OSError: the system has no room for it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_readable(descriptor: int) -> None:
    """Waits, in the main thread, until a descriptor can be read or its other end is closed. Handlers of signals run at once."""
    with contextlib.ExitStack() as stack:
        reads, writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for end in (reads, writes):
            stack.callback(os.close, end)
        before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, before, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(reads, select.POLLIN)
        poll.register(descriptor, select.POLLIN)
        while not any(found == descriptor for found, _ in poll.poll()):
            with contextlib.suppress(BlockingIOError):
                os.read(reads, 4096)


def take_signal(numbers: Iterable[signal.Signals], seconds: float | None) -> int | None:
    """Takes one of the signals that have come, or waits for it.

    As `signal.sigtimedwait`, which returns what happens to lie in its memory if the process was stopped, or frozen, and goes on
    when the time is over (CPython 3.11): some number that is no signal's.

    Args:
        numbers: which ones. They are blocked in every thread of the process.
        seconds: how long to wait, 0 for not at all; None: until one comes.

    Returns:
        Its number; None if none has come in time.

    Raises:
        OSError: the system refuses it.
    """
    those = _set_of(numbers)
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if end is None else max(end - time.monotonic(), 0)
        timeout = None if left is None else ctypes.byref(_Time(int(left), int(left % 1 * 1e9)))
        number: int = _libc.sigtimedwait(those, None, timeout)
        if number > 0:
            return number
        error = ctypes.get_errno()
        if error == errno.EAGAIN:
            return None
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))


def _set_of(numbers: Iterable[signal.Signals]) -> "ctypes.Array[ctypes.c_char]":
    """A `sigset_t`."""
    those = ctypes.create_string_buffer(_SIGSET_BYTES)
    _libc.sigemptyset(those)
    for number in numbers:
        _libc.sigaddset(those, number)
    return those


class SignalFile:
    """Signals as what is read from a file, signalfd(2), which can be waited for together with others.

    Args:
        numbers: which ones. They are blocked in every thread of the process.

    Raises:
        OSError: the system has no room for it.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._descriptor: int = _libc.signalfd(-1, _set_of(numbers), os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def fileno(self) -> int:
        """The descriptor. It can be read when one has come."""
        return self._descriptor

    def take(self) -> int | None:
        """The next one that has come, which it does no more then; None if there is none."""
        try:
            return int.from_bytes(os.read(self._descriptor, _SIGINFO_BYTES)[:4], sys.byteorder)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """What comes now stays with the process, until somebody else waits for it."""
        os.close(self._descriptor)


def end_by(number: signal.Signals) -> None:
    """Ends this process at once, as the signal would: who waits for it, a shell above all, sees that it was cut short."""
    if threading.current_thread() is threading.main_thread():  # others may not
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(128 + number)


class Inbox(Generic[T]):
    """What other threads, and what signals do, tell the main thread, which waits for it.

    To be made in the main thread, and to be closed there.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()  # a signal handler may put something into it
        self._reads, self._writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()  # select(2) knows no descriptor above 1023
        self._poll.register(self._reads, select.POLLIN)
        # The system's handler writes there, in whatever thread it runs.
        self._before = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)

    def put(self, item: T) -> None:
        """Tells it something. Never waits."""
        self._items.put(item)
        with contextlib.suppress(OSError):  # it is full, and so read soon; or nobody waits any more
            os.write(self._writes, b"\0")

    def get(self) -> T:
        """Waits for the next thing that is told. Meanwhile, handlers of signals run at once."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._items.get_nowait()
            self._poll.poll()
            with contextlib.suppress(BlockingIOError):
                os.read(self._reads, 4096)

    def close(self) -> None:
        """Is not woken any more. The pipe stays: a thread that is left behind may still tell something."""
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
