"""Messages of a stream that are remembered, to know later how much of it is still the same.

The one rule: the older, the fewer. A server that has lost its last messages has rarely lost many, and from any message back to
the one remembered before it is never far, measured by how much was lost.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Numbered(Protocol):
    """What has the number of a message."""

    @property
    def sequence(self) -> int:
        """The number."""


M = TypeVar("M", bound=Numbered)


def thinned(marks: Sequence[M]) -> tuple[M, ...]:
    """As many marks as are needed.

    Args:
        marks: the oldest first.

    Returns:
        The first and the last of them, and so many between that from any message back to the mark before, it is at most twice as
        far as to the message itself.
    """
    kept = list(marks[-1:])
    for mark, older in zip(marks[-2:0:-1], marks[-3::-1], strict=False):
        if marks[-1].sequence - older.sequence > 2 * (marks[-1].sequence - kept[-1].sequence):
            kept.append(mark)
    return (*marks[: len(marks) > 1], *reversed(kept))
