"""What is to be recorded, where and how; and a channel that is held open for it."""

from pathlib import Path
from typing import NamedTuple

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


class Held(NamedTuple):
    """A channel that is open."""

    descriptor: int
    lost: int
    """How many lines the spool counted as lost when it was opened."""
    name: str
    """Under which name the service manager keeps it, if there is one."""
