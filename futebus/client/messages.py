r"""Messages as programs have them: texts or bytes without the `\n`, and on A and S channels with the address taken off.

The one rule: every byte that a message can have comes through unchanged. Texts are UTF-8, and what is none is kept in surrogates
(PEP 383), as Python does with the names of files.
"""

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

Text = TypeVar("Text", str, bytes)
"""What messages are: `str` or `bytes`."""

Item = TypeVar("Item")
"""What reading gives: messages, or messages with their senders, or events."""


class Client(int):
    """The ID of a client, as a message brings it: the number, and on which opening of a channel that client is.

    The number is equal to it. Who has that number on another opening is somebody else.
    """

    of: object
    """The mark of that opening."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other) is True and (not isinstance(other, Client) or self.of is other.of)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __copy__(self) -> "Client":
        return self

    def __deepcopy__(self, memo: object) -> "Client":
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def opening_of(client: int | None) -> Any:
    """On which opening of a channel a client is; None: that is not known."""
    return getattr(client, "of", None)


class Clients(dict[bytes, Client]):
    """The clients that have been heard on one opening of a channel, by their IDs as they are written.

    Args:
        of: the mark of that opening.
    """

    def __init__(self, of: object) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, written: bytes) -> Client:
        if len(self) >= MOST_CLIENTS:
            self.clear()
        client = self[written] = Client(int(written, 16))
        client.of = self._of
        return client


MOST_CLIENTS = 4096
"""How many IDs are remembered."""

Cut = Callable[[bytes, Clients], list[Item]]
"""Makes what reading gives out of whole lines."""


class What(enum.Enum):
    """What the master of an S channel is told."""

    OPENED = "o"
    CLOSED = "c"
    SAID = ""


_WHAT = {what.value.encode(): what for what in What}


class Event(NamedTuple, Generic[Text]):
    """Something that a slave of an S channel has done."""

    sender: int
    """The slave's ID."""
    what: What
    text: Text
    """What it has said; empty if it has opened or closed."""


def encoded(message: str | bytes) -> bytes:
    r"""A message as it is written to the bus, with its `\n`; one that has it already keeps it. An empty one is nothing.

    Raises:
        ValueError: it has a newline elsewhere, and so would be several.
        TypeError: it is neither a text nor bytes.
    """
    if isinstance(message, str):
        data = message.encode("utf-8", "surrogateescape")
    elif isinstance(message, bytes | bytearray | memoryview):
        data = bytes(message)
    else:
        raise TypeError(f"a message is str or bytes, and not {type(message).__name__}")
    newline = data.find(b"\n")
    if newline < 0:
        return data + b"\n" if data else b""
    if newline < len(data) - 1:
        raise ValueError(f"a message is one line: {data[:60]!r}")
    return data if newline else b""


def joined(messages: Sequence[str | bytes], address: bytes = b"") -> bytes:
    """Messages as they are written to the bus, each with an address in front. With an address, an empty one is sent, too.

    Raises:
        ValueError: as for `encoded`.
    """
    if address:
        return b"".join([address + (encoded(message) or b"\n") for message in messages])
    return encoded(messages[0]) if len(messages) == 1 else b"".join(map(encoded, messages))


def address_of(client: int | None) -> bytes:
    """The address of a client, of all of them if it is None.

    Raises:
        TypeError: it is no number.
        ValueError: no client has such a number.
    """
    if client is None:
        return b"{*}"
    try:
        number = operator.index(client)
    except TypeError:
        raise TypeError(f"the client is a number (int) or None, not {client!r}") from None
    if number < 0:
        raise ValueError(f"no client has the number {number}")
    return b"{%x}" % number


def like(pattern: Text, data: bytes) -> Text:
    """A message as a text if the pattern is one, and otherwise as it is."""
    return data.decode("utf-8", "surrogateescape") if isinstance(pattern, str) else data


def texts(kind: type[Text]) -> Cut[Text]:
    """What cuts whole lines into messages."""

    # Nothing is behind the last newline. To leave that away first would copy the block, which is long.
    def as_bytes(block: bytes, _: Clients) -> list[bytes]:
        found = block.split(b"\n")
        found.pop()
        return found

    def as_str(block: bytes, _: Clients) -> list[str]:
        found = block.decode("utf-8", "surrogateescape").split("\n")
        found.pop()
        return found

    _check(kind)
    return as_str if kind is str else as_bytes  # type: ignore[return-value]


def _check(kind: type) -> None:
    if kind not in (str, bytes):
        raise TypeError(f"messages are str or bytes, and not {kind!r}")


def _text(kind: type[Text]) -> Callable[[bytes], Text]:
    _check(kind)
    if kind is str:
        return lambda data: data.decode("utf-8", "surrogateescape")
    return lambda data: data  # type: ignore[return-value]


def addressed(kind: type[Text]) -> Cut[tuple[int, Text]]:
    """What cuts whole lines into messages with their senders."""
    text = _text(kind)

    def cut(block: bytes, clients: Clients) -> list[tuple[int, Text]]:
        found: list[tuple[int, Text]] = []
        for line in block[:-1].split(b"\n"):
            address, _, data = line.partition(b"}")
            found.append((clients[address[1:]], text(data)))
        return found

    return cut


def events(kind: type[Text]) -> Cut[Event[Text]]:
    """What cuts whole lines into events."""
    text = _text(kind)

    def cut(block: bytes, clients: Clients) -> list[Event[Text]]:
        found = []
        for line in block[:-1].split(b"\n"):
            address, _, data = line.partition(b"}")
            sender, _, what = address[1:].partition(b":")
            found.append(Event(clients[sender], _WHAT[what], text(data)))
        return found

    return cut
