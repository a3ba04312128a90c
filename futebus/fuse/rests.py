"""What may still come of a write(2) that the kernel hands over in pieces.

Several processes may write by one description at the same time, and the kernel lets the piece of one come between two of another:
however long it was told that the file is, it grows with each long write. So the others wait until the next piece is there. If
there is one cannot be told from a piece: as long as that, a write may be all. But who has written it comes again soon, or
has gone, or sleeps.

The one rule: nobody waits for what does not come.
"""

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable

import trio

from futebus.core.client import Client, Piece, Rest
from futebus.host.processes import ENDED, is_alive, state_of, told_of

from . import _hooks
from .files import SPLIT_PIECE

LOOK_SECONDS = 0.002
"""How often it is looked what the thread does: the next piece mostly comes within a tenth of a millisecond."""

LOOKS = 250
"""How often before it is taken for granted that nothing comes. They are counted since a machine may stand still meanwhile."""

AT_ONCE = 16
"""At how many threads it is looked each time: half a millisecond's worth. One user may have thousands who wait."""

_OF_A_LOCK = (b"fuse", b"rwsem", b"chmod", b"chown", b"truncate", b"utimes")
"""What is in the names of the kernel's functions in which a thread waits for the lock of a file that somebody writes to."""


class _Watch:
    """A description by which somebody waits."""

    __slots__ = ("at", "rest", "until", "was_asleep")

    def __init__(self, rest: Rest, until: int) -> None:
        self.rest = rest
        self.until = until
        """The look behind which it is over."""
        self.at = 0
        """The last look."""
        self.was_asleep: int | None = None
        """If the thread slept: how often there had been no request left by then."""


class Rests:
    """The descriptions by which somebody waits for the rest of another's write.

    Args:
        end: has the others go on. It raises nothing, and is called again if it could not.
        owes: tells whether there are calls that have ended and were not answered yet: a thread may wait for that.
    """

    def __init__(self, end: Callable[[Client], object], owes: Callable[[], bool] = lambda: False) -> None:
        self._end = end
        self._owes = owes
        self._watched: OrderedDict[int, OrderedDict[Client, _Watch]] = OrderedDict()
        """By whose they are. Who is first is looked at next, so that nobody waits longer since another has more of them."""
        self._are_any = trio.Event()
        self._look = 0

    @staticmethod
    def piece(client: Client, caller: int, offset: int, size: int, flags: int, *, continues: bool = False) -> Piece | None:
        """Which piece of a longer write(2) a request may be; None if it is surely all, and nobody must know whose.

        Args:
            client: who writes.
            caller: the thread; 0 is one of another PID namespace, of which there may be many.
            offset: where it says that the bytes are to go.
            size: how many they are.
            flags: of the description. If it appends, the kernel lets nobody else write before all pieces have been taken.
            continues: whether it is a further one.
        """
        may_go_on = size >= SPLIT_PIECE and not flags & os.O_APPEND
        if not caller or not (may_go_on or offset or client.writing or client.halves):
            return None
        return Piece(caller, offset, may_go_on, continues)

    def watch(self, client: Client) -> None:
        """Sees that nobody waits in vain."""
        rest = client.rest
        if not rest:
            return
        try:
            clients = self._watched.setdefault(client.owner.uid, OrderedDict())
            if client not in clients or clients[client].rest is not rest:
                clients[client] = _Watch(rest, self._look + LOOKS)
            self._are_any.set()
        except MemoryError:  # then nobody waits
            self._end(client)

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await self._are_any.wait()
            self._are_any = trio.Event()
            while self._watched:
                await trio.sleep(LOOK_SECONDS)
                self._look += 1
                with contextlib.suppress(MemoryError):
                    for _ in range(AT_ONCE):
                        if not self._look_at_next():
                            break

    def _look_at_next(self) -> bool:
        """Looks at one, unless it was looked at before. Returns whether there are more."""
        if not self._watched:
            return False
        uid = next(iter(self._watched))
        self._watched.move_to_end(uid)
        clients = self._watched[uid]
        if clients:
            client, watch = next(iter(clients.items()))
            clients.move_to_end(client)
            if watch.at != self._look:
                watch.at = self._look
                if client.rest is watch.rest and self._is_over(watch):
                    self._end(client)
                if client.rest is not watch.rest and clients.get(client) is watch:
                    del clients[client]
        if not clients:
            del self._watched[uid]
        return True

    def _is_over(self, watch: _Watch) -> bool:
        """Whether nothing comes any more, as far as can be told."""
        piece = watch.rest.piece
        if piece is None or self._look >= watch.until:
            return True
        assert isinstance(piece.who, int)
        try:
            state = state_of(piece.who)
            if state in ENDED or (not state and not is_alive(piece.who)):
                return True
            if watch.was_asleep is not None:
                # A thread sleeps, too, while its next piece waits to be read. What waited then has been read.
                return _hooks.drained() != watch.was_asleep
            if _sleeps(piece.who, state) and not self._owes():
                watch.was_asleep = _hooks.drained()
                return not _hooks.is_waited_for()
        except MemoryError:  # the next look
            pass
        return False


def _sleeps(thread: int, state: bytes) -> bool:
    """Whether a thread waits for something, and not for what its own write(2) needs: memory, say, or what it writes from."""
    if state == b"D":
        # It may want to write something that makes the file longer. The kernel lets that wait for those who wait for its rest.
        where = told_of(thread, "wchan")
        return any(word in where for word in _OF_A_LOCK)
    return state not in (b"", b"R")
