"""The life of one mount: from the options to the last client's goodbye."""

import gc
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

import trio

from futebus.commands import ending_signals
from futebus.core.bus import Bus
from futebus.core.text import counted
from futebus.service import ServiceManager

from .mountpoint import MountError, mounted_on, wait_unmounted
from .options import Options
from .privilege import Unmounter, User, become, mounting_for

# Our definitions of some of libfuse's functions must be found before libfuse's own when pyfuse3 is loaded: see hooks.c.
_flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
try:
    from . import _hooks
finally:
    sys.setdlopenflags(_flags)

import pyfuse3  # noqa: E402 - after the hooks

from .filesystem import Directory  # noqa: E402
from .snapshots import Snapshots  # noqa: E402
from .turns import Turns  # noqa: E402
from .waiting import Calls  # noqa: E402

log = logging.getLogger(__name__)

REPORT_INTERVAL = 2.0
"""Seconds between two looks at what the service manager is told."""

GC_THRESHOLDS = 5000, 5, 1000
"""When Python looks for garbage that refers to itself, of which there is hardly any here: the young objects often, which takes
a millisecond, all of them hardly ever. With thousands of clients and their queues that takes 50."""

GRACE = 1.0
"""Seconds that clients have, when the bus goes down, to read what waits for them and to close."""


class Mounted:
    """One mounted bus.

    Args:
        mountpoint: the directory, absolute and without symbolic links.
        options: what it is mounted with.
        on_ready: called once the bus can be used.
        manager: who runs this as a service, and is told how it goes.
    """

    def __init__(self, mountpoint: str, options: Options, on_ready: Callable[[], None], manager: ServiceManager) -> None:
        self._mountpoint = mountpoint
        self._options = options
        self._on_ready = on_ready
        self._manager = manager
        self._unmounter: Unmounter | None = None
        self._failure: str | None = "libfuse and the kernel do not agree"
        self._bus = Bus(options.limits, bulk=options.bulk, now=time.time_ns())
        self._turns = Turns()
        self._calls = Calls(self._bus, self._turns)
        self._directory = Directory(
            self._bus,
            self._calls,
            mode=options.mode,
            uid=options.uid,
            gid=options.gid,
            is_shared=not options.fuse.isdisjoint({"allow_other", "allow_root"}),
            take_stat=Snapshots(self._bus, self._turns, mountpoint).take,
        )
        self._is_idle = trio.Event()
        self._signals = ending_signals()

    def serve(self) -> None:
        """Mounts the bus and serves it until it is unmounted or told to end.

        Raises:
            MountError: it cannot be mounted.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        # Signals that arrive from here on are for the loop, and wait for it.
        with _blocked(self._signals):
            self._mount()
            try:
                if self._options.has_unmounter:
                    self._start_unmounter()
                if self._options.user:
                    self._give_up_root(self._options.user)
                trio.run(self._run)
            finally:
                if self._unmounter:
                    self._unmounter.unmount()
                with _captured_stderr():  # libfuse complains when somebody else has unmounted it
                    pyfuse3.close()
        if self._failure:
            raise MountError(f"cannot mount on {self._mountpoint}: {self._failure}")

    def _mount(self) -> None:
        _hooks.install(read=self._calls.read, write=self._calls.write, interrupt=self._calls.interrupt)
        user = self._options.user
        with _captured_stderr() as words, mounting_for(user) if user else nullcontext():
            try:
                pyfuse3.init(self._directory, self._mountpoint, self._options.for_libfuse())
            except RuntimeError as error:
                reason = words() or str(error)
                raise MountError(f"cannot mount on {self._mountpoint}: {reason}") from None
        if not _hooks.reached():
            pyfuse3.close()
            raise MountError(
                f"this libfuse ({_hooks.RUNNING}, built with {_hooks.BUILT_WITH}) does not let futebus see signals to blocked "
                "clients; libfuse 3.10 to 3.18 with pyfuse3 3.5 do"
            )

    def _start_unmounter(self) -> None:
        mount = mounted_on(self._mountpoint)
        if mount is None:
            raise MountError(f"cannot mount on {self._mountpoint}: somebody has unmounted it at once")
        try:
            self._unmounter = Unmounter(mount)
        except OSError as error:
            raise MountError(f"cannot start the process that unmounts the bus: {error.strerror}") from None

    def _give_up_root(self, user: User) -> None:
        try:
            become(user)
        except OSError as error:
            raise MountError(f"cannot become user {user.name}: {error.strerror}") from None

    async def _run(self) -> None:
        async with trio.open_nursery() as tasks:
            await tasks.start(self._watch_signals)
            tasks.start_soon(self._watch_mount)
            tasks.start_soon(self._turns.run)
            tasks.start_soon(self._announce)
            # No handler ever waits, so one task serves all requests.
            await pyfuse3.main(min_tasks=1, max_tasks=1)
            tasks.cancel_scope.cancel()
        log.info("the bus is gone")

    async def _announce(self) -> None:
        """Says that the bus is there once it has answered a request, and then how it goes."""
        try:
            await trio.to_thread.run_sync(os.statvfs, self._mountpoint, abandon_on_cancel=True)
        except PermissionError as error:  # of a directory above
            self._failure = f"who serves the bus cannot reach it: {error.strerror}"
            pyfuse3.terminate()
            return
        except OSError as error:
            log.debug("the first request: %s", error)
            return
        self._failure = None
        self._on_ready()
        if self._manager:
            await self._report()

    async def _report(self) -> None:
        """Tells the service manager that all is well, and how much there is to do."""
        words = ["READY=1"]
        status = ""
        while not self._bus.is_shutting_down:
            now = f"STATUS={counted(len(self._bus.clients), 'client')}, {counted(len(self._bus.channels), 'channel')}"
            if now != status:
                words.append(now)
                status = now
            if self._manager.watchdog:
                words.append("WATCHDOG=1")
            if words:
                self._manager.tell(*words)
                words = []
            await trio.sleep(min(REPORT_INTERVAL, (self._manager.watchdog or math.inf) / 2))

    # ------------------------------------------------------------------------------------------ the end

    async def _watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(*self._signals) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
            task_status.started()
            async for number in signals:
                log.info("%s, shutting down", signal.Signals(number).name)
                await self._shut_down()
                return

    async def _watch_mount(self) -> None:
        mount = mounted_on(self._mountpoint)
        if mount is not None:
            await wait_unmounted(mount.device)
            log.info("unmounted, shutting down")
        await self._shut_down()

    async def _shut_down(self) -> None:
        """Ends what waits, gives readers time to take what is theirs, then ends the loop."""
        self._manager.tell("STOPPING=1", "STATUS=Going down")
        self._calls.on_last_close = self._is_idle.set
        self._calls.settle(self._bus.shut_down(time.time_ns()))
        if self._bus.clients:
            with trio.move_on_after(GRACE):
                await self._is_idle.wait()
        if left := len(self._bus.clients):
            log.warning("%d clients have not closed", left)
        self._turns.finish()
        pyfuse3.terminate()


@contextmanager
def _blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Keeps what libfuse and fusermount3 say on stderr, to be made part of one message."""
    with tempfile.TemporaryFile() as file:

        def words() -> str:
            file.seek(0)
            lines = file.read().decode("utf-8", "replace").splitlines()
            return "; ".join(line.strip() for line in lines if line.strip())

        sys.stderr.flush()
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield words
        finally:
            os.dup2(saved, 2)
            os.close(saved)
