"""Beginnings of lines that a write has left when a signal ended it, and whose they are.

A write that comes in several pieces may have its end in the middle of a line: what was accepted is counted, and whoever wrote it
is to write the rest. Until he does, the beginning is nobody else's, though others may write by the same description.
"""

from collections import OrderedDict
from typing import NamedTuple

from .framing import WriteBuffer

MOST = 1000
"""How many are kept beside the one in wbuf, at most: it may be looked at all of them for one write."""


class Half(NamedTuple):
    """Whose a beginning is."""

    who: object
    """The thread."""
    process: object
    """Another of its threads may write the rest."""
    left_at: int
    """The number of the last write that stood behind others by then: see `Write.number`."""


class Halves:
    """Those of one client.

    Args:
        size: how many bytes of them are kept beside the one in wbuf, at most. Who has been killed never comes for his.
    """

    __slots__ = ("_aside", "_left", "owner")

    def __init__(self, size: int) -> None:
        self._aside: OrderedDict[object, tuple[Half, bytes]] = OrderedDict()
        """By thread, those of before first."""
        self._left = size
        self.owner: Half | None = None
        """Whose one is in wbuf; None if none is, or what is in it belongs to nobody."""

    def begin(self, who: object, process: object, number: int, wbuf: WriteBuffer) -> bool:
        """A write begins: what its thread, or else its process, had begun is in wbuf then, and nothing of others.

        Args:
            who: the thread; None is one of which nothing is known. It goes on with whatever is there.
            process: of which it is one.
            number: of the write. What was left when it stood behind others already, is not what it goes on with.
            wbuf: the client's.

        Returns:
            Whether any are left.
        """
        partial = wbuf.partial
        owner = self.owner
        if owner and (owner.who, owner.process) != (who, process) and (who is not None or number <= owner.left_at):
            self._put_aside(owner, bytes(partial))
            wbuf.drop()
            self.owner = None  # last: if there was no memory, all of that is done again
        if not self.owner and who is not None and (own := self._of(who, process, number)):
            half, data = own
            if not partial:
                partial += data
                self.owner = half
            # Else it would come before some later line: others have begun one, and what is written now is the rest of that.
            del self._aside[half.who]
            self._left += len(data)
        return self.owner is not None or bool(self._aside)

    def leave_again(self, half: Half) -> None:
        """A write of a thread has ended with nothing taken: what it has begun is left only now.

        That another thread of its process has tried in vain to write does not tell whether that was to be the rest.
        """
        if self.owner and self.owner[:2] == half[:2]:
            self.owner = half
        elif (own := self._aside.get(half.who)) and own[0].process == half.process:
            self._aside[half.who] = half, own[1]

    def _of(self, who: object, process: object, number: int) -> tuple[Half, bytes] | None:
        if (own := self._aside.get(who)) and own[0].process == process:  # else the number was another's, who is dead
            return own
        for one in reversed(self._aside.values()):
            if one[0].process == process and one[0].left_at < number:
                return one
        return None

    def _put_aside(self, owner: Half, data: bytes) -> None:
        before = self._aside.get(owner.who)
        left = self._left - len(data) + (len(before[1]) if before else 0)
        self._aside[owner.who] = owner, data
        self._aside.move_to_end(owner.who)
        self._left = left
        while self._left < 0 or len(self._aside) > MOST:
            _, (_, oldest) = self._aside.popitem(last=False)
            self._left += len(oldest)
