"""One connection of an honest peer: to a gateway's socket, or to the channel itself. Nothing here waits, but for `greet`."""

import contextlib
import errno
import os
import random
import re
import select
import socket
import time
from collections import deque
from pathlib import Path

from .forms import Form
from .kinds import KINDS

PATIENCE = 100.0
"""Seconds that an honest peer waits for what must come. It takes so long only if something is broken."""

PIECES = (1, 3, 50, 1000)
"""Bytes at once, of who sends in pieces."""

GONE = frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENODEV, errno.ECONNRESET, errno.EPIPE})

LOST = re.compile(rb"lost (at most )?([0-9,]+) messages?: you.*")


class Cut(Exception):
    """The other side has ended the connection, or is not there."""


class Session:
    """A connection.

    Args:
        who: whose.
        form: how a message looks there.
        dice: say in what pieces it sends.
    """

    hears_itself = True
    """Whether what it says comes back to it, and so is known to have been accepted."""

    def __init__(self, who: str, form: Form, dice: random.Random) -> None:
        self.who, self.form, self.dice = who, form, dice
        self.answers = 0
        """Answers to greetings and probes."""
        self.lost = 0
        """Messages that it was told it has lost."""
        self.lost_perhaps = 0
        """Messages that were dropped for it before anybody had looked whether it wants them."""
        self.accepted = 0
        """Messages that were written whole."""
        self._out: deque[bytes] = deque()
        self._rest = b""
        """Of what is being written."""
        self._begun = 0
        """How many messages that is."""
        self._heard = b""

    def fileno(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _write(self, data: bytes) -> int:
        raise NotImplementedError

    def _read(self) -> bytes:
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out or self._rest)

    def say(self, data: bytes) -> None:
        """Has something written."""
        self._out.append(data)

    def push(self) -> None:
        """Writes what is taken now.

        Raises:
            Cut: nothing is taken any more.
        """
        try:
            while self.is_full:
                if not self._rest:
                    self._begun = len(self._out)
                    self._rest = b"".join(self._out)
                    self._out.clear()
                most = len(self._rest) if self.dice.random() < 0.7 else self.dice.choice(PIECES)
                self._rest = self._rest[self._write(self._rest[:most]) :]
                if not self._rest:
                    self.accepted += self._begun
        except BlockingIOError:
            pass
        except OSError as error:
            raise Cut from error

    def take(self) -> list[bytes]:
        """The texts that have come.

        Raises:
            Cut: nothing will come any more.
        """
        try:
            data = self._read()
        except BlockingIOError:
            return []
        except OSError as error:
            if error.errno not in GONE:
                raise
            raise Cut from error
        if not data:
            raise Cut
        *units, self._heard = (self._heard + data).split(b"\n")
        return self._texts(units)

    def _texts(self, units: list[bytes]) -> list[bytes]:
        texts = []
        for unit in units:
            text = self.form.unwrap(unit)
            if text is not None:
                texts.append(text)
            elif self.form.is_answer(unit, self.who):
                self.answers += 1
            elif lost := LOST.fullmatch(unit):
                count = int(lost[2].replace(b",", b""))
                self.lost += 0 if lost[1] else count
                self.lost_perhaps += count if lost[1] else 0
        return texts

    def greet(self) -> list[bytes]:
        """Sees to it that it hears everything. Returns the texts that came meanwhile.

        Raises:
            Cut: it is not let.
        """
        greeting = self.form.greeting(self.who, self.dice)
        for data in greeting:
            self.say(data)
        texts: list[bytes] = []
        end = time.monotonic() + PATIENCE
        while greeting and not self.answers:
            self.push()
            await_(self, 1.0)
            texts += self.take()
            if time.monotonic() > end:
                raise TimeoutError(f"{self.who} was not greeted")
        self.accepted = 0
        return texts


def await_(session: Session, seconds: float) -> int:
    """Waits until there is something to be read, or written if something is to be. Returns poll's bits, 0 for none."""
    poll = select.poll()
    poll.register(session, select.POLLIN | (select.POLLOUT if session.is_full else 0))
    return next((bits for _, bits in poll.poll(seconds * 1000)), 0)


class Stream(Session):
    """A stream of lines by a socket."""

    def __init__(self, who: str, form: Form, dice: random.Random, address: str, *, buffer: int = 0) -> None:
        super().__init__(who, form, dice)
        self.socket = dial(address, buffer=buffer)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def _write(self, data: bytes) -> int:
        return self.socket.send(data)

    def _read(self) -> bytes:
        return self.socket.recv(1 << 18)


class Packets(Session):
    """Packets by a socket."""

    def __init__(self, who: str, form: Form, dice: random.Random, address: str) -> None:
        super().__init__(who, form, dice)
        self.socket = dial(address, packets=True)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()

    def push(self) -> None:
        try:
            while self._out:
                self.socket.send(self._out[0])
                self._out.popleft()
                self.accepted += 1
        except BlockingIOError:
            pass
        except OSError as error:
            raise Cut from error

    def take(self) -> list[bytes]:
        units: list[bytes] = []
        try:
            while len(units) < 200:
                packet = self.socket.recv(1 << 19)
                if not packet:
                    raise Cut
                units.append(packet)
        except BlockingIOError:
            pass
        except (OSError, Cut) as error:
            if not units:
                raise Cut from error
        return self._texts(units)


class BusFile(Session):
    """The channel itself. What is written is accepted; it does not come back."""

    hears_itself = False

    def __init__(self, who: str, form: Form, dice: random.Random, channel: Path) -> None:
        super().__init__(who, form, dice)
        try:
            self.file = os.open(channel.parent / f"+{channel.name}", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            raise Cut from error

    def greet(self) -> list[bytes]:
        return []

    def fileno(self) -> int:
        return self.file

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of a bus that has gone
            os.close(self.file)

    def _write(self, data: bytes) -> int:
        return os.write(self.file, data)

    def _read(self) -> bytes:
        return os.read(self.file, 1 << 20)


def dial(address: str, *, packets: bool = False, buffer: int = 0) -> socket.socket:
    """Connects to a gateway.

    Args:
        address: a port, or the path of a socket.
        packets: whether it takes packets.
        buffer: how many bytes the kernel keeps of what is not read; 0: as many as it likes.

    Raises:
        Cut: nobody is there.
    """
    is_port = address.isdigit()
    kind = socket.SOCK_SEQPACKET if packets else socket.SOCK_STREAM
    made = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX, kind)
    try:
        made.settimeout(PATIENCE if is_port else 0)
        if packets:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 409_600)
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                made.connect(("127.0.0.1", int(address)) if is_port else address)
                break
            except BlockingIOError:  # so many stand in the queue
                if time.monotonic() > end:
                    raise TimeoutError(f"nobody is let in at {address}") from None
                time.sleep(0.005)
        made.setblocking(False)
    except OSError as error:
        made.close()
        if isinstance(error, TimeoutError):
            raise
        raise Cut from error
    return made


def session(who: str, name: str, side: str, dice: random.Random, address: str, channel: Path, *, buffer: int = 0) -> Session:
    """Connects an honest peer.

    Args:
        who: the peer.
        name: of the kind of gateway.
        side: `gateway` or `bus`.
        dice: in what pieces it sends.
        address: of the gateway.
        channel: on the bus.
        buffer: as for `dial`.

    Raises:
        Cut: nobody is there.
    """
    kind = KINDS[name]
    if side == "bus":
        return BusFile(who, kind.bus_form, dice, channel)
    if kind.has_packets:
        return Packets(who, kind.form, dice, address)
    return Stream(who, kind.form, dice, address, buffer=buffer)
