"""Where the lines of an archive come from: the channels, and the spools that they go into.

The one rule: a spool is filled by a thread of this process, or by a recorder that runs by itself, and never by both.
"""

import contextlib
import re
import threading

from ..core.kinds import has_master
from ..host.mounted import is_bus
from ..host.terminal import Terminal
from ..spark.source.channels import Found, LeftOut
from ..spark.source.drains import DrainThread, empty, stop_all, wait_until_free
from ..spool import Spool, SpoolError
from ..spool.layout import IDENTITY
from .archive import Position
from .names import unfit
from .order import ANY, FAILURES, Order
from .storage import ArchiveError

LOOK_SECONDS = 1.0
"""How often is looked for channels that a pattern matches."""

IN_USE = (
    "another futebus-archive, a recorder or a query of Spark: stop it, or give this archive --spools of its own; what recorders"
    " have is archived with --external"
)
"""Who has a spool that cannot be had, and what can be done."""


class Sources:
    """The channels of an archive.

    Args:
        order: what is asked for.
        terminal: is told how it goes.
    """

    def __init__(self, order: Order, terminal: Terminal) -> None:
        self._order, self._terminal = order, terminal
        self._drained: dict[str, DrainThread] = {}
        self._news = threading.Condition()
        self._left_out = LeftOut(terminal.say)
        self._known: dict[str, tuple[tuple[int, int], bool]] = {}
        """Of each spool: which file says what it is, and whether it can be archived."""
        self._found = (
            Found(
                order.bus,
                re.compile(order.pattern),
                self._drained,
                spool_of=order.spool_of,
                take=self._take,
                unfit=unfit,
                say=terminal.say,
                beside=self._left_out,
            )
            if order.pattern is not None and order.bus is not None and not order.is_external
            else None
        )
        self._emptied: set[str] = set()
        self.failure: BaseException | None = None
        """What has ended the thread that looks for channels."""

    @property
    def are_none(self) -> bool:
        """Whether there is no channel, and nothing of one that was there."""
        return not self._drained and not self.recorded()

    def check(self) -> None:
        """Sees that what others are to fill is there."""
        if not self._order.is_external:
            return
        for channel in self._order.channels:
            directory = self._order.spool_of(channel.name)
            if not directory.exists():
                known = channel if is_bus(channel.parent) else f"BUS/{channel.name}"
                raise ArchiveError(f"{directory} is no spool yet: futebus-record {known} {directory} fills it")
            Spool(directory)
        if not self._order.channels and not self.recorded():
            what = "no spool" if self._order.pattern == ANY else f"no spool of a channel that matches {self._order.pattern!r}"
            if self._order.is_once:
                # Who asks again and again, cron for example, would never know that nothing gets archived.
                raise ArchiveError(f"there is {what} in {self._order.spools}")
            self._terminal.say(f"there is {what} in {self._order.spools} yet; waiting for one")

    def drain(self) -> None:
        """Takes up the channels that are to be drained and are not yet, and gives back those that were found and have gone."""
        order = self._order
        if self._found is not None:
            self._found.look()
        wanted = [] if order.is_external else [channel for channel in order.channels if channel.name not in self._drained]
        wait_until_free((channel.name for channel in wanted), order.spool_of)
        for channel in wanted:
            is_mastered = has_master(channel.name)
            if is_mastered and order.is_slave and not channel.exists():
                raise ArchiveError(f"{channel} has no master; without --slave, futebus-archive becomes it")
            is_master = is_mastered and not order.is_slave
            drained = DrainThread(channel, order.spool_of(channel.name), is_master, self._news, in_use=IN_USE)
            is_missing = not is_mastered and not channel.exists()
            self._drained[channel.name] = drained  # before it begins: a signal may come, and what was accepted is taken
            drained.start()
            if is_missing and not self._terminal.is_quiet:
                self._terminal.say(f"{channel} did not exist and has been created")

    def _take(self, name: str) -> DrainThread:
        """What drains a channel that the pattern has matched. Who is to be master must be told: one that is there has one."""
        order = self._order
        assert order.bus is not None
        return DrainThread(order.bus / name, order.spool_of(name), False, self._news, is_found=True, in_use=IN_USE)

    def keep_looking(self, stopping: threading.Event) -> None:
        """Takes up and gives back channels that a pattern matches, in a thread of its own, until `stopping` is set."""
        if self._found is not None:
            threading.Thread(target=self._look, args=(stopping,), daemon=True).start()

    def _look(self, stopping: threading.Event) -> None:
        while not stopping.wait(LOOK_SECONDS):
            try:
                self.drain()
            except FAILURES as error:
                self.failure = error
                return

    def stop(self) -> None:
        """Takes what the bus still has, if it does not take long, and lets go of the channels. It may be called again."""
        if self._found is not None:
            self._found.stop()
        stop_all(self._drained.values())

    def forget(self, safe: dict[str, Position]) -> None:
        """Takes from the spools what no query can ask for again.

        Args:
            safe: from where on lines may be asked for again, by channel.
        """
        for name, drained in list(self._drained.items()):
            if name in safe and safe[name].spool == drained.spool_id:
                with contextlib.suppress(OSError):  # nothing is lost by that, and it is tried again
                    drained.forget(safe[name].line)
            drained.check()
        if self._found is not None:
            # Of channels that have gone nothing stays, but for the spool's identity and where its numbers go on.
            self._emptied -= self._drained.keys()
            for name in self.recorded() - self._drained.keys() - self._emptied:
                if name in safe and empty(self._order.spool_of(name), name, safe[name].line, safe[name].spool):
                    self._emptied.add(name)

    def recorded(self) -> set[str]:
        """The names of the channels that have spools and are to be archived."""
        if self._order.pattern is None:
            return {channel.name for channel in self._order.channels}
        names = {entry.parent.name for entry in self._order.spools.glob("*/spool.json")}
        names = {name for name in names if re.fullmatch(self._order.pattern, name)}
        return {name for name in sorted(names) if self._is_fit(name)}

    def _is_fit(self, name: str) -> bool:
        """Whether the spool of a name can be archived. What cannot be read now may be later."""
        directory = self._order.spool_of(name)
        if why := unfit(name):
            self._left_out.note(name, f"{directory}: {why}")
            return False
        try:
            status = (directory / IDENTITY).stat()
            found = status.st_ino, status.st_mtime_ns
            if name not in self._known or self._known[name][0] != found:  # it is looked often, and there may be thousands
                channel = Spool(directory).channel
                self._known[name] = found, channel == name
                if channel != name:
                    self._left_out.note(name, f"{directory} is the spool of {channel}, not of {name}")
            return self._known[name][1]
        except SpoolError as error:  # it may just be begun
            self._left_out.note(name, str(error), may_pass=True)
        except OSError as error:
            self._left_out.note(name, f"{directory}: {error.strerror}")
        return True
