"""What users can only look at, and how much of it one of them may have open: directories, and files of `_stat` and its like."""

from collections.abc import Iterable, Iterator
from itertools import count

from futebus.core import kinds
from futebus.core.bus import Bus
from futebus.core.errors import TooManyForUser

MAX_LISTINGS_PER_USER = 1024
"""Open directories of one user other than root: with the most channels that a bus has by default, each holds 32 kB."""

FIRST_FILE = 2
"""The index in a listing where the directory and its parent are over."""


def check_room(users: Iterable[int], user: int, limit: int, what: str) -> None:
    """Sees to it that nobody has too much of something open.

    Args:
        users: of all that is open of it.
        user: who wants one more. Root may have as many as there can be.
        limit: how many one user may have.
        what: their name.

    Raises:
        TooManyForUser: he has so many.
    """
    if user and sum(other == user for other in users) >= limit:
        raise TooManyForUser(f"the user has {limit} open {what}")


class Listings:
    """The open directories of a bus. What one lists is what there was when it was read from the beginning.

    Args:
        bus: the bus.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._names: dict[int, list[bytes]] = {}
        self._user_of: dict[int, int] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._names)

    def open(self, user: int) -> int:
        """Opens the directory.

        Returns:
            The handle.

        Raises:
            TooManyForUser: the user has too many.
        """
        check_room(self._user_of.values(), user, MAX_LISTINGS_PER_USER, "directories")
        handle = next(self._numbers)
        self._names[handle] = []
        self._user_of[handle] = user
        return handle

    def user(self, handle: int) -> int:
        """Who has opened it."""
        return self._user_of[handle]

    def names(self, handle: int, start: int) -> Iterator[tuple[int, bytes]]:
        """What it lists from `start` on, each with its index; at 0 it begins anew."""
        if start == 0:
            self._names[handle] = [b".", b"..", *kinds.SHOWN, *sorted(self._bus.channels)]
        names = self._names[handle]
        return ((index, names[index]) for index in range(start, len(names)))

    def close(self, handle: int) -> None:
        """Closes it."""
        del self._names[handle], self._user_of[handle]
