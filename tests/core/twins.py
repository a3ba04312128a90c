"""The bus and a naive one side by side: makes a call on both and compares all that there is to compare."""

import re
from collections.abc import Callable
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from futebus.core import stat
from futebus.core.bus import Bus
from futebus.core.client import Client, Effects
from futebus.core.errors import BusError

from .model import NaiveBus
from .records import Ending, NaiveChannel, NaiveClient, Token

Result = TypeVar("Result")

CONTROL = re.compile(rb"\{[0-9a-f]+:[oc]\}\n")


class Twins(RuleBasedStateMachine):
    """What a rule machine needs that has only to say which calls there are. It sets `naive` and `bus`."""

    def __init__(self) -> None:
        super().__init__()
        self.naive: NaiveBus
        self.bus: Bus
        self.looks = True
        """Whether every client is polled after each call. That is no change, but it might be to a bus with an error."""
        self.real: dict[NaiveClient, Client] = {}
        self.output: dict[NaiveClient, bytes] = {}
        """What each client still has to write."""
        self.origins: list[NaiveClient] = []
        """Who wrote the line of each number."""
        self.input: dict[NaiveClient, bytes] = {}
        """What each client has read of a message."""
        self.heard: dict[tuple[NaiveClient, NaiveClient], int] = {}
        """The last line that the first has read of the second."""
        self.readiness: dict[NaiveClient, tuple[bool, bool, bool | None, bool]] = {}
        """What each client could do before the call that is being made."""
        self.caller: NaiveClient | None = None
        """Who makes it, if it is a read or a write."""
        self.offered = 0
        """How many bytes it was to write."""
        self.was_short = False
        """Whether it has written less, and does not wait."""

    def begin(self) -> None:
        self.naive.now += 1
        self.naive.finished.clear()
        self.readiness = {client: self.naive.readiness(client) for client in self.naive.clients}

    def agree(self, real: Callable[[], tuple[Result, Effects]], naive: Callable[[], Result]) -> Result | type[BusError]:
        """Makes a call on both buses and compares what comes of it."""
        self.begin()
        result: Result | type[BusError]
        expected: Result | type[BusError]
        try:
            result, effects = real()
        except BusError as error:
            result, effects = type(error), Effects(self.naive.now)
        self.go_on(effects)
        self.naive.taken = self.taken(effects)
        try:
            expected = naive()
        except BusError as error:
            expected = type(error)
        assert result == expected
        self.was_short = isinstance(result, int) and result < self.offered
        self.compare(effects)
        return result

    def go_on(self, effects: Effects) -> None:
        """Does what was left for later."""
        assert effects.failure is None
        while effects.later:
            more = self.bus.go_on(effects.later.pop(0), self.naive.now)
            effects.finished += more.finished
            effects.ready += more.ready
            effects.later += more.later

    @staticmethod
    def taken(effects: Effects) -> dict[Token, bytes]:
        return {token: value for token, value in effects.finished if isinstance(token, tuple) and isinstance(value, bytes)}

    def compare(self, effects: Effects) -> None:
        endings: list[tuple[Token, Ending]] = []
        for token, value in effects.finished:
            assert isinstance(token, tuple)
            endings.append((token, type(value) if isinstance(value, BusError) else value))
        assert self.in_queues(endings) == self.in_queues(self.naive.finished)
        for token, ending in endings:
            self.end(token, ending)
        self.compare_ready(effects.ready)

    def in_queues(self, endings: list[tuple[Token, Ending]]) -> dict[object, list[tuple[Token, Ending]]]:
        """Order matters among the reads of a client and among the writes of a channel."""
        queues: dict[object, list[tuple[Token, Ending]]] = {}
        for token, ending in endings:
            client = self.client_of(token)
            queues.setdefault((token[0], client if token[0] == "r" else client.channel), []).append((token, ending))
        return queues

    def client_of(self, token: Token) -> NaiveClient:
        return next(client for client in self.real if client.key == token[1])

    def end(self, token: Token, ending: Ending) -> None:
        """A waiting call has ended."""
        client = self.client_of(token)
        if isinstance(ending, bytes):
            self.hear(client, ending)
        elif isinstance(ending, int):
            self.output[client] = self.output[client][ending:]
        else:
            self.output[client] = b""

    def compare_ready(self, ready: list[Client]) -> None:
        """A poller is told once of a change from not ready to ready, and of little else."""
        assert len(ready) == len(set(ready))
        for client in self.naive.clients:
            before = self.readiness.get(client)
            after = self.naive.readiness(client)
            was_told = self.real[client] in ready
            if before is None or not client.is_armed:
                assert not was_told
                continue
            became = [old is False and new is True for old, new in zip(before, after, strict=True)]
            may = any(became) or None in (before[2], after[2]) or self.naive.is_down
            if client is self.caller:
                # A master's read: it took the last message, and a write that waited brought the next.
                may = may or (client.role == "master" and after[0])
                # A write that was short though there is place.
                may = may or (self.was_short and after[2] is not False)
            is_owed = self.naive.is_owed(client)
            may = may or is_owed
            assert was_told or not (any(became) or is_owed)
            assert may or not was_told
            if was_told:
                client.is_armed = False
                self.note_told(client)
        assert set(ready) <= {self.real[client] for client in self.naive.clients}

    def hear(self, client: NaiveClient, piece: bytes) -> None:
        """What a client has read: from whom it may be, each line once, and each writer's lines in their order."""
        *messages, self.input[client] = (self.input[client] + piece).split(b"\n")
        for message in messages:
            letter, numbers = client.channel.letter, re.findall(rb"<([0-9a-f]+)>", message)
            if CONTROL.fullmatch(message + b"\n"):
                assert (letter, client.role) == ("S", "master")
            elif letter in "UB":
                assert numbers
            for digits in numbers:
                number = int(digits, 16)
                writer = self.origins[number]
                assert writer.channel is client.channel
                assert writer is not client or letter == "A"
                assert letter not in "US" or (writer.role == "master") is not (client.role == "master")
                if letter == "A" or (letter, client.role) == ("S", "master"):
                    assert message.startswith(b"{%x}" % writer.id)
                assert self.heard.get((client, writer), -1) < number
                self.heard[client, writer] = number

    def check_readiness(self, client: NaiveClient, *, arm: bool) -> None:
        real = self.bus.poll(self.real[client], arm=arm)
        for is_set, expected in zip(real, self.naive.readiness(client), strict=True):
            assert expected in (is_set, None)
        self.note_told(client)

    def note_told(self, client: NaiveClient) -> None:
        """Who has asked, or was told, knows now that its message fits, if it does."""
        if client.wants and self.naive.is_writable(client):
            client.was_told = True
        if self.naive.is_owed(client):
            client.overtaken = 0

    # ------------------------------------------------------------------------------------------ invariants

    @invariant()
    def check(self) -> None:
        """The buses are alike, and every client is as ready as it should be."""
        naive = self.naive
        if self.looks:
            for client in naive.clients:
                self.check_readiness(client, arm=False)
        record = stat.take(self.bus, naive.now)
        assert set(self.bus.channels) == set(naive.names)
        assert record.named_channels == len(naive.names)
        assert record.is_shutting_down is naive.is_down
        assert self.bus.waiting == sum(len(client.reading) + bool(client.writing) for client in naive.clients)
        assert any(client.mailbox for client in self.bus.clients) is any(client.has_something for client in naive.clients)
        channels = sorted(
            (channel for channel in naive.channels if channel.is_named or channel.clients),
            key=lambda channel: (channel.name, channel.number),
        )
        for real, expected in zip(record.channels, channels, strict=True):
            self.compare_channels(real, expected)

    def compare_channels(self, real: stat.ChannelStat, naive: NaiveChannel) -> None:
        assert real.name == naive.name
        assert real.state == ("dead" if naive.is_dead else "live" if naive.is_named else "removed")
        assert (real.messages_in, real.bytes_in) == (naive.messages_in, naive.bytes_in)
        assert (real.messages_out, real.bytes_out) == (naive.messages_out, naive.bytes_out)
        assert real.dropped == naive.dropped
        assert real.lost == naive.lost + naive.lost_controls
        # Every copy of a message is somewhere, once.
        waiting = sum(client.rlist for client in real.clients)
        assert naive.copies == real.copies == real.messages_out + real.dropped + real.lost + waiting
        clients = sorted(naive.clients, key=lambda client: client.id)
        for record, expected in zip(real.clients, clients, strict=True):
            self.compare_clients(record, expected)
        if naive.clients:
            channel = self.real[naive.clients[0]].channel
            assert (channel.mtime, channel.atime) == (naive.mtime, naive.atime)

    def compare_clients(self, real: stat.ClientStat, naive: NaiveClient) -> None:
        assert (real.id, real.role, real.uid) == (naive.id, naive.role, naive.uid)
        assert (real.reads, real.writes, real.bulk) == (naive.reads, naive.writes, naive.bulk)
        assert (real.sent, real.received, real.dropped) == (naive.sent, naive.received, naive.dropped)
        assert (real.wbuf, real.rbuf, real.rlist) == (len(naive.wbuf), len(naive.rbuf), len(naive.rlist))
        assert self.real[naive].mailbox.rbuf == naive.rbuf
        assert bytes(self.real[naive].wbuf.partial) == naive.wbuf
        assert self.real[naive].mailbox.size == sum(len(message.data) for message in naive.counted)
        if naive.writing:
            assert (real.waits_to, real.waits_for) == ("write", self.naive.now - naive.writing[2])
        elif naive.reading:
            assert (real.waits_to, real.waits_for) == ("read", self.naive.now - naive.reading[0][2])
        else:
            assert real.waits_to == ""
