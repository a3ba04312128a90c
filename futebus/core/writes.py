"""The writes of a bus that are under way: how much of each has been taken, who waits for what, and whose turn it is.

The one rule: no line overtakes one that was written before it by the same description, and no writer who waits has his next
portion before the others have had theirs.
"""

import contextlib
import enum
from collections import deque
from collections.abc import Callable, Iterable

from .channel import Behind, Broadcast, Channel
from .client import Client, Effects, Piece, Rest, Token, Waiting, Write
from .errors import Broken, BusError, ShuttingDown, TooManyForUser, WouldBlock
from .halves import Half, Halves
from .limits import SHARED_WRITE_BYTES, Limits

ADMITTED_WORK = 500
"""How much of the writes that have waited is accepted at once, as in `Effects.work`: a millisecond's worth."""

RUN_WORK = 3
"""What it costs to find a run of lines and to route it, however short it is."""

PORTION_WORK = 128
"""How much of one of them, before the next has its turn: at most a run of lines (128 KiB), or so many runs that are shorter."""


class _Outcome(enum.Enum):
    """How far a write has come."""

    DONE = enum.auto()
    HAS_MORE = enum.auto()
    """It can go on after others had their turn."""
    MUST_WAIT = enum.auto()
    """There is no place at the master."""
    REFUSED = enum.auto()
    """Something is wrong with the next line."""


# To look one up in its class takes memory, which there may be none for just when a line has been delivered.
_DONE, _HAS_MORE, _MUST_WAIT, _REFUSED = _Outcome


class Writes:
    """The writes of a bus, and whatever else waits there for an answer.

    Args:
        limits: the bus's.
        process_of: tells the process of a `Piece.who`.
    """

    def __init__(self, limits: Limits, process_of: Callable[[object], object]) -> None:
        self.waiting: dict[Token, Waiting | Write] = {}
        """All calls that wait, reads too."""
        self.is_shutting_down = False
        """Whether nothing is accepted any more."""
        self._limits = limits
        self._process_of = process_of
        self._stood_behind = 0
        """How many writes have waited for another one by the same description: see `Write.number`."""
        self._shared_bytes_of: dict[int, int] = {}
        """By user: the bytes of writes that wait for another write by the same description."""

    def begin(
        self,
        client: Client,
        data: bytes,
        token: Token | None,
        effects: Effects,
        *,
        may_wait: bool,
        work: int | None,
        piece: Piece | None,
    ) -> int | None:
        """A client writes: see `Bus.write`."""
        rest = client.rest
        try:
            return self._begin(client, data, token, effects, may_wait, work, piece)
        except BusError:
            raise
        except Exception:  # no memory, say
            is_further = piece is not None and piece.continues
            if rest and not client.rest:  # others still wait for it, and with these effects their turn is lost
                client.writing.appendleft(rest)
                is_further = True
            with contextlib.suppress(MemoryError):
                self._leave_half(client, piece, is_further=is_further)
            raise

    def _begin(
        self,
        client: Client,
        data: bytes,
        token: Token | None,
        effects: Effects,
        may_wait: bool,
        work: int | None,
        piece: Piece | None,
    ) -> int | None:
        goes_on = bool(client.writing) and self._goes_on(client, piece, effects)
        is_behind = bool(client.writing) and not goes_on
        is_further = goes_on or (not is_behind and piece is not None and piece.continues)
        try:
            if is_behind:
                # Another process writes by the same description. Its lines come first, all of them.
                self._stand_behind(client, data, token, effects, may_wait, piece)
                return None
            self._check_end(client)
            if client.halves and not is_further:
                self._sort_halves(client, piece, self._stood_behind + 1)
            taken, outcome = self._take_bytes(client, data, 0, effects, work)
        except BusError as error:
            self._leave_half(client, piece, is_further=is_further)
            if goes_on:
                self._have_turn(client, effects)
            if is_further and not may_wait:
                self._hint(client, effects)
            if token is None or not effects:
                raise
            self._refuse(error, token, effects)
            return None
        if effects.finished:
            self.forget_finished(effects)
        if token is not None and (outcome is _HAS_MORE or (outcome is _MUST_WAIT and may_wait)):
            try:
                write = Write(token, client, effects.now, data, taken, may_wait=may_wait, piece=piece, is_further=is_further)
                self._keep_first(write, outcome, effects)
            except Exception as error:  # no memory, say: then that is all
                if not taken:
                    raise
                effects.failure = error
                outcome = _REFUSED
            else:
                return None
        if not taken:
            self._leave_half(client, piece, is_further=is_further)
        if not self._leaves_rest(client, piece, taken == len(data), taken, effects) and goes_on:
            self._have_turn(client, effects)
        if outcome is _MUST_WAIT and not taken:
            if token is None or not effects:
                raise WouldBlock
            self._refuse(WouldBlock(), token, effects)
            return None
        effects.is_unfinished = outcome is _HAS_MORE
        if taken < len(data) and (token is None or not may_wait):
            self._hint(client, effects)
        return taken

    def _hint(self, client: Client, effects: Effects) -> None:
        """A write that did not wait was short. If that was not for want of place, who waits for the change hears of one."""
        try:
            if client.is_armed and client.channel.is_writable(client):
                client.wake_poller(effects)
            elif client.waiting_write:
                client.was_told_to_wait = True  # then when that has ended
        except MemoryError:
            pass

    def _refuse(self, error: BusError, token: Token, effects: Effects) -> None:
        """Tells the caller an error, and loses nothing of what has come of the call for others.

        It is not raised here: its traceback would hold this frame, which holds the error, and with it the token.
        """
        self.forget_finished(effects)
        effects.finished.append((token, error.with_traceback(None)))

    def _stand_behind(
        self, client: Client, data: bytes, token: Token | None, effects: Effects, may_wait: bool, piece: Piece | None
    ) -> None:
        if token is None or not may_wait:
            client.was_told_to_wait = True
            raise WouldBlock
        if client.rest:
            effects.held.append(client)
        number = self._stood_behind + 1
        self._keep_shared(Write(token, client, effects.now, data, 0, may_wait=True, piece=piece, number=number))
        self._stood_behind = number

    def _goes_on(self, client: Client, piece: Piece | None, effects: Effects) -> bool:
        """Whether a piece is the next of the write for which the client's others wait: then it comes before them."""
        rest = client.rest
        if rest is None or piece is None or rest.piece is None or rest.piece.who != piece.who:
            return False
        if piece.begin == rest.piece.begin:
            client.writing.popleft()
            return True
        self.end_rest(client, effects)  # it writes something else
        return not client.writing

    def _leaves_rest(self, client: Client, piece: Piece | None, is_whole: bool, size: int, effects: Effects) -> bool:
        """Whether more may come behind a piece that has been taken: then others wait for that."""
        if piece is None or not piece.may_go_on or not is_whole:
            return False
        try:
            rest = Rest(client, effects.now, piece.who, piece.begin + size)
            if client.writing or client.was_told_to_wait:
                effects.held.append(client)
            client.writing.appendleft(rest)
        except MemoryError:  # then others come between, but not into a line
            with contextlib.suppress(MemoryError):
                self._leave_half(client, piece, is_further=True)
            return False
        return True

    def end_rest(self, client: Client, effects: Effects) -> None:
        """See `Bus.end_rest`."""
        if rest := client.rest:
            client.writing.popleft()
            try:
                self._have_turn(client, effects)
            except Exception:  # no memory, say: this is called again
                client.writing.appendleft(rest)
                raise

    def _have_turn(self, client: Client, effects: Effects) -> None:
        """The client's first write has ended: its next one begins in its turn, or who polls may write."""
        if client.writing:
            effects.later.append(client.writing[0].token)
        elif (client.was_told_to_wait or client.was_told_no) and client.channel.is_writable(client):
            # If it was for the master's sake: who has had place since, while this client still had something to write.
            client.wake_poller(effects)
            client.was_told_to_wait = client.was_told_no = False

    def _sort_halves(self, client: Client, piece: Piece | None, number: int) -> None:
        """A write, and no further piece of one, is about to begin: see `Halves`.

        Args:
            client: by which.
            piece: whose it is.
            number: see `Write.number`. One that has not waited has the next.
        """
        halves = client.halves
        if halves is None:
            return
        who, process = (piece.who, self._process_of(piece.who)) if piece else (None, None)
        if not halves.begin(who, process, number, client.wbuf):
            client.halves = None

    def _leave_half(self, client: Client, piece: Piece | None, *, is_further: bool) -> None:
        """A write has ended, and nothing was taken of it. The beginning that it was to go on with is its process's.

        It is left only now: what has stood behind the write is not its rest.

        Args:
            client: by which.
            piece: whose it was.
            is_further: whether it was a further piece. Then what is in wbuf is the beginning.
        """
        halves, is_begun = client.halves, is_further and bool(client.wbuf.partial)
        if piece is None or not (halves or is_begun):
            return
        half = Half(piece.who, self._process_of(piece.who), self._stood_behind)
        if is_begun:
            client.halves = halves or Halves(self._limits.max_message)
            client.halves.owner = half
        elif halves:
            halves.leave_again(half)

    def _keep_first(self, write: Write, outcome: _Outcome, effects: Effects) -> None:
        """Keeps one that has come so far, and is the client's first. If there is no memory for that, nothing is kept of it."""
        writing = write.client.writing
        writing.appendleft(write)
        try:
            self.waiting[write.token] = write
            if outcome is _HAS_MORE:
                self._put_off(write.token, write.client.channel, effects)
            else:
                write.client.channel.blocked.append(write)
        except BaseException:
            self.waiting.pop(write.token, None)
            writing.popleft()
            raise

    def _keep_shared(self, write: Write) -> None:
        """Keeps one that waits for another of the same client.

        Raises:
            TooManyForUser: the user has too much of that. None of them is a client, so nothing else bounds them.
        """
        uid = write.client.owner.uid
        size = self._shared_bytes_of.get(uid, 0) + len(write.data)
        if uid and size > self._limits.max_clients_per_user * SHARED_WRITE_BYTES:
            raise TooManyForUser("too many writes of the user wait for others by the same descriptor")
        write.client.writing.append(write)
        try:
            self.waiting[write.token] = write
            self._shared_bytes_of[uid] = size
        except BaseException:  # no memory, say
            self.waiting.pop(write.token, None)
            write.client.writing.pop()
            raise
        write.is_counted = True

    def _uncount(self, write: Write) -> None:
        if write.is_counted:
            uid = write.client.owner.uid
            left = self._shared_bytes_of[uid] - len(write.data)
            write.is_counted = False
            if left:
                self._shared_bytes_of[uid] = left
            else:
                del self._shared_bytes_of[uid]

    def _check_end(self, client: Client) -> None:
        """Drops what a client has begun to write if nobody will ever read it.

        Raises:
            ShuttingDown, NobodyReads: so it is.
        """
        if self.is_shutting_down:
            client.begin_anew()
            raise ShuttingDown
        if client.may_wait:
            client.channel.check_master(client)

    def _take_bytes(
        self, client: Client, data: bytes, start: int, effects: Effects, work: int | None, *, is_next: bool = False
    ) -> tuple[int, _Outcome]:
        """Takes what can be accepted now, from `start` on, with about so much work. Returns up to where, and how it ended.

        Raises:
            BusError: something is wrong with the line at `start`. The partial message before it is dropped.
        """
        channel, wbuf, failure = client.channel, client.wbuf, effects.failure
        taken = start
        if work is not None:
            work += effects.work
        try:
            while True:
                if (channel.broadcast or (channel.behind and not is_next)) and not client.route.to_master:
                    # What is on its way comes first, also before the writer is told that it has been accepted.
                    return taken, _HAS_MORE
                if taken == len(data):
                    break
                if work is not None and effects.work >= work and taken > start:
                    return taken, _HAS_MORE
                # What the master has no place for need not be looked at: it will be written again.
                run, stop = wbuf.next_run(data, taken, *channel.room) if client.may_wait else wbuf.next_run(data, taken)
                if run is not None:
                    effects.work += RUN_WORK
                    effects.is_unfinished = False
                    accepted = channel.send(client, run, effects, work, is_next=is_next)
                    if accepted < len(run.data):
                        # A run of several messages has nothing of an earlier call in it.
                        if effects.is_unfinished:
                            return taken + accepted, _HAS_MORE
                        waits = client.may_wait and effects.failure is failure
                        return taken + accepted, _MUST_WAIT if waits else _REFUSED
                    client.begin_anew()
                taken = stop
                effects.work += 1
        except BusError:
            if taken == start:
                client.begin_anew()
                raise
            return taken, _REFUSED
        except Exception as error:
            # No memory, say. What has been delivered stays so, and the effects of it are not to be lost.
            effects.failure = error
            if taken == start:
                client.begin_anew()
                raise Broken from None
            return taken, _REFUSED
        return taken, _DONE

    def _put_off(self, token: Token, channel: Channel, effects: Effects) -> None:
        """Has a write go on later: in its turn, or when the broadcast that is on its way has reached its end."""
        if channel.broadcast or channel.behind:
            channel.behind[token] = None
        else:
            effects.later.append(token)

    def go_on(self, what: Token | Channel | Broadcast | Behind, effects: Effects, work: int | None) -> None:
        """Goes on with something: see `Bus.go_on`."""
        if isinstance(what, Channel):
            what.is_admitting = False
            effects.later.append(what)
            self.admit_or_later(what, True, effects)
        elif isinstance(what, Broadcast):
            channel = what.channel
            if channel.broadcast is what:
                channel.go_on(effects)
                if not channel.broadcast and (channel.is_dead or self.is_shutting_down):
                    channel.end_of_messages(effects)
            self.forget_finished(effects)
        elif isinstance(what, Behind):
            channel = what.channel
            channel.is_calling = False
            if channel.behind and not channel.broadcast:
                token, _ = channel.behind.popitem(last=False)
                first = self.waiting[token]
                assert isinstance(first, Write)
                try:
                    self._go_on_with(first, effects, work, is_next=True)
                except Exception:  # no memory, say: it is the next again
                    if token in self.waiting:
                        channel.behind[token] = None
                        channel.behind.move_to_end(token, last=False)
                    raise
            channel.call_behind(effects)
        elif isinstance(write := self.waiting.get(what), Write):
            self._go_on_with(write, effects, work)

    def _go_on_with(self, write: Write, effects: Effects, work: int | None, *, is_next: bool = False) -> None:
        outcome = self._advance(write, effects, work, is_next=is_next)
        if outcome is _HAS_MORE:
            self._put_off(write.token, write.client.channel, effects)
        elif outcome is _MUST_WAIT:
            write.client.channel.blocked.append(write)
        self.forget_finished(effects)

    def _advance(self, write: Write, effects: Effects, work: int | None, *, is_next: bool = False) -> _Outcome:
        """Takes what can be accepted now of a write that is under way, and answers it if that is all there will be."""
        client = write.client
        try:
            client.keep()
            if write.answer is None:
                outcome = self._take_more(write, effects, work, is_next)
                if write.answer is None:
                    return outcome
            if not write.taken:
                self._leave_half(client, write.piece, is_further=write.is_further)
            self._end(write, write.answer, effects)
        except Exception as error:  # no memory, say: what has come of it for others is not to be lost, and it ends the next time
            effects.failure = error
            return _HAS_MORE
        return _DONE

    def _take_more(self, write: Write, effects: Effects, work: int | None, is_next: bool) -> _Outcome:
        """Takes what can be accepted now of a write that is under way. If that is all there will be, its answer is known then."""
        client = write.client
        try:
            self._check_end(client)
            if write.number:
                self._sort_halves(client, write.piece, write.number)
                write.number = 0
            write.taken, outcome = self._take_bytes(client, write.data, write.taken, effects, work, is_next=is_next)
        except BusError as error:
            # The traceback holds this frame, and with it the effects that hold the error.
            write.answer = write.taken or error.with_traceback(None)
            return _REFUSED
        if outcome is not _HAS_MORE and (outcome is not _MUST_WAIT or not write.may_wait):
            write.answer = write.taken or WouldBlock()
        return outcome

    def _end(self, write: Write, answer: int | BusError | None, effects: Effects) -> None:
        """Ends a write that is under way, with an answer if anybody waits for one. The client's next write begins in its turn.

        If there is no memory for that, it is under way as before.
        """
        client = write.client
        was_first = client.writing[0] is write
        is_answered = answer is not None and not isinstance(write, Rest)
        if answer is not None and is_answered:
            effects.finished.append((write.token, answer))
        self._uncount(write)
        client.writing.remove(write)
        is_whole = isinstance(answer, int) and answer == len(write.data) and not self.is_shutting_down
        try:
            if was_first and not self._leaves_rest(client, write.piece, is_whole, len(write.data), effects):
                self._have_turn(client, effects)
        except BaseException:
            client.writing.appendleft(write)
            if is_answered:
                effects.finished.pop()
            raise
        client.channel.behind.pop(write.token, None)
        if not write.may_wait and (write.taken or write.is_further) and write.taken < len(write.data):
            self._hint(client, effects)

    def fail(self, writes: Iterable[Write], error: BusError, effects: Effects) -> None:
        """Ends writes for good: with the count of what was accepted of them, or else with `error`."""
        for write in writes:
            client = write.client
            if write in client.channel.blocked:
                client.channel.blocked.remove(write)
            try:
                client.keep()
                client.begin_anew()
                self._end(write, write.taken or error, effects)
            except Exception as failure:  # no memory, say: then it fails in its turn
                effects.failure = failure
                effects.later.append(write.token)

    def admit(self, channel: Channel, was_full: bool, effects: Effects) -> None:
        """The master's rlist may have places: first for the writes that wait for one, in their order, then for pollers."""
        was_full = was_full or bool(channel.blocked)
        limit = effects.work + ADMITTED_WORK
        while channel.blocked and not channel.is_admitting:
            if effects.work >= limit:
                channel.is_admitting = True
                effects.later.append(channel)
                break
            write = channel.blocked[0]
            taken = write.taken
            outcome = self._advance(write, effects, PORTION_WORK, is_next=True)
            if outcome is not _DONE and write.taken == taken:
                if outcome is _HAS_MORE:  # no memory, say
                    channel.is_admitting = True
                    effects.later.append(channel)
                break
            channel.blocked.popleft()
            if outcome is not _DONE:
                # Others have their turn, also in the middle of a long write.
                channel.blocked.append(write)
        self.forget_finished(effects)
        if channel.armed_slaves:
            channel.tell_writable(was_full, effects)

    def admit_or_later(self, channel: Channel, was_full: bool, effects: Effects) -> None:
        """The same, for a call that does not fail by it. `effects.later` has the channel, which stays there if it has failed."""
        try:
            self.admit(channel, was_full, effects)
        except Exception as error:  # no memory, say
            effects.failure = error
            channel.is_admitting = True
        else:
            effects.later.remove(channel)

    def close(self, client: Client) -> None:
        """A client has gone. Nobody waits any more for what it did."""
        for token in (*client.reading, *(write.token for write in client.writing)):
            self.waiting.pop(token, None)
        client.reading.clear()
        if client.writing:
            channel = client.channel
            for write in client.writing:
                self._uncount(write)
                channel.behind.pop(write.token, None)
            channel.blocked = deque(write for write in channel.blocked if write.client is not client)
            client.writing.clear()

    def cancel(self, write: Write, effects: Effects) -> None:
        """A signal has ended a write. What was accepted of it stays so: see `Bus.cancel`."""
        channel = write.client.channel
        was_blocked = write in channel.blocked
        if was_blocked:
            effects.later.append(channel)
        if not write.taken:
            self._leave_half(write.client, write.piece, is_further=write.is_further)
        self._end(write, None, effects)
        del self.waiting[write.token]  # only now: if there was no memory, this is called again
        if was_blocked:
            channel.blocked.remove(write)
            # The first of the queue may have been too long for the place that there is; the next may fit.
            self.admit_or_later(channel, True, effects)

    def forget_finished(self, effects: Effects) -> None:
        """Calls that have ended wait no more."""
        for token, _ in effects.finished:
            self.waiting.pop(token, None)
