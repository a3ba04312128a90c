"""Processes that a recorder starts again when they die: what they are told and tell, after how long, and what is said of it.

The one rule: what the holder needs for that is loaded from the beginning. It may have no descriptor left to load it with.
"""

import signal

FINISH = b"F"
"""Tells one to take, or to publish, what there is, and to end."""

DONE, FAILED, REFUSED = 0, 1, 4
"""How a publisher ends: as it was told; by an error that may pass; by one that will not, before the stream was reached."""

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
