"""What a recorder says on standard error: a line at a time, for who reads it.

The one rule: nobody who reads slowly, or not at all, keeps a recorder from recording or from ending. It forks, so there is no
thread for this, and no lock.
"""

import contextlib
import os
import select

from ..core.text import counted, were

PATIENCE = 0.5
"""Seconds for which room is waited for, the first time."""


class Sayer:
    """Says lines on a descriptor, and counts those that nobody takes.

    Args:
        descriptor: which one: a terminal, a pipe, a file, a socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lost = 0

    def say(self, command: str, words: str, encoding: str) -> None:
        """Says something, or loses it if there is no room for it soon; that is told before the next one that has room.

        Args:
            command: who says it.
            words: what.
            encoding: how it is written. What that has no bytes for is escaped.
        """
        line = f"{command}: {words}\n"
        if self._lost:
            missing = f"({counted(self._lost, 'line')} {were(self._lost)} not logged: nobody read them in time)"
            line = f"{command}: {missing}\n{line}"
        with contextlib.suppress(OSError):  # that nobody listens any more is no reason to stop
            if not self._write(line.encode(encoding, "backslashreplace")):
                self._lost += 1
                return
        self._lost = 0

    def _write(self, data: bytes) -> bool:
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(self._descriptor, select.POLLOUT)
        rest = memoryview(data)
        while rest:
            # So much goes into a pipe that has room at all; a file that others write to as well is not made non-blocking.
            if not poller.poll(0 if self._lost else PATIENCE * 1000):
                return len(rest) < len(data)
            rest = rest[os.write(self._descriptor, rest[: select.PIPE_BUF]) :]
        return True
