"""The signals that end a command in an orderly way, and how the main thread waits for them.

The one rule: no signal is overslept. Python runs what a signal is to do in the main thread, when that has something to do anyway;
but the kernel may interrupt any other thread instead. Who waits with a lock, as `queue.get` does, may then wait for ever.
"""

import contextlib
import os
import queue
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Generic, TypeVar

T = TypeVar("T")


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
        signal.set_wakeup_fd(self._before)
