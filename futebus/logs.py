"""What the daemon says: one line for each thing, which names the bus, and never more of them than a log can take."""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable

from .core.text import printable

SYSLOG = "/dev/log"

FACILITY = 3 << 3
"""LOG_DAEMON."""

BURST = 200
"""Lines that are logged in one `INTERVAL`: what clients do leads to many, and nobody but the log's owner shall fill it."""

INTERVAL = 10.0
"""Seconds."""


class Throttle(logging.Filter):
    """Lets so many records pass in each interval, and tells how many it has held back when the next one passes.

    Args:
        burst: how many.
        interval: seconds.
        clock: tells the time in seconds.
    """

    def __init__(self, burst: int = BURST, interval: float = INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._burst = burst
        self._interval = interval
        self._clock = clock
        self._begin = clock()
        self._passed = 0
        self._held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass. What goes wrong with the bus itself always may."""
        now = self._clock()
        if now - self._begin >= self._interval:
            self._begin, self._passed = now, 0
        if record.levelno < logging.ERROR and self._passed >= self._burst:
            self._held_back += 1
            return False
        self._passed += 1
        if self._held_back:
            record.msg = f"({self._held_back} lines were not logged, there were too many) {record.getMessage()}"
            record.args = None
            self._held_back = 0
        return True


class Syslog(logging.Handler):
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


def say(mountpoint: str, level: int, *, throttle: bool = True) -> None:
    """From here on what is logged names the bus, and goes to stderr."""
    _install(logging.StreamHandler(sys.stderr), f"futebus: {_prefix(mountpoint)}", level, throttle)


def say_to_syslog(mountpoint: str, level: int, *, throttle: bool = True) -> None:
    """The same, to the system log."""
    _install(Syslog(), _prefix(mountpoint), level, throttle)


def _prefix(mountpoint: str) -> str:
    return printable(mountpoint).replace("%", "%%") + ": "


def _install(handler: logging.Handler, prefix: str, level: int, throttle: bool) -> None:
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    handler.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    if throttle:
        handler.addFilter(Throttle())
    root.addHandler(handler)
    root.setLevel(level)
    # pyfuse3's own debug log is one line for each worker task, not for each request.
    logging.getLogger("pyfuse3").setLevel(logging.WARNING)
