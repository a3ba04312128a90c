"""What a recorder does with a channel when it ends: nobody else can come, and what had waited is told from what comes meanwhile.

The one rule: what had waited when the end began is taken, or it is said that it is lost. What comes later is its writers' affair.
"""

import contextlib
import os
from pathlib import Path

from ..client.inquire import Inquiry, inquire
from ..host.mounted import NoBus, find_bus


def asked(descriptor: int) -> Inquiry | None:
    """What the bus knows of a channel; None if it has gone: its daemon says what was lost."""
    with contextlib.suppress(OSError):
        return inquire(descriptor)
    return None


def left_of(before: Inquiry, now: Inquiry) -> int:
    """How many of the lines that waited for a reader before still wait, or were given up: the oldest go first."""
    return max(before.queued - (now.received - before.received) - (now.dropped - before.dropped), 0)


def take_name(channel: Path, descriptor: int) -> None:
    """Lets nobody else open a channel.

    Args:
        channel: its name.
        descriptor: it itself. Another one of that name is left alone.
    """
    with contextlib.suppress(OSError, NoBus):
        bus = find_bus(channel.parent)  # another may be there by now: who owns the directories above decides that
        try:
            if os.path.samestat(os.stat(channel.name, dir_fd=bus, follow_symlinks=False), os.fstat(descriptor)):
                os.unlink(channel.name, dir_fd=bus)
        finally:
            os.close(bus)
