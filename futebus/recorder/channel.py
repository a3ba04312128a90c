"""The way to a channel that is to be recorded: what can be said against it, how it is opened, and how long that is tried.

The one rule: what may pass is waited for, and said once; what will not pass is said, and ends it.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..client.channel import RETRY_SECONDS, Endpoint, Way
from ..client.errors import ClientError, NotAllowed
from ..client.messages import texts
from ..core.errors import BusError
from ..core.kinds import parse_name
from ..host.mounted import FUSE_TYPE, mounted_on

SAID_SECONDS = 1.0
"""How long an absence is that is spoken of before it is over."""

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
    if parsed is None and (mount := mounted_on(str(channel))) and mount.type == FUSE_TYPE:
        raise ChannelError(f"{channel} is a bus; name a channel of it, such as {channel}/B_log")
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
    way = Way(channel, writes=False, is_master=is_master, creates=creates, mode=mode)
    endpoint = Endpoint(way, texts(bytes), is_blocking=False)
    try:
        endpoint.open_nowait()
    except NotAllowed as error:
        raise ChannelError(str(error)) from None
    except ClientError as error:
        raise (ChannelError if error.errno == errno.ENAMETOOLONG else BusAway)(str(error)) from None
    return endpoint.detach()


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
