r"""The RMI format of ubus: calls, errors, and arguments that may be lists and maps, as lines of bytes.

The one rule: what is written here is read back the same, and costs as much as it is long, however deep it is nested.

The format is section 6 of the ubus specification. Where that says "\v (ascii 12)" it means 11, as its own table of control
characters has it. One call cannot be told from another: a single empty argument looks like none at all, and is read as none.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

Value = str | list["Value"] | dict[str, "Value"]
"""What is read. Bytes that are no UTF-8 are kept in surrogates (PEP 383)."""

Writable = str | bytes | int | float | Sequence["Writable"] | Mapping[str, "Writable"]
"""What can be written. Numbers are written as Python prints them, which is as printf(3) reads them."""

LEAST_CALL = 256_000
"""Bytes of a line, its `\n` included, that every implementation takes (section 6.1)."""

MAX_CALL = 262_144
"""Bytes of a line that are taken by default: what a bus takes (its option `max_message`)."""

_SHORT = {0: b"0", 7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 27: b"e"}
_ENCODED = {bytes([code]): b"\x1b" + letter for code, letter in _SHORT.items()}
_DECODED = {letter: bytes([code]) for code, letter in _SHORT.items()}
_CONTROL = re.compile(rb"[\x00\x07-\x0d\x1b]")
_ESCAPE = re.compile(rb"\x1b(.?)", re.DOTALL)

_OPEN_MAP, _CLOSE_MAP, _OPEN_LIST, _CLOSE_LIST = b"\x1b{", b"\x1b}", b"\x1b[", b"\x1b]"
_OPENS = (_OPEN_MAP, _OPEN_LIST)

_RESERVED = rb"[\x00-\x06\x08\x0b-\x1a\x1c-\x1f]"
"""What may begin a line in future versions: control characters but those that begin an error, an argument, or end the call."""
_RESERVED_LINE = re.compile(rb"^" + _RESERVED)
_RESERVED_LINES = re.compile(rb"^" + _RESERVED + rb"[^\n]*\n", re.MULTILINE)


class RmiError(ValueError):
    """A line is not in the format, or cannot be. `number` is the errno that its sender is answered with."""

    number = errno.EBADMSG


class TooLarge(RmiError):
    """A call is longer than is taken."""

    number = errno.EOVERFLOW


class Fault(NamedTuple):
    """An error, as it stands in the place of an answer (section 6.3)."""

    number: int
    """As of errno."""
    message: str = ""


# ---------------------------------------------------------------------------------------------- writing


def encode(arguments: Sequence[Writable], limit: int = MAX_CALL) -> bytes:
    r"""Writes a call.

    Args:
        arguments: zero or more. One that is empty, and alone, is read as none.
        limit: bytes that the line may have.

    Returns:
        A line, its `\n` included.

    Raises:
        TooLarge: it would be longer. So would be what contains itself.
        RmiError: a key of a map is empty or no text; the first character of all would make it a line that is to be ignored.
    """
    out: list[bytes] = []
    size = 0
    for number, argument in enumerate(arguments):
        for part in _parts(argument):
            size += len(part) + 1
            if size > limit:
                raise TooLarge(f"a call of more than {limit} bytes")
            out.append(part)
            out.append(b"\v")
        if isinstance(argument, _ATOMS):
            out.pop()
        else:
            size += 1
        if number + 1 < len(arguments):
            out.append(b"\t")
    if max(size, 1) > limit:
        raise TooLarge(f"a call of more than {limit} bytes")
    out.append(b"\n")
    line = b"".join(out)
    if _RESERVED_LINE.match(line):
        raise RmiError("a call cannot begin with this control character, for which the format has no code")
    return line


def encode_error(number: int, message: str = "") -> bytes:
    r"""Writes an error, with the system's words for it if there are no others."""
    return b"\a%d\t%s\n" % (number, _text(message or os.strerror(number)))


_ATOMS = (str, bytes, int, float)


def _text(value: str | bytes | float) -> bytes:
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
    else:
        return str(value).encode()
    return _CONTROL.sub(lambda found: _ENCODED[found[0]], data)


def _parts(value: Writable) -> Iterator[bytes]:
    r"""What stands between the `\v` of an argument."""
    if isinstance(value, _ATOMS):
        yield _text(value)
        return
    opened, begun = _begin(value)
    yield opened
    stack = [begun]
    while stack:
        elements, closing = stack[-1]
        for element in elements:
            if isinstance(element, _ATOMS):
                yield _text(element)
            else:
                opened, begun = _begin(element)
                yield opened
                stack.append(begun)
                break
        else:
            yield closing
            stack.pop()


def _begin(value: Sequence[Writable] | Mapping[str, Writable]) -> tuple[bytes, tuple[Iterator[Writable], bytes]]:
    if isinstance(value, Mapping):
        return _OPEN_MAP, (_pairs(value), _CLOSE_MAP)
    return _OPEN_LIST, (iter(value), _CLOSE_LIST)


def _pairs(value: Mapping[str, Writable]) -> Iterator[Writable]:
    for key, element in value.items():
        if not isinstance(key, str) or not key:
            raise RmiError("a key of a map is a text that is not empty")
        yield key
        yield element


# ---------------------------------------------------------------------------------------------- reading


def decode(line: bytes, limit: int = MAX_CALL) -> list[Value] | Fault | None:
    r"""Reads a line.

    Args:
        line: with its `\n` or without.
        limit: bytes that it may have, the `\n` included.

    Returns:
        The arguments of a call; an error; None if the line begins with a reserved control character, and is to be ignored.

    Raises:
        TooLarge: it is longer.
        RmiError: it is in no such format.
    """
    line = line.removesuffix(b"\n")
    if len(line) >= limit:
        raise TooLarge(f"a call of more than {limit} bytes")
    if b"\n" in line:
        raise RmiError("more than one line")
    if line.startswith(b"\a"):
        return _fault(line)
    if _RESERVED_LINE.match(line):
        return None
    return [_argument(part) for part in line.split(b"\t")] if line else []


def without_reserved(lines: bytes) -> bytes:
    """Whole lines without those that begin with a reserved control character, which are to be ignored."""
    return _RESERVED_LINES.sub(b"", lines)


def _fault(line: bytes) -> Fault:
    number, _, message = line[1:].partition(b"\t")
    if not re.fullmatch(rb"[0-9]{1,9}", number):
        raise RmiError("an error without a number")
    return Fault(int(number), _string(message))


def _string(data: bytes) -> str:
    if b"\x1b" in data:
        data = _ESCAPE.sub(_decoded, data)
    return data.decode("utf-8", "surrogateescape")


def _decoded(found: re.Match[bytes]) -> bytes:
    try:
        return _DECODED[found[1]]
    except KeyError:
        raise RmiError("an unknown escape") from None


def _argument(data: bytes) -> Value:
    if not data.startswith(_OPENS):
        return _string(data)
    parts = data.split(b"\v")
    if parts.pop():
        raise RmiError("an element of a list or a map that does not end")
    outermost: list[Value] = []
    stack: list[_Open] = [_Open(outermost)]
    for part in parts:
        within = stack[-1]
        if len(stack) == 1 and outermost:
            raise RmiError("more behind a list or a map")
        if part in _OPENS:
            new: list[Value] | dict[str, Value] = {} if part == _OPEN_MAP else []
            within.add(new)
            stack.append(_Open(new))
        elif part in (_CLOSE_MAP, _CLOSE_LIST):
            if isinstance(within.value, dict) != (part == _CLOSE_MAP) or within.key or len(stack) == 1:
                raise RmiError("a list or a map is closed that is not open, or a key has no value")
            stack.pop()
        elif isinstance(within.value, dict) and not within.key:
            within.key = _string(part)
            if not within.key:
                raise RmiError("an empty key")
        else:
            within.add(_string(part))
    if len(stack) != 1:
        raise RmiError("a list or a map that is not closed")
    return outermost[0]


class _Open:
    """A list or a map that is being read."""

    __slots__ = ("key", "value")

    def __init__(self, value: list[Value] | dict[str, Value]) -> None:
        self.value = value
        self.key = ""

    def add(self, element: Value) -> None:
        if isinstance(self.value, list):
            self.value.append(element)
        elif not self.key:
            raise RmiError("a list or a map as a key")
        else:
            self.value[self.key] = element
            self.key = ""


class Lines:
    r"""Cuts what comes in pieces into whole lines, at a cost that grows with the bytes alone, however small the pieces are.

    Args:
        limit: bytes that a line may have, its `\n` included. A piece is to be shorter.
    """

    def __init__(self, limit: int = MAX_CALL) -> None:
        self._limit = limit
        self._begun = bytearray()

    @property
    def is_between(self) -> bool:
        """Whether all that has come were whole lines."""
        return not self._begun

    def feed(self, data: bytes) -> bytes:
        r"""Takes a piece.

        Returns:
            The lines that are whole now, each with its `\n`; empty if none is.

        Raises:
            TooLarge: a line is longer. What is fed after that means nothing.
        """
        first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        if len(self._begun) + (first or len(data) + 1) > self._limit:
            raise TooLarge(f"a call of more than {self._limit} bytes")
        if not first:
            self._begun += data
            return b""
        whole = data[:last]
        if self._begun:
            whole = self.rest() + whole
        self._begun += data[last:]
        return whole

    def rest(self) -> bytes:
        """What has begun and not ended. It is taken."""
        rest = bytes(self._begun)
        self._begun.clear()
        return rest
