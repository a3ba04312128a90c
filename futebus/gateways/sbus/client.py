"""One client of an sbus: its socket, what it has asked for, and what waits for it.

The one rule: a client never waits for another one that has not asked for that. What its socket does not take at once waits in its
backlog or is gone, by its own choice; only a choice to block holds up those who send to it, and them alone.
"""

import errno
import socket
import struct
import time
from collections import Counter
from typing import Protocol

from .backlog import Backlog, Hard, Order, Soft
from .keys import Credentials
from .limits import SEND_BUFFER, Limits

_UCRED = struct.Struct("=iII")
"""struct ucred of unix(7): process, user, group."""


class Gone(Exception):
    """A client must be dismissed. The text says why, for the log."""


class Overseer(Protocol):
    """Who is told what happens to clients."""

    limits: Limits

    def changed(self, client: "Client") -> None:
        """It waits for something else than before."""

    def lost(self) -> None:
        """A message for it was discarded."""

    def worried(self) -> None:
        """It holds up others."""


class Sender:
    """Somebody who sends messages, and may have to wait until others have taken them."""

    def __init__(self) -> None:
        self.held_by: set[Client] = set()
        """Who must take something first."""

    def turned(self) -> None:
        """Is told that it is held up now, or not any more."""


def peer_of(connected: socket.socket) -> Credentials:
    """Who is at the other end."""
    pid, uid, gid = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Credentials(gid, uid, pid)


class Client(Sender):
    """A client that is connected.

    Args:
        connected: its socket.
        who: its credentials.
        overseer: is told what happens.
    """

    def __init__(self, connected: socket.socket, who: Credentials, overseer: Overseer) -> None:
        super().__init__()
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.socket = connected
        self.number = connected.fileno()
        self.who = who
        self.patterns: Counter[bytes] = Counter()
        """What it has subscribed to, and how often."""
        self.subscriptions = 0
        """How many in all."""
        self.pattern_bytes = 0
        """And their bytes."""
        self.echoes = True
        self.soft = Soft.QUEUE
        self.hard = Hard.DISCARD
        self.backlog = Backlog()
        self.holds: set[Sender] = set()
        """Who is not heard until it has taken something. It can be among them."""
        self.progress = 0.0
        """When it last took something of what waits, or began to hold somebody up."""
        self.is_open = True
        self.is_deaf = False
        """Whether it cannot be sent anything any more. What it has sent before is still taken."""
        self.was_reset = False
        self.mask = 0
        """What of it epoll is asked for."""
        self._overseer = overseer

    # ------------------------------------------------------------------------------------------ what it is sent

    def deliver(self, packet: bytes, sender: Sender, *, is_answer: bool = False) -> None:
        """Sends a packet, or does what the client has chosen if that cannot be done at once.

        Args:
            packet: the packet.
            sender: who has sent it.
            is_answer: whether the client has asked for it. Then it is never discarded: who asks and does not read is not heard.

        Raises:
            Gone: the client is to be dismissed.
        """
        if self.is_deaf:
            return
        if not self.backlog:
            try:
                self.socket.send(packet)
                return
            except BlockingIOError:
                pass
            except OSError as error:
                self._failed(error)
                return
        if self.soft is Soft.ERROR:
            raise Gone("it does not read, and has asked to be dismissed then")
        patience = self._overseer.limits.patience
        has_place = self._has_place(packet)
        if is_answer or (self.soft is Soft.BLOCK and patience):
            self._keep(packet)
            if not has_place or not is_answer:
                self._hold(sender)
        elif self.soft is Soft.DISCARD:
            self._overseer.lost()
        elif has_place:
            self._keep(packet)
        elif self.hard is Hard.ERROR:
            raise Gone("it has not read too many messages, and has asked to be dismissed then")
        elif self.hard is Hard.BLOCK and patience:
            self._keep(packet)
            self._hold(sender)
        else:
            self._overseer.lost()

    def _has_place(self, packet: bytes) -> bool:
        limits = self._overseer.limits
        waiting = len(self.backlog)
        # As in a futebus, an empty queue takes any message.
        return not waiting or (waiting < limits.max_queue and self.backlog.size + len(packet) <= limits.max_queue_bytes)

    def _keep(self, packet: bytes) -> None:
        self.backlog.put(packet)
        if len(self.backlog) == 1:
            self._overseer.changed(self)

    def flush(self, count: int) -> None:
        """Sends so many packets of those that wait, if the socket takes them."""
        backlog = self.backlog
        sent = 0
        try:
            while backlog and sent < count:
                self.socket.send(backlog.first())
                backlog.drop_first()
                sent += 1
        except BlockingIOError:
            pass
        except OSError as error:
            if backlog:
                backlog.drop_first()
            self._failed(error)
        if sent:
            self.progress = time.monotonic()
            self.let_go()
        if not backlog:
            self._overseer.changed(self)

    def _failed(self, error: OSError) -> None:
        """The kernel does not take a packet, since it is too long or there is no memory, or the client cannot get it any more."""
        if error.errno in (errno.EMSGSIZE, errno.ENOBUFS, errno.ENOMEM):
            self._overseer.lost()
        else:
            self.deafen()

    def deafen(self) -> None:
        """It has closed its end, or has stopped reading for good: nothing waits for it any more."""
        self.is_deaf = True
        self.backlog.clear()
        self.let_go()
        self._overseer.changed(self)

    # ------------------------------------------------------------------------------------------ who waits for it

    def _hold(self, sender: Sender) -> None:
        if not self.holds:
            self.progress = time.monotonic()
        self.holds.add(sender)
        sender.held_by.add(self)
        sender.turned()
        self._overseer.worried()

    def let_go(self) -> None:
        """Has those heard again who wait for this client, if they need not wait any more."""
        if not self.holds or self._still_holds():
            return
        holds, self.holds = self.holds, set()
        for sender in holds:
            sender.held_by.discard(self)
            if not sender.held_by:
                sender.turned()

    def _still_holds(self) -> bool:
        waiting, limits = len(self.backlog), self._overseer.limits
        if not waiting or not self.is_open:
            return False
        if self.soft is Soft.BLOCK:
            return True
        # At the half, so that those who wait are not called for each message.
        is_full = waiting * 2 > limits.max_queue or self.backlog.size * 2 > limits.max_queue_bytes
        return is_full and (self.holds == {self} or (self.soft is Soft.QUEUE and self.hard is Hard.BLOCK))

    def turned(self) -> None:
        """Is told that it is held up now, or not any more."""
        self._overseer.changed(self)

    # ------------------------------------------------------------------------------------------ what it chooses

    def choose(self, what: bytes) -> None:
        """Does what a control message asks for, if it is one of those for the flow of messages. Others are ignored."""
        if what in SOFT:
            self.soft = SOFT[what]
        elif what in HARD:
            self.hard = HARD[what]
        elif what in ORDERS:
            self.backlog.order = ORDERS[what]
        elif what in (b"echo/on", b"echo/off"):
            self.echoes = what == b"echo/on"
        self.let_go()


SOFT = {b"blocking/soft/" + each.value.encode(): each for each in Soft}
HARD = {b"blocking/hard/" + each.value.encode(): each for each in Hard}
ORDERS = {b"order/" + each.value.encode(): each for each in Order}
