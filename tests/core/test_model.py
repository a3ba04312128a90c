"""The bus against a naive one: any calls in any order, and after each of them the two must agree on everything."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from futebus.core import channel
from futebus.core.bus import Bus
from futebus.core.channel import BROADCAST_WORK, READERS_AT_ONCE
from futebus.core.client import Access, Effects, Owner
from futebus.core.errors import BusError, WouldBlock
from futebus.core.limits import Limits

from .model import NaiveBus
from .records import LAST_ID, NaiveClient, Rules, Token
from .twins import Twins

MAX_MESSAGE = 12

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


class BusMachine(Twins):
    def __init__(self) -> None:
        super().__init__()
        self.keys = 0
        self.tokens: list[Token] = []

    @initialize(
        bulk=st.booleans(),
        queue_bytes=st.sampled_from([24, 24, 12, 8]),
        name=st.sampled_from([b".U", b".U", b".S", b".S", b"A", b"B"]),
        accesses=st.lists(st.sampled_from(["rw", "rw", "rw", "w", "r"]), min_size=2, max_size=5),
        used_ids=st.sampled_from([0, 0, 0, LAST_ID - 3]),
        looks=st.booleans(),
    )
    def start(self, bulk: bool, queue_bytes: int, name: bytes, accesses: list[str], used_ids: int, looks: bool) -> None:
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
        self.looks = looks
        self.open(name, "rw", 0, plus=False, exclusive=False)
        if used_ids:
            # The channel has seen many clients already.
            (channel,) = self.bus.channels.values()
            channel._last_id = self.naive.channels[0].last_id = used_ids
        for access in accesses:
            self.open(name.removeprefix(b"."), access, 0, plus=False, exclusive=False)

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

    @rule(index=INDEX, ends=st.sampled_from([False, False, False, True]))
    def shut(self, index: int, ends: bool) -> None:
        if ends:
            real = self.real[client := self.pick(index, lambda client: client.role == "master")]
            self.caller = None
            self.agree(lambda: (None, self.bus.shut(real, self.naive.now)), lambda: self.naive.shut(client))

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
        self.caller, self.offered = client, len(data)
        result = self.agree(lambda: self.real_write(client, data, token), lambda: self.naive.write(client, data, token))
        if isinstance(result, int):
            self.output[client] = self.output[client][result:]
        elif result not in (None, WouldBlock) or not stays:
            self.output[client] = b""

    def real_write(self, client: NaiveClient, data: bytes, token: Token | None) -> tuple[int | None, Effects]:
        """A write that is done in steps has an answer when these are done."""
        name: Token = token or ("w", client.key, -1)
        taken, effects = self.bus.write(self.real[client], data, self.naive.now, name, may_wait=token is not None)
        self.go_on(effects)
        for ended, answer in effects.finished:
            if ended == name:
                effects.finished.remove((ended, answer))
                if isinstance(answer, BusError):
                    raise answer
                assert isinstance(answer, int)
                return answer, effects
        return taken, effects

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
        def real() -> tuple[int | None, Effects]:
            return self.bus.cancel(token, self.naive.now) or (None, Effects(self.naive.now))

        self.caller = None
        taken = self.agree(real, lambda: self.naive.cancel(token))
        if isinstance(taken, int):
            self.output[self.client_of(token)] = self.output[self.client_of(token)][taken:]

    # ------------------------------------------------------------------------------------------ readiness

    @rule(indices=st.lists(INDEX, min_size=1, max_size=4))
    def arm(self, indices: list[int]) -> None:
        for client in map(self.pick, indices):
            client.is_armed = True
            self.check_readiness(client, arm=True)


class BusMachineInSteps(BusMachine):
    """Every broadcast goes to two readers at a time, or to one of whom something is dropped or who waits."""

    def __init__(self) -> None:
        super().__init__()
        channel.READERS_AT_ONCE, channel.BROADCAST_WORK = 2, 0

    def teardown(self) -> None:
        channel.READERS_AT_ONCE, channel.BROADCAST_WORK = READERS_AT_ONCE, BROADCAST_WORK


@pytest.mark.timeout(900)
class TestBusInSteps(BusMachineInSteps.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=settings().max_examples)


@pytest.mark.timeout(900)  # a failure is made small before it is shown
class TestBus(BusMachine.TestCase):  # type: ignore[misc,valid-type]
    # Histories are long and the interesting ones rare.
    settings = settings(max_examples=2 * settings().max_examples)
