"""The sbus server: packets from clients to clients.

The one rule: packets go in runs. One wait of the scheduler's is for all sockets together; what is there then is taken and sent by
plain calls, a bounded run of each client in turn, and only then others in the program go on.
"""

import math
import select
import socket
import time
from collections import Counter, deque
from typing import Protocol

import trio

from ...core.text import counted
from ..life import Life
from .client import Client, Gone, Sender, peer_of
from .index import Index, TooDeep
from .keys import RESERVED, NotOwn, admitted
from .limits import MAX_PACKET, PATTERN_BYTES, RUN, RUN_BYTES, TELL_SECONDS, TURN, WATCH_SECONDS, Limits, cost
from .packets import Kind, parse

EVENTS = 256
"""Sockets that one call of epoll tells of."""

ACCEPTED = 64
"""Connections that are taken before others get their turn."""

WHOAMI = b"!/cred/whoami"


class Outside(Protocol):
    """Where messages go besides: the channel."""

    def put(self, key: bytes, payload: bytes) -> None:
        """Takes a message."""


class Server:
    """Serves the clients of one listening socket.

    Args:
        listener: the socket.
        life: says what happens.
        limits: how much a client can have.
        users: the user IDs that may connect; without any, all may.
        ends: whether it ends with the last client.
    """

    def __init__(
        self,
        listener: socket.socket,
        life: Life,
        limits: Limits,
        users: frozenset[int] = frozenset(),
        *,
        ends: bool = False,
    ) -> None:
        self.limits = limits
        self.outside: Outside | None = None
        self.clients: dict[int, Client] = {}
        self.discarded = 0
        """Messages that clients have not got since they did not read."""
        self._life = life
        self._users = users
        self._ends = ends
        self._index: Index[Client] = Index()
        self._per_user: Counter[int] = Counter()
        self._buffer = bytearray(MAX_PACKET + 1)
        self._view = memoryview(self._buffer)
        self._listener = listener
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._events: list[tuple[int, int]] = []
        """What epoll has told of and nobody has looked at yet. Who has gone meanwhile, or has another's number, is no trouble."""
        self._listens = False
        self._rested = -math.inf
        self._scope = trio.CancelScope()
        self._watch = trio.Event()
        self._leaving: deque[Client] = deque()
        self._leave = trio.Event()
        self._said_discarded = 0

    async def serve(self) -> None:
        """Serves, until it is cancelled or over."""
        self._listen()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._oversee)
                    nursery.start_soon(self._sweep)
                    while True:
                        await trio.lowlevel.wait_readable(self._epoll.fileno())
                        self._turn()
        finally:
            self._tell()
            for client in list(self.clients.values()):
                client.socket.close()
            self._epoll.close()

    def _turn(self) -> None:
        end = time.monotonic() + TURN
        # Those whose turn has not come are first in the next one: epoll tells of them again, but behind who has had his.
        while events := self._events or self._epoll.poll(0, EVENTS):
            self._events = []
            for at, (number, event) in enumerate(events):
                if at and time.monotonic() > end:
                    self._events = events[at:]
                    return
                client = self.clients.get(number)
                if client is None:
                    if number == self._listener.fileno():
                        self._accept()
                    continue
                if event & select.EPOLLOUT:
                    client.flush(RUN)
                if event & ~select.EPOLLOUT and client.is_open and not client.held_by:
                    self._receive(client, end)
            if time.monotonic() > end:
                return

    # ------------------------------------------------------------------------------------------ who comes and goes

    def _listen(self) -> None:
        if not self._listens:
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
            self._listens = True

    def _rest(self, error: OSError) -> None:
        """There is no place for more: who connects waits, and is looked for later."""
        if self._listens:
            self._epoll.unregister(self._listener.fileno())
            self._listens = False
            if time.monotonic() - self._rested > TELL_SECONDS:
                self._rested = time.monotonic()
                self._life.warn(f"nobody can connect for now: {error.strerror}")
        self.worried()

    def _accept(self) -> None:
        for _ in range(ACCEPTED):
            try:
                connected, _address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError as error:
                self._rest(error)
                return
            try:
                self._welcome(connected)
            except OSError:
                connected.close()

    def _welcome(self, connected: socket.socket) -> None:
        who = peer_of(connected)
        refusal = ""
        if self._users and who.uid not in self._users:
            refusal = "it may not connect"
        elif len(self.clients) >= self.limits.max_clients:
            refusal = f"there are {self.limits.max_clients} clients"
        elif who.uid and self._per_user[who.uid] >= self.limits.max_clients_per_user:
            refusal = f"it has {self.limits.max_clients_per_user} clients"
        if refusal:
            connected.close()
            self._life.say(f"a connection of user {who.uid} (process {who.pid}) was refused: {refusal}")
            return
        client = Client(connected, who, self)
        self.changed(client)  # which can fail
        self.clients[client.number] = client
        self._per_user[who.uid] += 1

    def _dismiss(self, client: Client, why: str = "") -> None:
        if not client.is_open:
            return
        client.is_open = False
        if why:
            self._life.say(f"process {client.who.pid} of user {client.who.uid} was dismissed: {why}")
        client.is_deaf = True
        self._leaving.append(client)
        self._leave.set()
        for other in client.held_by:
            other.holds.discard(client)
        client.held_by.clear()
        client.backlog.clear()
        client.let_go()
        del self.clients[client.number]
        self._per_user[client.who.uid] -= 1
        if not self._per_user[client.who.uid]:
            del self._per_user[client.who.uid]
        client.socket.close()
        if self._ends and not self.clients:
            self._scope.cancel()

    async def _sweep(self) -> None:
        """Takes the subscriptions of those who have gone out of the index, a few at a time: one may have thousands."""
        while True:
            await self._leave.wait()
            self._leave = trio.Event()
            end = time.monotonic() + TURN
            while self._leaving:
                client = self._leaving[0]
                while client.patterns and time.monotonic() < end:
                    pattern, count = client.patterns.popitem()
                    for each in admitted(pattern, client.who):
                        for _ in range(count):
                            self._index.remove(each, client)
                if client.patterns:
                    await trio.lowlevel.checkpoint()
                    end = time.monotonic() + TURN
                else:
                    self._leaving.popleft()

    # ------------------------------------------------------------------------------------------ what clients tell of themselves

    def changed(self, client: Client) -> None:
        """Asks epoll for what the client waits for now. One that waits for nothing is not asked for: it may have hung up."""
        if not client.is_open:
            return
        mask = (0 if client.held_by else select.EPOLLIN) | (select.EPOLLOUT if client.backlog else 0)
        if mask == client.mask:
            return
        if not mask:
            self._epoll.unregister(client.number)
        elif client.mask:
            self._epoll.modify(client.number, mask)
        else:
            self._epoll.register(client.number, mask)
        client.mask = mask

    def lost(self) -> None:
        """A message for a client was discarded."""
        self.discarded += 1
        self.worried()

    def worried(self) -> None:
        """There is something to be looked at later."""
        if not self._watch.is_set():
            self._watch.set()

    # ------------------------------------------------------------------------------------------ packets

    def _receive(self, client: Client, end: float) -> None:
        receive, buffer, view = client.socket.recv_into, self._buffer, self._view
        left = RUN_BYTES
        for _ in range(RUN):
            try:
                length = receive(buffer)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # It has closed, and had not read all. What it has sent before is still there.
                if client.was_reset:
                    self._dismiss(client)
                    return
                client.was_reset = True
                continue
            except OSError:
                length = 0
            if not length:  # an empty packet cannot be told from the end
                self._dismiss(client)
                return
            packet = bytes(view[:length])
            try:
                self._take(client, packet)
            except Gone as error:
                self._dismiss(client, str(error))
                return
            left -= length
            if client.held_by or left < 0 or not client.is_open or time.monotonic() > end:
                return

    def _take(self, client: Client, packet: bytes) -> None:
        if len(packet) > MAX_PACKET:
            raise Gone(f"it has sent a packet of more than {MAX_PACKET} bytes")
        found = parse(packet)
        if found is None:
            raise Gone("it has sent a packet that is none of sbus")
        kind, key, start = found
        if kind is Kind.MSG:
            self.publish(key, packet, client)
            if self.outside is not None and not key.startswith(RESERVED):
                self.outside.put(key, packet[start:])
        elif kind is Kind.SUB:
            self._subscribe(client, key)
        elif kind is Kind.UNSUB:
            self._unsubscribe(client, key)
        elif key == WHOAMI:
            client.deliver(b"CMSG %s\0%s" % (WHOAMI, client.who.key), client, is_answer=True)
        else:
            client.choose(key)

    def publish(self, key: bytes, packet: bytes, sender: Sender) -> None:
        """Sends a message to all who have subscribed to its key.

        Args:
            key: the key.
            packet: the message, as it is sent.
            sender: who has sent it.
        """
        for client in self._index.find(key):
            if client is sender and not client.echoes:
                continue
            try:
                client.deliver(packet, sender)
            except Gone as error:
                self._dismiss(client, str(error))

    def _subscribe(self, client: Client, pattern: bytes) -> None:
        try:
            patterns = admitted(pattern, client.who)
        except NotOwn:
            raise Gone("it has subscribed to secret messages that are not for it") from None
        if client.subscriptions >= self.limits.max_subscriptions or client.pattern_bytes + cost(pattern) > PATTERN_BYTES:
            raise Gone("it has subscribed to too much")
        try:
            for each in patterns:
                self._index.add(each, client)
        except TooDeep:
            raise Gone("it has subscribed to a pattern with a * behind too many slashes") from None
        client.patterns[pattern] += 1
        client.subscriptions += 1
        client.pattern_bytes += cost(pattern)

    def _unsubscribe(self, client: Client, pattern: bytes) -> None:
        if pattern not in client.patterns:
            return
        client.patterns[pattern] -= 1
        if not client.patterns[pattern]:
            del client.patterns[pattern]
        client.subscriptions -= 1
        client.pattern_bytes -= cost(pattern)
        for each in admitted(pattern, client.who):
            self._index.remove(each, client)

    # ------------------------------------------------------------------------------------------ what is looked at now and then

    async def _oversee(self) -> None:
        """Wakes up only while there is something to look at."""
        told = -math.inf
        while True:
            await self._watch.wait()
            await trio.sleep(WATCH_SECONDS)
            self._watch = trio.Event()
            now = time.monotonic()
            for client in list(self.clients.values()):
                if client.holds and client.holds != {client}:
                    self.worried()
                    if now - client.progress > self.limits.patience:
                        self._dismiss(client, f"others have waited {self.limits.patience:g} s for it to read")
            if not self._listens:
                self._listen()
            if now - told > TELL_SECONDS:
                told = now
                self._tell()
            elif self._said_discarded != self.discarded:
                self.worried()

    def _tell(self) -> None:
        number, self._said_discarded = self.discarded - self._said_discarded, self.discarded
        if number:
            self._life.warn(f"{counted(number, 'message')} discarded for clients that do not read")
