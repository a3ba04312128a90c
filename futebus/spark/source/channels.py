"""The channels that a pattern matches: taken up as they come, and given back as they go.

The one rule: nobody has asked for any one of them by name, so none of them can fail a query. One that cannot be had is left out,
and that is said once. Only that somebody else fills its spool, which is asked for by name, ends the query.
"""

import contextlib
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...host.mounted import NoBus, channels_on
from ...recorder.channel import BusAway, ChannelError, Say
from ...spool import SpoolError, SpoolInUse
from ..options import QueryError
from .drains import DrainThread, wait_until_free

RETRY_SECONDS = (1.0, 60.0)
"""How soon, and later how seldom, what was left out is tried again."""

MOST_SAID = 100
"""How many names are said. Anybody who may use a bus can make many."""

FILES_EACH = 8
"""How many open files a channel that is drained needs, at most."""

FILES_SPARE = 128
"""How many are left to Python and Spark."""


def unfit(name: str) -> str | None:
    """Why a channel of this name is nothing for Spark; None if it is."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is no UTF-8, and Spark has no other text"
    return None


class LeftOut:
    """What a pattern matches and cannot be had.

    Args:
        say: is told each name once, and why.
        beside: somebody else who tells it names: none is told again that he has told.
    """

    def __init__(self, say: Say, beside: "LeftOut | None" = None) -> None:
        self._say = say
        self._tries: dict[str, tuple[int, float]] = {}
        """How often each was tried, and when it is tried again."""
        self._said: set[str] = set() if beside is None else beside._said

    def has(self, name: str) -> bool:
        """Whether this one has been tried, and could not be had."""
        return name in self._tries

    def is_due(self, name: str) -> bool:
        """Whether it is time to try this one, again or for the first time."""
        return name not in self._tries or self._tries[name][1] <= time.monotonic()

    def note(self, name: str, why: str, *, may_pass: bool = False) -> None:
        """Notes that one could not be had.

        Args:
            name: which one.
            why: in one sentence that names it.
            may_pass: whether it is worth a word only if it is still so when it is tried again.
        """
        tries = self._tries[name][0] + 1 if name in self._tries else 1
        soonest, latest = RETRY_SECONDS
        self._tries[name] = (tries, time.monotonic() + min(soonest * 2.0 ** min(tries - 1, 16), latest))
        if name in self._said or len(self._said) > MOST_SAID or (may_pass and tries == 1):
            return
        self._said.add(name)
        self._say(f"{why}; it is left out" if len(self._said) <= MOST_SAID else "more are left out; they are not named")

    def keep(self, names: Iterable[str]) -> None:
        """Forgets all but these: the others are not there any more, or could be had."""
        self._tries = {name: self._tries[name] for name in names if name in self._tries}


class Found:
    """The channels of a bus that a pattern matches.

    Args:
        bus: where it is mounted.
        pattern: matches whole names.
        drained: those that are drained, by name. They are added to and taken from it.
        spool_of: tells where the spool of a name is.
        take: opens the spool of a name, and returns what drains the channel.
        unfit: tells why a name cannot be had, None if it can.
        say: is told what somebody should know.
        beside: who notes spools of these names that cannot be had.
    """

    def __init__(
        self,
        bus: Path,
        pattern: re.Pattern[str],
        drained: dict[str, DrainThread],
        *,
        spool_of: Callable[[str], Path],
        take: Callable[[str], DrainThread],
        unfit: Callable[[str], str | None] = unfit,
        say: Say,
        beside: LeftOut,
    ) -> None:
        self._bus, self._pattern, self._drained, self._say = bus, pattern, drained, say
        self._spool_of, self._take, self._unfit = spool_of, take, unfit
        self._left_out = LeftOut(say, beside)
        self._is_over = False
        self._has_bus: bool | None = None
        self._most = max((resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_SPARE) // FILES_EACH, 1)

    def look(self, *, starts: bool = True) -> None:
        """Gives back what has gone, and takes up what has come.

        Args:
            starts: whether its lines are taken at once, or from `start` on.

        Raises:
            QueryError: there is no bus that can be used, and there never was.
            SpoolInUse: somebody else fills a spool that is to be filled here.
        """
        for name, drained in list(self._drained.items()):
            if drained.has_ended:
                drained.stop()
                del self._drained[name]
        try:
            names = [name for name in channels_on(self._bus) if self._pattern.fullmatch(name)]
        except NoBus as error:
            if self._has_bus is None:
                raise QueryError(str(error)) from None
            if self._has_bus:
                self._say(f"{error}; waiting")
            self._has_bus = False
            return
        if self._has_bus is False:
            self._say(f"{self._bus}: the bus is back")
        self._has_bus = True
        self._left_out.keep(name for name in names if name not in self._drained)
        due = []
        for name in names:
            if name not in self._drained and self._left_out.is_due(name):
                if why := self._unfit(name):
                    self._left_out.note(name, f"{self._bus / name}: {why}")
                else:
                    due.append(name)
        # Once: others' lines are not to wait again and again for what could not be had.
        wait_until_free((name for name in due if not self._left_out.has(name)), self._spool_of)
        for name in due:
            if self._is_over:
                return
            if len(self._drained) >= self._most:
                self._left_out.note(name, f"{self._bus / name}: more than {self._most} channels need more open files (ulimit -n)")
            else:
                with self._noting(name):
                    self._drained[name] = self._take(name)  # before it begins: a signal may come
                    if starts and not self._is_over:
                        self._start(name)

    def start(self) -> None:
        """Opens the channels that have been found and are not open, and has the lines of each taken as soon as it is."""
        for name, drained in list(self._drained.items()):
            if drained.is_found and not drained.is_started and not self._is_over:
                with self._noting(name):
                    self._start(name)

    def stop(self) -> None:
        """Has nothing taken up any more. Any thread may call it; one channel may just be taken up."""
        self._is_over = True

    def _start(self, name: str) -> None:
        try:
            self._drained[name].start()
        except BaseException:
            self._drained.pop(name, None)
            raise

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Notes why one cannot be had."""
        channel = self._bus / name
        try:
            yield
        except ChannelError as error:
            self._left_out.note(name, str(error))
        except SpoolInUse:
            raise  # two queries in one place, or a recorder: each would take the other's lines for its own
        except SpoolError as error:
            self._left_out.note(name, str(error))
        except BusAway as error:
            self._left_out.note(name, str(error), may_pass=True)
        except OSError as error:
            self._left_out.note(name, f"{channel} cannot be recorded: {error.strerror}")
        except QueryError as error:
            self._left_out.note(name, str(error))
        except RuntimeError as error:
            self._left_out.note(name, f"{channel}: {error}")
