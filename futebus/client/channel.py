r"""What a channel is to a program that has it open. Nothing here waits: see `blocking` and `awaiting` for those who do.

The one rule: what the bus has handed out is handed on, and what it has accepted is not sent again. A read takes all that there is
(the name with `+`), since it costs as much as a read of one message; what is not asked for yet stays here.

That holds too when a signal comes whose handler raises, Ctrl-C for one. CPython runs handlers behind each call, and what that
has returned is gone if one raises: so what a system call has done is put where it stays before the interpreter looks (a list
`+=` a `map` is one step), and is handed on by an assignment, behind which it does not look either. What a call has in hand that
ends so is kept in the same way where that is caught, in each such place: at the beginning of a function for it the next handler
could raise.
"""

import contextlib
import errno
import fcntl
import math
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from ..core.inquiry import SHUT, Inquiry
from ..core.kinds import LETTERS, has_master
from ..core.text import printable
from ..host import mounted
from ..host.mounted import close_all
from .entry import enter
from .errors import (
    ClientError,
    Ended,
    HasMaster,
    NoBus,
    NoChannel,
    NoClient,
    NoMaster,
    NotOpen,
    Refused,
    TimedOut,
    absent,
    is_own,
    not_opened,
    not_read,
    not_sent,
)
from .inquire import inquire
from .messages import Cut, Item
from .opening import Hand, Hurry, Opening
from .waking import Inside

READ_BYTES = 1 << 20
"""How many bytes one read asks for, while much is said."""

FEW_BYTES = 64 * 1024
"""The same, while the read before has brought less than half of that. The memory that is asked for must be made, whatever comes:
a read of one line takes ten times as long with `READ_BYTES`."""

BLOCK = 128 * 1024
"""Bytes of lines that one write(2) brings. The bus takes a block as one piece of work, and serves others between two. Blocks of
1 MiB are half again as fast, of 32 KiB half as fast."""

KEPT_BYTES = 16 << 20
"""Bytes of lines that are kept from channels that have ended, and that are not asked for."""

RETRY_SECONDS = (0.05, 1.0)
"""How soon, and later how seldom, it is tried again to open a channel that is not there yet."""

SAY_SECONDS = 0.5
"""How long a channel that was open must be away for the same reason before that is said."""

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
    found = Path(os.fsdecode(path))
    if not found.name.startswith(LETTERS) or "\0" in found.name:
        plain = found.name.lstrip("+.")
        hint = f"; {plain} is its name to programs that use this" if plain != found.name and plain.startswith(LETTERS) else ""
        raise ValueError(f"{printable(str(found))}: no channel has this name; its first letter is U, A, S or B{hint}")
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


def check_whole(lines: bytes) -> None:
    """Sees that nobody else's message is added to the last one.

    Raises:
        ValueError: it has no end.
        TypeError: they are no bytes.
    """
    if not isinstance(lines, bytes | bytearray):
        raise TypeError(f"lines are bytes, and not {type(lines).__name__}")
    if lines and not lines.endswith(b"\n"):
        half = lines[lines.rfind(b"\n") + 1 :]
        raise ValueError(f"lines end with a newline: {half[:60]!r}")


def begin_of_line(lines: bytes, start: int, first: int = 0) -> int:
    """Where the line begins that `start` is in; `first` if that is behind it."""
    return max(lines.rfind(b"\n", 0, start) + 1, first)


Told = TypeVar("Told")

_THERE: "weakref.WeakSet[Endpoint[Any]]" = weakref.WeakSet()
"""All channels of this process."""

_FORKING: dict[int, int] = {}
"""The threads that have begun fork(2), by what each is called in its child, too; with its number for the system then."""


def forker() -> int:
    """In a child of fork(2) as it begins, the number for the system that its thread had in the parent; otherwise 0."""
    return _FORKING.get(threading.get_ident(), 0)


def _fork() -> None:
    _FORKING[threading.get_ident()] = threading.get_native_id()


def _forked() -> None:
    """In a child of fork(2) the other threads are not there, nor their loops and tasks, nor what they hold."""
    with contextlib.ExitStack() as channels:  # the handler of a signal may raise in one, and the others are still to be
        # As the last. The handler of a signal may have forked in the middle of another fork, which goes on here.
        channels.callback(_fork)
        for channel in list(_THERE):
            channels.callback(channel._begin)


os.register_at_fork(before=_fork, after_in_child=_forked)


class Endpoint(Generic[Item]):
    """One channel, opened by one program: one client of the bus.

    It may be read by one thread or task while another sends, and is not for two that do the same.

    Args:
        way: how it is opened.
        cut: makes what reading gives out of whole lines.
        is_blocking: whether calls on the descriptor wait.
    """

    def __init__(self, way: Way, cut: Cut[Item], *, is_blocking: bool) -> None:
        if not isinstance(way.wait, int | float) or math.isnan(way.wait):
            raise TypeError(f"wait is a number of seconds, and not {way.wait!r}")
        self.way = way
        self.accepted = 0
        """How many messages of the last call that sends the bus has accepted."""
        self.joins = 0
        """How often the channel has been opened: more than once if the bus or the master had gone meanwhile."""
        self._cut = cut
        self._is_addressed = way.name[0] == "A" or (way.name[0] == "S" and way.is_master)
        self._flags = os.O_CLOEXEC | (0 if is_blocking else os.O_NONBLOCK)
        self._now = Opening()
        """As it is open now. Other threads may open and leave it: who makes a call takes one, and keeps to that."""
        self._items: Iterator[Item] = iter(())
        """What has been taken from the bus and not been asked for. Of a list, so that whoever iterates does so at its speed."""
        self._all: list[Item] = []
        """That list: who empties it ends the iterator, whoever has it."""
        self._saved: tuple[Hand, ...] = ()
        """What comes before what is read next: interrupted calls had it in hand, or it was left in a channel that has ended."""
        self._closings = 0
        """How often its owner has closed it: who opens it again since it has gone must not, then."""
        self._forgettings = 0
        """How often its owner has closed it, and not given it away: nobody gets what was taken before, and not asked for."""
        self._is_left = False
        """Whether its owner has closed it."""
        self._is_shut = False
        """Whether its master has ended it, for good."""
        self._read_bytes = FEW_BYTES
        self._inside = Inside()
        self._leaving: dict[Opening, object] = {}
        """What is not open any more, or not yet, and may be so for the system. Each with the loop that is to close it; or with
        the channel, while what is left there is read by who closes it then; None: who has left it, or opens it, does."""
        self._begin()
        _THERE.add(self)

    def _begin(self) -> None:
        """Notes that other threads make no calls on the channel. What they were about to close, a child of fork(2) does."""
        # The handler of a signal may do what the thread is in the middle of: so locks can be had again by who has them.
        for opening in {self._now, *self._inside.begin(forker())}:
            opening.closing, opening.hurry = threading.RLock(), Hurry()
            if opening is not self._now:
                self._inside.close(opening)  # when the call has come out
                self._leaving.pop(opening, None)
        for opening in [*self._leaving]:
            if opening is not self._now:
                opening.close()
        self._leaving.clear()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.way.path}{'' if self.is_open else ', not open'}>"

    @property
    def path(self) -> Path:
        """The channel."""
        return self.way.path

    @property
    def is_open(self) -> bool:
        """Whether the channel is open."""
        return self._now.file >= 0

    @property
    def id(self) -> int:
        """The own ID on the channel, which messages on A and S channels are addressed to. From 1 on."""
        opening = self._now
        if not opening.id:
            opening.id = self._inquire(opening).id
        return opening.id

    @property
    def pending(self) -> int:
        """How many messages have been taken from the bus and not been asked for. `poll` does not tell of them."""
        saved = sum(block.count(b"\n") for hand in self._saved for block in hand.blocks)
        return operator.length_hint(self._items) + saved

    def fileno(self) -> int:
        """The descriptor, for `poll` and its like.

        Raises:
            ValueError: it is closed.
        """
        file = self._now.file
        if file < 0:
            raise NotOpen(f"{self.path} is not open")
        return file

    def inquire(self) -> Inquiry:
        """What the bus knows of this client: its ID, how much waits for it and how much was dropped.

        Raises:
            NoBus: the bus has gone.
            ValueError: the channel is not open.
        """
        return self._inquire(self._now)

    def _inquire(self, opening: Opening) -> Inquiry:
        try:
            told = self._ask(opening, inquire)
        except OSError as error:
            if not is_own(error):
                raise
            self._check_open(opening, error)
            raise not_read(str(self.path), error) from None
        if told is None:
            if self._comes_again and not self._is_left:
                raise NoBus(errno.ENOTCONN, f"{self.path} has gone, and is not open again yet")
            raise self._left()
        return told

    def _ask(self, opening: Opening, ask: Callable[[int], Told]) -> Told | None:
        """Asks the bus something about an opening of the channel, if that is open.

        Args:
            opening: that one.
            ask: is given its descriptor. Whoever closes it meanwhile, the number does not become another file's.

        Returns:
            What it has told; None if it has been left.
        """
        others, hand = self._inside.others, Hand()
        hand.thread, hand.opening = threading.get_native_id(), opening
        try:
            others[hand] = None
            file = opening.file if opening is self._now else -1
            return ask(file) if file >= 0 else None
        finally:
            del others[hand]
            self._tidy()

    def _check_open(self, opening: Opening, error: OSError) -> None:
        """Sees whether a call has failed because another thread has left the channel meanwhile.

        Args:
            opening: what the call was made on.
            error: what the call said.

        Raises:
            ValueError: so it is.
        """
        if error.errno == errno.EBADF:
            self.fileno()
            if opening is not self._now:
                raise self._left() from None

    @property
    def closings(self) -> int:
        """How often its owner has closed it."""
        return self._closings

    def was_left_since(self, closings: int) -> bool:
        """Whether its owner has closed it, and perhaps opened it again.

        Args:
            closings: how often he had closed it then.
        """
        return self._is_left or self._closings != closings

    @property
    def _comes_again(self) -> bool:
        """Whether it is opened again when it has gone."""
        return self.way.again and not self._is_shut

    def close(self) -> None:
        """Leaves the channel. What was taken from the bus and not asked for is gone.

        Another thread or task that waits in a call on it gets `ValueError`; where it iterates, that is the end.
        """
        self._is_left = True
        self._closings += 1
        self._forgettings += 1
        try:
            self._leave()
        except BaseException:  # the handler of a signal
            self._leave()
            raise
        finally:  # nobody gets what was taken and not asked for, nor who is in the middle of it
            items, self._saved = self._all, ()
            items.clear()

    def _leave(self, closings: int | None = None, gone: Opening | None = None) -> bool:
        return self._take(Opening(), closings, gone)

    def _take(self, opening: Opening, closings: int | None = None, gone: Opening | None = None) -> bool:
        """Makes an opening of the channel the one that is open now, and closes the one before, and what was to be closed earlier.

        Args:
            opening: that one.
            closings: how often its owner had closed it when that was wanted; None: until now.
            gone: instead of which it is to be open; None: of any.

        Returns:
            Whether it is: not if another has been opened since `gone`, by the handler of a signal for one. Somebody may have an
            answer coming there.

        Raises:
            ValueError: he has closed it since, and may have opened it: that is not touched.
        """
        self._note_leaving(self._now)
        # Up to the assignment there is no call, behind which a handler or another thread could come.
        if closings is not None and self._closings != closings:
            raise self._left()
        if gone and self._now is not gone and self._now.file >= 0:
            return False
        before, self._now, opening.was_taken = self._now, opening, True
        for each, loop in {before: None, **self._leaving}.items():
            if loop is None and each.was_taken and each is not self._now:
                try:
                    self._close(each)
                except BaseException:  # the handler of a signal has raised, if only where that begins
                    self._close(each)
                    raise
        return True

    def _note_leaving(self, opening: Opening) -> None:
        """Notes what is about to be left, until it is closed."""
        for each in [*self._leaving]:
            if each.file < 0 and each.was_taken:
                self._leaving.pop(each, None)
        if opening.file >= 0:
            self._leaving.setdefault(opening)

    def _close(self, opening: Opening) -> None:
        """Closes what nobody begins to make calls on any more. May be called twice."""
        self._inside.close(opening)

    def detach(self) -> int:
        """Gives the descriptor away, with which the channel stays open. It is the caller's to close.

        Another thread or task that waits in a call on it gets `ValueError`. What was taken can still be asked for.

        Raises:
            Refused: somebody else is in a call on it, which needs one descriptor more, and too many files are open.
            ValueError: the channel is not open.
        """
        nothing, given, held = Opening(), list[int](), [False]
        closings, was_left = self._closings, self._is_left
        if not self.is_open:
            raise self._left()
        self._note_leaving(self._now)  # whoever is interrupted has it closed the next time
        if self._now.file < 0:
            raise self._left()  # it has just gone, and may come again
        # Who is in a call on it must not open it again; and before it is asked who is in one: whoever begins one finds this.
        self._is_left, self._closings, opening, self._now = True, self._closings + 1, self._now, nothing
        is_copy = is_given = False
        closing = opening.closing  # a child of fork(2) has another one
        try:
            try:
                # Nobody else closes it meanwhile. Noted in the same step: the handler of a signal may raise behind each call.
                held += map(closing.acquire, (False,))
                if not held[-1]:
                    raise self._left()  # another thread closes it
                if is_copy := opening.file >= 0 and self._is_elsewhere(opening):
                    given += map(os.dup, (opening.file,))
                is_given = True
                self._give_away(opening, is_copy=is_copy)
                if not is_copy:
                    given[:], opening.file = (opening.file,), -1  # whoever still has it finds nothing there
                    if given[0] < 0:
                        given.clear()
                        raise self._left()
            except BaseException as error:
                is_ours = self._now is nothing and self._closings == closings + 1  # or a handler has left it, or opened it again
                if is_ours and not is_given and not isinstance(error, NotOpen):
                    self._now, self._is_left, self._closings = opening, was_left, closings
                raise
            finally:
                if held[-1]:
                    closing.release()
            if is_copy:
                self._close(opening)
            self._tidy()
            if not self._flags & os.O_NONBLOCK:
                os.set_blocking(given[0], True)  # another thread may have been in a hurry
        except BaseException as error:
            is_kept = opening is self._now
            try:
                if not is_kept:
                    self._close(opening)
            finally:
                close_all(given)
            if isinstance(error, OSError) and is_own(error):
                if is_kept and error.errno != errno.EBADF:
                    raise not_opened(str(self.path), self.way.name, error, creates=False) from None
                raise self._left() from None
            raise
        return given[0]

    def _tidy(self) -> None:
        """Closes what others have left in the moment before, and could not close."""
        if self._inside.left:
            self._inside.tidy()

    def _is_elsewhere(self, opening: Opening) -> bool:
        """Whether others are in calls on what is given away, who are to come out of them by its being closed."""
        return self._inside.is_held(opening)

    def _give_away(self, opening: Opening, *, is_copy: bool) -> None:
        """Is told that what was open is about to be given away, or a copy of it. Nobody else closes it meanwhile."""

    def __del__(self) -> None:
        if hasattr(self, "_leaving"):
            for opening in (self._now, *self._leaving):
                opening.close()

    def attempts(
        self, wait: float, closings: int | None = None, gone: Opening | None = None, *, reads: bool = False
    ) -> Iterator[float]:
        """Opens the channel, and gives again and again how many seconds to wait before that is tried again.

        Args:
            wait: how many seconds it may take.
            closings: how often its owner had closed it when that was wanted; None: until now.
            gone: opens it again instead of this one, if nobody else has done so; None: in any case.
            reads: whether that is for reading, for which it is enough that something was kept.

        Raises:
            ClientError: as for `open_nowait`. What may pass is raised when it has not passed in time.
            Ended: it was shut meanwhile.
            ValueError: it was closed meanwhile.
        """
        end = time.monotonic() + wait
        pause, longest = RETRY_SECONDS
        said = found = ""
        since = 0.0
        closings = self._closings if closings is None else closings
        while True:
            if self._is_left or self._closings != closings:
                raise NotOpen(f"{self.path} is not open")  # it was closed meanwhile
            if (gone and self._now.file >= 0 and self._now is not gone) or (reads and self._saved):
                return
            if gone and self._is_shut:
                raise self._ended()
            try:
                self._open_once(closings, gone)
                break
            except TRANSIENT as error:
                left = end - time.monotonic()
                if left <= 0 or not is_own(error):
                    raise
                words = f"{error}; waiting"
            if words != found:
                found, since = words, time.monotonic()
            # While a bus goes, what is seen of it changes, and is past before it could be read.
            if words != said and (not gone or time.monotonic() - since >= SAY_SECONDS):
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
            ValueError: another thread has closed it meanwhile.
        """
        self._is_left = self._is_shut = False
        self._open_once(self._closings)

    def _open_once(self, closings: int, gone: Opening | None = None) -> None:
        if not self._leave(closings, gone):
            return
        way = self.way
        flags = self._flags | (os.O_RDWR if way.reads and way.writes else os.O_RDONLY if way.reads else os.O_WRONLY)
        if way.is_master or (way.creates and not has_master(way.name)):
            flags |= os.O_CREAT
        opening = Opening()
        opening.forgettings = self._forgettings
        self._leaving[opening] = None  # a child that another thread forks meanwhile is not to keep it
        try:
            try:
                name = f"{'+' * way.reads}{'.' * way.is_master}{way.name}"
                opening.file, opening.entering = enter(way.path.parent, name, flags, way.mode, opening.entering), []
            except mounted.NoBus as error:
                raise absent(error) from None
            except OSError as error:
                if not is_own(error):
                    raise
                raise not_opened(str(way.path), way.name, error, creates=bool(flags & os.O_CREAT)) from None
            if self._closings != closings:
                raise NotOpen(f"{self.path} is not open")
            if not self._opened(opening, closings, gone):
                opening.was_taken = True
                opening.close()
                return
            self._leaving.pop(opening, None)
            self.joins += 1
            if self._closings != closings:  # who has closed it meanwhile has not found this one, or has closed it
                raise NotOpen(f"{self.path} is not open")
            if self._is_shut:
                raise self._ended()
        except BaseException:
            if self._now is opening:
                self._leave()
            elif not opening.was_taken:
                opening.was_taken = True
                opening.close()
            raise

    def _opened(self, opening: Opening, closings: int, gone: Opening | None) -> bool:
        """Is told of a channel that has been opened, and makes it the one that is open now, as `_take`."""
        return self._take(opening, closings, gone)

    def _check_not_closed(self, closings: int) -> None:
        """Sees that a call does not go on with a channel that its owner has closed meanwhile, and perhaps opened again.

        Args:
            closings: how often he had closed it when the call began.

        Raises:
            ValueError: so it is.
        """
        if self._closings != closings:
            raise self._left()

    def _left(self) -> NotOpen:
        """The error of a call on what another thread has left, and perhaps has opened again, meanwhile."""
        return NotOpen(f"{self.path} is not open{' as it was' * self.is_open}")

    def _away(self) -> NoClient:
        """The error of what is for somebody on a channel that has gone meanwhile, whether it is back or not."""
        return NoClient(errno.ENODEV, f"{self.path} has gone meanwhile, and whom this is for with it")

    def _ended(self) -> Ended:
        return Ended(errno.EPIPE, f"{self.path} has ended: {self._why_ended}")

    # ------------------------------------------------------------------------------------------ reading

    def read_block_nowait(self) -> bytes:
        r"""Whole lines, as the bus hands them out, each with its `\n`; with a descriptor that blocks, it waits for them.

        Raises:
            BlockingIOError: there is nothing now.
            Ended: nothing more will come.
            NoBus: the bus has gone.
            ValueError: the channel is not open.
        """
        hand = self._hand()
        try:
            while True:
                self._read_nowait(hand)
                if data := self._given(hand):
                    return data
        except BaseException:
            if hand.blocks and hand.of.forgettings == self._forgettings:
                self._saved = (hand, *self._saved)
            raise

    def _hand(self) -> Hand:
        hand = Hand()
        hand.opening, hand.blocks = None, []
        return hand

    def _given(self, hand: Hand) -> bytes:
        """Lets go of what a call has in hand, which is the caller's from now on.

        Returns:
            Nothing if that came before the channel was opened again: its addresses would be taken for those of others.
        """
        data = hand.blocks[0]
        if self._is_addressed and self._now.file >= 0 and hand.of is not self._now:
            data = b""
        hand.blocks[:] = ()
        return data

    def _read_nowait(self, hand: Hand, opening: Opening | None = None, *, only_saved: bool = False) -> bool:
        """Takes whole lines in hand. Between the system call and that there is no call: see above.

        Args:
            hand: of the call.
            opening: of the channel; None: the one that there is now.
            only_saved: takes what was saved, if there is anything.

        Returns:
            Whether it has.

        Raises:
            BlockingIOError, Ended, NoBus, ValueError: as for `read_block_nowait`.
        """
        blocks = hand.blocks
        while True:
            if self._saved:
                blocks[:], hand.of, self._saved = self._saved[0].blocks, self._saved[0].of, self._saved[1:]
                return True
            if only_saved:
                return False
            of = hand.of = opening or self._now
            if of.pieces:
                self._hand_in(of)
                continue
            try:
                blocks += map(os.read, (of.file,), (self._read_bytes,))
            except BlockingIOError:
                raise
            except OSError as error:
                if not is_own(error):
                    raise
                self._check_open(of, error)
                raise not_read(str(self.path), error) from None
            data = blocks[0]
            if data[-1:] == b"\n":
                blocks[:], of.beginning = (of.beginning + data,), b""
                self._read_bytes = READ_BYTES if len(data) > FEW_BYTES // 2 else FEW_BYTES
                return True
            of.beginning, blocks[:] = of.beginning + data, ()
            if not data:
                raise self._ended() if of is self._now else self._left()
            self._read_bytes = READ_BYTES

    def _hand_on(self, hand: Hand) -> None:
        """Has what a call has in hand asked for one by one.

        Raises:
            ValueError: another thread has closed the channel meanwhile. One that does so from here on finds these items.
        """
        items = self._cut(hand.blocks[0], hand.of.clients)
        each = iter(items)
        if hand.of.forgettings != self._forgettings:
            raise self._left()
        items += [*self._items]  # the handler of a signal may have read since
        self._items, self._all, hand.blocks[:] = each, items, ()

    def _has_ended(self, opening: Opening) -> bool:
        """Whether a channel that has no master who reads has none for good."""
        try:
            return self._inquire(opening).has_ended
        except (ClientError, NotOpen) as error:
            if not is_own(error):
                raise
            # Or it can never be asked about, by this process.
            return isinstance(error, NoBus | NotOpen) or error.errno in (errno.ENOTTY, errno.EACCES, errno.EPERM)

    def _keep(self, gone: Opening, closings: int) -> None:
        """Takes what can still be read from a channel that has ended, before that is left. Nobody else may read meanwhile.

        Of much that nobody asks for, the oldest is given up, but not the last: a sender that never reads keeps no more and more.
        """
        pieces = gone.pieces  # where somebody comes for them if the handler of a signal raises
        try:
            os.set_blocking(gone.file, False)
            pieces += map(os.read, (gone.file,), (READ_BYTES,))
            while pieces[-1]:
                pieces += map(os.read, (gone.file,), (READ_BYTES,))
        except OSError as error:
            if not is_own(error):
                raise
        self._hand_in(gone)
        if self._closings != closings:  # its owner has closed it meanwhile, and wants nothing of it
            self._saved = tuple(each for each in self._saved if each.of is not gone)
        while len(saved := self._saved) > 1 and sum(len(each.blocks[0]) for each in saved) > KEPT_BYTES:
            if self._saved is saved:  # or another thread has just taken the first
                self._saved = saved[1:]

    def _hand_in(self, gone: Opening) -> None:
        """Has what was taken from a channel that has ended read next."""
        data = gone.beginning + b"".join(gone.pieces)
        hand = self._hand()
        hand.of, whole = gone, data[: data.rfind(b"\n") + 1]
        half = data[len(whole) :]
        if whole:
            hand.blocks.append(whole)
            self._saved, gone.beginning, gone.pieces = (*self._saved, hand), half, []
        else:
            gone.beginning, gone.pieces = half, []

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
        if pending := operator.length_hint(self._items):
            raise ValueError(f"{self.path}: {pending} messages that have come before are to be read first")

    # ------------------------------------------------------------------------------------------ sending

    def send_nowait(self, lines: bytes, start: int = 0) -> int:
        r"""Sends whole lines with one write(2): a block of them, or what the bus takes of it now.

        Args:
            lines: messages, each with its `\n`.
            start: up to where they have been accepted.

        Returns:
            Up to where they are accepted now.

        Raises:
            BlockingIOError: the master has no place now.
            NoMaster, NoClient, TooLong, NoBus, ClientError: the message at `start` was refused.
        """
        place = [start]
        self._send_from(lines, place, self._now)
        return place[-1]

    def _send_from(self, lines: bytes, place: list[int], opening: Opening) -> None:
        """As `send_nowait`, from a place on that moves on.

        Args:
            lines: messages.
            place: up to where they have been accepted; the last counts.
            opening: of the channel.
        """
        start = place[-1]
        block = lines if len(lines) <= BLOCK and not start else memoryview(lines)[start : end_of_block(lines, start)]
        try:
            place += map(start.__add__, map(os.write, (opening.file,), (block,)))
        except BlockingIOError:
            raise
        except OSError as error:
            if not is_own(error):
                raise
            self._check_open(opening, error)
            raise not_sent(str(self.path), self.way.name, error, lines, start, is_master=self.way.is_master) from None

    @property
    def is_begun(self) -> bool:
        """Whether the bus has the beginning of a message that was accepted, and not its end: who leaves now has not sent it."""
        return bool(self._now.rest)

    def begin_sending(self, lines: bytes, of: object = None) -> tuple[bytes, int, Opening]:
        """What is to be written so that these messages are sent, where in it they begin, and to which opening of the channel.

        One before may not be complete.

        Args:
            lines: messages.
            of: the mark of the opening on which the client is whom they are for; None: that is not known.

        Raises:
            NoClient: it has gone.
        """
        opening = self._now
        if of and of is not opening.mark and (opening.file >= 0 or (self._comes_again and not self._is_left)):
            raise NoClient(errno.ENODEV, f"{self.path} has been left since: whom this is for has gone")
        rest = opening.rest  # kept until `end_sending`: an interrupt may keep us from there
        return rest + lines, len(rest), opening

    def go_on_sending(
        self, lines: bytes, first: int, start: int, opening: Opening, *, is_to_all: bool = False
    ) -> tuple[int, Opening]:
        """Where to go on.

        Args:
            lines: what is to be written.
            first: where the messages begin in it.
            start: up to where it was accepted.
            opening: of the channel, by which that was.
            is_to_all: whether they are for whoever is there.

        Returns:
            From where to write, and to which opening of the channel.

        Raises:
            NoClient: it has been opened again, and an address is another client's now.
            ValueError: it was closed.
        """
        now = self._now
        if now is opening:
            return start, now
        if self._is_addressed and not is_to_all:
            if self._is_left:
                raise NotOpen(f"{self.path} is not open")
            raise self._away()
        return begin_of_line(lines, start, first), now

    def stop_sending(
        self,
        lines: bytes,
        first: int,
        start: int,
        opening: Opening,
        error: BaseException | None = None,
        *,
        counted: list[int] | None = None,
    ) -> int:
        """Ends what was interrupted, as `end_sending`. To be called again if the handler of a signal has raised in it.

        Args:
            lines: what was to be written.
            first: where the messages begin in it.
            start: up to where it was accepted.
            opening: of the channel, by which that was. What it has had of a message is gone when it has been left.
            error: what has interrupted it; None: it goes on. If it is one of ours, it is told how many were accepted.
            counted: see `end_sending`.
        """
        is_dropped = self._now is not opening or self._is_left
        if isinstance(error, ClientError) and not isinstance(error, TimedOut) and is_own(error):
            is_dropped = True  # by the bus, with what it refuses
        start = begin_of_line(lines, start, first) if is_dropped else start
        accepted = self.end_sending(lines, first, start, opening, counted=counted)
        if isinstance(error, ClientError):
            error.accepted = accepted
        return accepted

    def end_sending(self, lines: bytes, first: int, start: int, opening: Opening, *, counted: list[int] | None = None) -> int:
        """Notes how far messages have been accepted. Returns how many. One of which the bus has the beginning counts.

        Args:
            lines: what was to be written.
            first: where the messages begin in it.
            start: up to where it was accepted. Before `first`, the one before is still not complete.
            opening: of the channel, by which that was.
            counted: of a call that asks this again and again, up to where it was counted and how many these were.
        """
        at, accepted = counted or (first, 0)
        accepted += lines.count(b"\n", at, start)  # who goes back does so to the beginning of a line: nothing is counted twice
        if counted:
            counted[:] = max(at, start), accepted
        rest = b""
        if start < first:
            rest = lines[start:first]
        elif start and lines[start - 1] != 10:
            rest = lines[start : lines.find(b"\n", start) + 1]
            accepted += 1
        self.accepted = accepted
        if start:  # else the bus has nothing of this, and what it may have of another's is not ours to forget
            opening.rest = rest
        return accepted


class Mastery(Endpoint[Item]):
    """What only a master can do."""

    def shut(self) -> None:
        """Ends the channel: nobody can send to it or open it any more. What was accepted can be read, then it has ended.

        So a master leaves a channel without losing a message: `shut`, read to the end, `close`. What it sends is still heard.

        Raises:
            NoBus: the bus has gone, and the channel is not opened again.
            ClientError: the bus is older than this.
            ValueError: the channel is not open.
        """
        opening = self._now
        if opening.file < 0 and (self._is_left or not self.way.again):
            self.fileno()
        self._is_shut = True  # before another thread that reads finds the end
        if opening.file < 0:
            return  # it is away, and does not come again
        try:
            if self._ask(opening, lambda file: fcntl.ioctl(file, SHUT)) is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        except OSError as error:
            wrong = not_read(str(self.path), error)
            if is_own(error) and self.way.again and not self._is_left and (opening is not self._now or isinstance(wrong, NoBus)):
                return  # the same: it has just gone
            if not is_own(error):
                raise  # the bus may have done it
            self._is_shut = False
            self._check_open(opening, error)
            raise wrong from None
