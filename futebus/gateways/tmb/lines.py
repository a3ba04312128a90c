r"""Lines as peers send them: whole ones, without the carriage return before the newline, sorted into peer messages and the rest.

The one rule: whole runs of lines stay one piece of bytes. What looks at a line by itself is a regular expression, not Python.
"""

import re
from collections.abc import Iterator
from functools import cached_property

import re2

from ...client.channel import end_of_block

MAX_CATEGORY = 255
"""Bytes of a category, as of a name on the bus. It is what regular expressions are matched against, so this bounds what one
message can cost."""

PIECE = 64 * 1024
"""Bytes of lines that are handed to the subscribers at once. What is done to a piece takes a few milliseconds at worst, and
others are served between two."""

_LATIN1 = re2.Options()
_LATIN1.encoding = re2.Options.Encoding.LATIN1  # a byte is a character
_OTHER = re2.compile(rb"\n(?:[^:]|:[\t-\r ]|:[^\t-\r ]{%d})" % (MAX_CATEGORY + 1), _LATIN1)  # white space as `re` has it
"""A newline before a line that is no peer message. RE2 looks for the newline as memchr(3) does: 5 GB a second."""

_ITEM = re.compile(
    rb"(?P<messages>(?::\S{1,%d}+(?:[^\S\n][^\n]*+)?+\n)++)|(?P<empty>\n++)|(?P<other>[^\n]*+\n)" % MAX_CATEGORY,
)
_CATEGORY = re.compile(rb"\n:(\S+)")


def are_messages(lines: bytes) -> bool:
    r"""Whether whole lines, one at least, are peer messages all of them: a colon, a category of 1 to 255 bytes, white space.

    The newline is white space too, so the rest may be missing.
    """
    first = _ITEM.match(lines, 0, min(len(lines), lines.find(b"\n") + 1))
    return first is not None and first.lastgroup == "messages" and _OTHER.search(lines, 0, len(lines)) is None


def items(lines: bytes) -> Iterator[tuple[bool, bytes]]:
    r"""Cuts whole lines into runs of peer messages, and other lines one by one. Empty lines are left out.

    Gives:
        Whether it is a run of peer messages, and the bytes, each line with its `\n`.
    """
    if not lines:
        return
    if are_messages(lines):
        yield True, lines
        return
    for found in _ITEM.finditer(lines):
        if found.lastgroup != "empty":
            yield found.lastgroup == "messages", found[0]


def messages_of(lines: bytes) -> bytes:
    """The peer messages of whole lines. What else is said on a channel is nothing to peers."""
    if are_messages(lines):
        return lines
    return b"".join(found["messages"] for found in _ITEM.finditer(lines) if found.lastgroup == "messages")


def pieces(lines: bytes) -> Iterator[bytes]:
    """Cuts whole lines into pieces of at most `PIECE` bytes, or one line if that is longer."""
    start = 0
    while start < len(lines):
        stop = end_of_block(lines, start, PIECE)
        yield lines[start:stop]
        start = stop


class Block:
    """Peer messages in a row, one piece of bytes, for many to look at. What they look at is found once.

    Args:
        data: the messages.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def lines(self) -> list[bytes]:
        """The messages, without their newlines."""
        return self.data[:-1].split(b"\n")

    @cached_property
    def categories(self) -> list[bytes]:
        """The category of each message."""
        return _CATEGORY.findall(b"\n" + self.data)

    @cached_property
    def distinct(self) -> list[bytes]:
        """The categories that there are."""
        return list(dict.fromkeys(self.categories))


class Intake:
    r"""What one peer sends, in whatever pieces it comes.

    Args:
        max_line: bytes of a line, its `\n` included. Longer ones are skipped.
    """

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._partial = bytearray()
        self._skips = False

    def feed(self, data: bytes) -> list[bytes]:
        r"""Takes bytes.

        Returns:
            The whole lines that there are now, with `\r\n` made `\n`: one piece, and one more behind each line that was skipped.
        """
        if self._skips:
            behind = data.find(b"\n") + 1
            if not behind:
                return [b""]
            data, self._skips = data[behind:], False
        end = data.rfind(b"\n") + 1
        if not end:
            return [b"", *self._keep(data)]
        lines = bytes(self._partial) + data[:end] if self._partial else data[:end]
        self._partial.clear()
        pieces = [lines] if len(lines) <= self._max_line else self._without_long_ones(lines)
        # Looking for one byte first is fifty times as fast.
        return [each.replace(b"\r\n", b"\n") if b"\r" in each else each for each in (*pieces, *self._keep(data[end:]))]

    def _keep(self, data: bytes) -> list[bytes]:
        self._partial += data
        if len(self._partial) < self._max_line:
            return []
        self._partial.clear()  # and its newline is not there yet
        self._skips = True
        return [b""]

    def _without_long_ones(self, lines: bytes) -> list[bytes]:
        kept, begin, start = [], 0, 0
        while len(lines) - begin > self._max_line:
            behind = lines.rfind(b"\n", begin, begin + self._max_line) + 1
            if behind:
                begin = behind
                continue
            kept.append(lines[start:begin])
            begin = start = lines.find(b"\n", begin + self._max_line) + 1
        return [*kept, lines[start:]]
