"""Waiting for a condition, with a deadline: never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 20.0
"""Seconds. Reached only when something is broken, so it can be generous: the machines are shared."""


def until(condition: Callable[[], T], what: str = "", deadline: float = DEADLINE) -> T:
    """Calls `condition` until it returns something true, which is returned. Fails the test after `deadline` seconds."""
    end = time.monotonic() + deadline
    pause = 0.0005
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} seconds: {what or condition}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return result
