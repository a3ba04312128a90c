"""Writes that are on the disk when they return. Whatever a loss of power must not take goes by these."""

import contextlib
import os
from pathlib import Path


def sync(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Has a file on the disk before it returns, or the names that are in a directory.

    Args:
        path: which one.
        dir_fd: the directory that it is in, if it is not to be found by its path. Then a symbolic link is not followed either.

    Raises:
        OSError: it cannot be opened, or it is not on the disk.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if dir_fd is None else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_name(path: Path) -> None:
    """Has the name of what was made on the disk: else a loss of power could take it with all that is on the disk in it.

    Who may not read the directory that it is in can do no more.

    Raises:
        OSError: it is not on the disk.
    """
    with contextlib.suppress(PermissionError):
        sync(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Writes everything, and has it on the disk: a disk that is nearly full takes a part, and says so with the next call.

    Raises:
        OSError: it is not all there.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
