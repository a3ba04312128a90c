"""Services under load: masters that answer while their clients wait, writers that share descriptors, and everybody is killed.

No call is ever ended by a timer. So whoever stands behind another in the kernel stays there, and the watch over all processes
finds it.
"""

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.helpers.waiting import DEADLINE, until

from .trial import Bus, Counts, Show, mounted, programs, silent

Process = subprocess.Popen[str]
Start = Callable[..., Process]

NAMES = ("S_up", "U_up", "S_team")
"""The last one is a service of three processes that share the master's descriptor."""
PAUSE = 0.3
"""Seconds until the next harm, at most: they need not get on when those are stopped whom they talk to."""


class Services:
    """A service on each of some channels, with clients; who is killed is replaced.

    Args:
        bus: the bus.
        start: starts programs.
        dice: who decides.
        log: where the programs say what they have seen.
    """

    def __init__(self, bus: Bus, start: Start, dice: random.Random, log: Path) -> None:
        self.bus, self.start, self.dice, self.log = bus, start, dice, log
        self.counts = Counts()
        self.masters: dict[str, Process] = {}
        self.clients: list[Process] = []
        self.stopped: set[Process] = set()

    def _start(self, *arguments: object) -> Process:
        self.counts["processes"] += 1
        with self.log.open("ab") as log:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return self.start("servant", *arguments, **pipes, start_new_session=True)

    def keep_up(self, clients: int = 4) -> None:
        """Starts what is not there."""
        for name in NAMES:
            if name not in self.masters or self.masters[name].poll() is not None:
                until(lambda name=name: not (self.bus / name).exists(), "the name is free")  # type: ignore[misc]
                self.masters[name] = self._start("serve", self.bus / f".{name}", 2 if name == "S_team" else 0)
                self.counts["services"] += 1
                until(lambda name=name: (self.bus / name).exists(), "the service is there")  # type: ignore[misc]
        self.clients = [client for client in self.clients if client.poll() is None]
        while len(self.clients) < clients * len(NAMES):
            name = self.dice.choice(NAMES)
            forks, how = self.dice.choice((0, 0, 1, 2)), self.dice.choice(("reads", "deaf"))
            self.clients.append(self._start("ask", self.bus / name, f"c{self.counts['processes']}", forks, how))
            self.counts["processes that share a descriptor"] += forks and 1 + forks

    def harm(self) -> None:
        """Does something to somebody: `kill -9` of one or of two at once must work at once."""
        dice = self.dice
        everybody = [*self.clients, *self.masters.values()]
        what = dice.random()
        if what < 0.5:
            self.kill(dice.sample(everybody, dice.choice((1, 1, 2))))
        elif what < 0.75:
            victim = dice.choice(everybody)
            victim.send_signal(signal.SIGSTOP)
            self.stopped.add(victim)
            self.counts["stops"] += 1
        else:
            self.go_on()

    def go_on(self) -> None:
        """Nobody is stopped any more."""
        for victim in self.stopped:
            victim.send_signal(signal.SIGCONT)
        self.stopped.clear()

    def kill(self, victims: list[Process]) -> None:
        """Kills programs, and waits until they are dead. What they have forked dies with them."""
        for victim in victims:
            victim.kill()
        for victim in victims:
            until(lambda victim=victim: victim.poll() is not None, f"process {victim.pid} dies by kill -9")  # type: ignore[misc]
            self.stopped.discard(victim)
        self.counts["kills"] += len(victims)

    def let_talk(self, lines: int = 200) -> None:
        """Waits until so many lines more were accepted, or for a moment."""
        before, end = self._accepted(), time.monotonic() + PAUSE
        while self._accepted() < before + lines and time.monotonic() < end:
            time.sleep(0.01)

    def _accepted(self) -> int:
        return sum(row["messages_in"] for row in self.bus.told()["channels"])

    def finish(self) -> None:
        """Ends all: clients that are told, then the masters, when the last one of their clients has gone."""
        self.go_on()
        for client in self.clients:
            client.terminate()
        for client in self.clients:  # the service answers until the last question
            assert client.wait(DEADLINE) in (0, -signal.SIGTERM), client.args  # it may only just have been started
        self.kill([*self.masters.values()])
        self.bus.wait_for_nobody()

    def judge(self) -> None:
        """Looks at what all have said."""
        lines = self.log.read_text().splitlines()
        wrong = [line for line in lines if not re.fullmatch(r"open|\d+ \d+", line)]
        assert not wrong, f"{len(wrong)} things are wrong:\n" + "\n".join(wrong[:20])
        for line in lines:
            if line != "open":
                asked, answered = map(int, line.split())
                self.counts["messages"] += asked
                self.counts["answers"] += answered


def services(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """Clients ask without pause and fill the queue of a service that answers. Thirty things happen to them at scale 1."""
    with mounted(place, "max_queue=8") as bus, programs() as start:
        all_ = Services(bus, start, random.Random(scale), place / "servants.log")
        all_.keep_up()
        for number in range(int(30 * scale)):
            all_.let_talk()
            all_.harm()
            all_.keep_up()
            show(f"{number + 1} harmed, {all_.counts['kills']} killed")
        all_.finish()
        all_.judge()
    assert all_.counts["messages"]
    assert all_.counts["answers"]
    return all_.counts
