r"""What a channel is to a program that has it open. Nothing here waits: see `blocking` and `awaiting` for those who do.

The one rule: what the bus has handed out is handed on, and what it has accepted is not sent again. A read takes all that there is
(the name with `+`), since it costs as much as a read of one message; what is not asked for yet stays here.
"""

import contextlib
import errno
import operator
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple

from ..core.inquiry import Inquiry
from ..core.kinds import LETTERS, has_master
from ..host import mounted
from .entry import enter
from .errors import Ended, HasMaster, NoBus, NoChannel, NoMaster, Refused, absent, not_opened, not_read, not_sent
from .inquire import inquire
from .messages import Item
from .shut import shut

READ_BYTES = 1 << 20
"""How many bytes one read asks for, while much is said."""

FEW_BYTES = 64 * 1024
"""The same, while the read before has brought less than half of that. The memory that is asked for must be made, whatever comes:
a read of one line takes ten times as long with `READ_BYTES`."""

BLOCK = 128 * 1024
"""Bytes of lines that one write(2) brings. The bus takes a block as one piece of work, and serves others between two. Blocks of
1 MiB are half again as fast, of 32 KiB half as fast."""

RETRY_SECONDS = (0.05, 1.0)
"""How soon, and later how seldom, it is tried again to open a channel that is not there yet."""

TRANSIENT = (NoBus, NoChannel, NoMaster, HasMaster, Refused)
"""What may pass by itself, and can be waited for."""


class Way(NamedTuple):
    """How a channel is to be opened."""

    path: Path
    """The channel, in the directory where its bus is mounted."""
    reads: bool = True
    writes: bool = True
    is_master: bool = False
    creates: bool = False
    """Whether an A or B channel is created if it is not there."""
    mode: int | None = None
    """Exactly the permissions of a channel that is created; None: what the umask leaves of 666."""
    wait: float = 0.0
    """How many seconds it may take until the bus, the channel or its master is there."""
    again: bool = False
    """Whether it is opened again when the bus or the master has gone and come back, however long that takes."""
    say: Callable[[str], object] = lambda words: None
    """Is told, in one sentence, what is waited for, and when it is over."""

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.path.name


def way_to(path: str | os.PathLike[str], letters: str, purpose: str) -> Path:
    """A channel's path, checked.

    Args:
        path: where it is.
        letters: the types that it may have.
        purpose: what is done with it, for the message.

    Raises:
        ValueError: it has the name of no channel, or of one of another type.
    """
    found = Path(path)
    if not found.name.startswith(LETTERS):
        raise ValueError(f"{found}: no channel has this name; its first letter is U, A, S or B")
    if found.name[0] not in letters:
        wanted = " or ".join(letters) if len(letters) < 3 else ", ".join(letters)
        raise ValueError(f"{found}: {purpose} wants a channel of type {wanted}, and this is {found.name[0]}")
    return found


def end_of_block(lines: bytes, start: int, most: int = BLOCK) -> int:
    r"""Where the block of whole lines ends that begins at `start`.

    Args:
        lines: whole lines, the last one too ends with `\n`.
        start: the beginning of a line, or within one.
        most: bytes of a block.

    Returns:
        A line's end at most so many bytes on; the end of the first line if that is longer.
    """
    if len(lines) - start <= most:
        return len(lines)
    return lines.rfind(b"\n", start, start + most) + 1 or lines.find(b"\n", start + most) + 1


def begin_of_line(lines: bytes, start: int, first: int = 0) -> int:
    """Where the line begins that `start` is in; `first` if that is behind it."""
    return max(lines.rfind(b"\n", 0, start) + 1, first)


class Endpoint(Generic[Item]):
    """One channel, opened by one program: one client of the bus.

    It may be read by one thread or task while another sends, and is not for two that do the same.

    Args:
        way: how it is opened.
        cut: makes what reading gives out of whole lines.
        is_blocking: whether calls on the descriptor wait.
    """

    def __init__(self, way: Way, cut: Callable[[bytes], list[Item]], *, is_blocking: bool) -> None:
        self.way = way
        self.accepted = 0
        """How many messages of the last call that sends the bus has accepted."""
        self.joins = 0
        """How often the channel has been opened: more than once if the bus or the master had gone meanwhile."""
        self._cut = cut
        self._is_addressed = way.name[0] == "A" or (way.name[0] == "S" and way.is_master)
        self._flags = os.O_CLOEXEC | (0 if is_blocking else os.O_NONBLOCK)
        self._items: Iterator[Item] = iter(())
        """What has been taken from the bus and not been asked for. Of a list, so that whoever iterates does so at its speed."""
        self._beginning = b""
        """Of a message that is longer than one read."""
        self._rest = b""
        """Of a message of which the bus has the beginning: what is sent next must begin with it."""
        self._left = False
        """Whether its owner has closed it: who opens it again since it has gone must not."""
        self._is_shut = False
        """Whether its master has ended it, for good."""
        self._file = -1
        self._epoch = 0
        """How often it has been opened and left: what one had of a message, the next one has not."""
        self._rest_of = self._beginning_of = 0
        """In which epoch that is."""
        self._read_bytes = FEW_BYTES
        self._id = 0

    @property
    def path(self) -> Path:
        """The channel."""
        return self.way.path

    @property
    def is_open(self) -> bool:
        """Whether the channel is open."""
        return self._file >= 0

    @property
    def id(self) -> int:
        """The own ID on the channel, which messages on A and S channels are addressed to. From 1 on."""
        if not self._id:
            self._id = self.inquire().id
        return self._id

    @property
    def pending(self) -> int:
        """How many messages have been taken from the bus and not been asked for. `poll` does not tell of them."""
        return operator.length_hint(self._items)

    def fileno(self) -> int:
        """The descriptor, for `poll` and its like.

        Raises:
            ValueError: it is closed.
        """
        if self._file < 0:
            raise ValueError(f"{self.path} is not open")
        return self._file

    def inquire(self) -> Inquiry:
        """What the bus knows of this client: its ID, how much waits for it and how much was dropped.

        Raises:
            NoBus: the bus has gone.
        """
        try:
            return inquire(self.fileno())
        except OSError as error:
            raise not_read(str(self.path), error) from None

    @property
    def _comes_again(self) -> bool:
        """Whether it is opened again when it has gone."""
        return self.way.again and not self._is_shut

    def close(self) -> None:
        """Leaves the channel. What was taken from the bus and not asked for is gone.

        Another thread or task that waits in a call on it gets `ValueError`; where it iterates, that is the end.
        """
        self._left = True
        self._leave()
        self._items = iter(())

    def _leave(self) -> None:
        file, self._file = self._file, -1
        self._epoch += 1  # behind that, and before the next one has a descriptor: see `_now`
        self._id = 0
        if file >= 0:
            self._close(file)

    def _close(self, file: int) -> None:
        with contextlib.suppress(OSError):  # of a bus that has gone
            os.close(file)

    def detach(self) -> int:
        """Gives the descriptor away, with which the channel stays open. It is the caller's to close."""
        file, self._file = self.fileno(), -1
        return file

    def __del__(self) -> None:
        file, self._file = getattr(self, "_file", -1), -1
        if file >= 0:
            with contextlib.suppress(OSError):
                os.close(file)

    def attempts(self, wait: float) -> Iterator[float]:
        """Opens the channel, and gives again and again how many seconds to wait before that is tried again.

        Args:
            wait: how many seconds it may take.

        Raises:
            ClientError: as for `open_nowait`. What may pass is raised when it has not passed in time.
        """
        end = time.monotonic() + wait
        pause, longest = RETRY_SECONDS
        said = ""
        while True:
            if self._left:
                raise ValueError(f"{self.path} is not open")  # it was closed meanwhile
            try:
                self.open_nowait()
                break
            except TRANSIENT as error:
                left = end - time.monotonic()
                if left <= 0:
                    raise
                words = f"{error}; waiting"
            if words != said:
                said = words
                self.way.say(words)
            yield min(pause, left)
            pause = min(pause * 1.5, longest)
        if said:
            self.way.say(f"{self.path} is there")

    def open_nowait(self) -> None:
        """Opens the channel, if that is possible now. What has been taken from another before can still be asked for.

        Raises:
            NoBus: no bus is mounted there.
            NoChannel, NoMaster: nothing is there to be opened.
            HasMaster: somebody else is the master.
            NotAllowed: the channel's permissions, or the bus's, forbid it.
            Refused: there are too many clients, channels or open files.
            ClientError: it is refused for another reason.
        """
        self._leave()
        self._is_shut = False
        if self._is_addressed:
            self._items = iter(())  # the IDs on another channel are other clients'
        way = self.way
        flags = self._flags | (os.O_RDWR if way.reads and way.writes else os.O_RDONLY if way.reads else os.O_WRONLY)
        if way.is_master or (way.creates and not has_master(way.name)):
            flags |= os.O_CREAT
        try:
            file = enter(way.path.parent, f"{'+' * way.reads}{'.' * way.is_master}{way.name}", flags, way.mode)
        except mounted.NoBus as error:
            raise absent(error) from None
        except OSError as error:
            raise not_opened(str(way.path), way.name, error, creates=bool(flags & os.O_CREAT)) from None
        self._opened(file)
        self._epoch += 1
        self._file = file
        self.joins += 1

    def _opened(self, file: int) -> None:
        """Is told the descriptor of a channel that has been opened, before anybody else can have it."""

    # ------------------------------------------------------------------------------------------ reading

    def read_block_nowait(self) -> bytes:
        r"""Whole lines, as the bus hands them out, each with its `\n`; with a descriptor that blocks, it waits for them.

        Raises:
            BlockingIOError: there is nothing now.
            Ended: nothing more will come.
            NoBus: the bus has gone.
            ValueError: the channel is not open.
        """
        while True:
            file, epoch = self._now()
            try:
                data = os.read(file, self._read_bytes)
            except BlockingIOError:
                raise
            except OSError as error:
                if error.errno == errno.EBADF and file != self.fileno():
                    raise ValueError(f"{self.path} is not open as it was") from None  # another thread has opened it again
                raise not_read(str(self.path), error) from None
            if not data:
                raise Ended(errno.EPIPE, f"{self.path} has ended: {self._why_ended}")
            self._read_bytes = READ_BYTES if len(data) > FEW_BYTES // 2 else FEW_BYTES
            if self._beginning:
                data, self._beginning = self._beginning * (self._beginning_of == epoch) + data, b""
            if data.endswith(b"\n"):
                return data
            self._beginning, self._beginning_of = data, epoch

    @property
    def _why_ended(self) -> str:
        if self._is_shut:
            return "it was shut, and all that was accepted has been read"
        return "its master has closed it, or the bus is going" if has_master(self.way.name) else "the bus is going"

    def check_nothing_pending(self) -> None:
        """Sees that no block of lines overtakes messages that have come before.

        Raises:
            ValueError: it would.
        """
        if self.pending:
            raise ValueError(f"{self.path}: {self.pending} messages that have come before are to be read first")

    # ------------------------------------------------------------------------------------------ sending

    def send_nowait(self, lines: bytes, start: int = 0, file: int | None = None) -> int:
        r"""Sends whole lines with one write(2): a block of them, or what the bus takes of it now.

        Args:
            lines: messages, each with its `\n`.
            start: up to where they have been accepted.
            file: the descriptor; None: the one that the channel has now.

        Returns:
            Up to where they are accepted now.

        Raises:
            BlockingIOError: the master has no place now.
            NoMaster, NoClient, TooLong, NoBus, ClientError: the message at `start` was refused.
        """
        block = lines if len(lines) <= BLOCK and not start else memoryview(lines)[start : end_of_block(lines, start)]
        try:
            return start + os.write(self._file if file is None else file, block)
        except BlockingIOError:
            raise
        except OSError as error:
            self.fileno()
            if error.errno == errno.EBADF and file not in (None, self._file):
                raise ValueError(f"{self.path} is not open as it was") from None  # another thread has opened it again
            raise not_sent(str(self.path), self.way.name, error, lines, start, is_master=self.way.is_master) from None

    @property
    def is_begun(self) -> bool:
        """Whether the bus has the beginning of a message that was accepted, and not its end: who leaves now has not sent it."""
        return bool(self._rest) and self._rest_of == self._epoch

    def _now(self) -> tuple[int, int]:
        """The descriptor, and in which epoch it is that. Another thread may leave or open the channel."""
        while True:
            epoch = self._epoch
            file = self._file
            if self._epoch == epoch:
                return file, epoch

    def begin_sending(self, lines: bytes) -> tuple[bytes, int, int]:
        """What is to be written so that these messages are sent, where in it they begin, and in which epoch of the channel.

        One before may not be complete.
        """
        epoch = self._epoch
        rest = self._rest if self._rest_of == epoch else b""  # kept until `end_sending`: an interrupt may keep us from there
        return rest + lines, len(rest), epoch

    def go_on_sending(self, lines: bytes, first: int, start: int, epoch: int) -> tuple[int, int, int]:
        """Where to go on.

        Args:
            lines: what is to be written.
            first: where the messages begin in it.
            start: up to where it was accepted.
            epoch: in which epoch of the channel.

        Returns:
            A descriptor, from where to write to that, and in which epoch it is that of the channel.

        Raises:
            NoBus: it has been opened again, and an address is another client's now.
        """
        file, now = self._now()
        if now == epoch:
            return file, start, now
        if self._is_addressed:
            raise NoBus(errno.ENOTCONN, f"{self.path} has been opened again meanwhile: whom this was for has gone")
        return file, begin_of_line(lines, start, first), now

    def stop_sending(self, lines: bytes, first: int, start: int, epoch: int) -> int:
        """Ends what was interrupted, as `end_sending`. What a channel has had of a message is gone when that has been left."""
        is_there = self._epoch == epoch and not self._left
        return self.end_sending(lines, first, start if is_there else begin_of_line(lines, start, first), epoch)

    def end_sending(self, lines: bytes, first: int, start: int, epoch: int) -> int:
        """Notes how far messages have been accepted. Returns how many. One of which the bus has the beginning counts.

        Args:
            lines: what was to be written.
            first: where the messages begin in it.
            start: up to where it was accepted. Before `first`, the one before is still not complete.
            epoch: in which epoch of the channel.
        """
        self.accepted = lines.count(b"\n", first, max(start, first))
        self._rest, self._rest_of = b"", epoch
        if start < first:
            self._rest = lines[start:first]
        elif start and lines[start - 1] != 10:
            self._rest = lines[start : lines.find(b"\n", start) + 1]
            self.accepted += 1
        return self.accepted


class Mastery(Endpoint[Item]):
    """What only a master can do."""

    def shut(self) -> None:
        """Ends the channel: nobody can send to it or open it any more. What was accepted can be read, then it has ended.

        So a master leaves a channel without losing a message: `shut`, read to the end, `close`. What it sends is still heard.

        Raises:
            NoBus: the bus has gone.
            ClientError: the bus is older than this.
            ValueError: the channel is not open.
        """
        descriptor = self.fileno()
        self._is_shut = True  # before another thread that reads finds the end
        try:
            shut(descriptor)
        except OSError as error:
            self._is_shut = False
            raise not_read(str(self.path), error) from None
