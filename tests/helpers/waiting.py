"""Waiting for a condition, with a deadline: never for a time."""

import select
import socket
import time
from collections.abc import Callable
from typing import IO, TypeVar

from .watching import WATCH

T = TypeVar("T")

DEADLINE = 120.0
"""Seconds. Reached only when something is broken, so it can be generous: the machines are shared, and slow at times."""

SLOW = 200.0
"""The same for what starts a Spark first, which takes its time on a machine that has much to do."""


def until(condition: Callable[[], T], what: str = "", deadline: float = DEADLINE) -> T:
    """Calls `condition` until it returns something true, which is returned. Fails the test after `deadline` seconds.

    When somebody was found stuck inside FUSE, there is nothing to be waited for any more.
    """
    end = time.monotonic() + deadline
    pause = 0.0005
    while not (result := condition()):
        if WATCH.has_found:
            raise AssertionError(f"somebody is stuck inside FUSE, while this was waited for: {what or condition}")
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} seconds: {what or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return result


def is_readable(file: "int | IO[str] | IO[bytes] | socket.socket") -> bool:
    """Whether there is something to read. select(2) would know no descriptor above 1023."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
