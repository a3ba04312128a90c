"""What is to be recorded, where and how; and a channel that is held open for it."""

import os
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from ..host.service import ServiceManager
from ..spool import OWN_MODE
from .target import Target


class Recording(NamedTuple):
    """What is to be recorded, where and how."""

    channel: Path
    """In the directory where the bus is mounted."""
    spool: Path
    is_master: bool
    mode: int | None
    """The permissions of a channel that is created; None: what the umask leaves of 666."""
    segment_bytes: int
    keep_bytes: int | None
    keep_age: float | None
    """Seconds."""
    sync: float | None
    """How long, in seconds, lines may wait for fdatasync(2). 0: not at all. None: until the kernel writes them by itself."""
    spool_mode: int = OWN_MODE
    """The permissions of the spool's directory, if it is made."""
    to: Target | None = None
    """Where it is published, if it is."""

    @property
    def prefix(self) -> str:
        """Which channel it is, in the names that the service manager keeps descriptors under."""
        known_as = f"{'.' * self.is_master}{self.channel}"
        return f"channel-{zlib.crc32(os.fsencode(known_as)):08x}"


class Held(NamedTuple):
    """A channel that is open."""

    descriptor: int
    lost: int
    """How many lines the spool counted as lost when it was opened."""
    name: str
    """Under which name the service manager keeps it, if there is one."""


def adopted(recording: Recording, manager: ServiceManager) -> Held | None:
    """The channel as the process before had it, if the service manager has kept it. Anything else that it has kept is closed."""
    held = None
    for name, descriptor in manager.kept():
        # Earlier versions put the number of a process in front of that of the lines.
        found = re.fullmatch(rf"{recording.prefix}(?:-[0-9]+)?-([0-9]+)", name)
        if held is None and found:
            os.set_blocking(descriptor, False)
            held = Held(descriptor, int(found[1]), name)
        else:
            os.close(descriptor)
            if held is None or name != held.name:
                manager.drop(name)
    return held
