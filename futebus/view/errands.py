"""Threads that go to a bus, and may not come back.

The one rule: nobody waits for a thread that is in a bus, and of those that do not come back there are only so many: in one bus,
and in all buses of one user, who may mount one after the other. Where a path leads is found out in the thread too, and it may
hang on the way: until it has arrived, it counts for all who have something mounted there, by the mount table. That also tells
whether what a thread hangs in has gone.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..host.mounted import ANSWER_SECONDS, FUSE_TYPE, Mount, NoBus, mounts, reach

PATIENCE = ANSWER_SECONDS
"""Seconds after which a bus is said not to answer. It is waited for all the same."""

MOST_HUNG = 8
"""How many threads may hang in one bus. It is asked no more then, and is known not to answer."""

MOST_UNDER_WAY = 32
"""How many threads may be on their way to one bus at the same time, before it is known that it hangs."""

MOST_HUNG_OF_USER = 24
"""How many threads may hang in the buses of one user. What has been unmounted counts as long as a thread hangs in it."""

MOST_HUNG_NOWHERE = 24
"""How many threads may hang of which nobody knows in whose file system: links may lead anywhere."""

NOT_ANSWERING = "it does not answer"


class NotAnswering(NoBus):
    """The bus hangs, or has very much to do."""

    def __init__(self) -> None:
        super().__init__(NOT_ANSWERING, None)


class Errand:
    """A thread of ours that goes to a bus.

    Args:
        mountpoint: where the bus is mounted.
    """

    def __init__(self, mountpoint: Path) -> None:
        self._mountpoint = mountpoint
        self._due: float | None = time.monotonic() + PATIENCE
        self.mount: Mount | None = None
        """The bus, as far as it is known which one the path leads to."""
        self.way: list[Mount] = []
        """In what it may hang: until it has arrived, all FUSE mounts above it too."""

    def send(self, work: Callable[[], object]) -> None:
        """Has a thread do something. `work` must not raise anything.

        Raises:
            NotAnswering: too many hang in this bus.
            NoBus: there can be no more threads, or too many hang that may be in file systems of the same user.
        """
        self._expect_way()

        def run() -> None:
            try:
                work()
            finally:
                with _lock:
                    _under_way.discard(self)

        with _lock:
            self._check()
            _under_way.add(self)
        try:
            start(run)
        except (RuntimeError, MemoryError) as error:
            with _lock:
                _under_way.discard(self)
            raise NoBus(f"the bus on {self._mountpoint} cannot be looked at: {error}", None) from None

    def arrive(self) -> None:
        """In the thread: finds out which bus it is, and goes on if not too many are there already.

        Raises:
            NotAnswering: too many hang in this bus.
            NoBus: there is none, or too many hang in others of the same user.
        """
        bus, mount = reach(self._mountpoint)
        os.close(bus)
        with _lock:
            self.mount, self.way = mount, [mount]
            self._check()

    def _expect_way(self) -> None:
        """Finds out where the path leads, as far as the mount table tells."""
        try:
            table = mounts()
        except OSError:
            return  # no descriptor is left: it will not get far
        on_top = {mount.path: mount for mount in table}
        above = [on_top[str(path)] for path in (self._mountpoint, *self._mountpoint.parents) if str(path) in on_top]
        way = [mount for mount in above if mount.owner]
        # Below a stranger's file system it is he who is suspected, and not whoever has mounted what all paths lead through.
        self.way = [mount for mount in way if mount.owner and mount.owner[0] not in (0, os.getuid())] or way
        if above and above[0].path == str(self._mountpoint) and above[0].type == FUSE_TYPE:
            self.mount = above[0]

    def _check(self) -> None:
        """Sees that not too many are there already. With the lock.

        Raises:
            NotAnswering: too many hang in this bus.
            NoBus: too many hang in others of the same user, or nobody knows where.
        """
        others = [each for each in _under_way if each is not self and each.is_expected]
        hung = [each for each in others if each.is_hung]
        there = [each for each in others if self._is_with(each)]
        if len(there) >= MOST_UNDER_WAY or sum(each.is_hung for each in there) >= MOST_HUNG:
            raise NotAnswering
        for owner in {mount.owner for mount in self.way}:
            if sum(any(mount.owner == owner for mount in each.way) for each in hung) >= MOST_HUNG_OF_USER:
                words = "is not looked at: too many of the same user do not answer"
                raise NoBus(f"the bus on {self._mountpoint} {words}", None)
        if self.mount is None and sum(each.mount is None for each in hung) >= MOST_HUNG_NOWHERE:
            raise NoBus(f"the bus on {self._mountpoint} is not looked at: too many do not answer", None)

    def _is_with(self, other: "Errand") -> bool:
        if self.mount is None or other.mount is None:
            return self.mount is other.mount and self._mountpoint == other._mountpoint
        return self.mount.id == other.mount.id

    def expect(self) -> None:
        """From now on it should come back soon."""
        self._due = time.monotonic() + PATIENCE

    def let_stay(self) -> None:
        """It may be where it is for as long as it likes."""
        self._due = None

    @property
    def is_expected(self) -> bool:
        """Whether it should come back soon, or should have."""
        return self._due is not None

    @property
    def is_hung(self) -> bool:
        """Whether it should have come back."""
        return self._due is not None and time.monotonic() > self._due

    @property
    def is_forlorn(self) -> bool:
        """Whether what it hangs in is no longer what the path leads to: unmounted, or with another mount over it."""
        places = [*self.way, *([self.mount] if self.mount else [])]
        if not places:
            return False
        try:
            there = mounts()
        except OSError:
            return False
        ids = {mount.id for mount in there}
        on_top = {mount.path: mount.id for mount in there}
        # Where one is mounted may be told with another path now, if what is above it was moved.
        return any(own.id not in ids or on_top.get(own.path, own.id) != own.id for own in places)


def start(run: Callable[[], object]) -> None:
    """Runs something in a thread of its own, for which the process does not wait when it ends.

    Raises:
        RuntimeError: there can be no more threads.
    """
    threading.Thread(target=run, daemon=True).start()


_lock = threading.Lock()
_under_way: set[Errand] = set()
