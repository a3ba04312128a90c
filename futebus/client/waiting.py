"""How calls on a channel wait that are made one after the other: as long as it takes, or so many seconds.

The one rule: without a timeout, a call is the system call alone. With one it asks first, with poll(2), which costs two more.
"""

import contextlib
import errno
import itertools
import os
import select
import threading
import time
from collections.abc import Iterator
from threading import get_native_id
from types import TracebackType
from typing import Self

from .channel import BLOCK, RETRY_SECONDS, TRANSIENT, Endpoint, Way, begin_of_line
from .errors import ClientError, Ended, NoBus, NoMaster, TimedOut
from .messages import Item
from .waking import Inside

LONGEST = 1e6
"""Seconds that a system call can be asked to wait, and more than anybody does."""


class Waiting(Endpoint[Item]):
    """A channel whose calls wait. It is opened when it is made."""

    def __init__(self, way: Way, cut: object) -> None:
        super().__init__(way, cut, is_blocking=True)  # type: ignore[arg-type]
        self._hurried = 0
        """How many calls, of this thread and others, must not wait for ever."""
        self._hurrying = threading.Lock()
        self._opening = threading.Lock()
        """Held by who opens the channel again."""
        self._inside = Inside()
        self._open(way.wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _close(self, file: int) -> None:
        if not self._inside.retire(file):
            super()._close(file)

    def _opened(self, file: int) -> None:
        with self._hurrying:
            if self._hurried:  # another thread must not wait for ever, for what it finds there either
                os.set_blocking(file, False)

    def _open(self, wait: float) -> None:
        """Opens the channel, and waits so many seconds for that."""
        for pause in self.attempts(wait):
            time.sleep(pause)

    def _open_again(self, joins: int, end: float | None) -> None:
        """Opens the channel again, unless another thread has done so since.

        Args:
            joins: how often it had been opened when it was found to be gone.
            end: until when that may take.
        """
        with self._inside.outside():
            if not self._opening.acquire(timeout=-1 if end is None else min(max(end - time.monotonic(), 0), LONGEST)):
                raise TimedOut(errno.ETIMEDOUT, f"{self.path} has not come back in time")
            try:
                if self.joins == joins and not self._left:
                    self._open(float("inf") if end is None else end - time.monotonic())
            except TRANSIENT as error:
                raise TimedOut(errno.ETIMEDOUT, f"{self.path} has not come back in time: {error}") from None
            finally:
                self._opening.release()

    def _part(self, epoch: int) -> None:
        """Leaves a channel that has gone and comes again: whoever reads or sends next opens it.

        Args:
            epoch: of that one. Another thread may be about to open it.
        """
        if self._comes_again and self._opening.acquire(blocking=False):
            try:
                if self._epoch == epoch:
                    self._leave()
            finally:
                self._opening.release()

    def _poll(self, events: int, end: float | None, what: str) -> None:
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(self.fileno(), events)
        left = None if end is None else min(max(end - time.monotonic(), 0), LONGEST)
        if not poller.poll(None if left is None else left * 1000):
            raise TimedOut(errno.ETIMEDOUT, f"{self.path}: {what}")

    @contextlib.contextmanager
    def _in_a_hurry(self) -> Iterator[None]:
        """Has calls fail that would wait. Another thread's, that may wait, are made again when they do."""
        with self._hurrying:
            try:
                os.set_blocking(self.fileno(), False)
            except OSError:
                raise ValueError(f"{self.path} is not open") from None  # another thread is just leaving it
            self._hurried += 1
        try:
            yield
        finally:
            with self._hurrying, contextlib.suppress(OSError):
                self._hurried -= 1
                if not self._hurried and self.is_open:
                    os.set_blocking(self._file, True)

    # ------------------------------------------------------------------------------------------ reading

    def _block(self, end: float | None) -> bytes:
        """The next lines, as soon as there are some."""
        inside = self._inside
        inside.reader = get_native_id()
        try:
            return self._block_inside(end)
        finally:
            inside.reader = 0
            if inside.retired:
                inside.bury()

    def _block_inside(self, end: float | None) -> bytes:
        while True:
            joins = self.joins
            try:
                try:
                    if end is None:
                        return self.read_block_nowait()
                    with self._in_a_hurry():
                        self._poll(select.POLLIN, end, "nothing has come in time")
                        return self.read_block_nowait()
                except BlockingIOError:
                    self._poll(select.POLLIN, end, "nothing has come in time")
            except (Ended, NoBus):
                if not self._comes_again:
                    raise
                self._open_again(joins, end)
            except ValueError:  # it is not open: another thread opens it, or has tried in vain
                if not self._comes_again or self._left:
                    raise
                self._open_again(joins, end)

    def _next(self, timeout: float | None = None) -> Item:
        for item in self._items:
            return item
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._items = iter(self._cut(self._block(end)))
            for item in self._items:
                return item

    def _each(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[Item]]:
        while True:
            yield self._items
            try:
                self._items = iter(self._cut(self._block(None)))
            except Ended:
                return
            except ValueError:
                if not self._left:
                    raise
                return  # it was closed in the loop, or by another thread

    def read_block(self, timeout: float | None = None) -> bytes:
        r"""The next whole lines as the bus gives them, addresses included, each with its `\n`; as many as there are.

        Args:
            timeout: how many seconds to wait; None: for ever.

        Raises:
            TimedOut: nothing has come.
            Ended: nothing more will come.
            NoBus: the bus has gone.
            ValueError: the channel is not open, or messages that have come before are still to be asked for.
        """
        self.check_nothing_pending()
        return self._block(None if timeout is None else time.monotonic() + timeout)

    # ------------------------------------------------------------------------------------------ sending

    def send_block(self, lines: bytes, timeout: float | None = None) -> int:
        r"""Sends whole lines as they are, addresses included, each with its `\n`.

        Args:
            lines: at least one.
            timeout: as for `Publisher.send`.

        Returns:
            How many were accepted: all of them.

        Raises:
            ClientError: as for `Publisher.send`.
        """
        return self._send(lines, timeout)

    def _send(self, lines: bytes, timeout: float | None) -> int:
        inside = self._inside
        inside.sender = get_native_id()
        try:
            return self._send_inside(lines, timeout)
        finally:
            inside.sender = 0
            if inside.retired:
                inside.bury()

    def _send_inside(self, lines: bytes, timeout: float | None) -> int:
        start = 0
        if timeout is None and not self._rest and len(lines) <= BLOCK:  # mostly so, and then this is all
            file, epoch = self._now()
            try:
                start = os.write(file, lines)
            except OSError:
                start = 0  # what is wrong, the same call tells once more
            if start == len(lines):
                self.accepted = lines.count(b"\n")
                return self.accepted
            first = 0
        else:
            lines, first, epoch = self.begin_sending(lines)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while start < len(lines):
                joins = self.joins
                file, start, epoch = self.go_on_sending(lines, first, start, epoch)
                try:
                    try:
                        if end is None:
                            start = self.send_nowait(lines, start, file)
                        else:
                            with self._in_a_hurry():
                                start = self.send_nowait(lines, start, file)
                    except BlockingIOError:
                        self._poll(select.POLLOUT, end, "the master has had no place for it in time")
                except (NoBus, NoMaster):
                    if self._is_addressed:
                        self._part(epoch)
                    # On another channel, an address is another client's.
                    if not self._comes_again or self._is_addressed or (end is not None and time.monotonic() >= end):
                        raise
                    start = begin_of_line(lines, start, first)  # what the bus had of a message has gone with it
                    time.sleep(RETRY_SECONDS[0])  # a master that does not read is found again at once
                    self._open_again(joins, end)
                except ValueError:
                    if not self._comes_again or self._left:
                        raise
                    start = begin_of_line(lines, start, first)
                    self._open_again(joins, end)
        except ClientError as error:
            if not isinstance(error, TimedOut):  # what the bus had of a message is dropped
                start = begin_of_line(lines, start, first)
            error.accepted = self.stop_sending(lines, first, start, epoch)
            raise
        except BaseException:  # Ctrl-C, for one
            self.stop_sending(lines, first, start, epoch)
            raise
        return self.end_sending(lines, first, start, epoch)
