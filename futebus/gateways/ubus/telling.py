"""Signals and properties: what a U or B channel says to its readers is said to all connections.

The one rule: one read of the channel serves all connections, and none of them waits for another who does not read.
"""

import errno

import trio

from ...client.awaiting import Publisher
from ...client.errors import ClientError, NoBus, NoMaster
from ..apart import Far
from .connection import Connection


class Telling:
    """All connections of a signal or a property.

    Args:
        writer: the channel, where what connections say goes. It is opened when there is something.
        keeps_value: whether who connects is told the last line at once.
        value: the line that is there from the start.
    """

    def __init__(self, writer: Far[Publisher], *, keeps_value: bool, value: str | None = None) -> None:
        self._writer = writer
        self._writing = trio.Lock()
        self._keeps_value = keeps_value
        self._value = b"" if value is None else value.encode("utf-8", "surrogateescape") + b"\n"

    def heard(self, lines: bytes) -> None:
        """Takes note of lines of the channel, which all are told."""
        if self._keeps_value:
            self._value = last_of(lines)

    def greet(self, connection: Connection) -> None:
        """Tells who connects the value, if there is one."""
        if self._value:
            connection.put(self._value)

    async def handle(self, connection: Connection) -> None:
        """Serves a connection, until nobody is there any more."""
        while lines := await connection.receive_lines():
            if not await self._say(connection, lines):
                return
        await trio.sleep_forever()  # it still listens: the sweeper ends it when it has closed

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


def last_of(lines: bytes) -> bytes:
    """The last of whole lines."""
    return lines[lines.rfind(b"\n", 0, -1) + 1 :]


def overflow(error: ClientError) -> int:
    """The number by which a connection is told of a refusal: a line too long for the bus is a call too large (section 6.1)."""
    number = error.errno or errno.EIO
    return errno.EOVERFLOW if number == errno.EMSGSIZE else number
