"""Signals that this process sends itself while it does something, and what their handlers do."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from .waiting import DEADLINE

Handler = Callable[[], object]


@contextlib.contextmanager
def at_a_signal(
    wait: Callable[[], object], do: Handler, *, number: int = signal.SIGUSR1, repeats: bool = False
) -> Iterator[None]:
    """Has the handler of a signal do something.

    Args:
        wait: waits, in another thread, until the signal is to be sent.
        do: what the handler does.
        number: the signal.
        repeats: whether it is sent again and again, until `wait` returns something false.
    """

    def kill() -> None:
        while wait() or not repeats:
            os.kill(os.getpid(), number)
            if not repeats:
                break

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(number, lambda *_: do())
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    try:
        yield
    finally:
        killing.join(DEADLINE)
        signal.signal(number, before)
