"""A sysctl that one test changes, and others rely on. It is the machine's, and tests run side by side."""

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

PROTECTED_REGULAR = Path("/proc/sys/fs/protected_regular")


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """It stays what it is. For who writes to another's channel: the kernel learns after a moment that the sysctl is another."""
    with PROTECTED_REGULAR.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # also of those who have inherited it


@contextlib.contextmanager
def protected() -> Iterator[None]:
    """As many distributions set it: no O_CREAT of somebody else's file in a sticky directory.

    One test at a time has it so, and what was there comes back also when its suite is killed.
    """
    with PROTECTED_REGULAR.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # It inherits the lock, and does not end before the file is as it was.
        before = PROTECTED_REGULAR.read_text().strip()
        restore = ["sh", "-c", f"trap '' HUP INT TERM; cat; echo {before} > {PROTECTED_REGULAR}"]
        with subprocess.Popen(restore, stdin=subprocess.PIPE, pass_fds=[lock.fileno()]) as restorer:
            PROTECTED_REGULAR.write_text("2")
            yield
            restorer.communicate()
        assert restorer.returncode == 0
