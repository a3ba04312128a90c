"""What a recorder does with a channel when it ends: nobody can write to it any more, and what waits is taken.

The one rule: what was accepted is taken, or it is said that it is lost.
"""

import contextlib

from ..client.inquire import Inquiry, inquire
from ..client.shut import shut
from ..spool import SpoolError, SpoolLock, SpoolWriter
from .recording import Recording


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


def end(descriptor: int) -> None:
    """Has the bus accept nothing more for a channel that we master: what waits is all that there will be.

    A bus of an older futebus does not know how to. There, what comes meanwhile is accepted, and told.
    """
    with contextlib.suppress(OSError):
        shut(descriptor)


def note_lost(recording: Recording, lock: SpoolLock, count: int) -> None:
    """Notes in a spool that nobody writes now how many lines were lost behind those that are there, if the disk lets it."""
    with (
        contextlib.suppress(SpoolError, OSError),
        SpoolWriter(
            recording.spool, recording.channel.name, is_continued=True, segment_bytes=recording.segment_bytes, lock=lock
        ) as spool,
    ):
        spool.note_lost(count)
