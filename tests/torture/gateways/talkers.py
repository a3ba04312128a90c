"""Honest peers of a gateway whose messages go to everybody: they talk, they listen, and they write down what they do and hear.

One that speaks to the gateway hears itself, and so knows what was accepted; one on the channel knows by write(2). When it is told
to come to its end, it says a last message, waits until all of its own are accepted, tells that it is quiet, and listens on to the
very last text.
"""

import select
import signal
import socket
import time
from pathlib import Path

from ..record import text_of
from .board import Board
from .forms import END
from .orders import Orders, Worker
from .sessions import PATIENCE, Cut, Session, Stream, await_, session

SIZES = (0, 1, 10, 40, 200, 900, 5000)
NUDGE = 1.0
"""Seconds after which one that hears nothing of what it has said says one thing more. The rest may have gone with a bus."""


class Talker(Worker):
    """A peer that talks and listens."""

    buffer = 0

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.sessions = 0
        self.total = 0
        self.board = Board(orders.board, orders.row)

    def run(self) -> None:
        """Lives: connects, again and again if need be."""
        while True:
            made = self._connect()
            self.sessions += 1
            where = str(self.sessions)
            try:
                texts = made.greet()
                self.note("session", where, self.orders.side)
                if not self.orders.is_slow:
                    self.board.listen()
                if self.sessions == 1:
                    self.tell("ready")
                Conversation(self, made, where).hold(texts)
                self.note("lost", where, made.lost, made.lost_perhaps)
            except Cut:
                self.note("over", where, "cut")
                continue
            finally:
                self.board.leave()
                made.close()
            self.note("over", where, "own")
            return

    def _connect(self) -> Session:
        end = time.monotonic() + PATIENCE
        orders = self.orders
        while True:
            try:
                return session(
                    self.who, orders.name, orders.side, self.dice, orders.address, Path(orders.channel), buffer=self.buffer
                )
            except Cut:
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.who} cannot connect") from None
                signal.sigtimedwait(set(), 0.02)

    def prepare(self, made: Session) -> None:
        """Does something odd with a new connection."""


class Sleeper(Talker):
    """One that does not read until it is woken."""

    buffer = 65_536

    def prepare(self, made: Session) -> None:
        poll = select.poll()
        if not isinstance(made, Stream) or made.socket.family != socket.AF_INET:
            poll.register(made, 0)  # if it is dismissed, it wakes by itself
        while not self.is_awake and not poll.poll(100):
            pass
        made.answers = 0
        made.say(made.form.probe(self.who))
        while not made.answers:
            made.push()
            await_(made, 1.0)
            self.note("got", str(self.sessions), made.take())
        self.tell("quiet")


class Half(Talker):
    """One that has closed its sending side, and listens."""

    def prepare(self, made: Session) -> None:
        assert isinstance(made, Stream)
        made.socket.shutdown(socket.SHUT_WR)
        self.tell("quiet")


class Conversation:
    """What is said and heard by one connection."""

    def __init__(self, talker: Talker, made: Session, where: str) -> None:
        self.talker, self.session, self.where = talker, made, where
        self.orders, self.dice, self.note = talker.orders, talker.dice, talker.note
        self.is_mute = type(talker) is not Talker
        self.number = 0
        """Messages that were said."""
        self.accepted = 0
        """Of these."""
        self.ends = 0
        self.said_at = time.monotonic()
        self.last = -1
        """The last message, when it has been said."""
        self.is_quiet = False

    def hold(self, texts: list[bytes]) -> None:
        """Holds it, up to the last text.

        Raises:
            Cut: it was ended by the other side.
        """
        self._hear(texts)
        self.talker.prepare(self.session)
        next_at = 0.0
        while self.ends < self.orders.ends:
            now = time.monotonic()
            if not self.is_mute and now >= next_at:
                self._talk(now)
                next_at = now + self.dice.uniform(0, self.orders.pause)
            before = self.session.accepted
            self.session.push()
            if not self.session.hears_itself and self.session.accepted > before:
                self.accepted = self.session.accepted
                self.note("accepted", self.where, self.accepted)
            if await_(self.session, min(max(next_at - now, 0), 0.1) if not self.is_quiet else 0.5) & ~select.POLLOUT:
                self._hear(self.session.take())
            if not self.is_quiet and -1 < self.last <= self.accepted - 1:
                self.is_quiet = True
                self.talker.tell("quiet")

    def _talk(self, now: float) -> None:
        orders = self.orders
        if self.talker.is_over:
            if self.last < 0 or (not self.is_quiet and now > self.said_at + NUDGE and not self.session.is_full):
                self._say(1)
                self.last = self.number - 1
        elif self.session.is_full or self.talker.total >= orders.limit or not self.talker.board.has_place():
            pass
        elif self.number - self.accepted < orders.window:
            self._say(min(self.dice.randrange(1, orders.burst + 1), orders.limit - self.talker.total))
        elif now > self.said_at + NUDGE:
            self._say(1)

    def _say(self, count: int) -> None:
        self.said_at = time.monotonic()
        self.note("send", self.where, self.number, count)
        texts = [text_of(self.talker.who, self.where, self.number + n, "-", self.dice.choice(SIZES)) for n in range(count)]
        size = sum(map(len, texts))
        self.talker.board.say(size)
        if not self.session.hears_itself:
            self.talker.board.hear(size)
        for number, text in enumerate(texts, self.number):
            self.session.say(self.session.form.wrap(text, number))
        self.number += count
        self.talker.total += count

    def _hear(self, texts: list[bytes]) -> None:
        if not texts:
            return
        self.note("got", self.where, texts)
        self.talker.board.hear(sum(map(len, texts)))
        if END in texts:
            self.ends += texts.count(END)
        mine = b"%s %s " % (self.talker.who.encode(), self.where.encode())
        for text in reversed(texts):
            if text.startswith(mine):
                self.accepted = max(self.accepted, int(text.split(b" ", 3)[2]) + 1)
                break
