"""The drains of a query: one thread for each channel, in the process that Spark runs for the query's source.

The one rule: this process alone holds the channel and the spool's lock, so both are free the moment it ends, however it ends.
"""

import re
import sys
import threading
import time
from pathlib import Path

from ..drain import Drain
from ..spool import SpoolInUse, SpoolWriter
from .options import QueryError

PATIENCE = 10.0
"""How long, in seconds, the process of the same query before this one may take to go away, and a channel to be joined."""


def say(words: str) -> None:
    """Tells the user: the standard error of this process is that of the driver."""
    print(f"futebus: {words}", file=sys.stderr, flush=True)


def channels_of(bus: Path, pattern: re.Pattern[str]) -> list[str] | None:
    """The names of the channels that a pattern matches, in order; None if no bus is mounted there."""
    try:
        names = sorted(entry.name for entry in bus.iterdir() if entry.name != "_stat" and pattern.fullmatch(entry.name))
        return names if (bus / "_stat").exists() else None
    except OSError:
        return None


class Drained:
    """One channel that is being drained into its spool, from `start` on.

    Args:
        channel: the file, in the directory where the bus is mounted.
        directory: the spool.
        is_master: whether to become the master of the channel.
        news: is notified when there are new lines.

    Raises:
        QueryError, SpoolError, ChannelError: it cannot be.
    """

    def __init__(self, channel: Path, directory: Path, is_master: bool, news: threading.Condition) -> None:
        self.channel = channel
        self._is_master = is_master
        self._news = news
        self._said = ""
        self._failure: BaseException | None = None
        self._is_closed = False
        self._check_bus()
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._writer = _open(directory, channel.name)
        self.begin = self._writer.end
        """The offset of the first line that is heard by this drain."""
        self._drain = Drain(channel, self._writer, is_master=is_master, say=self._say, on_lines=self._notify)
        self._thread = threading.Thread(target=self._run, name=f"drain {channel.name}", daemon=True)

    def start(self) -> None:
        """Opens the channel, and takes from then on what it says.

        Raises:
            QueryError: that cannot be.
        """
        self._thread.start()
        try:
            self._wait_until_joined()
        except BaseException:
            self.stop()
            raise

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    def _check_bus(self) -> None:
        """What will not change by waiting is said at once."""
        if not (self.channel.parent / "_stat").exists():
            raise QueryError(f"no bus is mounted on {self.channel.parent}")
        if self.channel.name[0] in "US" and not self._is_master and not self.channel.exists():
            raise QueryError(f"{self.channel} has no master; the option master=true makes the query become it")

    def _run(self) -> None:
        try:
            self._drain.run()
        except BaseException as error:
            self._failure = error
            self._notify()

    def _say(self, words: str) -> None:
        self._said = words
        say(words)

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()

    def _wait_until_joined(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._drain.is_joined:
            self.check()
            if time.monotonic() > deadline:
                raise QueryError(self._said.removesuffix("; waiting") or f"{self.channel} cannot be opened")
            time.sleep(0.005)

    def check(self) -> None:
        """Raises what has ended the drain, if something has."""
        if self._failure is not None:
            raise QueryError(str(self._failure)) from self._failure

    def wait_until_idle(self, seconds: float) -> None:
        """Waits until all that the bus had is in the spool, or for so long."""
        deadline = time.monotonic() + seconds
        while not self._drain.is_idle and time.monotonic() < deadline:
            self.check()
            time.sleep(0.005)

    def forget(self, offset: int) -> None:
        """Lines before `offset` are no longer needed."""
        self._writer.retain(offset=offset)

    def stop(self) -> None:
        """Ends the drain; what it has taken is in the spool."""
        self._drain.stop()
        if self.is_started:
            self._thread.join(PATIENCE)
        if not self._thread.is_alive() and not self._is_closed:
            self._is_closed = True
            self._drain.close()
            self._writer.close()


def _open(directory: Path, channel: str) -> SpoolWriter:
    """Opens a spool that the process before may not have let go of yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return SpoolWriter(directory, channel)
        except SpoolInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
