"""Standard input and output as a connection of one ubus, which need not be there yet (`ubus-connect`, section 9.4).

The one rule: bytes pass as they are. Only who connects again counts in lines, since half a line is lost with its connection.
"""

import socket

import trio

from ...client.channel import begin_of_line
from ..life import GatewayError, Life
from ..rmi import MAX_CALL, Lines, TooLarge
from .places import GONE, dial, path_of
from .streams import Input, Output, OutputClosed
from .watching import Watch

RECEIVE_BYTES = 128 * 1024
"""How much one call takes from the socket."""

BRIEF_SECONDS = 1.0
"""A connection that lasts less than this is followed by a pause before the next, which gets as long as this."""

LEAST_PAUSE = 0.02
"""How long the first of these is, in seconds; it is doubled each time."""


async def dial_when_there(life: Life, name: str) -> socket.socket:
    """Connects to a ubus, as soon as it is there.

    Raises:
        OSError: it is not allowed, or what is there is none.
    """
    path = path_of(name)
    said = False
    with Watch(path) as watch:
        while True:
            watch.look()
            try:
                sock = await dial(path)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                if not said:
                    life.say(f"{path}: {error.strerror}; waiting")
                    said = True
                await watch.changed(error)
            else:
                if said:
                    life.say(f"{path} is there")
                return sock


class Connecting:
    """Wires standard input and output to a ubus.

    Args:
        life: whom to tell.
        name: of the ubus.
        reconnects: whether it is connected to again when the service ends, until a signal comes.
        max_call: bytes of a line; it is of meaning for who connects again.
    """

    def __init__(self, life: Life, name: str, *, reconnects: bool = False, max_call: int = MAX_CALL) -> None:
        self._life = life
        self._name = name
        self._reconnects = reconnects
        self._input = Input()
        self._output = Output()
        self._lines = Lines(max_call)
        self._unsent = b""
        self._input_ended = False

    async def run(self) -> None:
        """Runs until the service ends the connection, or nobody reads what it says.

        Raises:
            OSError: it cannot be connected to.
            GatewayError: a line of standard input is too long for who connects again.
        """
        pause = 0.0
        while True:
            sock = await dial_when_there(self._life, self._name)
            begin = trio.current_time()
            try:
                if not await self._wire(sock) or not self._reconnects:
                    return
            finally:
                sock.close()
            self._life.say(f"{path_of(self._name)}: the connection has ended")
            # A service may end each connection at once.
            is_brief = trio.current_time() - begin < BRIEF_SECONDS
            pause = min(2 * pause or LEAST_PAUSE, BRIEF_SECONDS) if is_brief else 0.0
            await trio.sleep(pause)

    async def _wire(self, sock: socket.socket) -> bool:
        """Returns False when nobody reads the output any more."""
        is_read = True
        failure: OSError | GatewayError | None = None
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                nonlocal failure
                try:
                    await self._send(sock)
                except TooLarge as error:
                    failure = GatewayError(f"standard input: {error}")
                    nursery.cancel_scope.cancel()
                except OSError as error:
                    failure = error
                    nursery.cancel_scope.cancel()

            nursery.start_soon(write)
            try:
                await self._receive(sock)
            except OutputClosed:
                is_read = False
            except OSError as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure:
            raise failure
        return is_read

    async def _receive(self, sock: socket.socket) -> None:
        while True:
            try:
                data = sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(sock)
                continue
            except ConnectionError:
                return
            if not data:
                return
            await self._output.write(data)

    async def _send(self, sock: socket.socket) -> None:
        """Sends what comes in, until that ends or the service does: the other direction sees to that."""
        while not (self._input_ended and not self._unsent):
            if not self._unsent:
                data = await self._input.read()
                self._input_ended = not data
                self._unsent = (self._lines.feed(data) if data else self._lines.rest()) if self._reconnects else data
            sent = 0
            try:
                while sent < len(self._unsent):
                    try:
                        sent += sock.send(memoryview(self._unsent)[sent:])
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(sock)
            except ConnectionError:
                return
            finally:
                self._unsent = self._unsent[sent if sent == len(self._unsent) else begin_of_line(self._unsent, sent) :]
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:  # it has gone
            return
