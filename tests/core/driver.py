"""A bus for tests: a clock that moves with every call, and whatever else comes of a call kept until it is asked for."""

from collections.abc import Callable

from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Access, Client, Effects, Owner, Piece, Readiness, Token
from futebus.core.errors import BusError, WouldBlock
from futebus.core.limits import Limits

RW = Access(reads=True, writes=True)
RO = Access(reads=True, writes=False)
WO = Access(reads=False, writes=True)

ROOT = Owner(uid=0, gid=0, pid=1)
USER = Owner(uid=1000, gid=100, pid=2)
OTHER = Owner(uid=1001, gid=100, pid=3)

PLENTY = 1 << 20

Ending = bytes | int | type[BusError]
"""How a call that waited ended: what it read, how many bytes it wrote, or the kind of its error."""


def text(message: bytes) -> str:
    """A message without the address before it and its newline."""
    return message.rpartition(b"}")[2].decode().rstrip("\n")


class Driver:
    """Calls a bus. What the calls cause besides their answers is collected for `ended` and `woken`."""

    def __init__(
        self, limits: Limits | None = None, *, bulk: bool = False, process_of: Callable[[object], object] = lambda who: who
    ) -> None:
        self.bus = Bus(limits, bulk=bulk, process_of=process_of)
        self.now = 0
        self._ended: list[tuple[Token, Ending]] = []
        self._woken: list[Client] = []
        self.held: list[Client] = []

    def tick(self) -> int:
        self.now += 1
        return self.now

    def _keep(self, effects: Effects) -> None:
        assert bool(effects) == bool(effects.finished or effects.ready or effects.later or effects.held)
        assert effects.failure is None
        self._ended += [(token, type(value) if isinstance(value, BusError) else value) for token, value in effects.finished]
        self._woken += effects.ready
        self.held += effects.held
        for what in effects.later:
            self._keep(self.bus.go_on(what, self.now))

    def ended(self) -> list[tuple[Token, Ending]]:
        """The waiting calls that have ended since this was asked last."""
        ended, self._ended = self._ended, []
        return ended

    def woken(self) -> list[Client]:
        """The clients whose pollers were woken since this was asked last."""
        woken, self._woken = self._woken, []
        return woken

    def create(
        self, name: bytes, access: Access = RW, owner: Owner = ROOT, *, mode: int = 0o644, exclusive: bool = False
    ) -> Client:
        client, effects = self.bus.create(name, access, owner, mode, self.tick(), exclusive=exclusive)
        self._keep(effects)
        return client

    def open(self, name: bytes, access: Access = RW, owner: Owner = ROOT) -> Client:
        channel, bulk = self.bus.look_up(name)
        client, effects = self.bus.open(channel, access, owner, self.tick(), bulk=bulk)
        self._keep(effects)
        return client

    def channel(self, name: bytes) -> Channel:
        return self.bus.look_up(name)[0]

    def write(self, client: Client, data: bytes) -> int:
        """Writes as with `O_NONBLOCK`."""
        taken, effects = self.bus.write(client, data, self.tick())
        self._keep(effects)
        assert taken is not None
        return taken

    def start_write(self, client: Client, data: bytes, token: Token) -> None:
        """Writes, and takes for granted that the call waits."""
        taken, effects = self.bus.write(client, data, self.tick(), token)
        self._keep(effects)
        assert taken is None, f"{token!r} was to wait, but {taken} bytes were accepted"

    def write_piece(self, client: Client, data: bytes, piece: Piece, token: Token, *, may_wait: bool = True) -> int | None:
        """Writes a piece of something longer. None if the call waits."""
        taken, effects = self.bus.write(client, data, self.tick(), token, may_wait=may_wait, piece=piece)
        self._keep(effects)
        return taken

    def end_rest(self, client: Client) -> None:
        self._keep(self.bus.end_rest(client, self.tick()))

    def read(self, client: Client, size: int = PLENTY) -> bytes:
        """Reads as with `O_NONBLOCK`."""
        piece, effects = self.bus.read(client, size, self.tick())
        self._keep(effects)
        assert piece is not None
        return piece

    def start_read(self, client: Client, token: Token, size: int = PLENTY) -> None:
        """Reads, and takes for granted that the call waits."""
        piece, effects = self.bus.read(client, size, self.tick(), token)
        self._keep(effects)
        assert piece is None, f"{token!r} was to wait, but got {piece!r}"

    def read_all(self, client: Client) -> list[bytes]:
        """Reads until that would wait, or the end of file, which is not among what is returned."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self.read(client)
            except WouldBlock:
                return pieces
            if not piece:
                return pieces
            pieces.append(piece)

    def cancel(self, token: Token) -> bool:
        """A signal ends a waiting call. False if it does not wait any more."""
        return self.cancelled(token) is not None

    def cancelled(self, token: Token) -> int | None:
        """The same; returns how many bytes were accepted by then."""
        cancelled = self.bus.cancel(token, self.tick())
        if cancelled is None:
            return None
        taken, effects = cancelled
        self._keep(effects)
        return taken

    def close(self, client: Client) -> None:
        self._keep(self.bus.close(client, self.tick()))

    def shut(self, client: Client) -> None:
        self._keep(self.bus.shut(client, self.tick()))

    def unlink(self, name: bytes) -> None:
        self.bus.unlink(name, self.tick())

    def poll(self, client: Client) -> Readiness:
        return self.bus.poll(client)

    def arm(self, client: Client) -> Readiness:
        """Polls as somebody who is going to wait."""
        return self.bus.poll(client, arm=True)

    def shut_down(self) -> None:
        self._keep(self.bus.shut_down(self.tick()))


def service(bus: Driver, slaves: int, name: bytes = b"U_x") -> tuple[Client, list[Client]]:
    master = bus.create(b"." + name)
    return master, [bus.open(name) for _ in range(slaves)]
