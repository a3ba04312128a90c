"""One peer.

The one rule: whatever it does or does not do, it does to itself. What it sends waits for the bus, what it is to get waits in its
outbox, and when it asks for more than it reads, it is not listened to.
"""

import socket
import time
from typing import TYPE_CHECKING

import trio

from ...core.text import counted, printable
from ...host.origins import Origin
from .commands import HELP, CommandError, Subscribe, Unsubscribe, parse, shown
from .lines import Block, Intake, items
from .outbox import Outbox
from .sorting import TURN, Backlog
from .subscriptions import NotPossible, Subscriptions

if TYPE_CHECKING:
    from .server import Server

RECEIVED = 512 * 1024
"""Bytes that are taken from a peer at once: four times what the bus takes at once. To hand them to the loop of the bus, and to
hear that it has them, costs as much as to write one such piece."""

LINGER = 10.0
"""Seconds that a peer which has closed its side, and has no subscription, has to read its last answers."""

LOOK_SECONDS = 30.0
"""How often it is looked whether a subscriber that has closed its sending side is still there."""

COSTLY = 0.001
"""Seconds of one command that others notice."""

DELAY = 20
"""So many times as long as such a command took, the next one of that peer waits."""

_CLOSED, _CLOSE_WAIT = 7, 8
"""TCP_CLOSE and TCP_CLOSE_WAIT of the kernel's tcp_states.h, the first byte of struct tcp_info."""

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Connection:
    """A peer that is connected.

    Args:
        stream: to it.
        name: its address, for people.
        who: whom it counts for.
        server: what it is connected to.
    """

    def __init__(self, stream: Stream, name: str, who: Origin, server: "Server") -> None:
        self.name = name
        self.who = who
        self._stream = stream
        self._server = server
        self._subscriptions = Subscriptions(server.limits.subscriptions)
        self._intake = Intake(server.limits.line)
        self._outbox = Outbox(server.limits.queue)
        self._backlog = Backlog(self._outbox, server.limits.queue)
        self._has_been_told_of = False
        self._is_ending = False

    def offer(self, block: Block) -> None:
        """Gives it messages, if it has subscribed to them. Never waits."""
        if self._backlog.offer(block, self._subscriptions.wishes):
            self._server.sorter.add(self._backlog)
        if self._outbox.lost and not self._has_been_told_of:
            self._has_been_told_of = True
            self._server.life.warn(f"{self.name} is too slow: messages for it are dropped")

    def count_unread(self, lines: int) -> None:
        """Has it told that the bus has dropped lines, of which some may have been for it."""
        self._outbox.count_unread(lines)

    @property
    def has_closed(self) -> bool:
        """Whether it sends nothing more. It may be gone."""
        return self._state in (_CLOSED, _CLOSE_WAIT)

    @property
    def _state(self) -> int:
        bare = self._stream.transport_stream if isinstance(self._stream, trio.SSLStream) else self._stream
        return bare.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

    async def run(self) -> None:
        """Serves it until it has gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                try:
                    await self._read()
                    await self._stay()
                except trio.BrokenResourceError:
                    nursery.cancel_scope.cancel()
                self._is_ending = True
                nursery.cancel_scope.deadline = trio.current_time() + LINGER
                self._outbox.wake()
        finally:
            self._server.sorter.remove(self._backlog)
            if self._outbox.lost:
                lost = counted(self._outbox.lost, "message")
                self._server.life.warn(f"{self.name} has left; {lost} for it were dropped")

    # ------------------------------------------------------------------------------------------ what it sends

    async def _read(self) -> None:
        """Does what it says until it says no more."""
        while data := await self._stream.receive_some(RECEIVED):
            lines, *others = self._intake.feed(bytes(data))
            await self._obey_all(lines)
            skipped = 0
            for lines in others:
                skipped += 1
                if lines:
                    await self._tell_skipped(skipped)
                    await self._obey_all(lines)
                    skipped = 0
            await self._tell_skipped(skipped)

    async def _tell_skipped(self, count: int) -> None:
        if count:
            await self._answer(f"error {counted(count, 'line')} skipped: longer than {self._server.limits.line} bytes")

    async def _obey_all(self, lines: bytes) -> None:
        messages: list[bytes] = []
        begin = time.perf_counter()
        for are_messages, run in items(lines):
            if are_messages:
                messages.append(run)
            else:
                await self._obey(run, messages)
            if time.perf_counter() - begin > TURN:
                await trio.lowlevel.checkpoint()
                begin = time.perf_counter()
        await self._publish(messages)

    async def _publish(self, messages: list[bytes]) -> None:
        """Sends messages, and forgets them."""
        if messages:
            run = b"".join(messages)
            messages.clear()
            with self._server.publishing(self):
                refused = await self._server.publish(run)
            if refused:
                await self._answer(f"error {counted(refused, 'line')} skipped: longer than the bus takes")

    async def _obey(self, line: bytes, messages: list[bytes]) -> None:
        """Obeys a command. What changes subscriptions comes behind the messages before it."""
        try:
            command = parse(line)
            if isinstance(command, Subscribe):
                await self._publish(messages)
                begin = time.perf_counter()
                try:
                    self._subscriptions.add(command.id, command.kind, command.string)
                finally:
                    spent = time.perf_counter() - begin
                    if spent > COSTLY:
                        await trio.sleep(DELAY * spent)
                self._server.listen(self)
                answer = f"ok subscribed {shown(command.id)} {command.kind} {shown(command.string)}".rstrip()
            elif isinstance(command, Unsubscribe):
                await self._publish(messages)
                if not self._subscriptions.remove(command.id):
                    raise CommandError(f"there is no subscription {shown(command.id)}")
                if not self._subscriptions:
                    self._server.ignore(self)
                answer = f"ok unsubscribed {shown(command.id)}"
            else:
                await self._publish(messages)
                answer = HELP.rstrip("\n")
        except (CommandError, NotPossible) as error:
            answer = f"error {printable(str(error))}"
        await self._answer(answer)

    async def _answer(self, words: str) -> None:
        self._backlog.answer(f"{words}\n", self._subscriptions.wishes)
        while self._outbox.is_unread or self._backlog.is_unread:
            await self._outbox.change()

    async def _stay(self) -> None:
        """It has closed its sending side. If it has subscribed, it may go on listening, as `echo s 1 r . | nc -N` does."""
        if not isinstance(self._stream, trio.SocketStream):
            return
        # It cannot be told from one that has gone, until something is sent to it. So it gives way to others.
        with self._server.staying(self):
            while self._subscriptions:
                await trio.sleep(LOOK_SECONDS)
                if self._state == _CLOSED:
                    raise trio.BrokenResourceError

    # ------------------------------------------------------------------------------------------ what it gets

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                if data := self._outbox.take():
                    await self._stream.send_all(data)
                elif self._is_ending and not self._backlog:
                    return
                else:
                    await self._outbox.change()
        except trio.BrokenResourceError:
            scope.cancel()
