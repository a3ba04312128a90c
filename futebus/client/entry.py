"""The way onto a bus, for a program that was told a directory and a name.

The one rule: what is opened is a channel of the bus in that directory, or nothing is. A and B channels are made by opening them.
If the bus goes in the moment before, this must not make a file in the directory below, which would swallow what is written to it.
"""

import errno
import functools
import os
import sys
from pathlib import Path

from ..host.mounted import NoBus, close_all, find_bus
from .errors import is_own
from .inquire import inquire


def enter(directory: Path, name: str, flags: int, mode: int | None = None, opened: list[int] | None = None) -> int:
    """Opens a channel.

    Args:
        directory: where the bus is mounted.
        name: the channel, `.NAME` to become its master, `+NAME` to read it in bulk.
        flags: as of open(2).
        mode: exactly the permissions that it gets if it is created, whatever the umask; None: what the umask leaves of 666.
        opened: an empty list, in which all that is open for this is from that moment on: a child that another thread forks finds
            it there. In the end, that is the descriptor; nothing, if this fails.

    Returns:
        The descriptor.

    Raises:
        NoBus: there is no bus.
        OSError: the bus refuses.
    """
    handled = sys.exception()  # by who calls this
    opened = [] if opened is None else opened
    try:
        bus = find_bus(directory, opened)
    except NoBus as error:
        cause = error.__context__
        if isinstance(cause, OSError) and cause is not handled and not is_own(cause):
            raise cause from None  # the handler of a signal has raised it
        raise
    try:
        try:
            # A bus has no links. Nor does opening wait on it, as for the other end of a FIFO.
            _open(bus, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode, opened)
        finally:
            close_all(opened, 1)
        _check_open(opened)
        inquire(opened[0])
        _check_open(opened)
        os.set_blocking(opened[0], not flags & os.O_NONBLOCK)
        _check_open(opened)
    except OSError as error:
        close_all(opened)
        if error.errno == errno.ENOTTY and is_own(error):  # a copy of what was in the directory of a bus
            raise NoBus(f"no bus is mounted on {directory}", error.errno) from None
        raise
    except BaseException:
        close_all(opened)
        raise
    return opened[0]


def _check_open(opened: list[int]) -> None:
    """Sees that this goes on.

    Raises:
        OSError: not in a child that the handler of a signal has forked: the numbers may be those of other files of its own there.
    """
    if not opened:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _open(bus: int, name: str, flags: int, mode: int | None, opened: list[int]) -> None:
    """Opens a channel. Its descriptor is noted in the same step: the handler of a signal may raise behind each call."""
    if mode is None or not flags & os.O_CREAT:
        _open_at(bus, name, flags, 0o666, opened)
        return
    # To become a master is to create, and `name` of a master is never there.
    try:
        _open_at(bus, name, flags | os.O_EXCL, mode, opened)
    except FileExistsError as error:
        if not is_own(error):
            raise
        _open_at(bus, name, flags, mode, opened)
    else:
        os.fchmod(opened[-1], mode)


def _open_at(bus: int, name: str, flags: int, mode: int, opened: list[int]) -> None:
    doing = map(functools.partial(os.open, dir_fd=bus), (name,), (flags,), (mode,))
    if not opened:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # see `_check_open`, which is too far from what is done next
    opened += doing
