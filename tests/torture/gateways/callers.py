"""Those who ask a service by way of a gateway, and the service. Each request has one answer, in the order of the requests."""

import contextlib
import socket
import time
from collections import deque
from pathlib import Path

import futebus.client as client

from ..record import text_of
from .kinds import KINDS
from .orders import Orders, Worker
from .sessions import PATIENCE, Cut, Stream, await_

SIZES = (0, 1, 10, 40, 200, 900, 5000)


class Caller(Worker):
    """Asks, and looks at each answer. A connection of a method ends when the dice say so, that of a rest after one request."""

    sleeps = False

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.sessions = 0
        self.total = 0
        self.is_rest = orders.name.endswith(".rest")

    def run(self) -> None:
        """Asks until it is told to end."""
        end = time.monotonic() + PATIENCE
        while not self.is_over and self.total < self.orders.limit:
            try:
                made = Stream(self.who, KINDS[self.orders.name].form, self.dice, self.orders.address)
            except Cut:
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.who} cannot connect") from None
                time.sleep(0.02)
                continue
            self.sessions += 1
            self.note("session", str(self.sessions), "gateway")
            if self.sessions == 1:
                self.tell("ready")
            try:
                Questions(self, made, str(self.sessions)).ask()
                self.note("over", str(self.sessions), "own")
            except Cut:
                self.note("over", str(self.sessions), "cut")
            finally:
                made.close()
            end = time.monotonic() + PATIENCE
        self.tell("quiet")


class Dozer(Caller):
    """Asks much, and reads no answer until it is woken."""

    sleeps = True


class Questions:
    """What is asked by one connection."""

    def __init__(self, caller: Caller, made: Stream, where: str) -> None:
        self.caller, self.session, self.where = caller, made, where
        self.asked: deque[bytes] = deque()
        """What has no answer yet."""
        self.number = self.answered = self.errors = 0
        self.rest = b""

    def ask(self) -> None:
        """Asks, ends what it sends, and reads all answers to the end of the connection.

        Raises:
            Cut: it was ended by the other side before.
        """
        caller = self.caller
        try:
            self._ask()
        finally:
            caller.note("count", "answers", self.answered)
            caller.note("count", "errors instead of answers", self.errors)

    def _ask(self) -> None:
        caller, session, dice = self.caller, self.session, self.caller.dice
        many = 2500 if caller.sleeps else dice.choice((1, 5, 20, 40) if caller.is_rest else (1, 5, 50, 500))
        is_sending = True
        while True:
            if is_sending and not session.is_full:
                count = min(dice.randrange(1, caller.orders.burst + 1), many - self.number)
                if count <= 0 or caller.is_over:
                    is_sending = False
                    session.socket.shutdown(socket.SHUT_WR)
                elif len(self.asked) < caller.orders.window or caller.sleeps:
                    self._send(count)
            session.push()
            if not self.caller.sleeps or self.caller.is_awake:
                waits = is_sending and len(self.asked) < caller.orders.window
                if await_(session, dice.uniform(0, caller.orders.pause) if waits else 0.5) and not self._read():
                    break
            else:
                time.sleep(0.01)
        for _ in self.asked:
            self._wrong(f"{caller.who} has no answer to {self.asked[0][:60]!r}, and {len(self.asked) - 1} more")
            break

    def _send(self, count: int) -> None:
        caller = self.caller
        caller.note("send", self.where, self.number, count)
        for number in range(self.number, self.number + count):
            line = self.session.form.wrap(text_of(caller.who, self.where, number, "-", caller.dice.choice(SIZES)), number)
            self.session.say(line)
            self.asked.append(line[:-1])
        self.number += count
        caller.total += count

    def _read(self) -> bool:
        """Reads answers. Returns False at the end that was to come."""
        try:
            data = self.session.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError as error:
            raise Cut from error
        if not data:
            if self.asked and self.caller.orders.may_fail:
                raise Cut
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            asked = self.asked.popleft() if self.asked else b""
            if line.startswith(b"\a") and self.caller.orders.may_fail:
                self.errors += 1
                if self.caller.is_rest:
                    self.asked.clear()
            elif line == asked.upper() and line:
                self.answered += 1
            else:
                self._wrong(f"{self.caller.who} got {line[:60]!r} for an answer to {asked[:60]!r}")
        return True

    def _wrong(self, words: str) -> None:
        self.caller.note("wrong", words)


class Answerer(Worker):
    """The service: it answers in capitals, and writes down what it was asked."""

    def run(self) -> None:
        """Serves until it is told to end."""
        sessions = 0
        while not self.is_over:
            try:
                service = client.serve(Path(self.orders.channel), bytes, wait=1.0)
                service.__enter__()
            except client.ClientError:
                continue
            sessions += 1
            if sessions == 1:
                self.tell("ready")
            with contextlib.closing(service), contextlib.suppress(client.Ended, client.NoBus):
                while not self.is_over:
                    with contextlib.suppress(client.TimedOut):
                        self._answer(service, str(sessions))

    def _answer(self, service: "client.Service[bytes]", where: str) -> None:
        asked = [service.read(timeout=0.1)]
        while service.pending:
            try:
                asked.append(service.read(timeout=0))
            except client.TimedOut:  # somebody has come or gone
                break
        self.note("asked", where, [text for _, text in asked])
        answers: dict[int, list[bytes]] = {}
        for who, text in asked:
            answers.setdefault(who, []).append(text.upper())
        for who, lines in answers.items():
            service.answer(who, *lines)
