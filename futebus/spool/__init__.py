"""A spool: the lines of one channel on disk, in the order in which the bus gave them, each with a number (its offset).

The one rule: what is in the spool is never changed, only added to behind and removed before; one process writes it, any number
read it meanwhile. It is its owner's: nobody else can write to it, or read it unless the directory lets them.

A spool is a directory:

`spool.json`
    Which channel it is of, and the spool's identity, a UUID. Offsets mean something only together with it. Also where the spool
    begins, so that offsets never begin again, and during which run of the system it was last written. While lines are cut off
    after a loss of power, also which: whoever comes next tells it if this one does not come to that.
`FIRST.lines`
    A segment: raw lines, named by the offset of the first one (20 digits). The last segment is longer than its lines: the
    rest is zeros, disk space that is already ours, so that a full disk shows here and not in the middle of a line.
`FIRST.index`
    The marks of that segment: 32 bytes for each append, four little-endian 64-bit integers: the offset behind its last line, the
    byte behind it, the time (nanoseconds since the epoch), and how many lines are known to be lost before it, since the spool
    began. The highest bit of the last number says that these lines hold no NUL byte: if they do, they did not reach the disk.
    The first mark says where the segment begins. Zeros follow.
`lock`
    Locked with flock(2) by who writes. Its owner alone can open it.

Lines go from the channel into the mapped segment by readv(2), so the kernel puts them into the file's pages before the call
returns: a writer that is killed in between has lost nothing that the bus had handed out. Its successor finds the lines that
have no mark yet, by their newlines. A line counts for readers once it is before a mark.
"""

from .files import OWN_MODE
from .layout import ForeignSpool, LinesDamaged, LinesGone, NotASpool, SpoolError, SpoolInUse, SpoolStopped, open_to_read
from .lock import SpoolLock, is_in_use
from .marks import Mark
from .older import append_lost, remove_unopened
from .piece import OnDamage, Piece
from .reader import Spool
from .writer import SpoolWriter

__all__ = [
    "OWN_MODE",
    "ForeignSpool",
    "LinesDamaged",
    "LinesGone",
    "Mark",
    "NotASpool",
    "OnDamage",
    "Piece",
    "Spool",
    "SpoolError",
    "SpoolInUse",
    "SpoolLock",
    "SpoolStopped",
    "SpoolWriter",
    "append_lost",
    "is_in_use",
    "open_to_read",
    "remove_unopened",
]
