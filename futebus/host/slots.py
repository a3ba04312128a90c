"""Something short that is kept in a file so that it survives the death of whoever keeps it, at whatever moment.

The one rule: there is always a whole one. The file is mapped into memory and shared, so what was stored is in it even if the very
next instruction is never reached; and it is stored into one of two slots in turn, with a count and a checksum, so that the one
before is there if a kill has torn it.

A loss of power may tear both of these: the system brings pages to the disk when it likes, and each by itself. So what is flushed
goes into two more slots in turn, and into one only when the other is on the disk.
"""

import mmap
import os
import struct
import threading
import zlib

SLOT = 4 * mmap.PAGESIZE
"""Bytes of a slot. Each has pages of its own: a page is what is written to the disk at once, and may be torn."""

_KEPT, _FLUSHED = (0, SLOT), (2 * SLOT, 3 * SLOT)
"""Where the slots are in which something is kept, and those in which it is brought to the disk."""

_SIZE = 4 * SLOT

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
        os.posix_fallocate(file, 0, _SIZE)
        self._map = mmap.mmap(file, _SIZE)
        self._kept = _newest(self._map, (*_KEPT, *_FLUSHED))
        """The count of what is kept, and it."""
        counts = [_newest(self._map, (start,))[0] for start in _FLUSHED]
        self._next = counts.index(min(counts))
        """Into which of the slots for the disk it is flushed next."""
        self._is_known = False
        """Whether the other one is on the disk: a process may have been killed before it was."""
        self._flushed = 0
        """The count of what was flushed last."""
        self._flushing = threading.Lock()
        if self.content is not None and not any(counts):
            self.flush()  # versions before this one had two slots

    @property
    def content(self) -> bytes | None:
        """What is kept; None if there is nothing, or nothing that is whole."""
        return self._kept[1]

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
        count = self._kept[0] + 1
        self._store(_KEPT[count & 1], count, content)
        self._kept = count, content

    def _store(self, start: int, count: int, content: bytes) -> None:
        head = _HEAD.pack(_MAGIC, count, len(content), zlib.crc32(content, count & 0xFFFFFFFF))
        self._map[start : start + _HEAD.size + len(content)] = head + content

    def flush(self) -> None:
        """Has it on the disk: when this returns, it survives a loss of power, and something survives one before.

        Any thread may do that, and another may keep something else meanwhile.

        Raises:
            OSError: the disk does not take it. What was flushed before is there.
        """
        with self._flushing:
            if not self._is_known:
                self._map.flush()
                self._is_known = True
            count, content = self._kept
            if content is not None and count != self._flushed:
                start = _FLUSHED[self._next]
                self._store(start, count, content)
                self._map.flush(start, SLOT)
                self._next ^= 1
                self._flushed = count

    def close(self) -> None:
        """Lets go of the file."""
        self._map.close()


def look(file: int) -> bytes | None:
    """What somebody keeps in a file, perhaps at this moment; None if that is nothing.

    Args:
        file: its descriptor, to read.
    """
    return _newest(os.pread(file, _SIZE, 0), (*_KEPT, *_FLUSHED))[1]


def _newest(data: "bytes | mmap.mmap", starts: tuple[int, ...]) -> tuple[int, bytes | None]:
    """The newest of some slots that is whole, with its count; (0, None) if none is."""
    best: tuple[int, bytes | None] = (0, None)
    for start in starts:
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
