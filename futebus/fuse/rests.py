"""What may still come of a write(2) that the kernel hands over in pieces.

Several processes may write by one description at the same time, and the kernel lets the piece of one come between two of another:
however long it was told that the file is, it grows with each long write. So the others wait until the next piece is there. If
there is one cannot be told from a piece: as long as that, a write may be all. But who has written it comes again soon, or
has gone, or sleeps.

The one rule: nobody waits for what does not come.
"""

import os
from collections.abc import Callable
from pathlib import Path

import trio

from futebus.core.client import Client, Piece, Rest

from . import _hooks
from .files import SPLIT_PIECE

LOOK_SECONDS = 0.002
"""How often it is looked what the thread does: the next piece mostly comes within a tenth of a millisecond."""

LOOKS = 250
"""How often before it is taken for granted that nothing comes. They are counted since a machine may stand still meanwhile."""

_RUNNING = (b"R", b"D")
"""How a thread is, by proc(5), that the kernel has come back to between two pieces: it waits for nothing but memory."""


class Rests:
    """The descriptions by which somebody waits for the rest of another's write.

    Args:
        end: has the others go on. It raises nothing, and is called again if it could not.
    """

    def __init__(self, end: Callable[[Client], object]) -> None:
        self._end = end
        self._watched: dict[Client, tuple[Rest, int]] = {}
        """With how often it was looked."""
        self._are_any = trio.Event()

    @staticmethod
    def piece(client: Client, caller: int, offset: int, size: int, flags: int) -> Piece | None:
        """Which piece of a longer write(2) a request may be; None if it is surely all, or nothing can come between.

        Args:
            client: who writes.
            caller: the thread; 0 is one of another PID namespace, of which there may be many.
            offset: where it says that the bytes are to go.
            size: how many they are.
            flags: of the description. If it appends, the kernel lets nobody else write before all pieces have been taken.
        """
        if not caller or flags & os.O_APPEND or (size < SPLIT_PIECE and not client.writing):
            return None
        return Piece(caller, offset, size >= SPLIT_PIECE)

    def watch(self, client: Client) -> None:
        """Sees that nobody waits in vain."""
        rest = client.rest
        if rest and self._watched.get(client, (None, 0))[0] is not rest:
            self._watched[client] = rest, 0
            self._are_any.set()

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await self._are_any.wait()
            self._are_any = trio.Event()
            while self._watched:
                await trio.sleep(LOOK_SECONDS)
                for client, (rest, looks) in list(self._watched.items()):
                    is_over = looks >= LOOKS or rest.piece is None or _is_elsewhere(rest.piece.who)
                    if client.rest is rest and is_over:
                        self._end(client)
                    if client.rest is rest:
                        self._watched[client] = rest, looks + 1
                    elif self._watched[client][0] is rest:
                        del self._watched[client]


def _is_elsewhere(thread: object) -> bool:
    """Whether a thread has ended, or waits for something else than the answer to its next piece."""
    assert isinstance(thread, int)
    try:
        state = Path(f"/proc/{thread}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return not _is_there(thread)
    # In this order: a piece that came in between is waited for by the thread, and has not been read yet.
    return state not in _RUNNING and not _hooks.is_waited_for()


def _is_there(thread: int) -> bool:
    """Whether there is a thread, of which proc(5) need not tell everybody."""
    try:
        os.kill(thread, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
