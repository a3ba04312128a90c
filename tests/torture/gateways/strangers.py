"""Those who do not behave: they send anything, say nothing, do not read, or close one side. Nobody asks what they hear."""

import contextlib
import os
import random
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from . import fuzz
from .kinds import KINDS
from .orders import Orders, Worker
from .sessions import Cut, dial

PIECE_OF_FEW = 300
"""An input up to this length may be sent byte by byte."""


class Fuzzer(Worker):
    """Sends inputs of all sorts: whole, byte by byte, and in arbitrary pieces. Reads at times."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.inputs = self.connections = 0
        self.packets = KINDS[orders.name].has_packets
        self.make = fuzz.INPUTS[orders.name.split()[0]]

    def run(self) -> None:
        """Goes on until it is told to end."""
        self.tell("ready")
        while not self.is_over:
            with contextlib.suppress(Cut):
                self._on_the_bus() if self.orders.side == "bus" else self._connect()
        self.note("count", "inputs of strangers", self.inputs)
        self.note("count", "connections of strangers", self.connections)
        self.tell("quiet")

    def _on_the_bus(self) -> None:
        with contextlib.suppress(OSError):
            file = os.open(self.orders.channel, os.O_WRONLY)
            try:
                while not self.is_over:
                    for piece in self._pieces(fuzz.on_a_channel(self.dice)):
                        with contextlib.suppress(OSError):  # too long for the bus
                            os.write(file, piece)
                    self.inputs += 1
                    time.sleep(self.dice.uniform(0, self.orders.pause))
            finally:
                os.close(file)

    def _connect(self) -> None:
        with dial(self.orders.address, packets=self.packets) as made:
            self.connections += 1
            for _ in range(self.dice.choice((1, 10, 100, 1000))):
                if self.is_over:
                    return
                data = self.make(self.dice)
                self.inputs += 1
                if self.packets:
                    self._send(made, data)
                else:
                    for piece in self._pieces(data):
                        self._send(made, piece)
                if self.dice.random() < 0.05:
                    time.sleep(self.dice.uniform(0, self.orders.pause))
            how = self.dice.random()
            if how < 0.5 and not self.packets:
                made.shutdown(socket.SHUT_WR)
                self._drain(made, 0.05)
            elif how < 0.7:
                made.shutdown(self.dice.choice((socket.SHUT_RD, socket.SHUT_RDWR)))

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        how = self.dice.random()
        if how < 0.2 and len(data) < PIECE_OF_FEW:
            yield from (data[at : at + 1] for at in range(len(data)))
        elif how < 0.5:
            cuts = sorted(self.dice.randrange(len(data) + 1) for _ in range(self.dice.randrange(5)))
            yield from (data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b)
        elif data:
            yield data

    def _send(self, made: socket.socket, data: bytes) -> None:
        start = 0
        while not self.is_over:
            try:
                start += made.send(data[start:])
            except BlockingIOError:
                self._drain(made, 0.05)
            except OSError as error:  # it is dismissed, or the packet is too long for the kernel
                if not self.packets or isinstance(error, ConnectionError):
                    raise Cut from error
                return
            if self.packets or start == len(data):
                break
        if self.dice.random() < 0.3:
            self._drain(made, 0)

    def _drain(self, made: socket.socket, seconds: float) -> None:
        try:
            select.select([made], [], [], seconds)
            while data := made.recv(1 << 19):
                assert data
            raise Cut
        except BlockingIOError:
            pass
        except OSError as error:
            raise Cut from error


class Sitter(Worker):
    """Opens many connections, and says nothing by any of them."""

    def run(self) -> None:
        """Sits there until it is told to end."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        packets = KINDS[self.orders.name].has_packets
        made = []
        for _ in range(self.orders.count):
            if self.is_over:
                break
            made.append(dial(self.orders.address, packets=packets))
        self.note("count", "silent connections", len(made))
        self.tell("ready")
        while not self.is_over:
            time.sleep(0.02)
        for each in made:
            each.close()
        self.tell("quiet")


class Rude(Worker):
    """Has connections that ask for everything and are never read, have one side closed, or end in the middle of a line."""

    def run(self) -> None:
        """Goes on until it is told to end."""
        made: list[socket.socket] = []
        self.tell("ready")
        while not self.is_over:
            if len(made) == self.orders.count:
                made.pop(self.dice.randrange(len(made))).close()
                self.note("count", "connections of strangers", 1)
            with contextlib.suppress(Cut):
                made.append(self._one())
            time.sleep(self.dice.uniform(0, self.orders.pause))
        for each in made:
            each.close()
        self.tell("quiet")

    def _one(self) -> socket.socket:
        kind = KINDS[self.orders.name]
        made = dial(self.orders.address, packets=kind.has_packets)
        wishes = kind.form.greeting(self.who, self.dice)
        if kind.has_packets:
            wishes += [b"CMSG " + self.dice.choice(fuzz.CONTROLS) for _ in range(3)]
        elif kind.asks:
            wishes = [b"fuzz %d\n" % number for number in range(3000)]
        for wish in (*wishes, *([kind.form.probe(self.who)] * self.dice.choice((0, 10, 5000)))):
            try:
                made.send(wish)
            except OSError:
                break
        with contextlib.suppress(OSError):
            if self.dice.random() < 0.3:
                made.send(b"fuzz in the mid")
            if self.dice.random() < 0.5:
                made.shutdown(self.dice.choice((socket.SHUT_RD, socket.SHUT_WR)))
        return made


def fuzz_script(dice: random.Random, address: str) -> bytes:
    """A few lines for the standard input of a script, some of which lead to its own socket."""
    own = b"".join(b"k\tx\t%s\nw\tx\t\tfuzz\ni\tx\n" % address.encode() for _ in range(dice.random() < 0.2))
    return b"".join(fuzz.script(dice) for _ in range(dice.randrange(5))) + own


def place_of(address: str) -> Path | None:
    """The socket of a gateway, if it has a path."""
    return None if address.isdigit() else Path(address)
