"""A channel as it was opened once, and what calls have in hand of it.

The one rule: who makes a call says first what he has in hand, and looks behind that whether it is still what is open. So whoever
leaves it finds him, or he finds that it has been left.
"""

import os
import threading

from .errors import is_own
from .messages import Clients


class Hurry:
    """The calls on a descriptor, of any thread, that must not wait for ever."""

    __slots__ = ("calls", "is_told", "lock")

    def __init__(self) -> None:
        self.calls: dict[Hand, None] = {}
        self.lock = threading.RLock()
        """Held by who has calls on the descriptor fail that would wait, or wait again."""
        self.is_told = False
        """Whether they may fail now."""


class Opening:
    """A channel as it was opened once: what there is of that, and is not of the next one."""

    __slots__ = (
        "beginning",
        "clients",
        "closing",
        "entering",
        "file",
        "forgettings",
        "hurry",
        "id",
        "mark",
        "pieces",
        "rest",
        "was_taken",
    )

    def __init__(self) -> None:
        self.file = -1
        """The descriptor; -1: none."""
        self.closing = threading.RLock()
        """Held by who closes the descriptor, or makes it stand for nothing while others have it in hand: the number must not
        become another file's meanwhile. Nobody waits for it: who has it may be in a handler that waits for him."""
        self.hurry = Hurry()
        self.entering: list[int] = []
        """What is open for it, as long as it is being opened."""
        self.forgettings = 0
        """How often its owner had closed the channel before: when he has done so once more, nobody wants what came from here."""
        self.was_taken = False
        """Whether it has been the one that is open now, or has failed to be: whoever opens or leaves the channel closes it."""
        self.id = 0
        """The own ID; 0: not asked for yet."""
        self.rest = b""
        """Of a message of which the bus has the beginning: what is sent next must begin with it."""
        self.beginning = b""
        """Of a message that is longer than one read."""
        self.pieces: list[bytes] = []
        """Behind that: what was taken when it had ended, and is not among what comes before what is read next."""
        self.mark = object()
        """By which one knows it who must not keep it."""
        self.clients = Clients(self.mark)

    def close(self) -> None:
        """Closes the descriptor, once, whatever interrupts that."""
        close = os.close
        file, entering, self.file, self.entering = self.file, self.entering, -1, []
        numbers, entering[:] = (file,) if file >= 0 else [*entering], ()  # who is entering finds it closed
        for each in numbers:
            try:
                close(each)
            except OSError as error:  # of a bus that has gone
                if not is_own(error):
                    raise


class Hand:
    """What a call has in hand."""

    # No `__init__`: it would take as long as half of a call.
    __slots__ = ("blocks", "lines", "of", "opening", "place", "thread")

    opening: Opening | None
    """Of the channel. It may be closed when no call has it in hand."""
    thread: int
    """Who makes the call, by his number for the system."""
    blocks: list[bytes]
    """What a read has brought, and is to be handed on: one block at most, of whole lines."""
    of: Opening
    """Where that was read."""
    lines: bytes
    """What is sent."""
    place: list[int]
    """Up to where it was accepted; the last counts."""
