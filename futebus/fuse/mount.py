"""The life of one mount: from the options to the last client's goodbye."""

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

import futebus
from futebus.core import stat
from futebus.core.bus import Bus

from .mountpoint import MountError, mounted_on, wait_unmounted
from .options import Options

# Our definitions of some of libfuse's functions must be found before libfuse's own when pyfuse3 is loaded: see hooks.c.
_flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
try:
    from . import _hooks
finally:
    sys.setdlopenflags(_flags)

import pyfuse3  # noqa: E402 - after the hooks

from .filesystem import Directory  # noqa: E402
from .waiting import Calls, OpenStat  # noqa: E402

log = logging.getLogger(__name__)

GRACE = 1.0
"""Seconds that clients have, when the bus goes down, to read what waits for them and to close."""


class Mounted:
    """One mounted bus.

    Args:
        mountpoint: the directory, absolute and without symbolic links.
        options: what it is mounted with.
        on_ready: called once the bus can be used.
    """

    def __init__(self, mountpoint: str, options: Options, on_ready: Callable[[], None]) -> None:
        self._mountpoint = mountpoint
        self._options = options
        self._on_ready = on_ready
        self._bus = Bus(options.limits, bulk=options.bulk, now=time.time_ns())
        self._calls = Calls(self._bus)
        self._directory = Directory(
            self._bus,
            self._calls,
            mode=options.mode,
            uid=options.uid,
            gid=options.gid,
            is_shared=not options.fuse.isdisjoint({"allow_other", "allow_root"}),
            take_stat=self._take_stat,
        )
        self._is_ready = False
        self._tasks: trio.Nursery | None = None
        self._is_idle = trio.Event()

    def serve(self) -> None:
        """Mounts the bus and serves it until it is unmounted or told to end.

        Raises:
            MountError: it cannot be mounted.
        """
        # Signals that arrive from here on are for the loop, and wait for it.
        with _signals_blocked():
            self._mount()
            try:
                trio.run(self._run)
            finally:
                with _captured_stderr():  # libfuse complains when somebody else has unmounted it
                    pyfuse3.close()
        if not self._is_ready:
            raise MountError(f"cannot mount on {self._mountpoint}: libfuse and the kernel do not agree")

    def _mount(self) -> None:
        _hooks.install(read=self._calls.read, write=self._calls.write, interrupt=self._calls.interrupt)
        with _captured_stderr() as words:
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

    async def _run(self) -> None:
        async with trio.open_nursery() as self._tasks:
            await self._tasks.start(self._watch_signals)
            self._tasks.start_soon(self._watch_mount)
            self._tasks.start_soon(self._announce)
            # No handler ever waits, so one task serves all requests.
            await pyfuse3.main(min_tasks=1, max_tasks=1)
            self._tasks.cancel_scope.cancel()
        log.info("%s: the bus is gone", self._mountpoint)

    async def _announce(self) -> None:
        """Says that the bus is there once it has answered a request."""
        try:
            await trio.to_thread.run_sync(os.statvfs, self._mountpoint, abandon_on_cancel=True)
        except OSError as error:
            log.debug("the first request: %s", error)
        else:
            self._is_ready = True
            self._on_ready()

    # ------------------------------------------------------------------------------------------ the end

    async def _watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            task_status.started()
            async for number in signals:
                log.info("%s: %s, shutting down", self._mountpoint, signal.Signals(number).name)
                await self._shut_down()
                return

    async def _watch_mount(self) -> None:
        mount = mounted_on(self._mountpoint)
        if mount is not None:
            await wait_unmounted(mount.device)
            log.info("%s: unmounted, shutting down", self._mountpoint)
        await self._shut_down()

    async def _shut_down(self) -> None:
        """Ends what waits, gives readers time to take what is theirs, then ends the loop."""
        self._calls.on_last_close = self._is_idle.set
        self._calls.settle(self._bus.shut_down(time.time_ns()))
        if self._bus.clients:
            with trio.move_on_after(GRACE):
                await self._is_idle.wait()
        if left := len(self._bus.clients):
            log.warning("%s: %d clients have not closed", self._mountpoint, left)
        pyfuse3.terminate()

    # ------------------------------------------------------------------------------------------ _stat

    def _take_stat(self, file: OpenStat) -> None:
        snapshot = stat.take(self._bus, time.time_ns())
        assert self._tasks is not None
        self._tasks.start_soon(self._render_stat, snapshot, file)

    async def _render_stat(self, snapshot: stat.BusStat, file: OpenStat) -> None:
        """Makes the text between other things: thousands of clients take a while to look up and to align."""
        text = ""
        try:
            for piece in stat.render(snapshot, version=futebus.__version__, mountpoint=self._mountpoint, command=_command):
                text += piece
                await trio.lowlevel.checkpoint()
        except Exception:
            log.exception("internal error in the text of _stat")
            text += "internal error: see the log\n"
        file.finish(text.encode())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().removesuffix(b"\n")
    except OSError:  # it is gone
        return b""


_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
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
