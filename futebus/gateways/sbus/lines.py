r"""Messages of sbus as lines of a channel: the key, a TAB, the payload.

The one rule: what has been made a line comes back byte by byte. A `\` and the bytes that would end a line or a field, or that
text cannot have, stand there as `\\ \t \n \r \0`. Lines of others are taken as they are: another `\` is a `\`, and what has no
TAB is a key.
"""

import re

_SPECIAL = re.compile(rb"[\\\t\n\r\0]")
_ESCAPED = re.compile(rb"\\([\\tnr0])")
_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r", b"\0": b"\\0"}
_BYTES = {escape[1:]: byte for byte, escape in _ESCAPES.items()}


def _escape(data: bytes) -> bytes:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], data) if _SPECIAL.search(data) else data


def _unescape(data: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: _BYTES[found[1]], data) if b"\\" in data else data


def line_of(key: bytes, payload: bytes) -> bytes:
    r"""A message as a line, with its `\n`."""
    return b"%s\t%s\n" % (_escape(key), _escape(payload))


def message_of(line: bytes) -> tuple[bytes, bytes]:
    r"""The key and the payload of a line without its `\n`. A key with a NUL can be none of a message: see `packets`."""
    key, _, payload = line.partition(b"\t")
    return _unescape(key), _unescape(payload)
