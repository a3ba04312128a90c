"""Signals and properties: what a U or B channel says to its readers is said to all connections.

The one rule: one read of the channel serves all connections, and none of them waits for another who does not read.
"""

import errno

import trio

from ...client.awaiting import Publisher
from ...client.errors import ClientError, NoBus, NoMaster
from ...core.text import counted
from ..life import Life
from .connection import Connection


class Telling:
    """All connections of a signal or a property.

    Args:
        life: whom to tell.
        writer: the channel, where what connections say goes. It is opened when there is something.
        keeps_value: whether who connects is told the last line at once.
        value: the line that is there from the start.
    """

    def __init__(self, life: Life, writer: Publisher, *, keeps_value: bool, value: str | None = None) -> None:
        self._life = life
        self._writer = writer
        self._writing = trio.Lock()
        self._keeps_value = keeps_value
        self._value = b"" if value is None else value.encode("utf-8", "surrogateescape") + b"\n"
        self._listening: set[Connection] = set()

    def heard(self, lines: bytes) -> None:
        """Says lines of the channel to all."""
        if self._keeps_value:
            self._value = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        for connection in self._listening:
            before = connection.dropped
            connection.put(lines, drops=True)
            if connection.dropped and not before:
                self._life.say("a client reads too slowly, and loses lines")

    async def handle(self, connection: Connection) -> None:
        """Serves a connection, until nobody is there any more."""
        if self._value:
            connection.put(self._value)
        self._listening.add(connection)
        try:
            while lines := await connection.receive_lines():
                if not await self._say(connection, lines):
                    return
            await trio.sleep_forever()  # it still listens: the sweeper ends it when it has closed
        finally:
            self._listening.discard(connection)
            if connection.dropped:
                self._life.say(f"a client that read too slowly has lost {counted(connection.dropped, 'line', ',')}")

    async def _say(self, connection: Connection, lines: bytes) -> bool:
        """Says what a connection has sent to the channel. Returns whether the connection goes on."""
        try:
            async with self._writing:
                if not self._writer.is_open:
                    await self._writer.open()
                try:
                    await self._writer.send_block(lines)
                except (NoMaster, NoBus):
                    self._writer.close()  # there may be another when the next line comes
                    raise
        except ClientError as error:
            if isinstance(error, NoMaster) and not self._keeps_value:
                return True  # a signal's service may ignore what is sent to it (section 5.1): this one does not read
            await connection.refuse(overflow(error), str(error))
            return False
        return True


def overflow(error: ClientError) -> int:
    """The number by which a connection is told of a refusal: a line too long for the bus is a call too large (section 6.1)."""
    number = error.errno or errno.EIO
    return errno.EOVERFLOW if number == errno.EMSGSIZE else number
