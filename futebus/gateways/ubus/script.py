r"""The scripting interface: sockets that are served and connections that are made, by lines on standard input and output.

The one rule: a line in is a command, a line out is what has happened, and the arguments of both are those of the RMI format.
Section 9.1 of the specification has the table of them.
"""

import errno
import os
import socket
from collections.abc import Awaitable, Callable

import trio

from ..life import GatewayError, Life
from ..rmi import MAX_CALL, Lines, RmiError, TooLarge, decode, encode_error, without_reserved
from .connection import LINGER_SECONDS, MAX_WAITING, Connection
from .places import SOCKET_MODE, Place, dial, path_of
from .serving import MAX_CLIENTS, MAX_CLIENTS_PER_USER, Serving
from .streams import Input, Output, OutputClosed

ALL = b"*"
"""The client that means all of a bus."""

NOBODY = b""
"""The client of a connection that was made here."""


class Bus:
    """A socket that is served here, or a connection that was made here.

    Args:
        ident: what it is called.
        nursery: all that it does.
        is_served: whether it is a socket.
    """

    def __init__(self, ident: bytes, nursery: trio.Nursery, *, is_served: bool) -> None:
        self.ident = ident
        self.is_served = is_served
        self.clients: dict[bytes, Connection] = {}
        """Who is at the other end."""
        self.names: dict[Connection, bytes] = {}
        self.ends = nursery.cancel_scope
        self.has_ended = trio.Event()

    def add(self, client: bytes, connection: Connection) -> None:
        """Somebody comes."""
        self.clients[client] = connection
        self.names[connection] = client

    def remove(self, connection: Connection) -> bytes:
        """Somebody goes. Returns what he was called."""
        client = self.names.pop(connection)
        del self.clients[client]
        return client


class Script:
    """What reads the commands.

    Args:
        life: whom to tell of what no answer tells.
        mode: permissions of sockets.
        max_clients: how many may connect to each.
        max_clients_per_user: how many of one user, other than root and who serves.
        max_call: bytes of a line.
        max_waiting: bytes that may wait for a client, who is disconnected otherwise.
    """

    def __init__(
        self,
        life: Life,
        *,
        mode: int = SOCKET_MODE,
        max_clients: int = MAX_CLIENTS,
        max_clients_per_user: int = MAX_CLIENTS_PER_USER,
        max_call: int = MAX_CALL,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._life = life
        self._mode = mode
        self._max_clients = max_clients
        self._max_clients_per_user = max_clients_per_user
        self._max_call = max_call
        self._max_waiting = max_waiting
        self._input = Input()
        self._output = Output()
        self._buses: dict[bytes, Bus] = {}
        self._numbers = 0
        self._pending: dict[Connection, list[bytes]] = {}
        """What is to be written when all that has been read is understood: one call of the system for all lines of one client."""
        self._commands: dict[bytes, Callable[[bytes], Awaitable[object]]] = {
            b"b": self._serve,
            b"u": self._destroy,
            b"d": self._disconnect,
            b"k": self._connect,
            b"i": self._leave,
        }

    async def run(self, names: list[str]) -> None:
        """Opens sockets, which are called `1`, `2` and so on, and does as it is told until standard input ends.

        Raises:
            GatewayError: a command is too long.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for number, name in enumerate(names, 1):
                    await self._open(b"%d" % number, name)
                await self._obey()
                await self._flush()
                nursery.cancel_scope.cancel()
        except* OutputClosed:
            pass

    async def _obey(self) -> None:
        lines = Lines(self._max_call)
        try:
            while data := await self._input.read():
                for line in lines.feed(data).split(b"\n"):
                    if line.startswith(b"w\t"):
                        self._write(line)
                    else:
                        self._deliver()
                        command, _, rest = line.partition(b"\t")
                        if command in self._commands:
                            await self._commands[command](rest)
                self._deliver()
        except TooLarge as error:
            await self._output.write(encode_error(error.number, str(error)))
            raise GatewayError(f"standard input: {error}") from None

    async def _flush(self) -> None:
        with trio.move_on_after(LINGER_SECONDS):
            for bus in self._buses.values():
                for connection in tuple(bus.clients.values()):
                    await connection.flush()

    # ------------------------------------------------------------------------------------------ buses

    async def _serve(self, rest: bytes) -> None:
        ident, name = self._named(rest)
        if ident in self._buses:
            await self._tell(b"b", ident, errno.EEXIST)
        elif not name:
            await self._tell(b"b", ident, errno.EINVAL)
        else:
            await self._open(ident, name)

    def _named(self, rest: bytes) -> tuple[bytes, str]:
        ident, _, argument = rest.partition(b"\t")
        try:
            values = decode(argument)
        except RmiError:
            values = None
        name = values[0] if isinstance(values, list) and len(values) == 1 else ""
        return ident, name if isinstance(name, str) else ""

    async def _tell(self, command: bytes, ident: bytes, number: int, words: str = "") -> None:
        error = encode_error(number, words or os.strerror(number)).removeprefix(b"\a")
        await self._output.write(b"%s\t%s\t0\t%s" % (command, ident, error))

    async def _open(self, ident: bytes, name: str) -> None:
        place = None
        try:
            place = Place(name, self._mode, self._life.warn)
            await place.open()
        except (OSError, GatewayError) as error:
            if place:
                place.close()
            number, words = (error.errno or errno.EIO, error.strerror) if isinstance(error, OSError) else (errno.EAGAIN, "")
            await self._tell(b"b", ident, number, words or str(error))
            return
        await self._nursery.start(self._keep, ident, place)

    async def _keep(self, ident: bytes, place: Place, task_status: trio.TaskStatus[None]) -> None:
        bus = None
        try:
            async with trio.open_nursery() as nursery:
                bus = self._buses[ident] = Bus(ident, nursery, is_served=True)

                def greet(connection: Connection) -> None:
                    self._numbers += 1
                    bus.add(b"%d" % self._numbers, connection)

                async def handle(connection: Connection) -> None:
                    await self._relay(bus, connection)

                async def ended(connection: Connection) -> None:
                    await self._said_goodbye(bus, connection)

                serving = Serving(
                    place,
                    handle,
                    nursery,
                    self._life,
                    greet=greet,
                    ended=ended,
                    max_clients=self._max_clients,
                    max_clients_per_user=self._max_clients_per_user,
                    max_call=self._max_call,
                    max_waiting=self._max_waiting,
                )
                await self._output.write(b"b\t%s\t1\n" % ident)
                nursery.start_soon(serving.run)
                task_status.started()
        finally:
            place.close()
            if bus:
                bus.has_ended.set()

    async def _relay(self, bus: Bus, connection: Connection) -> None:
        """Says that somebody comes, and what he sends."""
        client = bus.names[connection]
        if bus.is_served:
            await self._output.write(b"c\t%s\t%s\n" % (bus.ident, client))
        prefix = b"r\t%s\t%s\t" % (bus.ident, client)
        while lines := await connection.receive_lines():
            if lines := without_reserved(lines):
                await self._output.write(prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
        if bus.is_served:
            await trio.sleep_forever()  # he may still listen: he has gone when he has closed

    async def _said_goodbye(self, bus: Bus, connection: Connection) -> None:
        self._pending.pop(connection, None)
        if connection in bus.names:
            await self._output.write(b"d\t%s\t%s\n" % (bus.ident, bus.remove(connection)))

    async def _destroy(self, rest: bytes) -> None:
        bus = self._buses.get(rest)
        if bus is None or not bus.is_served:
            self._life.say(f"there is no bus {os.fsdecode(rest)}")
            return
        await self._end(bus)

    async def _end(self, bus: Bus) -> None:
        with trio.move_on_after(LINGER_SECONDS):
            for connection in tuple(bus.names):
                await connection.flush()
        bus.ends.cancel()
        await bus.has_ended.wait()
        self._buses.pop(bus.ident, None)
        for connection in tuple(bus.names):
            await self._said_goodbye(bus, connection)

    # ------------------------------------------------------------------------------------------ connections made here

    async def _connect(self, rest: bytes) -> None:
        ident, name = self._named(rest)
        if ident in self._buses:
            await self._tell(b"k", ident, errno.EEXIST)
            return
        try:
            sock = await dial(path_of(name))
        except OSError as error:
            await self._tell(b"k", ident, error.errno or errno.EIO, error.strerror or "")
            return
        await self._output.write(b"k\t%s\t1\n" % ident)
        await self._nursery.start(self._hold, ident, sock)

    async def _hold(self, ident: bytes, sock: socket.socket, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            bus = self._buses[ident] = Bus(ident, nursery, is_served=False)
            connection = Connection(sock, nursery, limit=self._max_call, most=self._max_waiting)
            bus.add(NOBODY, connection)
            task_status.started()
            try:
                with connection.scope:
                    try:
                        await self._relay(bus, connection)
                    except TooLarge as error:
                        await connection.refuse(error.number, str(error))
            finally:
                connection.close()
                bus.has_ended.set()
            nursery.cancel_scope.cancel()
        self._buses.pop(ident, None)
        await self._said_goodbye(bus, connection)

    async def _leave(self, rest: bytes) -> None:
        bus = self._buses.get(rest)
        if bus is None or bus.is_served:
            self._life.say(f"there is no connection {os.fsdecode(rest)}")
            return
        await self._end(bus)

    # ------------------------------------------------------------------------------------------ clients

    def _found(self, ident: bytes, client: bytes) -> list[Connection]:
        bus = self._buses.get(ident)
        if bus is None:
            return []
        if client == ALL and bus.is_served:
            return list(bus.clients.values())
        connection = bus.clients.get(client)
        return [connection] if connection else []

    def _write(self, line: bytes) -> None:
        _, ident, *rest = line.split(b"\t", 3)
        message = (rest[1] if len(rest) > 1 else b"") + b"\n"
        for connection in self._found(ident, rest[0] if rest else NOBODY):
            self._pending.setdefault(connection, []).append(message)

    def _deliver(self) -> None:
        # What all are told is one piece of bytes: it may wait for very many.
        joined: dict[tuple[int, ...], bytes] = {}
        for connection, messages in self._pending.items():
            same = tuple(map(id, messages))
            if same not in joined:
                joined[same] = b"".join(messages)
            if not connection.put(joined[same]):
                self._life.say("a client that does not read is disconnected")
                connection.scope.cancel()
        self._pending.clear()

    async def _disconnect(self, rest: bytes) -> None:
        ident, _, client = rest.partition(b"\t")

        async def end(connection: Connection) -> None:
            await connection.finish()
            connection.scope.cancel()

        async with trio.open_nursery() as nursery:  # each may take a moment to read what waits for it
            for connection in self._found(ident, client):
                nursery.start_soon(end, connection)
