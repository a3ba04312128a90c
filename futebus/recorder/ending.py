"""What a recorder does with a channel when it ends: nobody can write to it any more, and what waits is taken.

The one rule: what was accepted is taken, or it is said that it is lost.
"""

import contextlib

from ..client.inquire import Inquiry, inquire
from ..client.shut import shut
from ..core.text import counted

UNTAKEN = "ended before everything that was queued was taken"
"""What is said when something is left."""


def asked(descriptor: int) -> Inquiry | None:
    """What the bus knows of a channel; None if it has gone: its daemon says what was lost."""
    with contextlib.suppress(OSError):
        return inquire(descriptor)
    return None


def left_of(before: Inquiry, now: Inquiry) -> int:
    """How many of the lines that waited for a reader before still wait, or were given up: the oldest go first.

    One that was handed out in part counts, but for when others wait behind it that came later.
    """
    left = max(before.queued - (now.received - before.received) - (now.dropped - before.dropped), 0)
    return left or int(now.queued_bytes > 0 and not now.queued)


def in_words(left: int) -> str:
    """What is said when that is lost.

    Args:
        left: how many lines it is.
    """
    return f"{UNTAKEN}; {counted(left, 'line')} of it {'is' if left == 1 else 'are'} lost"


def end(descriptor: int) -> None:
    """Has the bus accept nothing more for a channel that we master: what waits is all that there will be.

    A bus of an older futebus does not know how to. There, what comes meanwhile is accepted, and told.
    """
    with contextlib.suppress(OSError):
        shut(descriptor)
