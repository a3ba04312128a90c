"""Writers, a channel, a recorder or not, an archive; somebody is killed all the time; every line is looked at in the end.

The rule that is tried, from docs/spark.md: with a recorder, every line that a `write` has accepted is in the archive once, and in
the order of its writer, whoever dies but holder and bus. Without one the same holds, but for what was queued on the bus when the
process died that drained it; of that the bus's log has the number.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset

from tests.helpers.mounts import Mount
from tests.helpers.waiting import until

PATIENCE = 120.0
"""Seconds that Spark may take to start, or to catch up."""

Show = Callable[[str], None]


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

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items())) or "nobody"
        lines = f"{self.accepted:,} accepted, {self.archived:,} archived, {self.lost:,} lost ({self.announced:,} announced)"
        return f"{lines}; killed: {killed}"


def _family(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that descend from one, with their command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    left = children.get(pid, [])
    while left:
        child = left.pop()
        with contextlib.suppress(OSError):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        left += children.get(child, [])


ROLES: dict[str, Callable[[str], bool]] = {
    "JVM": lambda command: "org.apache.spark.deploy.SparkSubmit" in command,
    "runner": lambda command: "python_streaming_source_runner" in command,
    "worker": lambda command: "pyspark.daemon" in command,
}


class Trial:
    """One bus, its writers, its archive.

    Args:
        place: an empty directory.
        dice: who decides whom to kill, and when.
        has_recorder: whether a recorder drains, rather than the archive's own query.
        writers: how many.
    """

    def __init__(self, place: Path, dice: random.Random, has_recorder: bool, writers: int = 3) -> None:
        self.place, self.dice, self.has_recorder = place, dice, has_recorder
        self.verdict = Verdict()
        (place / "bus").mkdir()
        (place / "spools").mkdir()
        self.bus = Mount(place / "bus", place / "bus.log", "max_queue=2000", patience=3600.0)
        self.channel = self.bus / "U_jobs"
        self._running: list[subprocess.Popen[bytes]] = []
        self.recorder = (
            self._start("-m", "futebus.record", "-q", str(self.channel), str(place / "spools" / "U_jobs"))
            if has_recorder
            else None
        )
        self.archive = self._start_archive()
        if has_recorder:
            until(self.channel.exists, "the recorder has joined")
        self.writers = [
            self._start(
                str(Path(__file__).with_name("writer.py")), str(self.channel), f"w{number}", str(place / f"accepted{number}")
            )
            for number in range(writers)
        ]

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
        spools = ["--spools", str(self.place / "spools")]
        java = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        how = ["--every", "1s", "--master", "local[2]", "--conf", java]
        return self._start("-m", "futebus.spark.archive", *drain, *spools, *how, str(self.channel), str(self.place / "archive"))

    # ------------------------------------------------------------------------------------------ killing

    def _candidates(self) -> list[tuple[str, int]]:
        found = [("driver", self.archive.pid)]
        for pid, command in _family(self.archive.pid):
            found += [(role, pid) for role, is_it in ROLES.items() if is_it(command)]
        if self.recorder is not None:
            found += [("drain", pid) for pid, _ in _family(self.recorder.pid)]
        return found

    def kill_somebody(self) -> str:
        """Kills one process, chosen by role first: there are many workers and one JVM."""
        candidates = self._candidates()
        role = self.dice.choice(sorted({role for role, _ in candidates}))
        pid = self.dice.choice(sorted(pid for name, pid in candidates if name == role))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.verdict.kills[role] += 1
        return role

    def keep_alive(self) -> None:
        """Starts the archive again, as a service manager would."""
        if self.archive.poll() is not None:
            for pid, _ in list(_family(self.archive.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.archive = self._start_archive()

    def run(self, seconds: float, show: Show) -> None:
        """Kills somebody every few seconds, for so long."""
        end = time.monotonic() + seconds
        following = time.monotonic() + self.dice.uniform(5, 12)
        while time.monotonic() < end:
            self.keep_alive()
            if time.monotonic() > following:
                show(f"killed: {self.kill_somebody()}")
                following = time.monotonic() + self.dice.uniform(0.5, 12)
            time.sleep(0.05)

    # ------------------------------------------------------------------------------------------ looking

    def accepted(self) -> dict[str, list[int]]:
        """The numbers of the lines that were accepted, by writer."""
        found: dict[str, list[int]] = {}
        for number in range(len(self.writers)):
            ranges = (self.place / f"accepted{number}").read_text().splitlines()
            found[f"w{number}"] = [each for line in ranges for each in range(*map(int, line.split()))]
        return found

    def archived(self) -> list[str]:
        """The lines of the archive, in the order of the spool."""
        files = sorted(map(str, (self.place / "archive").glob("channel=*/date=*/hour=*/[!._]*.parquet")))
        if not files:
            return []
        dataset: Any = pyarrow.dataset
        table = dataset.dataset(files, format="parquet").to_table(["value", "offset"])
        pairs = zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
        return [value for _, value in sorted(pairs)]

    @property
    def announced(self) -> int:
        """How many accepted lines the bus's log tells to have been lost."""
        return sum(map(int, re.findall(r"has closed with (\d+) messages unread", self.bus.words)))

    def settle(self, show: Show) -> Verdict:
        """Ends the writers, waits until the archive has everything, ends it, and looks at every line."""
        for writer in self.writers:
            writer.terminate()
        for writer in self.writers:
            writer.wait(PATIENCE)
        accepted = self.accepted()
        total = sum(map(len, accepted.values()))

        def is_complete() -> bool:
            self.keep_alive()
            with contextlib.suppress(OSError):  # files come and go while it looks
                count = len(self.archived())
                show(f"{count:,} of {total:,} lines archived")
                return count >= total - self.announced
            return False

        until(is_complete, f"the archive has {total} lines; see {self.place}", PATIENCE)
        self.archive.terminate()
        assert self.archive.wait(60) == 0, (self.place / "programs.log").read_text()
        return self._judge(accepted)

    def _judge(self, accepted: dict[str, list[int]]) -> Verdict:
        lines = self.archived()
        twice = [line for line, count in Counter(lines).items() if count > 1]
        assert not twice, f"{len(twice)} lines are in the archive twice, the first of them {twice[0]!r}"
        got: dict[str, list[int]] = {name: [] for name in accepted}
        for line in lines:
            name, number = line.split()
            got[name].append(int(number))
        verdict = self.verdict
        verdict.accepted, verdict.archived = sum(map(len, accepted.values())), len(lines)
        verdict.announced = self.announced
        for name, numbers in got.items():
            assert numbers == sorted(numbers), f"the lines of {name} are out of order"
            verdict.lost += len({*accepted[name]} - {*numbers})
        return verdict

    def close(self) -> None:
        """Ends everything."""
        for process in self._running:
            for pid in [*(pid for pid, _ in _family(process.pid)), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
        self.bus.discard()


def torture(place: Path, seed: int, has_recorder: bool, seconds: float, show: Show = lambda words: None) -> Verdict:
    """One trial.

    Args:
        place: an empty directory.
        seed: of the dice.
        has_recorder: whether a recorder drains.
        seconds: for how long somebody is killed every now and then.
        show: is told how it goes.

    Raises:
        AssertionError: a line was lost, doubled, or out of order.
    """
    trial = Trial(place, random.Random(seed), has_recorder)
    try:
        until(lambda: trial.archived() or trial.archive.poll() is not None, "the first line is archived", PATIENCE)
        assert trial.archive.poll() is None, (place / "programs.log").read_text()
        trial.run(seconds, show)
        verdict = trial.settle(show)
        if has_recorder:
            assert verdict.lost == 0, str(verdict)
        else:
            assert verdict.lost <= verdict.announced, str(verdict)
        return verdict
    finally:
        trial.close()
