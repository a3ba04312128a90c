"""What pages show, kept fresh.

The one rule: each bus is asked once a second, however many pages look, and not at all when none does. What is published replaces
what was before: who is slow misses some, and nothing is kept for anybody.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from ...core.text import escape, printable
from ...host.mounted import NoBus
from ..looking import look as look_at
from ..looking import pause, read
from ..shares import Shares
from ..there import There
from ..told import NAMED, Bounds, Look
from ..watching import Compared, Watch
from . import metrics
from .asking import NOT_ANSWERING, NotAnswering, Question
from .recorders import Keeper, Keepers, has_keepers
from .shown import Shown, bus_shown, clients_shown, most_shown, past_shown, warm_users

TICK = 1.0
"""Seconds from look to look."""

GATHER = 0.5
"""Seconds that the others wait for a slow bus before what they say is published without it."""

MOST_PASSED = 16 << 20
"""How many bytes of `_stat.json` are passed on: half as much again as a bus of default limits tells."""

NOT_OURS = (errno.EACCES, errno.EPERM, errno.ENOTCONN)
"""Who has not been told of buses leaves out those that it may not enter, and those whose daemon is dead."""


class Bus:
    """One bus.

    Args:
        mountpoint: where it is mounted, or will be.
        was_asked_for: whether it stays on the page when it is not there.
    """

    def __init__(self, mountpoint: Path, *, was_asked_for: bool) -> None:
        self.mountpoint = mountpoint
        self.name = escape(os.fsencode(mountpoint))
        """Fit to be shown. No other bus has it."""
        self.was_asked_for = was_asked_for
        self.bounds = NAMED
        """How much it may have."""
        self.stat = Question(mountpoint, lambda: read(mountpoint, most=min(self.bounds.bytes, MOST_PASSED)))
        """`_stat.json`."""
        self.shares: Shares | None = None
        """What it may take of our time, with the others of its user."""
        self.metrics = Question(
            mountpoint, lambda: metrics.ask(mountpoint, self.bounds.metrics, self.shares.metrics if self.shares else None)
        )
        self._look = Question(mountpoint, self._see)
        self._recorders = Keepers()
        self._keepers = Question(mountpoint, self._find_keepers, keeps_last=True)
        self.forget()
        self._asked = self.watch
        """That of who has looks made."""

    def forget(self) -> None:
        """Nobody looks any more: it begins anew when somebody does."""
        self.look: Look | None = None
        self.trouble = "not seen yet"
        """Why there is nothing to be seen; nothing if there is."""
        self.is_hidden = not self.was_asked_for
        self.is_refused = False
        """Whether nobody has asked for it, and it turned out not to be for us."""
        self.watch = Watch(self.bounds.past)
        self.keepers: dict[int, Keeper] = {}
        """Recorders and archives, by their processes."""
        self._shown: tuple[Look | None, str, int] | None = None
        """Of what it was found out last how that is shown."""
        self._text: Shown = {}
        """That."""
        self.settled = trio.Event()
        """Set when the last look is over."""
        self.settled.set()

    def hold_to(self, bounds: Bounds, shares: Shares | None) -> None:
        """From the next look on, it may have so much."""
        self.bounds, self.watch.most_past, self.shares = bounds, bounds.past, shares

    def _see(self) -> tuple[Look, Compared, Watch]:
        # Not `self.watch`: when this comes late, that may be one for who comes an hour later.
        watch = self._asked
        look = look_at(self.mountpoint, self.bounds, self.shares.looks if self.shares else None)
        warm_users(look)
        return look, watch.compare(look), watch

    def _find_keepers(self) -> dict[int, Keeper]:
        return self._recorders.find(self.look) if self.look else {}

    def begin(self, nursery: trio.Nursery) -> None:
        """Looks at it once, unless that is being done."""
        if self.settled.is_set():
            self.settled = trio.Event()
            self._asked = self.watch
            nursery.start_soon(self._look_once, self.settled, self.watch)

    async def _look_once(self, settled: trio.Event, asked: Watch) -> None:
        found: tuple[Look, Compared, Watch] | NoBus
        try:
            try:
                found = await self._look.answer()
            except NoBus as error:
                found = error
            if asked is self.watch:  # else everybody has gone meanwhile, and it begins anew
                self._take(found)
        finally:
            settled.set()

    def _take(self, found: tuple[Look, Compared, Watch] | NoBus) -> None:
        if isinstance(found, NotAnswering):
            # What was seen last stays. It goes on being asked, and what it answers is taken by who looks next.
            self.trouble, self.is_hidden, self.is_refused = NOT_ANSWERING, False, False
        elif isinstance(found, NoBus):
            self.look, self.trouble = None, printable(str(found))
            self.is_hidden = self.is_refused = self.is_left_out(found)
        else:
            look, compared, watch = found
            self.look, self.trouble, self.is_hidden, self.is_refused = look, "", False, False
            if watch is self.watch:  # else who has begun this look has gone
                watch.show(compared)
            if has_keepers(look):
                # Of the look before, as a rule: disks keep nothing waiting.
                self.keepers = self._keepers.last or {}
                self._keepers.begin()
            else:
                self.keepers = {}

    def is_left_out(self, error: NoBus) -> bool:
        """Whether nobody has asked for this bus, and it is not for us."""
        return not self.was_asked_for and error.number in NOT_OURS

    def told(self, most: int) -> Shown:
        """What a page is told of it: `bus_shown`. As long as nothing is new, that is known; of a large bus it takes a while."""
        now = self.look, self.trouble, most
        if self._shown is None or self._shown[0] is not self.look or self._shown[1:] != now[1:]:
            self._shown, self._text = now, bus_shown(self, most)
        return self._text

    def shows(self, channel: str, number: int | None) -> str:
        """Of a channel: its clients, as JSON. By its number if that is given, else it is the one that has the name now."""
        return json.dumps(clients_shown(self, channel, number))


class Feeds:
    """All the buses.

    Args:
        mountpoints: theirs; without any, all that there are.
    """

    def __init__(self, mountpoints: Sequence[Path]) -> None:
        self._given = list(dict.fromkeys(mountpoints))
        self._buses = {path: Bus(path, was_asked_for=True) for path in self._given}
        self._there = There()
        self._lookers = 0
        self._wanted = trio.Event()
        self._published = trio.Event()
        self.number = 0
        """Of what was published last; 0 if nothing is known."""
        self.text = ""
        """All buses, as JSON."""
        self.nursery: trio.Nursery

    @property
    def buses(self) -> list[Bus]:
        """Those that there are now. The mount table tells; no bus is touched."""
        if not self._given:
            there = self._there.find()
            for path in self._buses.keys() - there:
                del self._buses[path]
            for path in there:
                if path not in self._buses:
                    self._buses[path] = Bus(path, was_asked_for=False)
                self._buses[path].hold_to(self._there.bounds(path), self._there.shares(path))
        return list(self._buses.values())

    def find(self, name: str) -> Bus | None:
        """The bus of a name; without a name, the only one that there is."""
        buses = self.buses
        if not name:
            return buses[0] if len(buses) == 1 else None
        return next((bus for bus in buses if bus.name == name), None)

    async def names(self) -> list[str]:
        """The names of those that are shown. It is looked at them first where that has to show which ones are for us."""
        if self._given:
            return [bus.name for bus in self.buses]
        with self.looking():
            await self.newer(0)
            for bus in self.buses:
                await bus.settled.wait()  # one that is slow is there, too
            return [bus.name for bus in self.buses if not bus.is_hidden]

    async def run(self, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Looks, whenever somebody wants it."""
        async with trio.open_nursery() as self.nursery:
            task_status.started()
            while True:
                await self._wanted.wait()
                begun = trio.current_time()
                next_look = begun + pause(TICK)
                buses = self.buses
                for bus in buses:
                    if self._given or self._there.is_due(bus.mountpoint):
                        bus.begin(self.nursery)
                with trio.move_on_at(begun + GATHER):
                    for bus in buses:
                        if bus.trouble != NOT_ANSWERING:
                            await bus.settled.wait()
                for bus in buses:
                    if bus.settled.is_set():
                        self._there.note(bus.mountpoint, is_refused=bus.is_refused)
                if self._lookers:
                    self._publish(buses)
                await trio.sleep_until(next_look)

    def _publish(self, buses: list[Bus]) -> None:
        shown = [bus for bus in buses if not bus.is_hidden]
        most = most_shown(shown)
        self.text = json.dumps({"buses": [bus.told(most) for bus in shown], "untold": self._there.left_out})
        self.number += 1
        self._published.set()
        self._published = trio.Event()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """While this lasts, somebody looks."""
        self._lookers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._lookers -= 1
            if not self._lookers:
                self._wanted = trio.Event()
                self.number, self.text = 0, ""
                for bus in self._buses.values():
                    bus.forget()

    async def newer(self, number: int) -> int:
        """Waits for something newer than this. Returns its number."""
        while self.number == number or not self.number:
            await self._published.wait()
        return self.number

    def past(self, bus: str, channel: str, number: int | None) -> str:
        """How it has been, as JSON: of all buses, and of a channel, by its number if that is given."""
        seen = [each for each in self._buses.values() if each.look]
        return json.dumps([past_shown(each, channel if each.name == bus else "", number) for each in seen])
