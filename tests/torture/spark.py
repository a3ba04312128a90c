"""Writers, a channel, a recorder or not, an archive; somebody is killed all the time; every line is looked at in the end.

The rule that is tried, from docs/spark.md: with a recorder, every line that a `write` has accepted is in the archive once, and in
the order of its writer, whoever dies but the bus. Without one the same holds, but for what was queued on the bus when the process
died that drained it; of that the bus's log has the number. With the bus dies what is queued on it, and nothing else. A full disk
costs nothing.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset

from futebus.spool import Spool, SpoolError
from tests.helpers.java import QUICK
from tests.helpers.mounts import FUTEBUS, Mount
from tests.helpers.processes import kill_all
from tests.helpers.waiting import until
from tests.helpers.watching import WATCH

from .family import family
from .parquet import count_lines, files

PATIENCE = 400.0
"""Seconds that Spark may take to start, or to catch up, on a machine that has much else to do."""

FIRST = "first"
"""Who writes the first line: the trial itself."""

Show = Callable[[str], None]

QUEUE = 2000
"""How many messages the bus holds for a master."""

DISK = "512m"
"""The size of the disk that gets full."""


@dataclass
class Verdict:
    """What came of a trial."""

    kills: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    archived: int = 0
    lost: int = 0
    """Accepted, and not in the archive: what was queued on the bus for a process that was killed."""
    announced: int = 0
    """Of these, as many as the bus's log tells of."""
    at_risk: int = 0
    """Of these, as many as may have been queued on a bus that was killed."""

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items())) or "nobody"
        lines = f"{self.accepted:,} accepted, {self.archived:,} archived, {self.lost:,} lost"
        known = f"announced {self.announced:,}, with buses that died {self.at_risk:,} at most"
        return f"{lines} ({known}); killed or full: {killed}"


ROLES: dict[str, Callable[[str], bool]] = {
    "JVM": lambda command: "org.apache.spark.deploy.SparkSubmit" in command,
    "runner": lambda command: "python_streaming_source_runner" in command,
    "worker": lambda command: "pyspark.daemon" in command,
}


SOFT = (*ROLES, "driver", "recorder")
HARMS = (*SOFT, "bus", "disk")
"""What can happen: one of these is killed, and the disk gets full for a while."""


class Trial:
    """One bus, its writers, its archive.

    Args:
        place: an empty directory.
        dice: who decides whom to kill, and when.
        has_recorder: whether a recorder drains, rather than the archive's own query.
        harms: what is to happen, in random order, again and again: those of HARMS that can.
        writers: how many.
        bus: what to mount instead of a futebus.
    """

    def __init__(
        self,
        place: Path,
        dice: random.Random,
        has_recorder: bool,
        harms: Sequence[str],
        writers: int = 3,
        bus: Sequence[str] = FUTEBUS,
    ) -> None:
        self.place, self.dice, self.has_recorder, self.harms = place, dice, has_recorder, harms
        self._command = bus
        self.verdict = Verdict()
        self._left: list[str] = []
        self.disk = place / "disk"
        (place / "bus").mkdir()
        self.disk.mkdir()
        if "disk" in harms:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.disk)], check=True)
        (self.disk / "spools").mkdir()
        self.spool = self.disk / "spools" / "U_jobs"
        self._running: list[subprocess.Popen[bytes]] = []
        self._words = ""
        """What buses that were killed have logged."""
        self.bus = self._mount()
        self.channel = self.bus / "U_jobs"
        if has_recorder:
            self._start("-m", "futebus.commands.record", "-q", str(self.channel), str(self.spool))
            until((self.spool / "spool.json").exists, "there is a spool to archive")
        self.archive = self._start_archive()
        self._count = writers
        self.writers: list[subprocess.Popen[bytes]] = []

    def _mount(self) -> Mount:
        options = f"max_queue={QUEUE}"
        return Mount(self.place / "bus", self.place / "bus.log", options, patience=3600.0, command=self._command)

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        log = (self.place / "programs.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
        log.close()
        self._running.append(process)
        return process

    def _start_archive(self) -> "subprocess.Popen[bytes]":
        drain = ["--external"] if self.has_recorder else []
        spools = ["--spools", str(self.disk / "spools")]
        how = ["--every", "1s", "--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={QUICK}"]
        return self._start("-m", "futebus.commands.archive", *drain, *spools, *how, str(self.channel), str(self.disk / "archive"))

    # ------------------------------------------------------------------------------------------ harm

    def _recorders(self) -> list[int]:
        """Holder and drain, whichever of them is left. One that dies is replaced by the other."""
        found = [(pid, command) for pid, command in family(os.getpid()) if "futebus.commands.record" in command]
        found += [(pid, command) for pid, command in family(1) if "futebus.commands.record" in command]
        return sorted({pid for pid, command in found if str(self.spool) in command})

    def _candidates(self) -> list[tuple[str, int]]:
        found = [("driver", self.archive.pid)]
        for pid, command in family(self.archive.pid):
            found += [(role, pid) for role, is_it in ROLES.items() if is_it(command)]
        found += [("recorder", pid) for pid in self._recorders()]
        return found

    def do_harm(self) -> str:
        """Kills one process, chosen by role first (there are many workers and one JVM), or fills the disk. Returns which."""
        candidates = self._candidates()
        there = {role for role, _ in candidates} | {"bus", "disk"}
        if not there & {*self._left}:
            self._left = [*self.harms]
            self.dice.shuffle(self._left)
        harm = next(harm for harm in self._left if harm in there)
        self._left.remove(harm)
        if harm == "bus":
            self.kill_bus()
        elif harm == "disk":
            self.fill_disk(self.dice.uniform(0.5, 4))
        else:
            pid = self.dice.choice(sorted(pid for name, pid in candidates if name == harm))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.verdict.kills[harm] += 1
        return harm

    def kill_bus(self) -> None:
        """Kills the bus, and mounts the next one in the same place."""
        self.bus.daemon.kill()
        self.bus.daemon.wait()
        self._words += self.bus.words
        # A full queue at most, or what of it was just being handed out, and one message that was being read.
        self.verdict.at_risk += QUEUE + 1
        self.bus.discard()
        self.bus = self._mount()

    def fill_disk(self, seconds: float) -> None:
        """Leaves no place on the disk for so long."""
        filler = self.disk / "filler"
        end = time.monotonic() + seconds
        with filler.open("wb", buffering=0) as file:
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    while file.write(bytes(1 << 20)):
                        pass
                time.sleep(0.05)
        filler.unlink()

    def keep_alive(self) -> None:
        """Starts the archive again, as a service manager would."""
        if self.archive.poll() is not None:
            kill_all([pid for pid, _ in family(self.archive.pid)])
            self.archive = self._start_archive()

    def start_writers(self) -> None:
        """Waits until the archive has its first line, then has others written: else millions would wait for a slow Spark."""

        def is_drained() -> bool:
            self.keep_alive()  # on a machine that has much to do, Spark may give itself up while it starts
            return self.channel.exists()

        until(is_drained, "somebody drains", PATIENCE)
        self.channel.write_text(f"{FIRST} 0\n")
        until(lambda: self.files() or self.archive.poll() is not None, "the first line is archived", PATIENCE)
        assert self.archive.poll() is None, (self.place / "programs.log").read_text()
        script = str(Path(__file__).with_name("writer.py"))
        for number in range(self._count):
            accepted = self.place / f"accepted{number}"
            self.writers.append(self._start(script, str(self.channel), f"w{number}", str(accepted)))
            until(accepted.exists, "it writes")

    def run(self, seconds: float, show: Show, least: int = 0) -> None:
        """Does harm every few seconds, for so long, and until it was done so many times at least."""
        end = time.monotonic() + seconds
        following = time.monotonic() + self.dice.uniform(5, 12)
        while time.monotonic() < end or self.verdict.kills.total() < least:
            self.keep_alive()
            if self.harms and time.monotonic() > following:
                show(f"harmed: {self.do_harm()}")
                following = time.monotonic() + self.dice.uniform(0.5, 12)
            time.sleep(0.05)

    # ------------------------------------------------------------------------------------------ looking

    def accepted(self) -> dict[str, list[int]]:
        """The numbers of the lines that were accepted, by writer."""
        found: dict[str, list[int]] = {FIRST: [0]}
        for number in range(len(self.writers)):
            ranges = (self.place / f"accepted{number}").read_text().splitlines()
            found[f"w{number}"] = [each for line in ranges for each in range(*map(int, line.split()))]
        return found

    def files(self) -> list[str]:
        """The files of the archive."""
        return files(self.disk / "archive")

    def count(self) -> int:
        """How many lines they have."""
        return count_lines(self.disk / "archive")

    def archived(self) -> list[str]:
        """The lines of the archive, in the order of the spool."""
        dataset: Any = pyarrow.dataset
        table = dataset.dataset(self.files(), format="parquet").to_table(["value", "offset"])
        pairs = zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
        return [value for _, value in sorted(pairs)]

    @property
    def announced(self) -> int:
        """How many accepted lines the bus's log tells to have been lost."""
        return sum(map(int, re.findall(r"has closed with (\d+) messages unread", self._words + self.bus.words)))

    def _is_drained(self) -> bool:
        """Whether there is somebody who drains, and nothing left for them."""
        masters = self.bus.clients("U_jobs", role="master")
        return bool(masters) and masters[0]["rlist_messages"] == masters[0]["rbuf_bytes"] == 0

    def settle(self, show: Show) -> None:
        """Ends the writers, waits until the archive has everything, and ends it."""
        for writer in self.writers:
            writer.terminate()
        for writer in self.writers:
            writer.wait(PATIENCE)

        def is_complete() -> bool:
            self.keep_alive()
            if not self._is_drained():
                return False
            with contextlib.suppress(OSError, SpoolError):  # files come and go while it looks
                count, end = self.count(), Spool(self.spool).end
                show(f"{count:,} of {end:,} lines archived")
                return count >= end
            return False

        until(is_complete, f"the archive has all lines; see {self.place}", PATIENCE)
        self.archive.terminate()
        assert self.archive.wait(PATIENCE) == 0, (self.place / "programs.log").read_text()

    def judge(self) -> Verdict:
        """Looks at every line, when all has settled.

        Raises:
            AssertionError: a line was lost, doubled, altered, or out of order.
        """
        accepted, lines = self.accepted(), self.archived()
        twice = [line for line, count in Counter(lines).items() if count > 1]
        assert not twice, f"{len(twice)} lines are in the archive twice, the first of them {twice[0]!r}"
        got: dict[str, list[int]] = {name: [] for name in accepted}
        for line in lines:
            name, _, number = line.partition(" ")
            assert name in got, f"nobody has written {line!r}"
            assert number.isdecimal(), f"nobody has written {line!r}"
            got[name].append(int(number))
        verdict = self.verdict
        verdict.accepted, verdict.archived = sum(map(len, accepted.values())), len(lines)
        verdict.announced = self.announced
        assert len(lines) == Spool(self.spool).end, "the spool has had as many"
        for name, numbers in got.items():
            assert numbers == sorted(numbers), f"the lines of {name} are out of order"
        verdict.lost = sum(len({*numbers} - {*got[name]}) for name, numbers in accepted.items())
        risked = verdict.at_risk + (0 if self.has_recorder else verdict.announced)
        assert verdict.lost <= risked, f"lines were lost: {verdict}"
        return verdict

    def close(self) -> None:
        """Ends everything."""
        for process in self._running:
            kill_all([*(pid for pid, _ in family(process.pid)), process.pid])
            process.wait()

        def are_dead() -> bool:
            left = self._recorders()
            kill_all(left)  # who is killed may just have started another
            return not left

        until(are_dead, "no recorder is left", PATIENCE)
        self.bus.discard()
        if "disk" in self.harms:
            subprocess.run(["umount", "-l", str(self.disk)], check=True)


def torture(
    place: Path,
    seed: int,
    has_recorder: bool,
    seconds: float,
    show: Show = lambda words: None,
    harms: Sequence[str] = SOFT,
    *,
    least: int = 0,
    bus: Sequence[str] = FUTEBUS,
) -> Verdict:
    """One trial.

    Args:
        place: an empty directory.
        seed: of the dice.
        has_recorder: whether a recorder drains.
        seconds: for how long somebody is killed every now and then.
        show: is told how it goes.
        harms: what is to happen, of HARMS.
        least: how often harm must be done, however long that takes.
        bus: what to mount instead of a futebus.

    Raises:
        AssertionError: a line was lost, doubled, altered, or out of order, or somebody was stuck inside FUSE.
    """
    with trial_of(place, seed, has_recorder, harms, bus) as trial:
        trial.start_writers()
        trial.run(seconds, show, least)
        trial.settle(show)
        return trial.judge()


@contextlib.contextmanager
def trial_of(
    place: Path, seed: int, has_recorder: bool, harms: Sequence[str] = (), bus: Sequence[str] = FUTEBUS
) -> Iterator[Trial]:
    """A trial, all of which is ended in the end. Nobody may have been stuck in it."""
    trial = Trial(place, random.Random(seed), has_recorder, harms, bus=bus)
    try:
        yield trial
        WATCH.check()
    except Exception as error:
        if found := WATCH.take():
            raise AssertionError("\n\n".join(found)) from error
        raise
    finally:
        trial.close()
