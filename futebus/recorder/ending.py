"""What a recorder does with a channel when it ends: nobody can write to it any more, and what waits is taken.

The one rule: what was accepted is taken, or it is said that it is lost.
"""

import contextlib
from typing import NamedTuple

from ..client.inquire import inquire
from ..client.shut import shut
from ..core.inquiry import Inquiry, left_of
from ..core.text import are, counted

UNTAKEN = "ended before everything that was queued was taken"
"""What is said when something is left."""


def asked(descriptor: int) -> Inquiry | None:
    """What the bus knows of a channel; None if it has gone: its daemon says what was lost."""
    with contextlib.suppress(OSError):
        return inquire(descriptor)
    return None


class PushedOut(NamedTuple):
    """How many lines the bus has dropped, for a reader that was too slow; not those that came after the end began."""

    waiting: int
    """Those that waited when the end began,"""
    waiting_unnoted: int
    """of which nobody has noted so many."""
    earlier_unnoted: int
    """Those that were dropped before, and nobody has noted."""


def pushed_out(before: Inquiry, now: Inquiry, noted: int) -> PushedOut:
    """How many lines the bus has dropped.

    Args:
        before: what the bus told when the end began.
        now: what it tells now.
        noted: how many are.
    """
    untaken = max(before.queued - (now.received - before.received), 0)
    waiting = max(untaken - left_of(before, now, is_begun=False), 0)
    return PushedOut(waiting, max(waiting - max(noted - before.dropped, 0), 0), max(before.dropped - noted, 0))


def in_words(left: int) -> str:
    """What is said when that is lost.

    Args:
        left: how many lines it is.
    """
    return f"{UNTAKEN}; {counted(left, 'line')} of it {are(left)} lost"


def end(descriptor: int) -> None:
    """Has the bus accept nothing more for a channel that we master: what waits is all that there will be.

    A bus of an older futebus does not know how to. There, what comes meanwhile is accepted, and told.
    """
    with contextlib.suppress(OSError):
        shut(descriptor)
