"""What stat(2) tells: of the directory, of `_stat`, of a channel."""

import stat
from dataclasses import dataclass
from pathlib import Path

import pyfuse3
from pyfuse3 import EntryAttributes

from futebus.core.bus import Bus

from . import nodes
from .nodes import Node, StatFile

BLOCK, BULK_BLOCK = 4096, 128 * 1024
"""What C programs take for the size of their buffers: of a channel, and of one that is opened to read many messages at once."""

ROOT_ATTR_TIMEOUT = 1.0
"""Seconds for which the kernel may believe the directory's attributes. It asks for them on every path walk, and what it changes
itself it knows at once; only a time stamp that moves when a master closes can be seen that much too late."""

_PROTECTED_REGULAR = Path("/proc/sys/fs/protected_regular")
_STAT_MODE = stat.S_IFREG | 0o444


@dataclass(slots=True)
class Root:
    """What the directory itself is as a file; a channel has attributes of the same names. Times are in nanoseconds."""

    mode: int
    uid: int
    gid: int
    atime: int
    mtime: int
    ctime: int


class Attributes:
    """The attributes of all files of a bus.

    Args:
        bus: the bus.
        root: its directory.
        is_shared: whether other users than its mounter can get in.
    """

    def __init__(self, bus: Bus, root: Root, *, is_shared: bool) -> None:
        self._bus = bus
        self._root = root
        self._is_shared = is_shared

    def of_root(self) -> EntryAttributes:
        """Those of the directory."""
        entry = EntryAttributes()
        entry.st_ino = pyfuse3.ROOT_INODE
        root = self._root
        if self._bus.changed_at > root.ctime:
            root.mtime = root.ctime = self._bus.changed_at
        entry.st_mode = stat.S_IFDIR | (root.mode & ~stat.S_ISVTX if self.hides_sticky() else root.mode)
        entry.st_nlink = 2
        entry.st_uid, entry.st_gid = root.uid, root.gid
        entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns = root.atime, root.mtime, root.ctime
        entry.entry_timeout = 0
        entry.attr_timeout = ROOT_ATTR_TIMEOUT
        return entry

    def hides_sticky(self) -> bool:
        """Whether the kernel must not see the directory's sticky bit.

        With the sysctl fs.protected_regular it takes `> B_log` in a sticky directory for a trap when the channel belongs to
        somebody else, and refuses it even to root. So `unlink` minds the bit, and the kernel need not.
        """
        if not self._is_shared or not self._root.mode & stat.S_ISVTX:
            return False
        try:
            return _PROTECTED_REGULAR.read_text().strip() != "0"
        except OSError:
            return False

    def of_stat(self, file: StatFile) -> EntryAttributes:
        """Those of `_stat` or its like."""
        entry = EntryAttributes()
        entry.st_ino = file.number
        entry.st_mode = _STAT_MODE
        entry.st_uid, entry.st_gid = self._root.uid, self._root.gid
        # Of the bus: were it the time of each look, tar(1) would always find that the file has changed while it was read.
        entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = self._bus.started_at
        entry.entry_timeout = entry.attr_timeout = 0
        return entry

    def of(self, node: Node, size: int) -> EntryAttributes:
        """Those of a channel or `_stat`.

        Args:
            node: by which it is known.
            size: how long it is said to be; of no use for `_stat`.
        """
        channel = node.file
        if isinstance(channel, StatFile):
            return self.of_stat(channel)
        entry = EntryAttributes()
        entry.st_ino = channel.number
        entry.st_blksize = BULK_BLOCK if node.bulk else BLOCK
        entry.st_mode = stat.S_IFREG | channel.mode
        entry.st_nlink = int(channel.is_named)
        entry.st_uid, entry.st_gid = channel.uid, channel.gid
        entry.st_size = size
        entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns = channel.atime, channel.mtime, channel.ctime
        entry.entry_timeout = entry.attr_timeout = 0
        return entry

    def of_entry(self, node: Node) -> EntryAttributes:
        """The same as an entry of the directory: with its node id too, and st_ino in st_rdev (see hooks.c)."""
        entry = self.of(node, nodes.OPEN_SIZE if node.opens else 0)
        entry.st_ino, entry.st_rdev = node.number, node.file.number
        return entry
