"""A channel for one who only writes: opened as slave or peer, given whole lines, every refusal told in one sentence."""

import contextlib
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Self

from ...client.channel import Endpoint, Way
from ...client.errors import ClientError, NoAddress
from ...client.messages import texts
from ...core.kinds import LETTERS
from ...core.limits import MAX_NAME
from ...host import mounted
from ..telling import Sentence


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
        self._channel = Endpoint(Way(directory / name, reads=False, creates=True), texts(bytes), is_blocking=may_block)
        try:
            self._channel.open_nowait()
        except ClientError as error:
            raise SinkError(str(error)) from None
        self._poller = select.poll()
        self._poller.register(self._channel, select.POLLOUT)

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def put(self, lines: bytes) -> None:
        r"""Writes whole lines in blocks, and waits for a master that has no place.

        Raises:
            SinkError: a line was refused. Those before it have been sent.
        """
        start = 0
        while start < len(lines):
            start = self._send(lines, start)

    def offer(self, lines: bytes, start: int) -> int:
        """Writes what there is place for, from `start` on, with one write(2).

        Returns:
            How many bytes were accepted; 0 when the master has no place.

        Raises:
            SinkError: the line at `start` was refused.
        """
        try:
            return self._send(lines, start) - start
        except BlockingIOError:
            return 0

    def _send(self, lines: bytes, start: int) -> int:
        try:
            return self._channel.send_nowait(lines, start)
        except NoAddress as error:
            raise SinkError(f"{error}; it can also be in a column `address`") from None
        except ClientError as error:
            raise SinkError(str(error)) from None

    def wait(self) -> None:
        """Waits until `offer` is worth another try. Signals end it, by what their handlers do."""
        self._poller.poll()


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
