r"""wbuf: the bytes that a client writes, cut into messages. A message ends with `\n`; an empty one is no message.

Whole runs of messages stay one piece of bytes for as long as no rule needs them apart: a line costs almost nothing, a
Python operation per line a lot.
"""

import re
import sys
from typing import NamedTuple

from .errors import MessageTooLong
from .lines import end, lines

_NEWLINES = re.compile(rb"\n+")

RUN_BYTES = 1 << 17
"""The longest run that is routed at once, unless it is one message: what `cat` writes in one call."""


class Run(NamedTuple):
    r"""One or more whole, non-empty messages in a row."""

    data: bytes
    """The messages, each with its newline."""
    messages: int
    """How many they are."""


def length_of(data: bytes, count: int) -> int:
    """How many bytes the first `count` messages of `data` take. `data` holds at least that many."""
    return end(data, 0, count)


class WriteBuffer:
    r"""The partial message of one client: at most `max_message - 1` bytes without `\n`."""

    __slots__ = ("_max_message", "partial")

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self.partial = bytearray()

    def next_run(self, data: bytes, start: int, room: int | None = None, places: int = sys.maxsize) -> tuple[Run | None, int]:
        r"""Finds the next whole messages in what a client writes.

        The first of them may have begun in an earlier call: then the run is that one message. The partial message itself is
        left as it is until the caller says `finish` (the messages were accepted) or `drop` (they were refused), so that a
        run that must wait can be asked for again.

        Args:
            data: what the client writes.
            start: where in it to look, below `len(data)`.
            room: how many bytes of messages are of use, if that is bounded by less than RUN_BYTES; the first message is found
                whatever its length.
            places: how many messages are of use; the first one is found in any case.

        Returns:
            The run, and where in `data` it ends. Without a run, what lies up to there was empty messages, or it was the
            beginning of a message and is now in the buffer.

        Raises:
            MessageTooLong: the message that begins or goes on at `start` is longer than `max_message`.
        """
        partial = self.partial
        first = data.find(b"\n", start)
        if first < 0:
            if len(partial) + len(data) - start >= self._max_message:
                raise MessageTooLong
            partial += data[start:]
            return None, len(data)
        if partial:
            if len(partial) + first + 1 - start > self._max_message:
                raise MessageTooLong
            return Run(b"".join((partial, data[start : first + 1])), 1), first + 1
        if first == start:
            newlines = _NEWLINES.match(data, start)
            assert newlines is not None
            return None, newlines.end()
        limit = min(start + (RUN_BYTES if room is None else min(room, RUN_BYTES)), len(data))
        messages, stop = lines(data, start, max(limit, first + 1), max(places, 1))
        if stop - start > self._max_message:
            messages, stop = lines(data, start, self._before_long_one(data, start, stop))
        return Run(data[start:stop], messages), stop

    def _before_long_one(self, data: bytes, start: int, stop: int) -> int:
        """Where in `data[start:stop]`, whole messages, the first one begins that is too long; `stop` if none is."""
        begin = start
        while stop - begin > self._max_message:
            behind = data.rfind(b"\n", begin, begin + self._max_message) + 1
            if not behind:
                if begin == start:
                    raise MessageTooLong
                return begin
            begin = behind
        return stop

    def finish(self) -> None:
        """The run that was handed out has been accepted: the next message begins anew."""
        self.partial.clear()

    drop = finish
