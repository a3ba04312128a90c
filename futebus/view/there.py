"""Which buses there are, for who names none: those in the mount table.

The one rule: no bus is touched to know it, and nobody's mounts keep those of others from being seen. Any user may mount as many
as fusermount3 lets them, for themselves alone or for all. So the buses of root and of who runs this come first, whenever they
were mounted; of the places that are left each user has one after the other, and only so many; and a bus that has turned out to
be for others has none. What those of another user tell takes a share of our time and no more.
"""

import os
import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..host.mounted import FUSE_TYPE, Mount, mounts
from .shares import Shares
from .told import FOUND, NAMED, Bounds

MOST_BUSES = 64
"""How many are looked at, of those that may be entered."""

MOST_OF_USER = 16
"""How many of one user's, who is neither root nor who looks."""

MOST_REFUSED = 64
"""How many of one user's it is known of that they are for others."""

REFUSED_SECONDS = 10.0
"""How often those are looked at, which may change: by chmod(1)."""


class _Refusal(NamedTuple):
    device: str
    looked_at: float


def _owner(mount: Mount) -> int:
    return mount.owner[0] if mount.owner else -1


class There:
    """The buses that there are."""

    def __init__(self) -> None:
        self._refused: dict[Path, _Refusal] = {}
        self._devices: dict[Path, str] = {}
        """Of what was found last."""
        self._own: set[Path] = set()
        """Those of root and of who looks."""
        self._owners: dict[Path, int] = {}
        """Of the others."""
        self._shares: dict[int, Shares] = {}
        self.left_out = 0
        """How many there are beside those."""

    def find(self) -> list[Path]:
        """Where they are mounted. One that is mounted in two places is one."""
        try:
            table = mounts()
        except OSError:  # no descriptor is left: what was there is taken to be there
            return list(self._devices)
        on_top = {mount.path: mount for mount in table}
        buses: dict[str, Mount] = {}
        for mount in table:
            if mount.type == FUSE_TYPE and on_top[mount.path] is mount:
                buses.setdefault(mount.device, mount)
        own = {_owner(mount) for mount in buses.values()} & {0, os.getuid()}
        others = {_owner(mount) for mount in buses.values()} - own
        chosen: set[str] = set()
        shown = self._choose(chosen, [m for m in buses.values() if _owner(m) in own], MOST_BUSES, MOST_BUSES)
        self._choose(chosen, [m for m in buses.values() if _owner(m) in others], MOST_BUSES - shown, MOST_OF_USER)
        self._devices = {Path(mount.path): device for device, mount in buses.items() if device in chosen}
        self._own = {Path(mount.path) for device, mount in buses.items() if device in chosen and _owner(mount) in own}
        self._owners = {
            Path(mount.path): _owner(mount) for device, mount in buses.items() if device in chosen and _owner(mount) in others
        }
        # Who has unmounted what has taken too much is not given it anew.
        there = {*self._owners.values()}
        self._shares = {user: each for user, each in self._shares.items() if user in there or not each.are_whole}
        self.left_out = len(buses) - len(self._devices)
        self._refused = {path: refusal for path, refusal in self._refused.items() if self._devices.get(path) == refusal.device}
        return list(self._devices)

    def _choose(self, chosen: set[str], buses: Iterable[Mount], places: int, most: int) -> int:
        """Chooses those that are looked at, one of each user after the other. Returns how many places they take.

        Args:
            chosen: here their devices are noted.
            buses: which there are.
            places: for how many there is place.
            most: for how many of one user.
        """
        of_users: dict[int, deque[Mount]] = {}
        for mount in buses:
            of_users.setdefault(_owner(mount), deque()).append(mount)
        known, shown = Counter[int](), Counter[int]()
        while of_users:
            for user, left in list(of_users.items()):
                # Those that are for others take no place, and no turn.
                while left:
                    mount = left.popleft()
                    refusal = self._refused.get(Path(mount.path))
                    is_refused = refusal is not None and refusal.device == mount.device
                    is_full = shown[user] >= most or shown.total() >= places
                    if known[user] >= most + MOST_REFUSED or (is_full and not is_refused):
                        continue
                    known[user] += 1
                    shown[user] += not is_refused
                    chosen.add(mount.device)
                    if not is_refused:
                        break
                if not left:
                    del of_users[user]
        return shown.total()

    def bounds(self, path: Path) -> Bounds:
        """How much a bus may have that is there."""
        return NAMED if path in self._own else FOUND

    def shares(self, path: Path) -> Shares | None:
        """What a bus that is there may take of our time, with the others of its user; None: as much as it needs."""
        user = self._owners.get(path)
        return None if user is None else self._shares.setdefault(user, Shares())

    def is_due(self, path: Path) -> bool:
        """Whether this bus is to be looked at now, by who does so again and again."""
        if (shares := self.shares(path)) and shares.looks.left <= 0:
            return False
        refusal = self._refused.get(path)
        if refusal is None:
            return True
        now = time.monotonic()
        if now < refusal.looked_at + REFUSED_SECONDS:
            return False
        self._refused[path] = refusal._replace(looked_at=now)
        return True

    def note(self, path: Path, *, is_refused: bool) -> None:
        """Notes what a look has shown: whether this bus is for others."""
        if not is_refused:
            self._refused.pop(path, None)
        elif path in self._devices and path not in self._refused:
            self._refused[path] = _Refusal(self._devices[path], time.monotonic())
