"""How far the lines of a query have been published, kept so that it survives the death of whoever publishes.

The journal is a file that is mapped into memory and shared: what was stored is in the file even if the very next instruction is
never reached. A record is stored into one of two slots in turn, with a count and a checksum. So there is always a whole one, also
when a kill or a loss of power has torn the other.

What a stream has confirmed stands behind that, with a checksum of its own. So a journal without it can be read, and one with it
by who knows nothing of it.
"""

import enum
import fcntl
import mmap
import os
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..telling import say
from .outlet import SinkError

_SLOT = mmap.PAGESIZE
"""Bytes. Each slot has a page of its own: a page is what is written to the disk at once, and may be torn."""

_BODY = struct.Struct("<8sQqIIQQ")
_CONFIRMED = struct.Struct("<Q64s")
_SUM = struct.Struct("<I")
_MAGIC = b"futebus1"


class State(enum.IntEnum):
    """What is true of a record's batch."""

    DONE = 0
    """It is out, and so are all before it."""
    BEGUN = 1
    """Its list of segments is written, and its lines are being published."""


class Record(NamedTuple):
    """How far it has come."""

    batch: int
    """The id of the batch; -1 before the first."""
    state: State
    segment: int = 0
    """Which segment of the batch is being published."""
    position: int = 0
    """How many bytes of it were accepted: whole lines."""
    intent: int = 0
    """How many bytes are just being written from there. If that is not 0 when the journal is opened, somebody was killed while
    writing, and nobody can tell whether these were accepted."""
    sequence: int = 0
    """The number of the last message that a stream has confirmed; 0 if there is none, or none is known."""
    created: str = ""
    """When that stream was made; "" if it is not known."""


class Journal:
    """The journal in a file, locked for as long as it is open: a query has one publisher at a time.

    Args:
        path: the file. It is created if it is not there. Another publisher's end is waited for.

    Raises:
        SinkError: the file cannot be used, or none of its two records is whole.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise SinkError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            self._lock(path)
            # Not just a longer file: to store into a map for which the disk has no place is deadly.
            os.posix_fallocate(self._file, 0, 2 * _SLOT)
            self._map = mmap.mmap(self._file, 2 * _SLOT)
            self._count = 0
            self.record = Record(-1, State.DONE)
            """The newest record."""
            found = [slot for slot in (self._read(0), self._read(1)) if slot]
            if found:
                self._count, self.record = max(found)
            elif all(self._map[slot * _SLOT : (slot + 1) * _SLOT].strip(b"\0") for slot in (0, 1)):
                raise SinkError(f"{path} is damaged: without it, nobody can tell which batches are out")
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another publisher to end, who has {path}")
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def _read(self, slot: int) -> tuple[int, Record] | None:
        """The count and the record in a slot, if they are whole."""
        start = slot * _SLOT
        body = self._map[start : start + _BODY.size]
        (checksum,) = _SUM.unpack_from(self._map, start + _BODY.size)
        magic, count, batch, state, segment, position, intent = _BODY.unpack(body)
        if magic != _MAGIC or checksum != zlib.crc32(body):
            return None
        start += len(body) + _SUM.size
        confirmed = self._map[start : start + _CONFIRMED.size]
        (checksum,) = _SUM.unpack_from(self._map, start + len(confirmed))
        sequence, created = _CONFIRMED.unpack(confirmed) if checksum == zlib.crc32(body + confirmed) else (0, b"")
        return count, Record(batch, State(state), segment, position, intent, sequence, created.rstrip(b"\0").decode())

    def note(self, record: Record) -> None:
        """Stores a record. From then on it survives the death of this process."""
        count = self._count + 1
        batch, state, segment, position, intent, sequence, created = record
        body = _BODY.pack(_MAGIC, count, batch, state, segment, position, intent)
        confirmed = _CONFIRMED.pack(sequence, created.encode())
        stored = body + _SUM.pack(zlib.crc32(body)) + confirmed + _SUM.pack(zlib.crc32(body + confirmed))
        start = (count & 1) * _SLOT
        self._map[start : start + len(stored)] = stored
        self._count, self.record = count, record

    def note_durably(self, record: Record) -> None:
        """Stores a record. When this returns, it survives a loss of power."""
        self.note(record)
        self._map.flush()
        os.fsync(self._file)

    def close(self) -> None:
        """Lets the next publisher in."""
        self._map.close()
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
