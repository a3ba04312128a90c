"""How long a message may be: what its server takes, and what its stream takes, without what its headers need.

The one rule: headers count as what they are. Few streams have no room for four kilobytes of them, but in one that was made for
short messages ours leave room enough.
"""

from collections.abc import Callable, Mapping

from .errors import NatsError

HEADER_BYTES = 4096
"""What headers take of a message at most, as long as nobody has told what they are."""

STORED_BYTES = 34
"""What a message takes of a stream's `max_bytes`, beside its subject, headers and data."""


class NoRoom(NatsError):
    """The headers of a message leave no room for a line."""


def header_bytes(headers: Mapping[str, str]) -> int:
    """What headers take of a message."""
    lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in headers.items()), ""]
    return sum(len(line.encode()) + len("\r\n") for line in lines)


class Room:
    """What a message of a stream has room for.

    Args:
        most: tells how many bytes the server takes, headers included.
        own: the headers that each message gets that is added to the stream, as long as they can be.
    """

    def __init__(self, most: Callable[[], int], own: Mapping[str, str]) -> None:
        self._most, self._own = most, own
        self._headers, self._subject = HEADER_BYTES, ""
        self._limits: dict[str, int] = {}

    def expect(self, subject: str, headers: Mapping[str, str]) -> None:
        """Is told what messages will be.

        Args:
            subject: theirs.
            headers: those that they get beside the stream's, as long as they can be.
        """
        self._headers, self._subject = header_bytes({**headers, **self._own}), subject

    def limit(self, **limits: int) -> None:
        """Is told what the stream itself allows: `max_msg_size` and `max_bytes`; what is not positive is no limit."""
        self._limits = {name: size for name, size in limits.items() if size > 0}

    @property
    def _least(self) -> tuple[int, str]:
        """Bytes that a message may have beside its headers, and what allows no more."""
        rooms = [(self._most() - self._headers, "the server's max_payload")]
        for name, size in self._limits.items():
            stored = STORED_BYTES + len(self._subject.encode()) if name == "max_bytes" else 0
            rooms.append((size - self._headers - stored, f"the stream's {name}"))
        return min(rooms)

    @property
    def bytes(self) -> int:
        """Bytes that a message may have beside its headers; 0: there is no room for any."""
        return max(self._least[0], 0)

    @property
    def shown(self) -> str:
        """What allows no more, for people."""
        return f"{self._least[1]} leaves beside headers"

    def check(self, shown: str) -> None:
        """Sees that there is room for a line.

        Args:
            shown: where the stream is.

        Raises:
            NoRoom: there is none.
        """
        if not self.bytes:
            raise NoRoom(f"{shown}: {self._least[1]} leaves no room for a line, since headers may have {self._headers} bytes")
