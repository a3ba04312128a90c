"""Something short that is kept in a file so that it survives the death of whoever keeps it, at whatever moment.

The one rule: there is always a whole one. The file is mapped into memory and shared, so what was stored is in it even if the very
next instruction is never reached; and it is stored into one of two slots in turn, with a count and a checksum, so that the one
before is there if a kill or a loss of power has torn it.
"""

import mmap
import os
import struct
import zlib

SLOT = 4 * mmap.PAGESIZE
"""Bytes of a slot. Each has pages of its own: a page is what is written to the disk at once, and may be torn."""

_HEAD = struct.Struct("<8sQII")
_MAGIC = b"futebus2"

MOST = SLOT - _HEAD.size
"""Bytes that can be kept."""


class Slots:
    """What is kept in a file. One process may keep it at a time; whoever likes reads it with `look`.

    Args:
        file: its descriptor, to read and write. It stays the caller's, and is not needed any more when this is made.

    Raises:
        OSError: the disk has no place for it, among others.
    """

    def __init__(self, file: int) -> None:
        # Not just a longer file: to store into a map for which the disk has no place is deadly.
        os.posix_fallocate(file, 0, 2 * SLOT)
        self._map = mmap.mmap(file, 2 * SLOT)
        self._count, self.content = _newest(self._map)
        """What is kept; `content` is None if there is nothing, or nothing that is whole."""

    @property
    def is_damaged(self) -> bool:
        """Whether there is something, and nothing that is whole."""
        return self.content is None and bool(self._map[:].strip(b"\0"))

    def keep(self, content: bytes) -> None:
        """Keeps something in place of what there is. From then on it survives the death of this process.

        Args:
            content: at most `MOST` bytes.
        """
        if len(content) > MOST:
            raise ValueError(f"{len(content)} bytes are more than {MOST}")
        count = self._count + 1
        start = (count & 1) * SLOT
        head = _HEAD.pack(_MAGIC, count, len(content), zlib.crc32(content, count & 0xFFFFFFFF))
        self._map[start : start + _HEAD.size + len(content)] = head + content
        self._count, self.content = count, content

    def flush(self) -> None:
        """Has it on the disk: when this returns, it survives a loss of power."""
        self._map.flush()

    def close(self) -> None:
        """Lets go of the file."""
        self._map.close()


def look(file: int) -> bytes | None:
    """What somebody keeps in a file, perhaps at this moment; None if that is nothing.

    Args:
        file: its descriptor, to read.
    """
    return _newest(os.pread(file, 2 * SLOT, 0))[1]


def _newest(data: "bytes | mmap.mmap") -> tuple[int, bytes | None]:
    """The newest of two slots that is whole, with its count; (0, None) if none is."""
    best: tuple[int, bytes | None] = (0, None)
    for start in (0, SLOT):
        head = data[start : start + _HEAD.size]
        if len(head) < _HEAD.size:
            continue
        magic, count, size, checksum = _HEAD.unpack(head)
        if magic != _MAGIC or size > MOST or count <= best[0]:
            continue
        content = data[start + _HEAD.size : start + _HEAD.size + size]
        if len(content) == size and zlib.crc32(content, count & 0xFFFFFFFF) == checksum:
            best = (count, content)
    return best
