"""Open files as the kernel sees them: a description of a channel, and of `_stat` and its like."""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable

import pyfuse3

from futebus.core import kinds
from futebus.core.client import Client
from futebus.core.errors import BusError

from . import callers
from ._hooks import Request

MOST_SWALLOWED = 16
"""Of how many processes it is kept at a time what they were not told yet. They may have ended."""

SPLIT_PIECE = (1 << 20) - 4096
"""The kernel splits long writes. All pieces but the last are `max_write` (1 MiB) long, less what their first page lacks."""


class OpenChannel:
    """One open file description of a channel, as the kernel sees it."""

    __slots__ = ("_expected", "_filled_up_to", "_swallowed", "client", "node", "poll_handle")

    def __init__(self, client: Client, node: int) -> None:
        self.client = client
        self.node = node
        self.poll_handle: pyfuse3.PollHandle | None = None
        self._filled_up_to = 0
        """Where the next piece of a split read would begin: it comes if the one before was filled. Else 0."""
        self._expected = 0, 0
        """Where the next piece of a split write would begin, and by which thread it would come."""
        self._swallowed: OrderedDict[int, BusError] = OrderedDict()
        """What was wrong with a later piece of a split write, of which the kernel made a short count, by process."""

    def continues_write(self, offset: int, size: int, flags: int, caller: int) -> bool:
        """Whether a WRITE request is a further piece of the write(2) that the one before it belonged to.

        A stream has no file position, so a write(2) begins at offset 0, or at the end of what the kernel takes for the file's
        size if it appends; then only the length of the piece before tells.
        """
        rest = self.client.rest
        if rest and rest.piece and (rest.piece.who, rest.piece.begin) == (caller, offset):
            continues = True  # whatever others have begun to write meanwhile
        else:
            continues = offset > 0 and self._expected == (offset, caller)
        self._expected = (offset + size if size >= SPLIT_PIECE or not flags & os.O_APPEND else 0), caller
        return continues

    def swallow(self, error: BusError, caller: int) -> None:
        """Keeps what was wrong with a further piece of a split write for the next write(2) of the process."""
        self._swallowed[callers.process(caller)] = error
        if len(self._swallowed) > MOST_SWALLOWED:
            self._swallowed.popitem(last=False)

    def swallowed(self, caller: int) -> BusError | None:
        """What the process of a thread that writes anew has not been told yet."""
        return self._swallowed.pop(callers.process(caller), None) if self._swallowed else None

    def continues_read(self, offset: int) -> bool:
        """Whether a READ request is for the rest of the read(2) that the one before it belonged to, and has filled so far.

        The kernel splits long reads as it does writes. Alone, it would wait, or get the beginning of a message.
        """
        return 0 < offset == self._filled_up_to

    def note_read(self, offset: int, size: int, got: int) -> None:
        """Takes note that a READ of so many bytes was answered with so many."""
        self._filled_up_to = offset + size if got == size >= SPLIT_PIECE else 0


class OpenStat:
    """One open `_stat` or its like: its text comes a moment after it was opened.

    Args:
        name: which of them.
        uid: who opens it.
        node: by which node.
    """

    __slots__ = ("__weakref__", "_has_failed", "_text", "_waiting", "name", "node", "on_close", "uid")

    def __init__(self, name: bytes, uid: int, node: int) -> None:
        self.name = name
        self.uid = uid
        """Who has opened it."""
        self.node = node
        self.on_close: Callable[[OpenStat], object] = lambda file: None
        """Called with it when it is closed: nobody wants its text any more. (Of nothing that refers to it: who waits for the
        collection of garbage to be let go would wait for ever.)"""
        self._has_failed = False
        self._text: bytes | bytearray | None = None
        self._waiting: dict[Request, tuple[int, int]] = {}

    def read(self, request: Request, size: int, offset: int) -> bytes | int | None:
        """The bytes from `offset`, or a negative errno; None while there is no text yet."""
        if self._has_failed:
            return -errno.EIO
        if self._text is None:
            self._waiting[request] = offset, size
            return None
        return self._piece(offset, size)

    def interrupt(self, request: Request) -> bool:
        """A signal for a reader. Returns whether it was one of this file's."""
        if not self._waiting.pop(request, None):
            return False
        request.error(errno.EINTR)
        return True

    def fail(self) -> None:
        """There will be no text: who waits for it gets `EIO`, and so do programs later; people are told where to look."""
        if self._text is not None:
            pass  # only those are left who were not answered
        elif self.name == kinds.STAT:
            self._text = b"internal error: see the log\n"
        else:
            self._has_failed = True
        while self._waiting:
            request, _ = self._waiting.popitem()
            request.error(errno.EIO)

    def _piece(self, offset: int, size: int) -> bytes:
        assert self._text is not None
        with memoryview(self._text) as text:
            return bytes(text[offset : offset + size])

    def finish(self, text: bytes | bytearray) -> None:
        """Here is the text. Those who have waited for it are answered by `answer`."""
        self._text = text

    def answer(self) -> bool:
        """Answers the next of those who have waited, of whom there may be thousands. Returns whether there was one."""
        if not self._waiting:
            return False
        request = next(iter(self._waiting))
        offset, size = self._waiting.pop(request)
        try:
            piece = self._piece(offset, size)
        except Exception:  # no memory, say
            request.error(errno.EIO)
        else:
            request.data(piece)
        return True
