"""The bus against a naive one: any calls in any order, and after each of them the two must agree on everything."""

import re
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from futebus.core import stat
from futebus.core.bus import Bus
from futebus.core.client import Access, Client, Effects, Owner
from futebus.core.errors import BusError, WouldBlock
from futebus.core.limits import Limits

from .model import LAST_ID, Ending, NaiveBus, NaiveChannel, NaiveClient, Rules, Token

MAX_MESSAGE = 12

Result = TypeVar("Result")

NAMES = [b"U", b".U", b"A", b"S", b".S", b"B", b"B2"]
SIZES = [1, 2, 5, 7, 12, 30, 4096]
INDEX = st.integers(0, 99)

# What a line is made of. The number of the line stands in `<>`, so that every message tells where it is from.
ADDRESSES = ["{*}", "{1}", "{2}", "{3}", "{4}", "{03}", "{99}", "{1:o}", ""]
BODIES = ["plain", "plain", "plain", "bytes", "padded", "longest", "too long", "empty"]
PIECES = st.sampled_from([1000, 1000, 1000, 1000, 9, 3, 1])
MOSTLY = st.sampled_from([True, True, True, False])
MOSTLY_NOT = st.sampled_from([False, False, False, True])
LINES = st.lists(st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(BODIES)), min_size=1, max_size=6)
# All to the same.
SAME = st.builds(
    lambda address, bodies: [(address, body) for body in bodies],
    st.sampled_from(ADDRESSES),
    st.lists(st.sampled_from(BODIES), min_size=2, max_size=6),
)

CONTROL = re.compile(rb"\{[0-9a-f]+:[oc]\}\n")


def line(address: str, body: str, number: int) -> bytes:
    mark = f"{address}<{number:x}>".encode()
    return {
        "plain": mark,
        "bytes": mark + b"\x00\xff",
        "padded": mark.ljust(MAX_MESSAGE - 3, b"."),
        "longest": mark.ljust(MAX_MESSAGE - 1, b"."),
        "too long": mark.ljust(MAX_MESSAGE, b"."),
        "empty": address.encode(),
    }[body] + b"\n"


class BusMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.keys = 0
        self.tokens: list[Token] = []
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

    @initialize(
        bulk=st.booleans(),
        queue_bytes=st.sampled_from([24, 24, 12, 8]),
        name=st.sampled_from([b".U", b".U", b".S", b".S", b"A", b"B"]),
        accesses=st.lists(st.sampled_from(["rw", "rw", "rw", "w", "r"]), min_size=2, max_size=5),
        used_ids=st.sampled_from([0, 0, 0, LAST_ID - 3]),
    )
    def start(self, bulk: bool, queue_bytes: int, name: bytes, accesses: list[str], used_ids: int) -> None:
        rules = Rules(MAX_MESSAGE, 3, queue_bytes, max_clients=9, max_clients_per_user=4, max_channels=3, bulk=bulk)
        limits = Limits(
            max_message=rules.max_message,
            max_queue=rules.max_queue,
            max_queue_bytes=rules.max_queue_bytes,
            max_clients=rules.max_clients,
            max_clients_per_user=rules.max_clients_per_user,
            max_channels=rules.max_channels,
        )
        self.naive = NaiveBus(rules)
        self.bus = Bus(limits, bulk=bulk)
        self.open(name, "rw", 0, plus=False, exclusive=False)
        if used_ids:
            # The channel has seen many clients already.
            (channel,) = self.bus.channels.values()
            channel._last_id = self.naive.channels[0].last_id = used_ids
        for access in accesses:
            self.open(name.removeprefix(b"."), access, 0, plus=False, exclusive=False)

    # ------------------------------------------------------------------------------------------ comparing

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
        self.naive.taken = self.taken(effects)
        try:
            expected = naive()
        except BusError as error:
            expected = type(error)
        assert result == expected
        self.compare(effects)
        return result

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
        """A poller is told once of a change from not ready to ready, and of nothing else."""
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
                # A write: a smaller message of its own fitted, and it knows by itself that it can write.
                became[2] = False
                # A master's read: it took the last message, and a write that waited brought the next.
                may = may or (client.role == "master" and after[0])
            assert was_told or not any(became)
            assert may or not was_told
            client.is_armed = client.is_armed and not was_told
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

    # ------------------------------------------------------------------------------------------ coming and going

    def pick(self, index: int, likely: Callable[[NaiveClient], bool] = lambda _: True) -> NaiveClient:
        """A client; one of the unlikely ones now and then, or if there are no others."""
        clients = self.naive.clients
        if index % 10:
            clients = [client for client in clients if likely(client)] or clients
        return clients[index // 10 % len(clients)]

    @rule(
        name=st.sampled_from(NAMES),
        access=st.sampled_from(["rw", "rw", "r", "w"]),
        uid=st.sampled_from([0, 0, 0, 7]),
        plus=st.booleans(),
        exclusive=st.sampled_from([False, False, False, True]),
    )
    def open(self, name: bytes, access: str, uid: int, plus: bool, exclusive: bool) -> None:
        self.begin()
        self.caller = None
        full_name = b"+" + name if plus else name
        refusals = self.naive.refusals(full_name, uid, exclusive)
        try:
            client, effects = self.bus.create(
                full_name,
                Access("r" in access, "w" in access),
                Owner(uid, 0, 1),
                0o644,
                self.naive.now,
                exclusive=exclusive,
            )
        except tuple(refusals):
            return
        assert not refusals
        self.keys += 1
        self.naive.taken = self.taken(effects)
        naive = self.naive.create(self.keys, full_name, "r" in access, "w" in access, uid)
        self.real[naive] = client
        self.output[naive] = self.input[naive] = b""
        self.compare(effects)

    @precondition(lambda self: len(self.naive.clients) > 1)
    @rule(index=INDEX)
    def close(self, index: int) -> None:
        client = self.pick(index)
        if client.writing and client.channel.letter == "S":
            # Whether the next in the queue or `{ID:c}` comes first is not for the contract to say.
            self.cancel_one(client.writing[0])
        real = self.real[client]
        self.caller = None
        self.agree(lambda: (None, self.bus.close(real, self.naive.now)), lambda: self.naive.close(client))

    @rule(what=st.sampled_from(["nothing"] * 8 + ["U", "A", "S", "B", "B2", "+B", "shut down"]))
    def unlink_or_shut_down(self, what: str) -> None:
        """The calls after which there is less to see."""
        self.caller = None
        name = what.encode()
        if what == "shut down":
            if not self.naive.is_down:
                self.agree(lambda: (None, self.bus.shut_down(self.naive.now)), self.naive.shut_down)
        elif what != "nothing":
            self.agree(lambda: self.unlink(name), lambda: self.naive.unlink(name))

    def unlink(self, name: bytes) -> tuple[None, Effects]:
        self.bus.unlink(name, self.naive.now)
        return None, Effects(self.naive.now)

    # ------------------------------------------------------------------------------------------ messages

    def token(self, client: NaiveClient, letter: str) -> Token:
        self.tokens.append((letter, client.key, len(self.tokens)))
        return self.tokens[-1]

    @rule(index=INDEX, lines=st.just([]) | LINES | SAME, torn=st.booleans(), size=PIECES, waits=st.booleans(), stays=MOSTLY)
    def write(self, index: int, lines: list[tuple[str, str]], torn: bool, size: int, waits: bool, stays: bool) -> None:
        self.write_as(self.pick(index, lambda client: client.writes and not client.writing), lines, torn, size, waits, stays)

    @precondition(lambda self: any(client.role == "slave" for client in self.naive.clients))
    @rule(turns=st.lists(st.tuples(INDEX, LINES), min_size=2, max_size=6), waits=MOSTLY)
    def slaves_write(self, turns: list[tuple[int, list[tuple[str, str]]]], waits: bool) -> None:
        """What a full master does is the heart of it: so here is more that fills one."""
        for index, lines in turns:
            client = self.pick(index, lambda client: client.role == "slave" and client.writes and not client.writing)
            self.write_as(client, lines, torn=False, size=1000, waits=waits, stays=True)
            self.check()

    def write_as(
        self, client: NaiveClient, lines: list[tuple[str, str]], torn: bool, size: int, waits: bool, stays: bool
    ) -> None:
        """Writes on as a program does that has these lines to write; `torn`: without the last newline, `stays`: by its mind."""
        if client.writing:
            return
        addressed = (client.channel.letter, client.role) in (("A", "peer"), ("S", "master"))
        for address, body in lines:
            self.output[client] += line(address if addressed else "", body, len(self.origins))
            self.origins.append(client)
        if torn:
            self.output[client] = self.output[client].removesuffix(b"\n")
        data = self.output[client][:size]
        if not data:
            return
        token = self.token(client, "w") if waits else None
        real = self.real[client]
        self.caller = client
        result = self.agree(
            lambda: self.bus.write(real, data, self.naive.now, token),
            lambda: self.naive.write(client, data, token),
        )
        if isinstance(result, int):
            self.output[client] = self.output[client][result:]
        elif result not in (None, WouldBlock) or not stays:
            self.output[client] = b""

    @rule(index=INDEX, size=st.sampled_from(SIZES), waits=st.booleans())
    def read(self, index: int, size: int, waits: bool) -> None:
        self.read_as(self.pick(index, lambda client: client.reads), size, waits)

    def read_as(self, client: NaiveClient, size: int, waits: bool) -> None:
        token = self.token(client, "r") if waits and len(client.reading) < 3 else None
        real = self.real[client]
        self.caller = client
        result = self.agree(
            lambda: self.bus.read(real, size, self.naive.now, token),
            lambda: self.naive.read(client, size, token),
        )
        if isinstance(result, bytes):
            self.hear(client, result)

    @precondition(lambda self: any(client.role == "master" for client in self.naive.clients))
    @rule(index=INDEX, size=st.sampled_from(SIZES), times=st.integers(1, 4))
    def read_as_master(self, index: int, size: int, times: int) -> None:
        master = self.pick(index, lambda client: client.role == "master" and client.reads)
        for _ in range(times):
            self.read_as(master, size, waits=False)
            self.check()

    @precondition(lambda self: self.tokens)
    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        waiting = list(filter(self.is_waiting, self.tokens))
        self.cancel_one(waiting[index % len(waiting)] if waiting and index > 10 else self.tokens[index % len(self.tokens)])

    def is_waiting(self, token: Token) -> bool:
        return any(
            (client.writing and client.writing[0] == token) or any(token == waiting for waiting, _, _ in client.reading)
            for client in self.naive.clients
        )

    def cancel_one(self, token: Token) -> None:
        def real() -> tuple[bool, Effects]:
            effects = self.bus.cancel(token, self.naive.now)
            return effects is not None, effects or Effects(self.naive.now)

        self.caller = None
        self.agree(real, lambda: self.naive.cancel(token))

    # ------------------------------------------------------------------------------------------ readiness

    @rule(indices=st.lists(INDEX, min_size=1, max_size=4))
    def arm(self, indices: list[int]) -> None:
        for client in map(self.pick, indices):
            client.is_armed = True
            self.check_readiness(client, arm=True)

    def check_readiness(self, client: NaiveClient, *, arm: bool) -> None:
        real = self.bus.poll(self.real[client], arm=arm)
        for is_set, expected in zip(real, self.naive.readiness(client), strict=True):
            assert expected in (is_set, None)
        if client.wants and self.naive.is_writable(client):
            client.was_told = True

    # ------------------------------------------------------------------------------------------ invariants

    @invariant()
    def check(self) -> None:
        """The buses are alike, and every client is as ready as it should be."""
        naive = self.naive
        for client in naive.clients:
            self.check_readiness(client, arm=False)
        record = stat.take(self.bus, naive.now)
        assert set(self.bus.channels) == set(naive.names)
        assert record.named_channels == len(naive.names)
        assert record.is_shutting_down is naive.is_down
        assert self.bus.waiting == sum(len(client.reading) + bool(client.writing) for client in naive.clients)
        assert self.bus.has_unread is any(client.has_something for client in naive.clients)
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
        # Whether control messages are lost as others are is not for the contract to say.
        assert real.lost in (naive.lost, naive.lost + naive.lost_controls)
        # Every copy of a message is somewhere, once.
        waiting = sum(client.rlist for client in real.clients)
        assert naive.copies == real.messages_out + real.dropped + waiting + naive.lost + naive.lost_controls
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


@pytest.mark.timeout(900)  # a failure is made small before it is shown
class TestBus(BusMachine.TestCase):  # type: ignore[misc,valid-type]
    # Histories are long and the interesting ones rare.
    settings = settings(max_examples=6 * settings().max_examples)
