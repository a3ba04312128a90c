"""The processes of a trial: starts them, torments them, sees that they all come to their end.

`herd.py BUS RECORDS SEED SECONDS POPULATION DEADLINE`. Prints counts of what it has done as JSON, then keeps the channels that
last open until its standard input ends.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from . import calls
from .program import END, run


class Herd:
    """All processes of one trial, with so many seconds for everybody to come to their end."""

    def __init__(self, bus: Path, records: Path, seed: int, population: int, deadline: float) -> None:
        self.bus, self.records, self.population, self.deadline = bus, records, population, deadline
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.workers: dict[int, str] = {}
        self.stopped: set[int] = set()
        self.lasting: dict[int, str] = {}
        calls.adopt_orphans()
        # The signals find a handler even before a child has set its own.
        for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)
        self.leader = os.fork()
        if not self.leader:
            calls.die_with_parent()
            os.setpgid(0, 0)
            while True:
                signal.pause()
        with contextlib.suppress(OSError):
            os.setpgid(self.leader, self.leader)

    def start(self, who: str, role: str, *, is_worker: bool = False) -> int:
        """Starts a program."""
        seed = self.dice.getrandbits(32)
        pid = os.fork()
        if not pid:
            calls.die_with_parent()
            if is_worker:
                os.setpgid(0, self.leader)
            for descriptor in self.keepers:
                os.close(descriptor)
            run(self.bus, self.records, who, seed, role)
        if is_worker:
            with contextlib.suppress(OSError):
                os.setpgid(pid, self.leader)
            self.workers[pid] = who
        else:
            self.lasting[pid] = who
        self.counts["processes"] += 1
        return pid

    keepers: tuple[int, ...] = ()

    def reap(self) -> None:
        """Takes note of who has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            who = self.workers.pop(pid, None) or self.lasting.pop(pid, None) or "a fork"
            self.stopped.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, -signal.SIGKILL):
                self.failures.append(f"{who} ended with {code}")

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Sends a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.counts[number.name] += 1

    def torment(self) -> None:
        """Does something to somebody."""
        dice = self.dice
        what = dice.random()
        everybody = [*self.workers, *self.lasting]
        if what < 0.08 and self.workers:
            self.signal(dice.choice([*self.workers]), signal.SIGKILL)
        elif what < 0.16:
            victim = dice.choice(everybody)
            self.signal(victim, signal.SIGSTOP)
            self.stopped.add(victim)
        elif what < 0.35 and self.stopped:
            self.signal(self.stopped.pop(), signal.SIGCONT)
        else:
            for victim in dice.choices(everybody, k=5):
                self.signal(victim, signal.SIGUSR1)
        if len(self.stopped) > len(everybody) // 4:
            self.signal(self.stopped.pop(), signal.SIGCONT)

    def children(self) -> dict[int, str]:
        """The children of this process in the workers' group, forks of killed workers among them."""
        found = {}
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with contextlib.suppress(OSError):
                if os.getpgid(int(pid)) == self.leader and int(pid) != self.leader:
                    found[int(pid)] = self.workers.get(int(pid), "a fork")
        return found

    def go(self, seconds: float) -> None:
        """Everything, from the first process to the last."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        self.keepers = tuple(os.open(self.bus / name, flags, 0o666) for name in ("B_0", "A_0"))
        masters = [self.start("master-U", "master .U_0"), self.start("master-S", "master +.S_0")]
        end = time.monotonic() + self.deadline
        while not {"U_0", "S_0"} <= {*os.listdir(self.bus)}:
            assert time.monotonic() < end, "the masters are there"
            time.sleep(0.01)
        self.keepers += tuple(os.open(self.bus / name, os.O_WRONLY) for name in ("U_0", "S_0"))
        for name in ("B_0", "+A_0", "+U_0", "S_0"):
            for how in ("read", "poll", "edge"):
                self.start(f"patient-{name}-{how}", f"patient {name} {how}")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.reap()
            while len(self.workers) < self.population:
                self.start(f"w{self.counts['processes']}", "worker", is_worker=True)
            self.torment()
            time.sleep(0.003)
        self.finish(masters)

    def finish(self, masters: list[int]) -> None:
        """Has everybody end: first the workers, then those who wait for the last message, then the masters."""
        for pid in [*self.workers, *self.lasting]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()
        end = time.monotonic() + self.deadline
        while left := self.children():
            self.reap()
            # Again and again: who was only just being forked has not heard it.
            os.killpg(self.leader, signal.SIGCONT)
            os.killpg(self.leader, signal.SIGTERM)
            if time.monotonic() > end:
                self.give_up(left, "the workers end")
                break
            time.sleep(0.02)
        self.reap()
        for pid in masters:
            os.kill(pid, signal.SIGTERM)
        os.write(self.keepers[0], END + b"\n")
        os.write(self.keepers[1], b"{*}" + END + b"\n")
        self.see_off({pid: who for pid, who in self.lasting.items() if pid not in masters}, "the last message arrives")
        for pid in masters:
            os.kill(pid, signal.SIGTERM)
        self.see_off(dict(self.lasting), "the masters end")
        os.kill(self.leader, signal.SIGKILL)
        os.waitpid(self.leader, 0)

    def see_off(self, who: dict[int, str], what: str) -> None:
        """Waits until these have ended."""
        end = time.monotonic() + self.deadline
        while left := {pid: name for pid, name in who.items() if pid in self.lasting}:
            self.reap()
            if time.monotonic() > end:
                self.give_up(left, what)
                return
            time.sleep(0.01)

    def give_up(self, who: dict[int, str], what: str) -> None:
        """Tells of processes that do not end, and kills them."""
        for pid, name in who.items():
            with contextlib.suppress(OSError):
                call = Path(f"/proc/{pid}/syscall").read_text().strip()
                self.failures.append(f"not within {self.deadline:g} seconds: {what}; {name} hangs in {call}")
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    """See the top."""
    bus, records, seed, seconds, population, deadline = sys.argv[1:]
    herd = Herd(Path(bus), Path(records), int(seed), int(population), float(deadline))
    herd.go(float(seconds))
    print(json.dumps({"counts": herd.counts, "failures": herd.failures}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
