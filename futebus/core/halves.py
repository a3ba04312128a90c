"""Beginnings of lines that a write has left when a signal ended it, and whose they are.

A write that comes in several pieces may have its end in the middle of a line: what was accepted is counted, and whoever wrote it
is to write the rest. Until he does, the beginning is nobody else's, though others may write by the same description.
"""

from collections import OrderedDict

from .framing import WriteBuffer


class Halves:
    """Those of one client.

    Args:
        size: how many bytes of them are kept beside the one in wbuf, at most. Who has been killed never comes for his.
    """

    __slots__ = ("_aside", "_left", "owner")

    def __init__(self, size: int) -> None:
        self._aside: OrderedDict[object, bytes] = OrderedDict()
        """By process, those of before first."""
        self._left = size
        self.owner: object = None
        """The process whose one is in wbuf; None if none is, or what is in it belongs to nobody."""

    def begin(self, process: object, wbuf: WriteBuffer) -> bool:
        """A process begins to write: what it had begun is in wbuf then, and nothing of others. Returns whether any are left."""
        partial = wbuf.partial
        if self.owner is not None and self.owner != process:
            self._put_aside(self.owner, bytes(partial))
            self.owner = None
            wbuf.drop()
        if (own := self._aside.get(process)) is not None:
            if not partial:
                partial += own
                self.owner = process
            # Else it would come before some later line: others have begun one, and what is written now is the rest of that.
            del self._aside[process]
            self._left += len(own)
        return self.owner is not None or bool(self._aside)

    def _put_aside(self, process: object, half: bytes) -> None:
        self._left += len(self._aside.pop(process, b""))
        self._aside[process] = half
        self._left -= len(half)
        while self._left < 0:
            _, oldest = self._aside.popitem(last=False)
            self._left += len(oldest)
