"""Signals and properties: what a U or B channel says to its readers is said to all connections.

The one rule: one read of the channel serves all connections, and none of them waits for another who does not read.
"""

import contextlib
import errno

import trio

from ...client.awaiting import Publisher
from ...client.errors import ClientError, NoBus, NoMaster
from ...core.lines import end
from ..apart import Far
from .connection import Connection

HOLD_SECONDS = 0.5
"""For how long a line that is being said is waited for, before it is for the next channel: a master may never take it."""


class Telling:
    """All connections of a signal or a property.

    Args:
        writer: the channel, where what connections say goes.
        keeps_value: whether who connects is told the last line at once.
        value: the line that is there from the start.
    """

    def __init__(self, writer: Far[Publisher], *, keeps_value: bool, value: str | None = None) -> None:
        self._writer = writer
        self._writing = trio.Lock()
        self._is_old = False
        """Whether the channel that is open to be written is not the one that is listened to any more."""
        self._may_say = trio.Event()
        self._may_say.set()
        self._is_saying = False
        self._has_said = trio.Event()
        self._keeps_value = keeps_value
        self._value = b"" if value is None else value.encode("utf-8", "surrogateescape") + b"\n"

    def heard(self, lines: bytes) -> None:
        """Takes note of lines of the channel, which all are told."""
        if self._keeps_value:
            self._value = last_of(lines)

    async def hold(self) -> None:
        """Has nothing more said until `renew`: the channel is about to be left. Waits for what is being said.

        What the master of the old channel has no place for is for the next one.
        """
        self._may_say = trio.Event()
        with trio.move_on_after(HOLD_SECONDS):
            await self._until_said()
        if self._is_saying:
            self._writer.give_up()
            await self._until_said()

    async def _until_said(self) -> None:
        while self._is_saying:
            await self._has_said.wait()

    async def renew(self) -> None:
        """Speaks to the channel that has this name from now on, since that is listened to.

        It is opened now: later, somebody may have removed it, and what is said to another would be heard by nobody here. Who may
        not write to it is told so when he does.
        """
        self._is_old = True
        self._may_say.set()
        with trio.move_on_after(HOLD_SECONDS), contextlib.suppress(ClientError):  # or who speaks does it
            async with self._writing:
                await self._open()

    async def _open(self) -> None:
        if self._is_old:
            self._is_old = False
            self._writer.close()
        if not self._writer.is_open:
            await self._writer.open()

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
                while lines:
                    await self._may_say.wait()
                    lines = lines[end(lines, 0, await self._say_some(lines)) :]
        except ClientError as error:
            if isinstance(error, NoMaster) and not self._keeps_value:
                return True  # a signal's service may ignore what is sent to it (section 5.1): this one does not read
            await connection.refuse(overflow(error), str(error))
            return False
        return True

    async def _say_some(self, lines: bytes) -> int:
        """Says lines. Returns how many, if it was given up."""
        self._is_saying, self._has_said = True, trio.Event()
        try:
            await self._open()
            if not self._may_say.is_set():  # that has taken long: it is for the next channel
                return 0
            return await self._writer.send_block(lines)
        except (NoMaster, NoBus):
            self._writer.close()  # there may be another when the next line comes
            raise
        finally:
            self._is_saying = False
            self._has_said.set()


def last_of(lines: bytes) -> bytes:
    """The last of whole lines."""
    return lines[lines.rfind(b"\n", 0, -1) + 1 :]


def overflow(error: ClientError) -> int:
    """The number by which a connection is told of a refusal: a line too long for the bus is a call too large (section 6.1)."""
    number = error.errno or errno.EIO
    return errno.EOVERFLOW if number == errno.EMSGSIZE else number
