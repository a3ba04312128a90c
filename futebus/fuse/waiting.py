"""Reads and writes: from the kernel's requests to the core and back. The only place where a call of a client waits.

A call that must wait is parked: its request is kept (by the core, as the token of the call) and answered when some later call
says so in its effects, or when a signal comes. Nothing here ever blocks.
"""

import contextlib
import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial

from futebus.core import inquiry
from futebus.core.bus import Bus
from futebus.core.channel import Behind, Broadcast, Channel
from futebus.core.client import Client, Effects, Token
from futebus.core.errors import BusError
from futebus.core.kinds import Role
from futebus.core.text import escape
from futebus.host.logs import tell, tell_error

from . import _hooks
from ._hooks import Request
from .files import SPLIT_PIECE, OpenChannel, OpenStat
from .rests import Rests
from .turns import Turns

log = logging.getLogger(__name__)

_WORK = 500
"""How much of a write is done at once, as in `Effects.work`: a millisecond's worth."""

_AT_ONCE = 32
"""How many parked calls are answered, or pollers told, at once: a millisecond's worth."""

_MOST_FAILURES = 100
"""How often it may fail to answer at once, or to do anything while the bus ends, before that is given up."""


class Calls:
    """The open files of a mount, and the calls on them.

    Args:
        bus: the bus.
        turns: gets what takes long.
        clock: tells the time, in nanoseconds since the epoch.
    """

    def __init__(self, bus: Bus, turns: Turns, clock: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._turns = turns
        self._clock = clock
        self._open: dict[int, OpenChannel | OpenStat] = {}
        self._channels: dict[Client, OpenChannel] = {}
        self._stats: set[OpenStat] = set()
        self._continued: dict[Request, tuple[OpenChannel, int]] = {}
        """Parked writes that are further pieces of a split one; and the thread."""
        self._put_off: dict[int | None, deque[Effects]] = {}
        """Answers and pollers for which there was no time yet, by the user who has caused them."""
        self._unknown: set[Request] = set()
        """Calls that a signal has come for, and of which nobody else knows: see `_end_unknown`."""
        self._next_handle = 1
        self._failures_at_end = 0
        self._rests = Rests(self._end_rest, lambda: bool(self._put_off))
        self.on_last_close: Callable[[], None] | None = None
        """Called when no client is left."""

    # ------------------------------------------------------------------------------------------ open files

    def add(self, file: OpenChannel | OpenStat) -> int:
        """Keeps an open file. Returns its handle."""
        handle = self._next_handle
        self._next_handle += 1
        self._open[handle] = file
        if isinstance(file, OpenChannel):
            self._channels[file.client] = file
        else:
            self._stats.add(file)
        return handle

    def __getitem__(self, handle: int) -> OpenChannel | OpenStat:
        return self._open[handle]

    def remove(self, handle: int) -> None:
        """The last close of an open file."""
        file = self._open[handle]
        if isinstance(file, OpenChannel):
            effects = self._bus.close(file.client, self._clock())
            # Only now: whoever is told of an error may try it again.
            del self._open[handle], self._channels[file.client]
            file.poll_handle = None
            self.settle(effects, file.client.owner.uid)
            self._tell_loss(file.client)
            if not self._channels and self.on_last_close:
                self.on_last_close()
        else:
            del self._open[handle]
            file.on_close(file)
            self._stats.discard(file)

    def _tell_loss(self, client: Client) -> None:
        """Who wrote to a master was told that its lines are accepted. If they end unread, somebody should know."""
        if client.role is Role.MASTER and (lost := client.mailbox.messages):
            tell(log, logging.WARNING, lambda: f"{_who(client)}: it was the master and has closed with {lost} messages unread")
        elif client.dropped:
            words = "it read too slowly: {} messages for it were dropped"
            tell(log, logging.INFO, lambda: f"{_who(client)}: {words.format(client.dropped)}")

    @property
    def stats(self) -> Collection[OpenStat]:
        """The open `_stat` files."""
        return self._stats

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._open)

    def counts(self) -> dict[str, int]:
        """How many there are of what comes and goes with open files and calls: what is left over when they are gone is a leak."""
        channels = self._channels.values()
        return {
            "open files": len(self._open),
            "waiting calls": self._bus.waiting,
            "continued writes": len(self._continued),
            "requests": _hooks.requests(),
            "poll handles": sum(file.poll_handle is not None for file in channels),
        }

    # ------------------------------------------------------------------------------------------ requests

    def read(self, request: Request, handle: int, size: int, offset: int, flags: int) -> bytes | int | None:
        """Serves a READ request: see `_hooks.install`."""
        file = self._open[handle]
        if isinstance(file, OpenStat):
            return file.read(request, size, offset)
        token = None if flags & os.O_NONBLOCK else request
        try:
            data, effects = self._bus.read(file.client, size, self._clock(), token, is_rest=file.continues_read(offset))
        except BusError as error:
            self._note_refusal("read", file.client, error)
            return -error.errno
        except Exception:
            return self._internal_error("read", file.client)
        if effects:
            self.settle(effects, file.client.owner.uid)
        if data is not None:
            file.note_read(offset, size, len(data))
        return data

    def inquire(self, handle: int) -> bytes | None:
        """Serves an IOCTL request: see `_hooks.install`."""
        file = self._open.get(handle)
        if not isinstance(file, OpenChannel):
            return None
        return inquiry.answer(file.client, is_shutting_down=self._bus.is_shutting_down)

    def shut(self, client: Client) -> int:
        """Its master ends a channel: see `Bus.shut`. Returns 0, or an errno."""
        try:
            self.settle(self._bus.shut(client, self._clock()), client.owner.uid)
        except BusError as error:
            return error.errno
        except Exception:
            return -self._internal_error("shut", client)
        return 0

    def write(self, request: Request, handle: int, data: bytes, offset: int, flags: int, caller: int) -> int | None:
        """Serves a WRITE request: see `_hooks.install`."""
        file = self._open[handle]
        assert isinstance(file, OpenChannel)
        client, size, may_wait = file.client, len(data), not flags & os.O_NONBLOCK
        if not may_wait and client.may_wait and size >= SPLIT_PIECE:
            # There may be no place for the next piece. So this one ends with a line, and the write(2) with it, before others'.
            data = data[: data.rfind(b"\n") + 1] or data
        is_cut = len(data) < size
        if is_cut:
            size = 0  # no piece that another follows
        continues = file.continues_write(offset, size, flags, caller)
        if not continues and (swallowed := file.swallowed(caller)):
            return -swallowed.errno
        piece = self._rests.piece(client, caller, offset, size, flags, continues=continues)
        try:
            count, effects = self._bus.write(client, data, self._clock(), request, may_wait=may_wait, work=_WORK, piece=piece)
        except BusError as error:
            if client.rest:
                self._rests.watch(client)
            if continues and error.errno != errno.EAGAIN:
                file.swallow(error, caller)
            self._note_refusal("write", client, error)
            return -error.errno
        except Exception:
            self._rests.watch(client)
            return self._internal_error("write", client)
        if count is None and continues:
            self._continued[request] = file, caller
        if is_cut:
            with contextlib.suppress(MemoryError):  # it is shorter than it had to be, and who waits for a change hears of none
                client.wake_poller(effects)
        if effects:
            self.settle(effects, client.owner.uid)
        return count

    def _go_on(self, what: Token | Channel | Broadcast | Behind, user: int | None) -> bool:
        """Does more of what a user's call has left for later. If that is not all, `settle` puts it off again."""
        try:
            effects = self._bus.go_on(what, self._clock(), work=_WORK)
        except Exception:
            tell_error(log, lambda: "internal error in what was put off")
            if isinstance(what, Request):
                with contextlib.suppress(Exception):  # there may be no memory for that either
                    self._end(what, errno.EIO)
                    return False
            return self._is_tried_again()  # others wait for it
        is_given_up = effects.failure is not None and what in effects.later and not self._is_tried_again()
        if is_given_up:
            effects.later.remove(what)
        self.settle(effects, user)
        if is_given_up and isinstance(what, Request):
            self._end(what, errno.EIO)
        return False

    def _is_tried_again(self) -> bool:
        """Whether what has failed may fail again: while the bus ends, not for ever."""
        self._failures_at_end += self._turns.is_finishing
        return self._failures_at_end < _MOST_FAILURES

    def _end_rest(self, client: Client) -> None:
        try:
            self.settle(self._bus.end_rest(client, self._clock()), client.owner.uid)
        except Exception:
            tell_error(log, lambda: f"{_who(client)}: internal error when others were to go on")

    async def watch_rests(self) -> None:
        """Sees, for ever, that nobody waits for the rest of a write that does not come: see `Rests`."""
        await self._rests.run()

    def _end(self, request: Request, number: int) -> bool:
        """Ends a call that waits: with the count of what was accepted of a write, or else an errno. Returns whether it did."""
        cancelled = self._bus.cancel(request, self._clock())
        if cancelled is None:
            return False
        taken, effects = cancelled
        self._continued.pop(request, None)
        if taken:
            request.written(taken)
        else:
            request.error(number)
        self.settle(effects)
        return True

    def interrupt(self, request: Request) -> None:
        """A signal for the caller of a parked call: see `_hooks.install`."""
        if self._end(request, errno.EINTR):
            return
        if any(file.interrupt(request) for file in self._stats):
            return
        self._unknown.add(request)
        self._end_unknown()

    def _end_unknown(self) -> None:
        """Ends the calls that a signal has come for and whose answers were lost, for want of memory say.

        The kernel says it once, and nobody waits out of the reach of signals. But an answer may only be put off.
        """
        while self._unknown and not self._put_off:
            self._unknown.pop().error(errno.EIO)

    def settle(self, effects: Effects, user: int | None = None) -> None:
        """Answers the parked calls that have ended, and wakes pollers.

        Args:
            effects: what has come of some call.
            user: whose it was. What of it is put off is done when it is his turn.

        What goes wrong with one of them is not the concern of the others, nor of whoever's call had these effects. Those that are
        too many to be answered at once are answered between other requests.
        """
        if failure := effects.failure:
            tell_error(log, lambda: "internal error in what a call has led to", failure)
            effects.failure = None  # its traceback holds whatever it went through
        effects.finished.reverse()
        effects.ready.reverse()
        try:
            self._settle_some(effects)
            if effects.finished or effects.ready:
                self._put_off_rest(effects, user)
        except MemoryError:  # then at once
            for _ in range(_MOST_FAILURES):
                with contextlib.suppress(MemoryError):
                    while effects.finished or effects.ready:
                        self._settle_some(effects)
                    break
        for client in effects.held:
            self._rests.watch(client)
        for what in effects.later:
            # All who write to a channel wait for a broadcast on it, whoever's it is. So its turns are the channel's: there are
            # few channels with so many readers, and many things that one user can put off.
            whose = what.channel if isinstance(what, Broadcast | Behind) else user
            try:
                self._turns.put(partial(self._go_on, what, user), whose)
            except MemoryError:  # then at once
                for _ in range(_MOST_FAILURES):
                    if not self._go_on(what, user):
                        break

    def _put_off_rest(self, effects: Effects, user: int | None) -> None:
        if user in self._put_off:
            self._put_off[user].append(effects)
        else:
            self._put_off[user] = deque((effects,))
            try:
                self._turns.put(partial(self._settle_more, user), (user, "answers"))
            except MemoryError:
                del self._put_off[user]
                raise

    def _settle_more(self, user: int | None) -> bool:
        left = self._put_off[user]
        is_given_up = False
        try:
            self._settle_some(left[0])
        except MemoryError:
            is_given_up = not self._is_tried_again()
        if is_given_up or not (left[0].finished or left[0].ready):
            left.popleft()
        if not left:
            del self._put_off[user]
            self._end_unknown()
        return bool(left)

    def _settle_some(self, effects: Effects) -> None:
        """Answers and tells as many as may be at once, from the end of what there is: that takes no memory.

        Whatever happens to one of them, the others have their turn: at most that one is gone.
        """
        finished, ready, left = effects.finished, effects.ready, _AT_ONCE
        while finished and left:
            left -= 1
            token, answer = finished.pop()
            self._finish(token, answer)
        left = _AT_ONCE
        while ready and left:
            left -= 1
            self._wake(ready.pop())

    def _finish(self, token: Token, answer: bytes | int | BusError) -> None:
        assert isinstance(token, Request)
        try:
            self._answer(token, answer)
            self._unknown.discard(token)
        except Exception:
            tell_error(log, lambda: "internal error in the answer to a parked call")

    def _wake(self, client: Client) -> None:
        file = self._channels.get(client)
        if file and file.poll_handle:
            handle, file.poll_handle = file.poll_handle, None
            try:
                handle.notify()
            except OSError as error:  # nobody polls any more
                reason = str(error)
                tell(log, logging.DEBUG, lambda: f"{_who(client)}: not woken: {reason}")
            except Exception:
                tell_error(log, lambda: f"{_who(client)}: internal error in a poll notification")

    def _answer(self, request: Request, answer: bytes | int | BusError) -> None:
        if isinstance(answer, bytes):
            request.data(answer)
            return
        continued = self._continued.pop(request, None)
        if isinstance(answer, int):
            request.written(answer)
            return
        if continued and answer.errno != errno.EAGAIN:
            file, caller = continued
            # Before it is answered, and its thread may end: its process is looked for. That may fail, the answer must not.
            with contextlib.suppress(Exception):
                file.swallow(answer, caller)
        request.error(answer.errno)

    def _internal_error(self, call: str, client: Client) -> int:
        tell_error(log, lambda: f"{_who(client)}: internal error in {call}")
        return -errno.EIO

    def _note_refusal(self, call: str, client: Client, error: BusError) -> None:
        # That a call would have to wait is what O_NONBLOCK asks to be told, and no refusal.
        if error.errno != errno.EAGAIN:
            tell(log, logging.DEBUG, lambda: f"{_who(client)}: {call} refused: {error}")


def _who(client: Client) -> str:
    """A client as the log names it: channel, ID, process, user."""
    owner = client.owner
    return f"{escape(client.channel.name)}: client {{{client.id:x}}}, process {owner.pid} of user {owner.uid}"
