"""What is done to the gateways: one harm in each round."""

import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from tests.helpers.waiting import until

from ..trial import Counts, Show, silent
from .kinds import KINDS, SCRIPT
from .rounds import MIB, Round

SILENT = 10_000
"""Connections that say nothing."""

FILES_SPARE = 1000


def options_of(name: str, most: str = "") -> tuple[str, ...]:
    """Options of a gateway: how much may wait for a peer, and that who waits for another one does so for a second only."""
    kind = KINDS[name]
    given: tuple[str, ...] = ("--patience", "1") if kind.has_packets else ()
    if most and kind.limits:
        given += (*kind.limits, most)
        given += ("--max-queue", "10000000") if kind.has_packets else ()
    return given


def fuzz(place: Path, name: str, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> Counts:
    """Every parser is fed with anything, while honest peers check what they get."""
    with Round(place, name, seed, seconds, show, options=options_of(name), prefix=prefix, has_board=True) as this:
        this.gateway.junk = 0.3
        this.memory_bound = 300 * MIB
        this.populate()
        this.others = [this.start("fuzzer") for _ in range(3)]
        if this.kind.channel:
            this.others.append(this.start("fuzzer", side="bus"))
        this.go_on(this.watch)
        return this.finish()


def flood(place: Path, name: str, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> Counts:
    """Several peers and writers send as fast as they can. Nothing has to be dropped, and nothing is."""
    with Round(place, name, seed, seconds, show, options=options_of(name, "1G"), prefix=prefix) as this:
        this.memory_bound = 600 * MIB
        this.populate(5, 3, window=1 << 40 if not this.kind.asks else 400, burst=200, pause=0.0, limit=2400)
        this.go_on(this.watch)
        return this.finish()


def silence(place: Path, name: str, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> Counts:
    """Very many connect and say nothing, while honest peers go on."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = min(SILENT, (hard - FILES_SPARE) // (2 if name.endswith(".method") else 1))
    count = count if seconds > SHORT else 300
    users = ("--max-clients-per-user", str(count + 500)) if "sbus" in name else ()
    options = (*options_of(name), "--max-clients", str(count + 500), *users)
    with Round(place, name, seed, seconds, show, options=options, prefix=prefix, has_board=True) as this:
        this.memory_bound = 100 * MIB + count * 64 * 1024
        this.populate(3, 1)
        this.others = [this.start("sitter", count=count // 2) for _ in range(2)]
        this.crowd.wait("ready", *this.others)
        until(lambda: this.gateway.descriptors() >= count // 2 * 2, "all of them are let in")
        this.ask()
        this.go_on(this.watch)
        return this.finish()


def stuck(place: Path, name: str, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> Counts:
    """Some never read, some are stopped, some close one side. What they lose is counted, and nobody else loses anything."""
    with Round(place, name, seed, seconds, show, options=options_of(name), prefix=prefix, has_board=True) as this:
        this.memory_bound = 300 * MIB
        this.has_strangers = this.dice.random() < 0.5
        stopped: list[str] = []
        if this.kind.asks:
            this.sleepers = [this.start("dozer", limit=1) for _ in range(2 if name.endswith(".method") else 0)]
            stopped = [this.start("caller") for _ in range(2)]
        else:
            this.sleepers = [this.start("sleeper", is_slow=True) for _ in range(2)]
            stopped = [this.start("talker", limit=0, is_slow=True)]
            if not this.kind.has_packets:
                halves = [this.start("half") for _ in range(2)]
                this.crowd.wait("ready", *halves)
                this.people += halves
            this.rules.losers = frozenset((*this.sleepers, *stopped))
            if name == SCRIPT:
                this.rules.dismissed = this.rules.losers
        this.people += stopped
        this.crowd.wait("ready", *this.sleepers, *stopped)
        if this.has_strangers:
            this.others = [this.start("rude", count=6, pause=0.2) for _ in range(2)]
        this.populate(3, 2, window=200, burst=100, pause=0.01)
        this.crowd.signal(signal.SIGSTOP, *stopped)
        this.go_on(this.watch)
        this.crowd.signal(signal.SIGCONT, *stopped)
        return this.finish()


def kills(place: Path, name: str, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> Counts:
    """Peers, writers, the service and the gateway are killed in any order; in every second round the bus too."""
    has_deaths = bool(KINDS[name].channel) and random.Random(f"{name} {seed} bus").random() < 0.6
    # The service of a channel comes and goes, and so it is waited for.
    waits = has_deaths or KINDS[name].asks
    options = options_of(name, "1G")
    with Round(place, name, seed, seconds, show, options=options, waits=waits, prefix=prefix) as this:
        this.memory_bound = 300 * MIB
        this.rules.kills = 1
        this.populate(pause=0.05, may_fail=True)
        Killing(this, has_deaths=has_deaths).go_on()
        return this.finish()


class Killing:
    """Kills, and has those who were killed come back, in any order."""

    def __init__(self, this: Round, *, has_deaths: bool) -> None:
        self.this = this
        self.broken: dict[str, Callable[[], None]] = {}
        """What was killed and is not back yet, and how it comes back."""
        self.harms: dict[str, Callable[[], Callable[[], None] | None]] = {"peer": self._peer, "gateway": self._gateway}
        if this.kind.asks:
            self.harms["service"] = self._service
        if has_deaths:
            self.harms["bus"] = self._bus

    def go_on(self) -> None:
        """Goes on while the round lasts; then all is as it was."""
        self.this.go_on(self._step)
        while self.broken:
            self.broken.pop(self.this.dice.choice(sorted(self.broken)))()
        self.this.gateway.wait_until_ready()
        self.this.ask()

    def _step(self) -> None:
        this, dice = self.this, self.this.dice
        if self.broken and dice.random() < 0.5:
            self.broken.pop(dice.choice(sorted(self.broken)))()
        elif whole := sorted({*self.harms} - {*self.broken}):
            what = dice.choice(whole)
            if back := self.harms[what]():
                self.broken[what] = back
        if not self.broken:
            if dice.random() < 0.5:
                this.gateway.wait_until_ready()
                this.ask()
            this.watch()

    def _count(self) -> None:
        self.this.rules.kills += 1
        self.this.counts["kill -9"] += 1

    def _peer(self) -> None:
        this = self.this
        who = this.dice.choice(this.people)
        side = "gateway" if this.people.index(who) < 4 else "bus"
        self._count()
        this.crowd.signal(signal.SIGKILL, who)
        role = "caller" if this.kind.asks else "talker"
        this.people[this.people.index(who)] = this.start(role, side=side, pause=0.05, may_fail=True)

    def _gateway(self) -> Callable[[], None]:
        self._count()
        self.this.gateway.kill()
        return self.this.gateway.start

    def _service(self) -> Callable[[], None]:
        this = self.this
        self._count()
        this.crowd.signal(signal.SIGKILL, this.service)

        def back() -> None:
            this.service = this.start("answerer")

        return back

    def _bus(self) -> Callable[[], None]:
        bus = self.this.bus
        assert bus
        self.this.rules.deaths += 1
        if self.this.dice.random() < 0.7:
            self._count()
            self.this.rules.crashes += 1
            bus.daemon.kill()
            bus.daemon.wait()
            bus.let_be()
        else:
            self.this.counts["ends of the bus by SIGTERM"] += 1
            bus.unmount()
        return self.this.mount


SHORT = 2.0
"""Rounds up to so many seconds are the short ones of the test suite."""

HARMS = {each.__name__: each for each in (fuzz, flood, silence, stuck, kills)}
"""By their names."""

PAIRS = [(name, harm) for harm in HARMS for name in KINDS]


def pair_of(seed: int) -> tuple[str, str]:
    """The kind of gateway and the harm of a round. So many rounds in a row as there are pairs have each of them once."""
    return random.Random(seed // len(PAIRS)).sample(PAIRS, len(PAIRS))[seed % len(PAIRS)]


def play(
    place: Path, name: str, harm: str, seed: int, seconds: float, show: Show = silent, *, prefix: list[str] | None = None
) -> Counts:
    """Plays one round.

    Args:
        place: an empty directory.
        name: the kind of gateway.
        harm: what is done.
        seed: of the dice. The system schedules as it likes, so the same seed is not the same round.
        seconds: for how long; what comes before and after is not counted.
        show: is told how it goes.
        prefix: a module that is run in the place of the gateway.

    Raises:
        AssertionError: the gateway has done what it must not.
    """
    os.environ.setdefault("LC_ALL", "C")
    return HARMS[harm](place, name, seed, seconds, show, prefix)
