"""The way onto a bus, for a program that was told a directory and a name.

The one rule: what is opened is a channel of the bus in that directory, or nothing is. A and B channels are made by opening them.
If the bus goes in the moment before, this must not make a file in the directory below, which would swallow what is written to it.
"""

import errno
import os
from pathlib import Path

from ..host.mounted import NoBus, find_bus
from .inquire import inquire


def enter(directory: Path, name: str, flags: int, mode: int | None = None) -> int:
    """Opens a channel.

    Args:
        directory: where the bus is mounted.
        name: the channel, `.NAME` to become its master, `+NAME` to read it in bulk.
        flags: as of open(2).
        mode: exactly the permissions that it gets if it is created, whatever the umask; None: what the umask leaves of 666.

    Returns:
        The descriptor.

    Raises:
        NoBus: there is no bus.
        OSError: the bus refuses.
    """
    bus = find_bus(directory)
    try:
        # A bus has no links. Nor does opening wait on it, as for the other end of a FIFO.
        descriptor = _open(bus, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    finally:
        os.close(bus)
    try:
        inquire(descriptor)
        os.set_blocking(descriptor, not flags & os.O_NONBLOCK)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.ENOTTY:  # a copy of what was in the directory of a bus
            raise NoBus(f"no bus is mounted on {directory}", error.errno) from None
        raise
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(bus: int, name: str, flags: int, mode: int | None) -> int:
    if mode is None or not flags & os.O_CREAT:
        return os.open(name, flags, 0o666, dir_fd=bus)
    # To become a master is to create, and `name` of a master is never there.
    try:
        descriptor = os.open(name, flags | os.O_EXCL, mode, dir_fd=bus)
    except FileExistsError:
        return os.open(name, flags, mode, dir_fd=bus)
    try:
        os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
