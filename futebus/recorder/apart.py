"""What is done with the bus in a thread, so that a bus that hangs does not keep the process from being ended.

The one rule: the thread has no lock that others use. It calls the system, and waits to be told that it was given up; it neither
speaks nor imports anything. For while it waits, or is held up by the bus for good, the process may fork(2), to start a publisher
or a drain again, and the new one gets every lock as it is and has nobody who gives back the thread's.
"""

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..host.patience import Patience

T = TypeVar("T")

PAUSES = (0.001, 0.05)
"""Seconds between two looks whether it is done, at first and at most."""


def apart(
    work: Callable[[Callable[[float], bool]], T],
    wait: Callable[[float], bool] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    *,
    seconds: float | None = None,
    grace: float = 0,
    undo: Callable[[T], object] = lambda outcome: None,
) -> T | None:
    """Does something in a thread.

    Args:
        work: what. It is given a function that waits for so many seconds, and tells whether to go on.
        wait: waits here for so many seconds, and tells whether to go on; None: as long as the thread runs.
        meanwhile: called here again and again.
        seconds: how long it is waited for; None: until `wait` gives it up.
        grace: how long it is waited for when it was told that it was given up: it may be about to return.
        undo: is called, in the thread, with what is returned later still.

    Returns:
        What it has returned; None if it was given up. As long as the system has no room for a thread, that is tried again.
    """
    outcome: list[T] = []
    errors: list[BaseException] = []
    given_up = threading.Event()
    ticket = [True]
    """Whoever has got it says what becomes of the outcome."""

    def is_mine() -> bool:
        try:
            return ticket.pop()
        except IndexError:
            return False

    def do_it() -> None:
        try:
            found = work(lambda pause: not given_up.wait(pause))
            if is_mine():
                outcome.append(found)
            else:
                undo(found)
        except BaseException as error:
            errors.append(error)

    thread: threading.Thread | None = None
    patience = None if seconds is None else Patience(seconds)
    pause, longest = PAUSES
    goes_on = True
    while goes_on and (patience is None or patience.left()):
        if thread is None:
            with contextlib.suppress(OSError):
                thread = begin(threading.Thread(target=do_it, name="bus", daemon=True))
        elif not thread.is_alive():
            break
        if wait is not None:
            goes_on = wait(pause)
        elif thread is None:
            time.sleep(pause)
        else:
            thread.join(pause)
        pause = min(pause * 1.5, longest)
        meanwhile()
    given_up.set()
    if thread is not None:
        thread.join(grace)
        if not is_mine():
            thread.join()  # it is about to end
    if errors:
        raise errors[0]
    return outcome[0] if outcome else None


def begin(thread: threading.Thread) -> threading.Thread:
    """Starts a thread, which is returned.

    Raises:
        OSError: `EAGAIN`, the system has no room for it.
    """
    try:
        thread.start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "no thread can be started") from None
    return thread
