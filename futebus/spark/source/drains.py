"""The drains of a query: one thread for each channel, in the process that Spark runs for the query's source.

The one rule: this process alone holds the channel and the spool's lock, so both are free the moment it ends, however it ends.
"""

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from ...core.kinds import has_master
from ...host.mounted import NoBus, check_bus
from ...recorder.channel import check_channel, open_channel
from ...recorder.drain import Drain
from ...spool import Spool, SpoolError, SpoolInUse, SpoolLock, SpoolWriter, is_in_use
from ..options import QueryError
from ..telling import say

PATIENCE = 10.0
"""How long, in seconds, the process of the same query before this one may take to go away, and a channel to be joined."""

LOOK_SECONDS = 0.02
"""How often is looked whether that has gone."""

BRIEF_SECONDS = 1.0
"""How long a spool is waited for behind that: who gives spools back has each for a moment."""

FINISH_SECONDS = 4.0
"""How long, in seconds, a drain takes what waits in its channel when the query ends. It mostly takes a moment."""

IN_USE = (
    "a query that still runs, maybe in this session (spark.streams.active), or a recorder: stop it, or give this query a "
    "spoolLocation of its own; several queries can read the spool of one recorder with drain=external"
)
"""Who has a spool that cannot be had, and what can be done."""


class DrainThread:
    """One channel that is being drained into its spool, from `start` on.

    Args:
        channel: the file, in the directory where the bus is mounted.
        directory: the spool.
        is_master: whether to become the master of the channel.
        news: is notified when there are new lines.
        is_found: whether it was found there, and nobody has asked for it by name. Then it is not created, and when it has gone it
            is not waited for.
        in_use: what is said, behind that somebody has the spool, of who that may be and what can be done.

    Raises:
        QueryError, SpoolError, ChannelError: it cannot be.
        BusAway: it was found, and has gone.
        OSError: the spool cannot be written.
    """

    def __init__(
        self,
        channel: Path,
        directory: Path,
        is_master: bool,
        news: threading.Condition,
        *,
        is_found: bool = False,
        in_use: str = IN_USE,
    ) -> None:
        self.channel = channel
        self.is_found = is_found
        self._directory = directory
        self._is_master = is_master
        self._news = news
        self._said = ""
        self._failure: BaseException | None = None
        self._is_closed = False
        self._stop_by = 0.0
        self._starting = threading.RLock()
        """Held by who begins, and by who lets go of everything. Again by a signal's handler, behind which nothing goes on."""
        self._descriptor: int | None = None
        self._drain: Drain | None = None
        check_channel(channel, is_master)
        if not is_found:
            self._check_bus()
        elif not os.access(channel, os.R_OK):
            os.close(open_channel(channel, is_master, creates=False))  # which says why not, before anything is made for it
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise QueryError(f"{error.filename} is no directory") from None
        self._is_new = not directory.exists()
        with ExitStack() as undoing:
            try:
                self._writer = undoing.enter_context(SpoolWriter(directory, channel.name, patience=BRIEF_SECONDS))
            except SpoolInUse as error:
                raise SpoolInUse(f"{error}; {in_use}") from None
            self.spool_id = Spool(directory).id
            self.begin = self._writer.end
            """The offset of the first line that is heard by this drain."""
            undoing.pop_all()
        self._thread = threading.Thread(target=self._run, name=f"drain {channel.name}", daemon=True)

    def start(self) -> None:
        """Opens the channel, and takes from then on what it says.

        Raises:
            QueryError, ChannelError: that cannot be.
            BusAway: it was found, and has gone.
        """
        if self._stop_by:
            return  # somebody ends all of them
        try:
            if self.is_found:
                self._descriptor = open_channel(self.channel, self._is_master, creates=False)
            drain = Drain(
                self.channel,
                self._writer,
                is_master=self._is_master,
                say=self._say,
                on_lines=self._notify,
                descriptor=self._descriptor,
                tells_end=not self.is_found,
            )
            with self._starting:
                self._drain = drain
                if self._is_closed:  # meanwhile
                    drain.close()
                    self._leave()
                    return
                if self._stop_by:
                    drain.finish(FINISH_SECONDS)
                try:
                    self._thread.start()
                except RuntimeError as error:  # there are as many as this user or this container may have
                    raise QueryError(f"{self.channel} cannot be recorded: {error}") from None
            self._wait_until_joined()
        except BaseException:
            self.stop()
            if self.is_found and self._is_new:
                remove(self._directory, self.channel.name)
            raise

    @property
    def has_ended(self) -> bool:
        """Whether the channel was found and has gone, and all of it is in the spool."""
        return self._descriptor is not None and self.is_started and not self._thread.is_alive() and self._failure is None

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    def _check_bus(self) -> None:
        """What will not change by waiting is said at once."""
        try:
            check_bus(self.channel.parent)
        except NoBus as error:
            raise QueryError(str(error)) from None
        if has_master(self.channel.name) and not self._is_master and not self.channel.exists():
            raise QueryError(f"{self.channel} has no master; the option master=true makes the query become it")

    def _run(self) -> None:
        assert self._drain is not None
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
        assert self._drain is not None
        deadline = time.monotonic() + PATIENCE
        while not self._drain.is_joined and self._descriptor is None:
            self.check()
            if self._stop_by:
                return  # it ends
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
        while self._drain is not None and not self._drain.is_idle and not self.has_ended and time.monotonic() < deadline:
            self.check()
            time.sleep(0.005)

    def forget(self, offset: int) -> None:
        """Lines before `offset` are no longer needed."""
        self._writer.retain(offset=offset)

    def finish(self) -> None:
        """Has the drain end. `stop` waits for that."""
        self._stop_by = time.monotonic() + PATIENCE  # first: who begins just now looks behind that
        if self._drain is not None:
            self._drain.finish(FINISH_SECONDS)

    def stop(self) -> None:
        """Ends the drain. What has waited in the channel is in the spool, or it is said that there was no time for it."""
        if not self._stop_by:
            self.finish()
        with self._starting:
            if not self.is_started:
                self._let_go()
        if self.is_started:
            self._thread.join(max(self._stop_by - time.monotonic(), 0))
        with self._starting:
            if not self._thread.is_alive():
                self._let_go()

    def _let_go(self) -> None:
        """Closes everything that is open."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._drain is not None:
            self._drain.close()
        try:
            self._writer.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Leaves a channel that was found."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def stop_all(drains: Iterable[DrainThread]) -> None:
    """Ends drains, all at the same time, and each also when another one fails."""
    drains = list(drains)
    for drain in drains:
        drain.finish()
    with ExitStack() as stack:
        for drain in drains:
            stack.callback(drain.stop)


def wait_until_free(names: Iterable[str], spool_of: Callable[[str], Path]) -> None:
    """Waits until nobody writes the spools of these channels, or patience is over: the process before may still have them.

    They are waited for all together, and before the first channel is open: nobody would take what that says meanwhile.
    """
    deadline = time.monotonic() + PATIENCE
    for name in names:
        while is_in_use(spool_of(name), name) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)


EMPTIED_BYTES = 1 << 20
"""How long the segment is, for a moment, that an emptied spool ends with."""

_REMOVED = ".removed-"
"""How the directory of a spool is called while it is removed."""


def empty(directory: Path, channel: str, offset: int, spool_id: str) -> bool:
    """Takes the last lines from the spool of a channel that has gone.

    If the channel comes again, the spool goes on at the same offset.

    Args:
        directory: the spool.
        channel: the name of the channel.
        offset: lines before it are no longer needed.
        spool_id: the identity of the spool that it belongs to.

    Returns:
        Whether the spool has no lines.
    """
    try:
        spool = Spool(directory)
        if spool.id != spool_id:
            return False
        if spool.begin < spool.end <= offset:
            with SpoolWriter(directory, channel, first_segment_bytes=EMPTIED_BYTES) as writer:
                if writer.end <= offset:
                    writer.retain(age=0)
        return spool.begin == spool.end
    except (SpoolError, OSError):
        return False  # somebody has it


def remove(directory: Path, channel: str) -> None:
    """Removes a spool without lines that nothing refers to any more."""
    if not directory.exists():
        return  # somebody else was quicker, and SpoolLock would make a new one
    try:
        lock = SpoolLock(directory, channel)
    except (SpoolError, OSError):
        return
    try:
        spool = Spool(directory)
        if spool.begin == spool.end:
            # Whoever comes now begins a new one.
            gone = directory.with_name(f"{_REMOVED}{uuid.uuid4().hex}")
            directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
    except (SpoolError, OSError):
        pass
    finally:
        lock.close()


def remove_rest(location: Path) -> None:
    """Removes what a process that was killed has left of `remove`."""
    for gone in location.glob(f"{_REMOVED}*"):
        shutil.rmtree(gone, ignore_errors=True)
