"""How calls on a channel wait that are made one after the other: as long as it takes, or so many seconds.

The one rule: without a timeout, a call is the system call alone. With one it asks first, with poll(2), which costs two more.
"""

import errno
import itertools
import operator
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from threading import get_native_id
from types import TracebackType
from typing import Any, Self

from .channel import BLOCK, RETRY_SECONDS, TRANSIENT, Endpoint, Way, begin_of_line, check_whole
from .errors import ClientError, Ended, NoBus, NoMaster, NotOpen, TimedOut, is_own
from .messages import Item
from .opening import Hand, Hurry, Opening
from .waking import beneath, have_reserve

PIECE = 1 << 20
"""Bytes of a message that the kernel brings to the bus at once."""

SOON_SECONDS = 0.001
"""How soon a thread that takes the end of a channel has come out of that."""

LOOK_SECONDS = 0.1
"""How often who waits for another thread looks whether the channel has been closed."""

LONGEST = 1e6
"""Seconds that a system call can be asked to wait, and more than anybody does."""


class Waiting(Endpoint[Item]):
    """A channel whose calls wait. It is opened when it is made."""

    def __init__(self, way: Way, cut: Any) -> None:  # a `Cut`; who makes one knows which only when it runs
        super().__init__(way, cut, is_blocking=True)
        self._open(way.wait)

    def _begin(self) -> None:
        self._opening = threading.RLock()
        """Held by who opens the channel again."""
        super()._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _give_away(self, opening: Opening, *, is_copy: bool) -> None:
        if is_copy:
            self._inside.close(opening)  # now: nobody may change or read what is given, who still comes to that

    def _opened(self, opening: Opening, closings: int, gone: Opening | None) -> bool:
        is_taken = super()._opened(opening, closings, gone)
        have_reserve()  # that of the bus's directory is free again
        return is_taken

    def _acquire(
        self, lock: Callable[[], Any], held: list[Any], closings: int, end: float | None, *, reads: bool = False
    ) -> None:
        """Takes a lock, unless that takes too long.

        Who has it may be in the handler of a signal that has closed the channel, and wait there for this thread to come out.

        Args:
            lock: tells the `RLock`: a child of fork(2), which the handler of a signal may have made meanwhile, has another one.
            held: which one that was; and, noted in the same step, whether it was taken: a handler may raise behind each call.
            closings: how often its owner had closed the channel when the call began.
            end: until when that may take.
            reads: as for `attempts`.

        Raises:
            ValueError: he has closed it.
        """
        while not held[-1] and not (reads and self._saved):
            left = LOOK_SECONDS if end is None else min(max(end - time.monotonic(), 0), LOOK_SECONDS)
            held[0] = lock()
            held[1:] = map(held[0].acquire, (True,), (left,))
            if not held[-1]:
                if self.was_left_since(closings):
                    raise self._left()
                if not left:
                    break

    def _open(self, wait: float, closings: int | None = None, gone: Opening | None = None, *, reads: bool = False) -> None:
        """Opens the channel, and waits so many seconds for that. See `attempts`."""
        for pause in self.attempts(wait, closings, gone, reads=reads):
            time.sleep(pause)

    def _open_again(
        self, hand: Hand, gone: Opening, closings: int, end: float | None, *, keeps: bool = False, reads: bool = False
    ) -> None:
        """Opens the channel again, unless another thread has done so since. If there was something to keep, it may not have yet.

        Args:
            hand: of the call.
            gone: the one that was found to be gone, or not open.
            closings: how often its owner had closed it when the call began.
            end: until when that may take.
            keeps: whether something may be left to be read.
            reads: as for `attempts`. Another thread may keep something, and be long in opening the channel then.
        """
        hand.opening = None
        if self._inside.left:
            self._inside.tidy()
        has_kept = False
        while not has_kept:
            held: list[Any] = [None, False]
            try:
                self._acquire(lambda: self._opening, held, closings, end, reads=reads)
                if reads and self._saved:
                    return
                if not held[-1]:
                    raise self._too_late()
                if not (keeps and gone is self._now and gone.file >= 0 and self.way.reads):
                    self._open(float("inf") if end is None else end - time.monotonic(), closings, gone, reads=reads)
                    return
                has_kept = self._keep_if_free(gone, closings)
                if not has_kept and end is not None and time.monotonic() >= end:
                    raise self._too_late()
            except TRANSIENT as error:
                if not is_own(error):
                    raise
                raise self._late(error) from None
            finally:
                if held[-1]:
                    held[0].release()
            # Who waits to read has his turn, and what was kept. Or who reads comes out of that: he may be in the handler of a
            # signal that sends, too.
            time.sleep(SOON_SECONDS)

    def _open_for_others(self, hand: Hand, gone: Opening, closings: int) -> None:
        """Opens the channel again if that is possible now: whom a message is for has gone, and is not waited for.

        Args:
            hand: of the call.
            gone: the one that was found not to be open.
            closings: how often its owner had closed it when the call began.
        """
        try:
            self._open_again(hand, gone, closings, time.monotonic())
        except TimedOut as error:
            if not is_own(error):
                raise
            raise self._away() from None

    def _too_late(self, why: str = "") -> TimedOut:
        """The error of a call that has waited in vain for a channel that comes again."""
        return TimedOut(errno.ETIMEDOUT, f"{self.path} has not come back in time{why}")

    def _late(self, error: ClientError) -> TimedOut:
        """The same, with what it would need."""
        return self._too_late(f": {error}")

    def _keep_if_free(self, gone: Opening, closings: int) -> bool:
        """Takes what can still be read from a channel that has ended, and leaves it, unless another thread reads there.

        Args:
            gone: that one.
            closings: how often its owner had closed it when the call began.

        Returns:
            Whether it is left, whoever has done that.
        """
        if self._is_read(gone):
            return False
        readers, nothing, hand = self._inside.readers, Opening(), self._hand()  # before: a handler could come in that
        hand.thread = get_native_id()
        self._note_leaving(gone)
        if self._now is not gone:
            return True  # its owner has just closed it, or somebody has opened it again
        try:
            try:
                readers[hand] = None  # the handler of a signal must not read what comes behind this
                self._leaving[gone] = self  # who closes the channel meanwhile does not close what is being read
                self._now = nothing  # who begins to read finds that
                while is_read := self._is_read(gone):
                    if self._now is nothing and self._closings == closings:
                        self._now = gone  # as it was
                        self._leaving.pop(gone, None)
                        return False
                    if self._closings != closings:
                        break
                    time.sleep(SOON_SECONDS)  # a handler has opened it again
                if not is_read:
                    self._keep(gone, closings)
            except BaseException:  # the handler of a signal has raised
                try:
                    self._keep_behind(gone, closings)
                except BaseException:  # and another one
                    self._keep_behind(gone, closings)
                    raise
                raise
            finally:
                if gone in self._leaving:
                    self._leaving[gone] = None
                del readers[hand]
        except BaseException:  # if nobody has opened it again, who comes next finds what there was
            if self._closings == closings and self._now.file < 0:
                self._now = gone
                self._leaving.pop(gone, None)
            elif self._now is not gone:
                self._close(gone)
            raise
        self._close(gone)  # if the handler of a signal raises here, whoever opens the channel does that
        return True

    def _keep_behind(self, gone: Opening, closings: int) -> None:
        """Takes what can still be read from a channel that has ended, if the handler of a signal has opened it again meanwhile.

        Args:
            gone: that one, which nobody begins to read any more.
            closings: how often its owner had closed it when the call began.
        """
        while self._closings == closings and self._now.file >= 0 and self._now is not gone:
            if not self._is_read(gone):
                self._keep(gone, closings)
                return
            time.sleep(SOON_SECONDS)

    def _is_read(self, opening: Opening) -> bool:
        """Whether another thread reads there. This one does so too, if it runs the handler of a signal."""
        thread = get_native_id()
        return any(hand.opening is opening and hand.thread != thread for hand in (*self._inside.readers,))

    def _part(self, gone: Opening, closings: int) -> None:
        """Leaves a channel that has gone and comes again: whoever reads or sends next opens it.

        Args:
            gone: that one. Another thread may be about to open it, or read what is left there; then that one finds the end.
            closings: how often its owner had closed it when the call began.
        """
        if not self._comes_again:
            return
        lock, held = self._opening, [False]
        try:
            held += map(lock.acquire, (False,))
            if held[-1] and self._now is gone:
                self._keep_if_free(gone, closings)
        finally:
            if held[-1]:
                lock.release()

    def _poll(self, opening: Opening, events: int, end: float | None, what: str) -> None:
        if opening.file < 0:
            raise self._left()
        poller = select.poll()  # select(2) knows no descriptor above 1023
        poller.register(opening.file, events)
        left = None if end is None else min(max(end - time.monotonic(), 0), LONGEST)
        if not poller.poll(None if left is None else left * 1000):
            raise TimedOut(errno.ETIMEDOUT, f"{self.path}: {what}") from None

    def _hurry(self, hurry: Hurry, opening: Opening, closings: int, end: float, what: str) -> None:
        """Has calls fail that would wait, until `_relax`. Another thread's, that may wait, are made again when they do.

        Args:
            hurry: among whose calls this one is. Who makes it sees to that: the handler of a signal could keep others from it.
            opening: what the call is made on, and has in hand.
            closings: how often its owner had closed the channel when the call began.
            end: when the call is to be over.
            what: has not come about by then.
        """
        held: list[Any] = [None, False]
        try:
            # Who has it lets go of it at once, unless the handler of a signal has come in between.
            self._acquire(lambda: opening.hurry.lock, held, closings, max(end, time.monotonic() + LOOK_SECONDS))
            if not held[-1]:
                raise TimedOut(errno.ETIMEDOUT, f"{self.path}: {what}")
            hurry.is_told = True
            os.set_blocking(opening.file, False)
        except OSError as error:
            if isinstance(error, ClientError) or not is_own(error):
                raise
            raise self._left() from None
        finally:
            if held[-1]:
                held[0].release()

    def _relax(self, hurry: Hurry, opening: Opening) -> None:
        """Has calls wait again if none is in a hurry any more. Who is just about to see to that looks once more behind it.

        Args:
            hurry: how it was when the call began. In a child of fork(2), which the handler of a signal has made, it is another
                now: the descriptor is the parent's, too, who may still be in a hurry.
            opening: what the call has in hand.
        """
        while hurry.is_told and not hurry.calls and hurry is opening.hurry:
            held = [False]
            try:
                held += map(hurry.lock.acquire, (False,))
                if not held[-1]:
                    break
                if not hurry.calls:
                    try:
                        os.set_blocking(opening.file, True)
                    except OSError as error:  # it has been left
                        if not is_own(error):
                            raise
                    hurry.is_told = False
            finally:
                if held[-1]:
                    hurry.lock.release()

    # ------------------------------------------------------------------------------------------ reading

    def _catch(self, hand: Hand, end: float | None) -> None:
        """Takes the next lines in hand, as soon as there are some; none if something is there that has come before them.

        Who calls it is among those who read until he has handed them on: the handler of a signal must not read between.
        """
        inside = self._inside
        try:
            if len(inside.readers) > 1 and beneath(hand, inside.readers):
                # What it left over, the call that it has interrupted would not find: that waits for the bus.
                raise ClientError(errno.EBUSY, f"{self.path} is being read, which the handler of a signal cannot do, too")
            if not operator.length_hint(self._items):  # or the handler of a signal has just read
                self._all = []  # its memory is good for the next, and still in the processor's cache
                self._catch_inside(hand, end)
        finally:
            hand.opening = None
            if inside.left:
                inside.tidy()

    def _catch_inside(self, hand: Hand, end: float | None) -> None:
        closings, late = self._closings, "nothing has come in time"
        while True:
            self._check_not_closed(closings)
            opening = hand.opening = self._now
            if opening is not self._now:
                continue  # another thread has left it before it was in hand
            try:
                try:
                    if end is None:
                        self._read_nowait(hand, opening)
                    elif not self._read_nowait(hand, opening, only_saved=True):
                        hurry = opening.hurry
                        try:
                            hurry.calls[hand] = None
                            self._hurry(hurry, opening, closings, end, late)
                            self._poll(opening, select.POLLIN, end, late)
                            self._read_nowait(hand, opening)
                        finally:
                            del hurry.calls[hand]
                            self._relax(hurry, opening)
                    return
                except BlockingIOError as error:
                    if not is_own(error):
                        raise
                    self._poll(opening, select.POLLIN, end, late)
            except (Ended, NoBus) as error:
                if not self.way.again or not is_own(error):
                    raise
                if self._is_shut:
                    raise self._ended() from None
                self._open_again(hand, opening, closings, end, reads=True)
            except NotOpen as error:  # another thread opens it, or has tried in vain
                if not self.way.again or self._is_left or not is_own(error):
                    raise
                self._open_again(hand, opening, closings, end, reads=True)

    def _fill(self, end: float | None) -> None:
        """Waits until there is something that can be asked for."""
        readers, hand = self._inside.readers, self._hand()
        hand.thread = get_native_id()
        try:
            readers[hand] = None
            self._catch(hand, end)
            if hand.blocks:
                self._hand_on(hand)
        except BaseException:
            if hand.blocks and hand.of.forgettings == self._forgettings:
                self._saved = (hand, *self._saved)
            raise
        finally:
            del readers[hand]

    def _next(self, timeout: float | None = None) -> Item:
        for item in self._items:
            return item
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._fill(end)
            for item in self._items:
                return item

    def _each(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[Item]]:
        while True:
            yield self._items
            if operator.length_hint(self._items):
                continue  # somebody else has read
            closings = self._closings
            try:
                self._fill(None)
            except Ended as error:
                if not is_own(error):
                    raise
                return
            except NotOpen as error:
                if not is_own(error) or not self.was_left_since(closings):
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
        readers, hand = self._inside.readers, self._hand()
        hand.thread = get_native_id()
        try:
            readers[hand] = None
            end = None if timeout is None else time.monotonic() + timeout
            while True:
                self.check_nothing_pending()
                self._catch(hand, end)
                if hand.blocks and (data := self._given(hand)):
                    return data
        except BaseException:
            if hand.blocks and hand.of.forgettings == self._forgettings:
                self._saved = (hand, *self._saved)
            raise
        finally:
            del readers[hand]

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
        self.accepted = 0
        check_whole(lines)
        return self._send(lines, timeout)

    def _send(self, lines: bytes, timeout: float | None, of: object = None, *, is_to_all: bool = False) -> int:
        """Sends lines.

        Args:
            lines: whole ones.
            timeout: as for `Publisher.send`.
            of: see `begin_sending`.
            is_to_all: whether they are for whoever is there.
        """
        inside, hand = self._inside, Hand()
        hand.thread, hand.opening, hand.lines, hand.place = get_native_id(), None, b"", [0]
        try:
            inside.senders[hand] = None
            if len(inside.senders) > 1 and (interrupted := beneath(hand, inside.senders)):
                self._check_whole_between(interrupted, lines)
            return self._send_inside(hand, lines, timeout, of, is_to_all=is_to_all)
        finally:
            del inside.senders[hand]
            if inside.left:
                inside.tidy()

    def _check_whole_between(self, interrupted: list[Hand], lines: bytes) -> None:
        """Sees that the handler of a signal sends neither into the middle of another message, nor one that may be left half.

        Args:
            interrupted: the calls that it has interrupted.
            lines: what it sends.

        Raises:
            ClientError: it would.
        """
        is_begun = self._now.rest or any(each.place[-1] and each.lines[each.place[-1] - 1] != 10 for each in interrupted)
        is_long = len(lines) > PIECE and max(map(len, lines.split(b"\n"))) >= PIECE
        if is_begun or is_long:
            raise ClientError(errno.EBUSY, f"{self.path}: a long message is being sent, and nothing can come in between")

    def _send_inside(self, hand: Hand, lines: bytes, timeout: float | None, of: object, *, is_to_all: bool) -> int:
        place, closings, late = hand.place, self._closings, "the master has had no place for it in time"
        end = None if timeout is None else time.monotonic() + timeout
        lines, first, opening = self.begin_sending(lines, of)
        hand.lines, hand.opening = lines, opening if opening is self._now else None  # or another thread has just left it
        is_addressed = self._is_addressed and not is_to_all
        was_late = False
        try:
            # Mostly so, and then one call is all.
            if end is None and not first and len(lines) <= BLOCK and opening is hand.opening:
                try:
                    place += map(os.write, (opening.file,), (lines,))
                except OSError as error:
                    if not is_own(error):
                        raise
                    place.append(0)  # what is wrong, the same call tells once more
                if place[-1] == len(lines):
                    self.accepted = lines.count(b"\n")
                    return self.accepted
            while place[-1] < len(lines):
                if opening is not self._now:
                    self._check_not_closed(closings)
                start, opening = self.go_on_sending(lines, first, place[-1], opening, is_to_all=is_to_all)
                place[:] = (start,)
                hand.opening = opening if opening is self._now else None
                if not hand.opening:
                    continue  # another thread has left it before it was in hand
                try:
                    try:
                        if end is None:
                            self._send_from(lines, place, opening)
                        else:
                            hurry = opening.hurry
                            try:
                                hurry.calls[hand] = None
                                self._hurry(hurry, opening, closings, end, late)
                                self._send_from(lines, place, opening)
                            finally:
                                del hurry.calls[hand]
                                self._relax(hurry, opening)
                    except BlockingIOError as error:
                        if not is_own(error):
                            raise
                        self._poll(opening, select.POLLOUT, end, late)
                except (NoBus, NoMaster) as error:
                    if not is_own(error):
                        raise
                    if is_addressed:
                        self._part(opening, closings)
                    if not self._comes_again:
                        raise
                    if is_addressed:  # on another channel, an address is another client's
                        raise self._away() from None
                    place.append(begin_of_line(lines, place[-1], first))  # what the bus had of a message has gone with it
                    is_late = end is not None and time.monotonic() >= end
                    if was_late:
                        raise self._late(error) from None
                    if not is_late:
                        pause = RETRY_SECONDS[0]  # a master that does not read is found again at once
                        time.sleep(pause if end is None else min(max(end - time.monotonic(), 0), pause))
                    if not isinstance(error, NoMaster) or self._has_ended(opening):
                        was_late = is_late  # it is tried once, however late it is
                        self._open_again(hand, opening, closings, end, keeps=True)
                    elif is_late:
                        raise self._late(error) from None
                except NotOpen as error:
                    if not self._comes_again or self._is_left or not is_own(error):
                        raise
                    place.append(begin_of_line(lines, place[-1], first))
                    if is_addressed:
                        self._open_for_others(hand, opening, closings)
                    else:
                        self._open_again(hand, opening, closings, end)
            return self.end_sending(lines, first, place[-1], opening)
        except BaseException as error:  # refused, or Ctrl-C, for one
            try:
                self.stop_sending(lines, first, place[-1], opening, error)
            except BaseException:  # the handler of a signal
                self.stop_sending(lines, first, place[-1], opening, error)
                raise
            raise
