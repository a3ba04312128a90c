"""What a recorder says on standard error: a line at a time, for who reads it.

The one rule: nobody who reads slowly, or not at all, keeps a recorder from recording or from ending. It forks, so there is no
thread for this, and no lock.
"""

import contextlib
import errno
import os
import select
import stat
import time
from collections.abc import Iterator

from ..core.text import unlogged

PATIENCE = 0.5
"""Seconds for which room is waited for, the first time."""

PAUSE = 0.01
"""Seconds between two tries to use what room there seems to be."""


class Sayer:
    """Says lines on a descriptor, and counts those that nobody takes.

    The file is not made non-blocking, since others write to it too.

    Args:
        descriptor: which one: a terminal, a pipe, a file, a socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lost = 0
        self._is_cut = False
        """Whether there was room for a part of what was said last."""
        mode = os.fstat(descriptor).st_mode
        self._may_fill = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        """Whether who has seen room there may find it taken by somebody else."""

    def say(self, command: str, words: str, encoding: str) -> None:
        """Says something, or loses it if there is no room for it soon; that is told before the next one that has room.

        Args:
            command: who says it.
            words: what.
            encoding: how it is written. What that has no bytes for is escaped.
        """
        line = f"{command}: {words}\n"
        if self._lost:
            line = f"{command}: ({unlogged(self._lost)}: nobody read them in time)\n{line}"
        if self._is_cut:
            line = f"\n{line}"
        data = line.encode(encoding, "backslashreplace")
        with contextlib.suppress(OSError):  # that nobody listens any more is no reason to stop
            written = self._write(memoryview(data))
            self._is_cut = 0 < written < len(data) or (self._is_cut and not written)
            if written < len(data):
                self._lost += 1
                return
        self._lost = 0

    def _write(self, data: memoryview) -> int:
        """Writes as much as there is room for. Returns how much that is."""
        written = 0
        patience = 0 if self._lost else PATIENCE
        end = time.monotonic() + patience
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(self._descriptor, select.POLLOUT)
        with _unblocked(self._descriptor) as (descriptor, most):
            while written < len(data) and poller.poll(max(end - time.monotonic(), 0) * 1000):
                try:
                    written += self._put(descriptor, data[written : written + most])
                    end = time.monotonic() + patience
                except BlockingIOError:  # it has been taken, or is too little
                    if time.monotonic() > end:
                        break
                    time.sleep(PAUSE)
        return written

    def _put(self, descriptor: int, piece: memoryview) -> int:
        if self._may_fill:
            try:
                return os.pwritev(descriptor, [piece], -1, os.RWF_NOWAIT)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # the kernel may be too old for that; there is room, as far as is known
                    raise
        return os.write(descriptor, piece)


@contextlib.contextmanager
def _unblocked(descriptor: int) -> Iterator[tuple[int, int]]:
    """Opens a terminal once more, so that a write does not wait: of one that has room nobody knows for how much.

    Returns:
        The descriptor to write to, and how much to write at once: a byte, if it may not be opened.
    """
    if not os.isatty(descriptor):
        yield descriptor, select.PIPE_BUF
        return
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield descriptor, 1
        return
    try:
        yield opened, select.PIPE_BUF
    finally:
        os.close(opened)
