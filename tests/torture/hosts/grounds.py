"""What a round has: buses that come back, a server behind networks that fail, writers that tell what was accepted."""

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.helpers.collectors import Collector
from tests.helpers.mounts import Mount
from tests.helpers.nats import Server
from tests.helpers.programs import starting
from tests.helpers.published import Proxy
from tests.helpers.waiting import DEADLINE, until
from tests.spool.writers import WRITER

from ..trial import Counts, Show
from .judge import Judge

ROOT = Path(__file__).parents[3]

QUEUES = "max_queue=10000000,max_queue_bytes=1G"
"""Of the buses: they drop nothing in a round."""


class Round:
    """A round: what there is, and harms until its time is over.

    Args:
        place: an empty directory.
        seed: of the dice.
        seconds: for how long harms are done.
        show: is told how it goes.
        prefix: a module that is run in the place of a link or a recorder, with words of its own.
    """

    rests = (0.02, 0.5)
    """Seconds between two harms, at least and at most."""
    pause = 0.01
    """Seconds that a writer pauses between some lines."""
    pace = 1
    """How many times as long it takes as other rounds."""

    def __init__(self, place: Path, seed: int, seconds: float, show: Show, prefix: list[str] | None = None) -> None:
        self.place, self.seconds, self.show, self.prefix = place, seconds * self.pace, show, prefix
        self.dice = random.Random(seed)
        self.judge = Judge()
        self.counts: Counts = self.judge.counts
        self.writers: dict[int, subprocess.Popen[str]] = {}
        self.homes: dict[int, int] = {}
        """On which bus a writer writes."""
        self.written: dict[int, int] = {}
        """How many lines of each writer were accepted, of those that have told it."""
        self.killed: list[int] = []
        """Writers whose bus was killed."""
        self.buses: list[Mount] = []
        self.networks: list[Proxy] = []
        self.listening: list[Collector] = []
        """Readers that have not left."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.start = stack.enter_context(starting())
            self.serve()
            stack.callback(self._leave)
            self._stack = stack.pop_all()
        return self

    def serve(self) -> None:
        """Starts what keeps streams: one server."""
        store = self.place / "nats"
        store.mkdir()
        self.server = Server(self.start, store, f'jetstream {{ store_dir: "{store}" }}')

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _leave(self) -> None:
        for reader in self.listening[:]:
            self.leave(reader)
        for network in self.networks:
            network.close()
        for bus in self.buses:
            bus.discard()

    def command(self, module: str) -> list[str]:
        """The words that begin a command of futebus."""
        words = [*self.prefix, f"futebus.commands.{module}"] if self.prefix else [f"futebus.commands.{module}"]
        return [sys.executable, "-m", *words]

    # ------------------------------------------------------------------------------------------ what there is

    def mount(self) -> int:
        """Mounts one more bus. Returns its number."""
        path = self.place / f"bus{len(self.buses)}"
        path.mkdir()
        self.buses.append(self._mounted(path))
        return len(self.buses) - 1

    def _mounted(self, path: Path) -> Mount:
        self.counts["mounts"] += 1
        return Mount(path, self.place / f"{path.name}-{self.counts['mounts']}.log", QUEUES, patience=1800)

    def network(self) -> Proxy:
        """One more way to the server."""
        self.networks.append(Proxy(self.server.port))
        return self.networks[-1]

    def write(self, bus: int, channel: str, count: int = 2) -> None:
        """Starts writers."""
        for _ in range(count):
            number = len(self.homes)
            self.homes[number] = bus
            self.writers[number] = self.start(
                sys.executable,
                "-c",
                WRITER,
                str(number),
                "-1",
                self.buses[bus] / channel,
                str(self.pause),
                stderr=subprocess.DEVNULL,
            )

    def collect(self, path: Path) -> Collector:
        """Starts a reader."""
        made = Collector(path)
        made.start()
        self.listening.append(made)
        return made

    def leave(self, reader: Collector) -> None:
        """Has a reader leave."""
        self.listening.remove(reader)
        reader.close()

    # ------------------------------------------------------------------------------------------ harms

    def harm(self, harms: list[Callable[[], None]]) -> None:
        """Does one harm after the other."""
        end = time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 0:
            self.rest()
            if harms:
                self.dice.choice(harms)()
            self.show(f"{left:.0f} s left")

    def rest(self) -> None:
        """A little while passes, in which all goes on."""
        time.sleep(self.dice.uniform(*self.rests))

    def no_server(self) -> None:
        """The server dies, and comes back."""
        self.counts["servers killed"] += 1
        self.server.kill()
        self.rest()
        self.server.begin()

    def no_answer(self) -> None:
        """The server hangs."""
        self.counts["servers that hung"] += 1
        with self.server.hanging():
            self.rest()

    def no_network(self) -> None:
        """A way to the server is cut, or swallows for a while what is sent, and what it has may come or not."""
        self.counts["networks that failed"] += 1
        network = self.dice.choice(self.networks)
        if self.dice.random() < 0.5:
            network.swallow()
            self.rest()
        if self.dice.random() < 0.7:
            network.cut()
            self.rest()
        network.mend()

    def no_bus(self, number: int, channel: str) -> None:
        """A bus dies, and another one comes in its place. Its writers die, too."""
        self.counts["buses killed"] += 1
        bus = self.buses[number]
        bus.was_killed = True
        bus.daemon.kill()
        bus.daemon.wait()
        bus.let_be()
        for writer in [writer for writer, home in self.homes.items() if home == number and writer in self.writers]:
            process = self.writers.pop(writer)
            process.kill()
            process.wait()
            self.killed.append(writer)
        self.rest()
        self.buses[number] = self._mounted(bus.path)
        until(lambda: (bus.path / channel).exists(), f"{channel} is there again")
        self.write(number, channel)

    # ------------------------------------------------------------------------------------------ the end

    def mend(self) -> None:
        """All is well from now on."""
        for network in self.networks:
            network.mend()

    def stop_writers(self) -> None:
        """Has the writers end, and notes how many lines of theirs were accepted."""
        for writer in self.writers.values():
            writer.send_signal(signal.SIGTERM)
        for number, writer in self.writers.items():
            words, _ = writer.communicate(timeout=DEADLINE)
            # One that has just been started may not listen to signals yet, and has written nothing then.
            assert writer.returncode in (0, -signal.SIGTERM), f"writer {number} has ended with {writer.returncode}"
            self.written[number] = int(words or 0)
        self.writers.clear()
        self.counts["lines written"] = sum(self.written.values())

    def unmount(self) -> None:
        """Ends the buses, which must go in an orderly way."""
        for bus in self.buses:
            bus.unmount()
