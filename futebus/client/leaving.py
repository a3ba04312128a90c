"""What becomes of a channel that is read, for who goes by its name and looks at it now and then.

The one rule: of a channel whose name was removed, what waited when that was seen is taken, and then it is left, though others may
go on writing there for ever: who opens it by its name opens another. What cannot be taken in time is counted.
"""

from ..core.inquiry import Inquiry, is_taken, left_of
from ..host.patience import Patience

LOOK_SECONDS = 2.0
"""How often to look."""

SOON_SECONDS = 0.1
"""The same once the name was removed: it is to be left soon."""

LEAVE_SECONDS = 5.0
"""For how long what waits in a channel that was removed is taken, at most. Meanwhile nothing is heard of the next one."""


class Leaving:
    """The looks at one channel, from when it is opened on."""

    def __init__(self) -> None:
        self._dropped = 0
        self._then: Inquiry | None = None
        self._patience = Patience(0.0)

    @property
    def has_begun(self) -> bool:
        """Whether it is being left."""
        return self._then is not None

    @property
    def pause(self) -> float:
        """In how many seconds to look again."""
        return SOON_SECONDS if self.has_begun else LOOK_SECONDS

    def dropped(self, told: Inquiry) -> int:
        """How many lines the bus has dropped since this was asked last.

        Args:
            told: what it tells now.
        """
        before, self._dropped = self._dropped, max(self._dropped, told.dropped)
        return self._dropped - before

    def begin(self, told: Inquiry) -> None:
        """Begins to leave it: its name was removed.

        Args:
            told: what the bus tells now. What waits now is to be taken.
        """
        self._then, self._patience = told, Patience(LEAVE_SECONDS)

    def is_over(self, told: Inquiry) -> bool:
        """Whether it can be left: what waited when that began is taken, or it is late.

        Args:
            told: what the bus tells now.
        """
        return self.is_taken(told) or self.is_late

    def is_taken(self, told: Inquiry) -> bool:
        """Whether what waited when that began is taken.

        Args:
            told: what the bus tells now.
        """
        return self._then is None or is_taken(self._then, told)

    @property
    def is_late(self) -> bool:
        """Whether it is to be left, whatever waits. To be asked every `SOON_SECONDS`."""
        return not self._patience.left()

    def left(self, told: Inquiry) -> int:
        """How many of the lines that waited when it began to be left still do.

        Args:
            told: what the bus tells now.
        """
        return left_of(self._then, told) if self._then and not is_taken(self._then, told) else 0
