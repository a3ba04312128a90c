"""What the naive bus keeps: clients, channels and messages as plain records."""

from dataclasses import dataclass, field

from futebus.core.errors import BusError

Token = tuple[str, int, int]
"""`r` or `w`, the key of the client, and a number."""

Ending = bytes | int | type[BusError]

LAST_ID = 2**32 - 1


@dataclass(frozen=True)
class Rules:
    """The settings of a bus."""

    max_message: int
    max_queue: int
    max_queue_bytes: int
    max_clients: int
    max_clients_per_user: int
    max_channels: int
    bulk: bool


@dataclass(eq=False)
class Message:
    data: bytes
    is_control: bool = False


@dataclass(eq=False)
class NaiveClient:
    key: int
    channel: "NaiveChannel"
    id: int
    role: str
    reads: bool
    writes: bool
    bulk: bool
    uid: int
    wbuf: bytes = b""
    rlist: list[Message] = field(default_factory=list)
    rbuf: bytes = b""
    reading: list[tuple[Token, int, int]] = field(default_factory=list)
    """Reads that wait: token, size and since when."""
    collected: bytes = b""
    """What the first of them has got so far, if it is a bulk read and takes more."""
    writing: tuple[Token, bytes, int, int] | None = None
    """The write that waits: token, data, since when, and how much of it was accepted."""
    is_armed: bool = False
    wants: int = 0
    """The size of the message that last found no place; 0 once one was accepted."""
    overtaken: int = 0
    """The size of one that had found none when a shorter one was accepted; 0 once a poller was told of place for it."""
    was_told: bool = False
    """Whether a poller was told that the message fits: what is writable after that is not for the contract to say."""
    sent: int = 0
    received: int = 0
    dropped: int = 0

    @property
    def counted(self) -> list[Message]:
        """The messages of rlist that count towards the limits."""
        return [message for message in self.rlist if not message.is_control]

    @property
    def has_something(self) -> bool:
        return bool(self.rbuf or self.rlist)


@dataclass(eq=False)
class NaiveChannel:
    name: bytes
    number: int
    mtime: int
    atime: int
    is_named: bool = True
    is_shut: bool = False
    is_dead: bool = False
    last_id: int = 0
    clients: list[NaiveClient] = field(default_factory=list)
    blocked: list[NaiveClient] = field(default_factory=list)
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    dropped: int = 0
    lost: int = 0
    lost_controls: int = 0
    copies: int = 0
    """How often a message was put into an rlist."""

    @property
    def letter(self) -> str:
        return chr(self.name[0])

    @property
    def master(self) -> NaiveClient | None:
        return next((client for client in self.clients if client.role == "master"), None)
