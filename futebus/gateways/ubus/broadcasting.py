"""One ubus that is served by standard input and output (`ubus-signal`, section 9.3).

The one rule: what comes in goes to all who are connected, and what any of them says comes out, in whole lines.
"""

from typing import Any

import trio

from ..life import GatewayError, Life
from ..rmi import MAX_CALL, Lines, TooLarge
from .connection import LINGER_SECONDS, MAX_WAITING, Connection
from .places import SOCKET_MODE, Kind, Place, kind_of
from .serving import MAX_CLIENTS, MAX_CLIENTS_PER_USER, Serving
from .streams import Input, Output, OutputClosed
from .telling import last_of


class Broadcasting:
    """A ubus whose service is who uses standard input and output.

    Args:
        life: whom to tell.
        name: of the ubus. One that ends in `.property` tells who connects the last line that has come in.
        mode: permissions of the socket.
        max_clients: how many may connect.
        max_clients_per_user: how many of one user, other than root and who serves.
        max_call: bytes of a line.
        max_waiting: bytes that may wait for a client who does not read; he loses the oldest then.
    """

    def __init__(
        self,
        life: Life,
        name: str,
        *,
        mode: int = SOCKET_MODE,
        max_clients: int = MAX_CLIENTS,
        max_clients_per_user: int = MAX_CLIENTS_PER_USER,
        max_call: int = MAX_CALL,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._life = life
        self._place = Place(name, mode, life.warn)
        self._limits: Any = {
            "max_clients": max_clients,
            "max_clients_per_user": max_clients_per_user,
            "max_call": max_call,
            "max_waiting": max_waiting,
        }
        self._max_call = max_call
        self._keeps_value = kind_of(name) is Kind.PROPERTY
        self._value = b""
        self._input = Input()
        self._output = Output()

    async def run(self) -> None:
        """Serves until standard input ends, or nobody reads standard output.

        Raises:
            GatewayError, OSError: the socket cannot be put there, or a line of standard input is too long.
        """
        await self._place.open()
        try:
            async with trio.open_nursery() as nursery:
                serving = Serving(self._place, self._handle, nursery, self._life, greet=self._greet, **self._limits)
                nursery.start_soon(serving.run)
                self._life.manager.tell("READY=1")
                await self._broadcast(serving)
                with trio.move_on_after(LINGER_SECONDS):
                    for connection in serving:
                        await connection.flush()
                nursery.cancel_scope.cancel()
        except* OutputClosed:
            pass
        finally:
            self._place.close()

    async def _broadcast(self, serving: Serving) -> None:
        lines = Lines(self._max_call)
        while data := await self._input.read():
            try:
                whole = lines.feed(data)
            except TooLarge as error:
                raise GatewayError(f"standard input: {error}") from None
            if whole:
                serving.put(whole)
                self._value = last_of(whole)

    def _greet(self, connection: Connection) -> None:
        if self._keeps_value and self._value:
            connection.put(self._value)

    async def _handle(self, connection: Connection) -> None:
        while lines := await connection.receive_lines():
            await self._output.write(lines)
        await trio.sleep_forever()  # he still listens: the sweeper ends it when he has closed
