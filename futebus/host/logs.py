"""What the daemon says: one line for each thing, which names the bus, and never more of them than a log can take.

Whoever says something never waits for whoever listens, and nothing that goes wrong with it is met by whom it is said for: clients
wait meanwhile. What cannot be taken is lost, and counted where that can be told.
"""

import contextlib
import logging
import os
import select
import socket
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from ..core.text import printable, unlogged

SYSLOG = "/dev/log"

FACILITY = 3 << 3
"""LOG_DAEMON."""

BURST = 200
"""Lines that are logged in one `INTERVAL`: what clients do leads to many, and nobody but the log's owner shall fill it."""

FAILURES = 50
"""The same, of what goes wrong inside: each has a traceback. Clients cannot hide these behind the others."""

INTERVAL = 10.0
"""Seconds."""

WAITING_BYTES = 256 * 1024
"""How much waits for who reads stderr."""

BATCH_BYTES = select.PIPE_BUF
"""How much is written at once: of so much, lines of several writers to one pipe are never mixed up."""

PATIENCE = 0.5
"""Seconds that who reads stderr has in the end to take what waits."""

DISK_PATIENCE = 10.0
"""Seconds that a disk has for that, if stderr is a file: there is nobody who may never read it."""

log = logging.getLogger(__name__)


class Throttle(logging.Filter):
    """Lets so many records pass in each interval, and tells how many it has held back when the next one passes.

    Args:
        burst: how many.
        failures: how many of those that tell of an error, which are counted by themselves.
        interval: seconds.
        clock: tells the time in seconds.
    """

    def __init__(
        self,
        burst: int = BURST,
        failures: int = FAILURES,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._most = {False: burst, True: failures}
        self._interval = interval
        self._clock = clock
        self._begin = clock()
        self._passed = {False: 0, True: 0}
        self._held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        now = self._clock()
        if now - self._begin >= self._interval:
            self._begin, self._passed = now, {False: 0, True: 0}
        is_failure = record.levelno >= logging.ERROR
        if self._passed[is_failure] >= self._most[is_failure]:
            self._held_back += 1
            return False
        self._passed[is_failure] += 1
        if self._held_back:
            words = f"({unlogged(self._held_back)}, there were too many)"
            record.msg = f"{words} {record.getMessage()}"
            record.args = None
            self._held_back = 0
        return True


class Outlet:
    """Writes lines on a descriptor, in order. A thread does, which may wait: who has something to say does not.

    A descriptor that is made non-blocking would not do: it is the open file that is, and a shell has its terminal open
    by the same.

    Args:
        descriptor: where to write. It is kept.
        told: the line that says how many were lost.
    """

    def __init__(self, descriptor: int, told: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._told = told
        self._waiting: deque[tuple[bytes, int]] = deque()
        """Lines, and how many each stands for: one, or those that were lost."""
        self._size = 0
        self._lost = 0
        self._is_writing = False
        self._is_broken = False
        """Whether the last write failed. Then it is tried again with the next line."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, line: bytes) -> None:
        """Has a line written, or loses it if too much waits already."""
        with self._changed:
            if self._size + len(line) > WAITING_BYTES:
                self._lost += 1
                return
            self._tell_loss()
            self._append(line, 1)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
                # As a daemon, since it may never come back from a write: the process ends all the same.
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                with contextlib.suppress(RuntimeError):  # there can be no thread now: the next line tries again
                    self._thread.start()

    def lose(self) -> None:
        """Counts a line that could not even be made."""
        with self._changed:
            self._lost += 1

    def flush(self, patience: float = PATIENCE) -> bool:
        """Waits until all is written, but not for long. Returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_writing, patience)

    def _append(self, line: bytes, number: int) -> None:
        self._waiting.append((line, number))
        self._size += len(line)

    def _tell_loss(self) -> None:
        if self._lost:
            self._append(self._told(self._lost), self._lost)
            self._lost = 0

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and (not self._lost or self._is_broken):
                    self._changed.wait()
                self._is_broken = False
                if not self._waiting:
                    self._tell_loss()
                batch, number = self._take()
                self._is_writing = True
            try:
                self._write(batch)
            except OSError:  # nobody has the other end, or the disk is full
                self._is_broken = True
            with self._changed:
                self._is_writing = False
                self._lost += number * self._is_broken
                self._changed.notify_all()

    def _take(self) -> tuple[bytes, int]:
        batch, number = self._waiting.popleft()
        while self._waiting and len(batch) + len(self._waiting[0][0]) <= BATCH_BYTES:
            line, more = self._waiting.popleft()
            batch, number = batch + line, number + more
        self._size -= len(batch)
        return batch, number

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # others who have the same open file have made it non-blocking
                poller = select.poll()
                poller.register(self._descriptor, select.POLLOUT)
                poller.poll()


class _Calm(logging.Handler):
    """Nothing that goes wrong in it is met by who logs: what is logged is not worth a call of a client."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Handles a record, or loses it."""
        try:
            return bool(super().handle(record))
        except Exception:  # there is no memory for so many words, say
            self._lose()
            return False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Says nothing on stderr, as logging does: it could wait there."""
        self._lose()

    def _lose(self) -> None:
        """A record is lost."""


class Stderr(_Calm):
    """Standard error."""

    prefix = ""
    """What its own lines begin with."""

    def __init__(self) -> None:
        super().__init__()
        # One of its own: what is on 2 changes, while others' words are taken down for example.
        descriptor = os.dup(2)
        self._patience = DISK_PATIENCE if stat.S_ISREG(os.fstat(descriptor).st_mode) else PATIENCE
        self._outlet = Outlet(
            descriptor,
            lambda lost: _line(f"{self.prefix}({unlogged(lost)}: nobody read them in time)"),
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Has a line written."""
        self._outlet.put(_line(self.format(record)))

    def say(self, words: str) -> None:
        """Has a line written that names no bus."""
        self._outlet.put(_line(words))

    def flush(self) -> None:
        """Gives who reads them a moment to take the last lines. It is the end: logging asks for this then, and never before."""
        self._outlet.flush(self._patience)

    def _lose(self) -> None:
        self._outlet.lose()


def _line(words: str) -> bytes:
    return (words + "\n").encode("utf-8", "backslashreplace")


class Syslog(_Calm):
    """The system log. What it cannot take at once is lost: a log that hangs must not stop the bus.

    There may be none, or not yet: it is looked for again at each record, and nothing is said of it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one datagram, as syslog(3) does."""
        try:
            words = f"<{FACILITY | _severity(record.levelno)}>futebus[{os.getpid()}]: {self.format(record)}"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as log:
                log.connect(SYSLOG)
                log.send(words.encode("utf-8", "backslashreplace"))
        except OSError:
            pass


def _severity(level: int) -> int:
    """Of syslog(3): from error to debug."""
    for least, severity in ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6)):
        if level >= least:
            return severity
    return 7


def to_stderr(mountpoint: str | None, level: int, *, command: str = "futebus", throttle: bool = True) -> None:
    """From here on what is logged goes to stderr, and names the command, and the bus if there is one."""
    prefix = f"{command}: " if mountpoint is None else f"{command}: {printable(mountpoint)}: "
    handler = next((each for each in logging.getLogger().handlers if isinstance(each, Stderr)), None)
    if handler is None:
        handler = Stderr()
        _let_nobody_wait()
    handler.prefix = prefix
    _install(handler, prefix, level, throttle)


def to_syslog(mountpoint: str, level: int, *, throttle: bool = True) -> None:
    """The same, to the system log."""
    _install(Syslog(), f"{printable(mountpoint)}: ", level, throttle)


def complain(words: str, command: str = "futebus") -> None:
    """Says in one line, on stderr or whatever has come into its place, why the command has failed."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Stderr):
            handler.say(f"{command}: {printable(words)}")
            return
    log.error("%s", printable(words))


def _let_nobody_wait() -> None:
    """Has descriptor 2 never wait where that can be had, for what does not come by the log: the last words of Python or C.

    The open file of a pipe or a terminal is opened once more. A socket cannot be.
    """
    with contextlib.suppress(OSError):
        kind = os.fstat(2).st_mode
        if stat.S_ISFIFO(kind) or (stat.S_ISCHR(kind) and os.isatty(2)):
            own = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            os.dup2(own, 2)
            os.close(own)


def _install(handler: logging.Handler, prefix: str, level: int, throttle: bool) -> None:
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    handler.setFormatter(logging.Formatter(prefix.replace("%", "%%") + "%(message)s"))
    handler.filters[:] = [Throttle()] if throttle else []
    root.addHandler(handler)
    root.setLevel(level)
    # pyfuse3's own debug log is one line for each worker task, not for each request.
    logging.getLogger("pyfuse3").setLevel(logging.WARNING)
    # What Python would print on stderr by itself.
    logging.captureWarnings(True)
    sys.unraisablehook = _note_unraisable
    threading.excepthook = _note_end_of_thread


def rehearse() -> None:
    """Has everything loaded that telling of an error needs: some of it Python loads when it first formats one."""
    try:
        raise ExceptionGroup("é€\U0001f600", [KeyError("x"), NameError("y")])
    except ExceptionGroup:
        logging.Formatter().formatException(sys.exc_info())


def _note_unraisable(what: "sys.UnraisableHookArgs") -> None:
    """An error that nobody can be told: of what C has called, of a destructor."""
    with contextlib.suppress(Exception):
        name = getattr(what.object, "__qualname__", None) or type(what.object).__qualname__
        error = what.exc_value or what.exc_type()
        log.error("internal error in %s", name, exc_info=(what.exc_type, error, what.exc_traceback))


def _note_end_of_thread(what: "threading.ExceptHookArgs") -> None:
    """An error that ends a thread."""
    if what.exc_value is not None and not issubclass(what.exc_type, SystemExit):
        with contextlib.suppress(Exception):
            log.error("internal error in a thread", exc_info=(what.exc_type, what.exc_value, what.exc_traceback))


def tell(log: logging.Logger, level: int, words: Callable[[], str]) -> None:
    """Logs what is put into words here, if it is wanted. Whatever goes wrong with that, for want of memory say, ends here."""
    if log.isEnabledFor(level):
        with contextlib.suppress(Exception):
            log.log(level, "%s", words())


def tell_error(log: logging.Logger, words: Callable[[], str], error: BaseException | None = None) -> None:
    """The same, of an error, or of the one that is being handled, with its traceback."""
    with contextlib.suppress(Exception):
        log.error("%s", words(), exc_info=error or True)
