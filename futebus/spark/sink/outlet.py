"""A channel for one who only writes: opened as slave or peer, given whole lines, every refusal told in one sentence."""

import contextlib
import errno
import os
import re
import select
from pathlib import Path
from types import TracebackType
from typing import Self

from ...client import entry
from ...core.kinds import LETTERS, has_master
from ...core.limits import MAX_NAME
from ...host import mounted
from ..telling import Sentence

BLOCK = 128 * 1024
"""Bytes of lines that one write(2) brings. The bus takes a block as one piece of work, and serves others between two. Blocks of
1 MiB are half again as fast, of 32 KiB half as fast; with any of them, Spark is what takes the time."""


_SHOWN = 60
"""Bytes of a line that are shown when it is refused."""

_BUS_IS_GONE = {errno.ESHUTDOWN, errno.ENOTCONN, errno.ECONNABORTED}
_ADDRESS = re.compile(rb"\{([0-9A-Fa-f]+)\}")


class SinkError(Sentence):
    """What the sink was asked for cannot be done. The text is one sentence, for people."""


def check_name(name: str) -> None:
    """Sees that a channel of this name can be written to.

    Raises:
        SinkError: it is the name of no channel, or of a master or bulk reader.
    """
    if not name.startswith(LETTERS) or "/" in name or "\0" in name:
        raise SinkError(f"{name!r} is not the name of a channel: it begins with U, S, A or B and has no slash in it")
    if len(os.fsencode(name)) > MAX_NAME:
        raise SinkError(f"the channel name {name!r} is longer than {MAX_NAME} bytes")


def check_bus(directory: Path) -> None:
    """Sees that there is a bus in a directory.

    Raises:
        SinkError: there is no such directory, or no bus in it.
    """
    try:
        mounted.check_bus(directory)
    except mounted.NoBus as error:
        raise SinkError(str(error)) from None


def is_directory(path: Path) -> bool:
    """Whether a path is a directory. One that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def end_of_block(lines: bytes, start: int) -> int:
    r"""Where the block of whole lines ends that begins at `start`.

    Args:
        lines: whole lines, the last one too ends with `\n`.
        start: the beginning of a line.

    Returns:
        A line's end at most `BLOCK` bytes on; the end of the first line if that is longer.
    """
    if len(lines) - start <= BLOCK:
        return len(lines)
    return lines.rfind(b"\n", start, start + BLOCK) + 1 or lines.find(b"\n", start + BLOCK) + 1


class Outlet:
    """One open channel.

    Args:
        directory: where the bus is mounted.
        name: the channel. An A or B channel is created if it is not there; U and S channels need a master.
        may_block: whether writes wait for a master that has no place; else there is `offer` and `wait`.

    Raises:
        SinkError: the channel cannot be opened.
    """

    def __init__(self, directory: Path, name: str, *, may_block: bool = True) -> None:
        check_name(name)
        self.name = name
        flags = os.O_WRONLY | os.O_CLOEXEC
        if not has_master(name):
            flags |= os.O_CREAT
        if not may_block:
            flags |= os.O_NONBLOCK
        try:
            self._file = entry.enter(directory, name, flags)
        except mounted.NoBus as error:
            raise SinkError(str(error)) from None
        except OSError as error:
            raise SinkError(_why_not_opened(name, error)) from None
        self._poller = select.poll()
        self._poller.register(self._file, select.POLLOUT)

    def close(self) -> None:
        """Closes the channel."""
        os.close(self._file)

    def put(self, lines: bytes) -> None:
        r"""Writes whole lines in blocks, and waits for a master that has no place.

        Raises:
            SinkError: a line was refused. Those before it have been sent.
        """
        view = memoryview(lines)
        start = 0
        while start < len(lines):
            end = end_of_block(lines, start)
            while start < end:
                try:
                    start += os.write(self._file, view[start:end])
                except OSError as error:
                    raise SinkError(self._why_refused(error, lines, start)) from None

    def offer(self, lines: bytes, start: int) -> int:
        """Writes what there is place for, from `start` on, with one write(2).

        Returns:
            How many bytes were accepted; 0 when the master has no place.

        Raises:
            SinkError: the line at `start` was refused.
        """
        try:
            return os.write(self._file, memoryview(lines)[start:])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise SinkError(self._why_refused(error, lines, start)) from None

    def wait(self) -> None:
        """Waits until `offer` is worth another try. Signals end it, by what their handlers do."""
        self._poller.poll()

    def _why_refused(self, error: OSError, lines: bytes, start: int) -> str:
        # Short counts end at a line's end, except within a line that the kernel brings in several pieces (over 1 MiB).
        begin = lines.rfind(b"\n", 0, start) + 1
        end = lines.find(b"\n", start) + 1 or len(lines)
        line = lines[begin : min(end, begin + _SHOWN)].removesuffix(b"\n").decode("utf-8", "backslashreplace")
        name = self.name
        if error.errno == errno.EMSGSIZE:
            return f"{name}: a line of {end - begin} bytes with its newline is longer than the bus takes (max_message): {line!r}"
        if error.errno == errno.EFAULT:
            return f"{name}: a line has no address, {{ID}} or {{*}} in front or in the column `address`: {line!r}"
        if error.errno in (errno.ENODEV, errno.ESRCH):
            if has_master(self.name):
                return f"{name} has no master any more that reads"
            address = _ADDRESS.match(lines, begin)
            client = f"client {address[1].decode()}" if address else "the client addressed"
            return f"{name}: {client} {'is not on the channel' if error.errno == errno.ENODEV else 'does not read'}: {line!r}"
        if error.errno in _BUS_IS_GONE:
            return f"{name}: the bus is being unmounted or is gone"
        return f"{name} cannot be written to: {os.strerror(error.errno or 0)}"


class Outlets:
    """Channels of one bus, each opened when it is first asked for, closed together.

    Args:
        directory: where the bus is mounted.
        may_block: see `Outlet`.
    """

    def __init__(self, directory: Path, *, may_block: bool = True) -> None:
        self._directory = directory
        self._may_block = may_block
        self._open: dict[str, Outlet] = {}
        self._stack = contextlib.ExitStack()

    def __getitem__(self, name: str) -> Outlet:
        outlet = self._open.get(name)
        if outlet is None:
            outlet = self._open[name] = Outlet(self._directory, name, may_block=self._may_block)
            self._stack.callback(outlet.close)
        return outlet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()


def _why_not_opened(name: str, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ESPIPE) and has_master(name):
        return f"{name} has no master"
    if error.errno in _BUS_IS_GONE | {errno.ENOENT}:
        return f"{name}: the bus is being unmounted or is gone"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{name} may not be written to: {os.strerror(error.errno)}"
    return f"{name} cannot be opened: {os.strerror(error.errno or 0)}"
