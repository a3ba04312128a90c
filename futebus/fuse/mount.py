"""The life of one mount: from the options to the last client's goodbye."""

import gc
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import trio

from futebus.core.bus import Bus
from futebus.core.text import counted, printable
from futebus.host.logs import rehearse, tell
from futebus.host.mounted import FUSE_TYPE, Mount, mounted_on
from futebus.host.service import ServiceManager
from futebus.host.signals import Endings

from .mountpoint import LOOKS, Asking, BusLost, MountError, alone, held, is_left, is_mounted, take_away, wait_unmounted
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

from . import callers  # noqa: E402
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

DESCRIPTORS = 24
"""How many a bus needs, however many clients it has: a dozen all the time, and some for a moment."""

STACK_BYTES = 256 * 1024
"""Of the log's thread, which does next to nothing; by default it would take 8 MB of what `ulimit -v` allows."""

_TOO_EARLY = "it was unmounted before it could be used"

LAST_LOOK = 0.5
"""Seconds that an unmount has to be complete once the connection to the kernel is gone. A mount that is there then is dead."""

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
        self._mount: Mount | None = None
        self._unmounter: Unmounter | None = None
        self._failure: str | None = "libfuse and the kernel do not agree"
        self._is_open = False
        """Whether there is a session to close."""
        self._left = ""
        """Why the mount is there in the end, if it is."""
        self._is_lost = False
        """Whether the connection to the kernel was cut, and nobody has unmounted the bus."""
        self._bus = Bus(options.limits, bulk=options.bulk, now=time.time_ns(), process_of=_process_of)
        self._turns = Turns(_hooks.is_waited_for, _hooks.hurry)
        self._calls = Calls(self._bus, self._turns)
        self._snapshots = Snapshots(self._bus, self._turns, mountpoint)
        self._directory = Directory(
            self._bus,
            self._calls,
            mode=options.mode,
            uid=options.uid,
            gid=options.gid,
            is_shared=not options.fuse.isdisjoint({"allow_other", "allow_root"}),
            take_stat=self._snapshots.take,
        )
        self._is_idle = trio.Event()

    def serve(self) -> None:
        """Mounts the bus and serves it until it is unmounted or told to end.

        Raises:
            MountError: it cannot be mounted.
            BusLost: it was, and is gone though nobody has unmounted it.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        threading.stack_size(STACK_BYTES)
        self._check_descriptors()
        if not _hooks.has_room(0):
            raise MountError(f"cannot mount on {self._mountpoint}: there is too little memory (ulimit -v)")
        _hooks.watch_memory(_tell_of_memory)
        self._endings = Endings()
        # While the bus is mounted and unmounted they wait: libfuse and what it runs know nothing of signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._endings.numbers)
        has_failed = True
        try:
            if self._options.has_unmounter:
                self._start_unmounter()
            self._mount_it()
            # From now on clients wait for us, and nobody who reads stderr may keep us.
            _hooks.listen(_tell_of_libfuse)
            if self._options.user:
                self._give_up_root(self._options.user)
            with _unblocked(self._endings.numbers):
                trio.run(self._run)
            has_failed = False
        finally:
            self._unmount()
            self._endings.forget()
            if has_failed and self._left:
                log.error("%s", self._left)
        if self._is_lost:
            if self._left:
                log.error("%s", self._left)
            raise BusLost(
                "the connection to the kernel was cut (umount -f, or it was aborted): the bus is gone, with all that waited in it"
            )
        if self._left:
            raise BusLost(self._left)
        if self._failure and self._endings.first is None:
            raise MountError(f"cannot mount on {self._mountpoint}: {self._failure}")

    def _check_descriptors(self) -> None:
        """Sees to it that there will be enough: without them nothing could be unmounted either."""
        with ExitStack() as opened:
            try:
                for _ in range(DESCRIPTORS):
                    opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                raise MountError(
                    f"cannot mount on {self._mountpoint}: {DESCRIPTORS} file descriptors are needed (ulimit -n): {error.strerror}"
                ) from None

    def _mount_it(self) -> None:
        _hooks.install(
            read=self._calls.read,
            write=self._calls.write,
            interrupt=self._calls.interrupt,
            inquire=self._calls.inquire,
            shut=self._directory.shut,
        )
        user = self._options.user
        with ExitStack() as inside:
            inside.enter_context(alone(self._mountpoint))
            # Others than root have fusermount3 mount it, which takes care of the path by itself.
            path = inside.enter_context(held(self._mountpoint)) if os.geteuid() == 0 else self._mountpoint
            words = inside.enter_context(_captured_stderr())
            if user:
                inside.enter_context(mounting_for(user))
            try:
                pyfuse3.init(self._directory, path, self._options.for_libfuse())
            except RuntimeError as error:
                reason = words().replace(f"{path}:", f"{self._mountpoint}:") or str(error)
                raise MountError(f"cannot mount on {self._mountpoint}: {reason}") from None
            self._is_open = True
            for _ in range(LOOKS):
                self._mount = mounted_on(self._mountpoint if path == self._mountpoint else str(Path(path).readlink()))
                if self._mount and self._mount.type == FUSE_TYPE:
                    break
                self._mount = None
        if not _hooks.reached():
            raise MountError(
                f"this libfuse ({_hooks.RUNNING}, built with {_hooks.BUILT_WITH}) does not let futebus see signals to blocked "
                "clients; libfuse 3.10 to 3.19 with pyfuse3 3.5 do"
            )
        if self._mount is None:
            raise MountError(f"cannot mount on {self._mountpoint}: {_TOO_EARLY}, or its directory was moved")
        if self._unmounter:
            self._unmounter.tell(self._mount)

    def _unmount(self) -> None:
        """Leaves nothing behind, whatever has happened before."""
        if not self._is_open:
            if self._unmounter:
                self._unmounter.unmount(None)
            return
        with ExitStack() as aside:
            with suppress(OSError):
                aside.enter_context(_captured_stderr())  # libfuse complains when somebody else has unmounted it
            mount = self._mount
            # libfuse would unmount whatever is there by now.
            aside.callback(pyfuse3.close, unmount=False)
            _hooks.listen(None)
            if self._unmounter:
                is_there = mount is not None and (_hooks.is_connected() or is_left(mount))
                if self._unmounter.unmount(_hooks.is_connected if is_there else None) or not is_there:
                    mount = None
            if mount and (wrong := take_away(mount, _hooks.is_connected)):
                self._left = f"the mount is left: {wrong}"

    def _start_unmounter(self) -> None:
        try:
            self._unmounter = Unmounter(self._mountpoint)
        except OSError as error:
            raise MountError(f"cannot start the process that unmounts the bus: {error.strerror}") from None

    def _give_up_root(self, user: User) -> None:
        rehearse()  # the user may not be able to read Python's library
        try:
            become(user)
        except OSError as error:
            raise MountError(f"cannot become user {user.name}: {error.strerror}") from None

    async def _run(self) -> None:
        assert self._endings
        try:
            await self._serve_all()
        finally:
            # Now, and in all threads: while trio ends, a signal would find its loop half gone.
            self._endings.forget()
        if not self._is_lost:
            log.info("the bus is gone")

    async def _serve_all(self) -> None:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_mount)
            tasks.start_soon(self._turns.run)
            tasks.start_soon(self._calls.watch_rests)
            tasks.start_soon(self._announce)
            # No handler ever waits, so one task serves all requests.
            await pyfuse3.main(min_tasks=1, max_tasks=1)
            if not self._bus.is_shutting_down and not _hooks.is_connected():
                await self._look_why()
            tasks.cancel_scope.cancel()

    async def _look_why(self) -> None:
        """The kernel has cut the connection: because the bus was unmounted, or not."""
        mount = self._mount
        assert mount
        with trio.move_on_after(LAST_LOOK) as looking:
            await wait_unmounted(mount.device)
        if not looking.cancelled_caught:
            self._has_been_unmounted()
            if not self._bus.is_shutting_down:  # who watches the mount has not got so far
                self._say_that_it_goes()
            return
        self._be_ready_if_used()
        if self._failure is None:  # or another mount has its numbers
            self._is_lost = is_left(mount)
            if not self._is_lost:
                self._mount = None

    async def _announce(self) -> None:
        """Says that the bus is there once it has answered a request, and then how it goes."""
        number = await self._answer()
        if self._bus.is_shutting_down or not _hooks.is_connected():
            return
        if self._mount is None or not is_mounted(self._mount.device):
            return  # what lies under it has answered; whoever watches the mount says so
        if number:  # what is wrong is the way to it
            self._failure = f"who serves the bus cannot reach it: {os.strerror(number)}"
            pyfuse3.terminate()
            return
        self._be_ready()
        if self._manager:
            await self._report()

    def _be_ready(self) -> None:
        self._failure = None
        self._on_ready()

    async def _answer(self) -> int:
        """What the bus answers, as `Asking.answer` has it."""
        try:
            asking = Asking(self._mountpoint)
        except OSError as error:  # too many processes; requests wait until they are served
            log.debug("nobody can ask whether the bus answers: %s", error)
            return 0
        with asking:
            await trio.lowlevel.wait_readable(asking.pidfd)
            return asking.answer()

    async def _report(self) -> None:
        """Tells the service manager that all is well, and how much there is to do."""
        words = ["READY=1"]
        status = ""
        while not self._bus.is_shutting_down:
            now = f"STATUS={counted(len(self._bus.clients), 'client')}, {counted(len(self._bus.channels), 'channel')}"
            if now != status:
                words = [*(word for word in words if word != status), now]
                status = now
            if self._manager.watchdog and "WATCHDOG=1" not in words:
                words.append("WATCHDOG=1")
            # Clients wait meanwhile. What it does not take now is said again.
            if words and self._manager.tell(*words, patience=0):
                words = []
            await trio.sleep(min(REPORT_INTERVAL, (self._manager.watchdog or math.inf) / 2))

    # ------------------------------------------------------------------------------------------ the end

    async def _watch_signals(self) -> None:
        has_come = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def wake() -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(has_come.set)

        self._endings.on_first(wake)
        await has_come.wait()
        assert self._endings.first
        log.info("%s, shutting down", self._endings.first.name)
        await self._shut_down()

    async def _watch_mount(self) -> None:
        assert self._mount
        await wait_unmounted(self._mount.device)
        self._has_been_unmounted()
        log.info("unmounted, shutting down")
        await self._shut_down()

    def _has_been_unmounted(self) -> None:
        self._mount = None
        self._be_ready_if_used()
        if self._failure:
            self._failure = _TOO_EARLY

    def _be_ready_if_used(self) -> None:
        """A bus that is going was there if others have been quicker to use it than who was to see whether it answers."""
        if self._failure and self._directory.was_used:
            self._be_ready()
            self._manager.tell("READY=1", patience=0)

    def _say_that_it_goes(self) -> None:
        self._manager.tell("STOPPING=1", "STATUS=Going down", patience=0)

    async def _shut_down(self) -> None:
        """Ends what waits, gives readers time to take what is theirs, then ends the loop."""
        self._say_that_it_goes()
        self._calls.on_last_close = self._is_idle.set
        self._calls.settle(self._bus.shut_down(time.time_ns()))
        if self._bus.clients:
            with trio.move_on_after(GRACE):
                await self._is_idle.wait()
        if left := len(self._bus.clients):
            log.warning("%d clients have not closed", left)
        self._snapshots.end()
        self._turns.finish()
        pyfuse3.terminate()


def _process_of(thread: object) -> int:
    assert isinstance(thread, int)
    return callers.process(thread)


def _tell_of_memory(is_short: bool) -> None:
    if is_short:
        log.error("there is no memory for more: writes and opens are refused until something has been read")
    else:
        log.warning("there is memory for more again")


def _tell_of_libfuse(words: bytes) -> None:
    tell(log, logging.WARNING, lambda: f"libfuse: {printable(words.decode(errors='replace').strip())}")


@contextmanager
def _unblocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)


@contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Keeps what libfuse and fusermount3 say on stderr, to be made part of one message."""
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    file = os.memfd_create("stderr")
    try:

        def words() -> str:
            os.lseek(file, 0, os.SEEK_SET)
            lines = os.read(file, 65_536).decode("utf-8", "replace").splitlines()
            return "; ".join(line.strip() for line in lines if line.strip())

        saved = os.dup(2)
        os.dup2(file, 2)
        try:
            yield words
        finally:
            os.dup2(saved, 2)
            os.close(saved)
    finally:
        os.close(file)
