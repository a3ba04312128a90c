"""One round: a mounted bus, a gateway, honest peers, one sort of harm. In the end everything that anybody has heard is judged."""

import contextlib
import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.helpers.waiting import DEADLINE, until
from tests.helpers.watching import WATCH

from ..trial import Counts, Show
from . import board
from .forms import ASKED, END
from .grounds import Crowd, Gateway, Ground, more_files
from .judge import Evidence, Rules
from .kinds import KINDS, SCRIPT
from .orders import Orders
from .sessions import Cut, Session, Stream, await_, session

SPARE = 4
"""Descriptors that a gateway may have in the end beside those that it had when it was first ready: a connection that is not yet
known to have ended, for one."""

MIB = 1 << 20


class Round:
    """One round.

    Args:
        place: an empty directory.
        name: the kind of gateway.
        seed: of the dice.
        seconds: for how long.
        waits: whether the gateway waits for its bus.
        options: of its command.
        prefix: a module that is run in its place.
        has_board: whether honest peers wait for each other: see `board`.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        seed: int,
        seconds: float,
        show: Show,
        *,
        waits: bool = False,
        options: tuple[str, ...] = (),
        prefix: list[str] | None = None,
        has_board: bool = False,
    ) -> None:
        self.place, self.name, self.seconds, self.show = place, name, seconds, show
        self.kind = KINDS[name]
        self.dice = random.Random(f"{name} {seed}")
        self.counts = Counts()
        self.rules = Rules(is_sbus="sbus" in name, has_channel=bool(self.kind.channel), tells_losses=name == "tmb")
        self.people: list[str] = []
        """Honest peers that talk, or ask."""
        self.others: list[str] = []
        """Who are told to end by SIGTERM as well, and before."""
        self.sleepers: list[str] = []
        self.has_strangers = False
        """Whether others than the sleepers have lost messages, too."""
        self.memory_bound = 200 * MIB
        self.numbers = 0
        self.asked = 0
        self._waits, self._options, self._prefix = waits, list(options), prefix
        self.records = place / "records"
        self.board = str(place / "board") if has_board else ""
        if has_board:
            board.make(place / "board")
        self.bus_path = place / "bus"
        self.channel = self.bus_path / (self.kind.channel or "none")
        self.bus: Ground | None = None
        self.gateway_is_there = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Round":
        self.records.mkdir()
        self.bus_path.mkdir()
        with contextlib.ExitStack() as stack:
            stack.enter_context(more_files())
            stack.callback(self._discard_bus)
            if self.kind.channel:
                self.mount()
            self.crowd = stack.enter_context(Crowd(self.place / "crowd.log"))
            if self.kind.asks:
                self.start_service()
            self.gateway = Gateway(self.place, self.name, self.channel, self._options, waits=self._waits, prefix=self._prefix)
            self.gateway_is_there = True
            stack.callback(self.gateway.discard)
            self.gateway.wait_until_ready()
            self.ask()
            self.before = self.gateway.descriptors()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _discard_bus(self) -> None:
        if self.bus:
            self.bus.discard()

    # ------------------------------------------------------------------------------------------ what there is

    def mount(self) -> None:
        """Mounts the bus, which may have been there before."""
        self.bus = Ground(self.bus_path, self.place / f"bus{self.counts['mounts']}.log")
        self.counts["mounts"] += 1
        if self.kind.channel.startswith("B"):
            (self.bus / self.kind.channel).touch()

    def orders(self, role: str, **how: object) -> Orders:
        """Orders for a process, whose name nobody else has."""
        self.numbers += 1
        given: dict[str, object] = {
            "who": f"{role}{self.numbers}",
            "role": role,
            "name": self.name,
            "address": self.gateway.address if self.gateway_is_there else "",
            "channel": str(self.channel),
            "records": str(self.records),
            "seed": self.dice.getrandbits(32),
            "board": self.board,
            "row": self.numbers,
            "ends": 2 if self.kind.channel.startswith("B") else 1,
            **how,
        }
        self.counts["processes"] += 1
        return Orders(**given)  # type: ignore[arg-type]

    def start(self, role: str, **how: object) -> str:
        """Starts a process."""
        return self.crowd.start(self.orders(role, **how))

    def start_service(self) -> None:
        """Starts the service of a channel."""
        self.service = self.start("answerer")
        self.crowd.wait("ready", self.service)

    def populate(self, peers: int = 4, writers: int = 2, **how: object) -> None:
        """Starts honest peers, and writers on the bus."""
        new = [self.start("caller" if self.kind.asks else "talker", **how) for _ in range(peers)]
        if self.kind.channel.startswith("B"):
            new += [self.start("talker", side="bus", **how) for _ in range(writers)]
        self.people += new
        self.crowd.wait("ready", *new)

    def go_on(self, step: Callable[[], object]) -> None:
        """Does something again and again while the round lasts, and until something was said that is judged."""
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < self.seconds or not (passed > DEADLINE or self._is_said()):
            step()
            self.crowd.check()
            self.show(f"{time.monotonic() - begin:.0f} of {self.seconds:.0f} s")

    def _is_said(self) -> bool:
        evidence = Evidence(self.records, self.rules)
        evidence.judge()
        return evidence.counts["messages"] > 0

    def watch(self) -> None:
        """A little while passes."""
        self.counts["KiB of memory at most"] = max(self.counts["KiB of memory at most"], self.gateway.memory() >> 10)
        assert self.gateway.process.poll() is None, f"the gateway has ended: {self.gateway.words[-3000:]}"
        time.sleep(0.05)

    # ------------------------------------------------------------------------------------------ an honest request

    def ask(self) -> None:
        """Whoever asks the gateway something is answered, and the bus hears it too."""
        self.asked += 1
        who = f"asker{self.asked}"
        until(lambda: self._is_answered(who, "gateway"), f"an honest request is answered: {self.gateway.words[-2000:]}")
        self.counts["honest requests"] += 1

    def _is_answered(self, who: str, side: str) -> bool:
        dice = random.Random(0)
        with contextlib.ExitStack() as stack:
            try:
                made = session(who, self.name, side, dice, self.gateway.address, self.channel)
                stack.callback(made.close)
                made.greet()
                others = []
                if self.kind.channel.startswith("B"):
                    others.append(session(who, self.name, "bus", dice, "", self.channel))
                    stack.callback(others[0].close)
                return self._exchange(who, made, others)
            except Cut:
                return False

    def _exchange(self, who: str, made: Session, others: list[Session]) -> bool:
        """Each says something until all have heard all of it; what is said while a bus comes back may be said to nobody."""
        number = 0
        told = {(who.encode() + b"-%d" % index, each) for index, each in enumerate((made, *others))}
        wanted = {(name, each) for name, by in told for each in (made, *others) if each is not by or each.hears_itself}
        end = time.monotonic() + (3 if not self.name.endswith(".rest") else 0.2)
        while wanted and time.monotonic() < end:
            for name, each in told:
                each.say(each.form.wrap(b"%s %s %d" % (ASKED, name, number), number))
                each.push()
            if self.name.endswith(".rest"):
                assert isinstance(made, Stream)
                with contextlib.suppress(OSError):
                    made.socket.shutdown(socket.SHUT_WR)
            number += 1
            turn = time.monotonic() + 0.3
            while wanted and time.monotonic() < turn:
                for each in (made, *others):
                    if await_(each, 0.01):
                        for text in self._answers(each):
                            if text.startswith(ASKED):
                                wanted.discard((text.split(b" ")[1].lower(), each))
        return not wanted

    def _answers(self, each: Session) -> list[bytes]:
        if not self.kind.asks:
            return each.take()
        assert isinstance(each, Stream)
        data = each.socket.recv(1 << 16)
        if not data:
            raise Cut
        return [line.removeprefix(b"HONEST ") for line in data.split(b"\n") if line.startswith(b"HONEST ")]

    # ------------------------------------------------------------------------------------------ the end of it

    def finish(self) -> Counts:
        """Has all come to their end, looks at the gateway, and judges.

        Raises:
            AssertionError: something is wrong.
        """
        self.show("all come to their end")
        self.crowd.signal(signal.SIGTERM, *self.others)
        self.crowd.wait("quiet", *self.others)
        self.crowd.wait("ended", *self.others)
        self.gateway.junk = 0
        self.crowd.signal(signal.SIGTERM, *self.people)
        self.crowd.wait("quiet", *self.people)
        self.crowd.signal(signal.SIGUSR1, *self.sleepers)
        self.crowd.wait("quiet", *self.sleepers)
        self.ask()
        if not self.kind.asks:
            self._say_end()
        self.crowd.wait("ended", *self.people, *self.sleepers)
        self._see_off()
        self.crowd.check()
        most = self.counts["KiB of memory at most"]
        assert most <= self.memory_bound // 1024, f"{self.name} had {most:,} KiB of memory"
        return self._judge()

    def _say_end(self) -> None:
        sides = ["gateway", *(["bus"] if self.kind.channel else [])]
        for side in sides:
            made = session("end", self.name, side, self.dice, self.gateway.address, self.channel)
            try:
                made.greet()
                made.say(made.form.wrap(END, 0))
                heard: list[bytes] = []
                end = time.monotonic() + DEADLINE
                while made.is_full or (made.hears_itself and END not in heard):
                    made.push()
                    if await_(made, 1.0):
                        heard = made.take()
                    assert time.monotonic() < end, f"the end is not heard from {self.name}"
            finally:
                made.close()

    def _see_off(self) -> None:
        """The gateway must be as it was, and end as it should."""
        self.ask()

        def is_as_before() -> bool:
            self._nudge()
            return self.gateway.descriptors() <= self.before + SPARE

        until(is_as_before, f"{self.name} has closed what it had open: {self.gateway.descriptors()}, before it was {self.before}")
        self.counts["KiB of memory in the end"] = self.gateway.memory() >> 10
        self.counts["KiB of memory at most"] = self.gateway.memory("VmHWM") >> 10
        self.gateway.end()
        if self.kind.asks:
            self.crowd.signal(signal.SIGTERM, self.service)
            self.crowd.wait("ended", self.service)

    def _nudge(self) -> None:
        """Something is said, by which a gateway notices who has gone."""
        if self.kind.channel.startswith("B"):
            with contextlib.suppress(OSError):
                file = os.open(self.channel, os.O_WRONLY)
                try:
                    os.write(file, self.kind.bus_form.wrap(END, 0))
                finally:
                    os.close(file)

    def _judge(self) -> Counts:
        self.show("looking at what all have heard")
        words = self.gateway.words
        self.rules.uncarried = _counted(words, "messages? not carried over: for a bus that is away or slow")
        evidence = Evidence(self.records, self.rules)
        wrong = evidence.judge()
        assert not wrong, f"{len(wrong)} things are wrong, {evidence.counts['lost']} messages lost:\n" + "\n".join(wrong[:20])
        if self.rules.losers and self.name not in ("tmb", SCRIPT) and not self.kind.asks:
            told = _counted(words, "messages? discarded") + _counted(words, "lines?$", "has lost ")
            is_enough = told == evidence.missing or (self.has_strangers and told > evidence.missing)
            assert is_enough, f"{evidence.missing} messages are missing, and the log tells of {told}"
        self.counts.update({what: count for what, count in evidence.counts.items() if count})
        if evidence.missing and self.name != SCRIPT:
            self.counts["messages dropped and counted"] = evidence.missing
        if self.bus and not self.rules.deaths:
            self.bus.expect_as_before()
        if self.bus:
            self.bus.unmount()
        WATCH.check()
        assert self.counts["messages"], "something was said"
        return self.counts


def _counted(words: str, what: str, before: str = "") -> int:
    """How many of something a log tells of, in all."""
    return sum(int(found.replace(",", "")) for found in re.findall(rf"{before}([0-9,]+) {what}", words, re.MULTILINE))
