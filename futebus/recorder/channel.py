"""The way to a channel that is to be recorded: what can be said against it, how it is opened, and how long that is tried.

The one rule: what may pass is waited for, and said once; what will not pass is said, and ends it.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..client.entry import enter
from ..core.errors import BusError
from ..core.kinds import has_master, parse_name
from ..host.mounted import NoBus

RETRY_SECONDS = (0.05, 1.0)
"""How soon, and later how seldom, it is tried again to open a channel or to find room on the disk."""

SAID_SECONDS = 1.0
"""How long an absence is that is spoken of before it is over."""

_FOR_GOOD = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""What waiting does not mend."""

Say = Callable[[str], None]


class ChannelError(Exception):
    """Why a channel cannot be read, in one sentence; it will not get better by itself."""


class BusAway(Exception):
    """Why a channel cannot be read now, in one sentence; it may be there later."""


def check_channel(channel: Path, is_master: bool) -> None:
    """Checks what can be said of a channel without a bus: its name, and whether it has a master.

    Raises:
        ChannelError: it cannot be drained so.
    """
    name = os.fsencode(channel.name)
    try:
        parsed = parse_name(name)
    except BusError:
        parsed = None
    if parsed is None or name[:1] in (b".", b"+"):
        raise ChannelError(f"{channel}: no channel has this name; its first letter is U, A, S or B")
    if is_master and not parsed.kind.has_master:
        raise ChannelError(f"{channel}: only U and S channels have a master")


def open_channel(channel: Path, is_master: bool, mode: int | None = None, *, creates: bool = True) -> int:
    """Opens a channel for bulk reading, non-blocking.

    A and B channels are created if need be, U and S channels by becoming their master.

    Args:
        channel: the file, in the directory where the bus is mounted.
        is_master: whether to become the master of a U or S channel.
        mode: the permissions that a channel gets if it is created; None: what the umask leaves of 666.
        creates: whether an A or B channel may be created.

    Raises:
        BusAway: there is no bus, no such channel, or nobody is master of it.
        ChannelError: it is refused for good: no permission, for one.
    """
    is_mastered = has_master(channel.name)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if is_master or (creates and not is_mastered) else 0)
    try:
        return enter(channel.parent, f"+{'.' * is_master}{channel.name}", flags, mode)
    except NoBus as error:
        if error.number in _FOR_GOOD:
            raise ChannelError(f"{channel}: {os.strerror(error.number or 0)}") from None
        raise BusAway(f"{channel}: {error}") from None
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise BusAway(f"{channel}: it has a master already") from None
        if error.errno in _FOR_GOOD:
            raise ChannelError(f"{channel}: {error.strerror}") from None
        if error.errno in (errno.ENOENT, errno.ESPIPE) and not flags & os.O_CREAT:
            raise BusAway(f"{channel}: {'it has no master' if is_mastered else 'there is no such channel'}") from None
        raise BusAway(f"{channel}: {error.strerror}") from None


def join(
    channel: Path, is_master: bool, mode: int | None, *, say: Say, wait: Callable[[float], bool], left: float | None = None
) -> int | None:
    """Opens a channel, as `open_channel` does, as soon as that is possible.

    Args:
        channel: the file, in the directory where the bus is mounted.
        is_master: whether to become the master of a U or S channel.
        mode: the permissions of a channel that is created, as for `open_channel`.
        say: is told what is waited for and, after an absence, that it is over and what was missed.
        wait: waits for so many seconds, and tells whether to go on.
        left: when an absence began, as time.monotonic() told it then. A short one is not spoken of until it is over.

    Returns:
        The descriptor; None if `wait` gave up.

    Raises:
        ChannelError: it is refused for good.
    """
    said = ""
    pause, longest = RETRY_SECONDS
    while True:
        try:
            descriptor = open_channel(channel, is_master, mode)
        except BusAway as error:
            if str(error) != said and (left is None or time.monotonic() - left > SAID_SECONDS):
                said = str(error)
                say(f"{said}; waiting")
        else:
            if left is not None:
                say(
                    f"{channel}: back after {time.monotonic() - left:.1f} s; "
                    "what the bus still held when it went, and what was written until now, is not in the spool"
                )
            return descriptor
        if not wait(pause):
            return None
        pause = min(pause * 1.5, longest)
