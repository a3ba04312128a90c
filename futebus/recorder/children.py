"""Processes that a recorder starts again when they die: what they are told and tell, after how long, and what is said of it.

The one rule: what the holder needs for that is loaded from the beginning. It may have no descriptor left to load it with.
"""

import os
import signal
from collections.abc import Callable

from ..host.patience import Patience
from ..host.signals import take_signal

FINISH = b"F"
"""Tells one to take, or to publish, what there is, and to end. The drain is told by which signal: a byte behind it."""

DONE, FAILED = 0, 1
"""How one ends: as it was told; by an error that may pass."""

REFUSED = 4
"""How a publisher ends by an error that will not pass, before the stream was reached."""

KILL_SECONDS = 1.0
"""How long one that was killed is waited for. The kernel cannot end it while it waits for some disks, or for a bus that hangs."""

PAUSE_SECONDS = (0.05, 5.0)
"""How long it is waited, at first and at most, before the next one is started: it is doubled each time."""

DOUBLINGS = 64
"""After so many, it has got as long as it gets."""


def pause_after(brief_lives: int) -> float:
    """How long to wait, in seconds, before the next one is started. A disk may be read-only for a night, or for a year."""
    least, most = PAUSE_SECONDS
    doublings = max(brief_lives - 2, 0)
    # A float has no room for two to the power of a night's lives.
    return min(least * 2.0**doublings, most) if doublings < DOUBLINGS else most


def how(outcome: int) -> str:
    """How one has ended, in words: by its exit status, or the signal that killed it, negative."""
    if outcome >= 0:
        return "failed"
    try:
        return f"was killed by {signal.Signals(-outcome).name}"
    except ValueError:
        return f"was killed by signal {-outcome}"


def ended_within(child: int, seconds: float, wait: Callable[[float], bool] | None = None) -> bool:
    """Waits for the end of a child.

    Args:
        child: its number. Whoever calls has SIGCHLD blocked.
        seconds: how long to wait.
        wait: waits for so many seconds or until a child has ended, and tells whether to go on.

    Returns:
        Whether it has ended.
    """
    patience = Patience(seconds)
    goes_on = True
    while not os.waitpid(child, os.WNOHANG)[0]:
        if not (pause := patience.pause()) or not goes_on:
            return False
        if wait is None:
            take_signal({signal.SIGCHLD}, pause)
        else:
            goes_on = wait(pause)
    return True
