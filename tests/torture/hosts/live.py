"""A round of what is live: a B channel on several buses, linked, with writers and a reader on each.

The one rule: a line comes once, in its order, and what does not come was counted and said. The link of one bus, the first,
or the bus itself may be killed: what is said on it and for it meanwhile nobody can count.
"""

import signal
import subprocess
from pathlib import Path

from tests.helpers.collectors import Collector
from tests.helpers.published import Proxy
from tests.helpers.waiting import DEADLINE, until

from ..trial import Counts
from .grounds import ROOT, Round
from .judge import Lines, told

BUSES = 3

VICTIM = 0
"""The bus whose link may be killed, or that may be killed itself."""

LAST = 1000
"""Writers that speak in the end have such names, so that what is missing before is noticed."""


class Live(Round):
    """See the top.

    `subjects` says which buses are linked to which subjects: a word a bus, a letter a subject.
    """

    subjects: tuple[str, ...] = ("a",) * BUSES

    def begin(self) -> None:
        """Has everything running."""
        self.harmed = False
        """Whether the victim was harmed."""
        self.logs: list[list[Path]] = [[] for _ in range(BUSES)]
        self.links: list[subprocess.Popen[str]] = []
        self.heard: list[list[bytes]] = [[] for _ in range(BUSES)]
        """What readers that have left had heard."""
        self.last = 0
        self.ways: list[Proxy] = [self.network() for _ in range(BUSES)]
        for number in range(BUSES):
            self.mount()
            (self.buses[number] / "B_x").touch()
        self.readers: list[Collector] = [self.collect(bus / "B_x") for bus in self.buses]
        self.links = [self._link(number) for number in range(BUSES)]
        for number in range(BUSES):
            self._wait_for_link(number)
        for number in range(BUSES):
            self.write(number, "B_x")
        for number in range(BUSES):
            self._wait_for_writers(number)

    def _link(self, number: int) -> "subprocess.Popen[str]":
        log = self.place / f"link{number}-{len(self.logs[number])}.log"
        self.logs[number].append(log)
        urls = [f"nats://127.0.0.1:{self.ways[number].port}/{subject}" for subject in self.subjects[number]]
        with log.open("w") as stream:
            return self.start(
                *self.command("link"),
                "--wait",
                self.buses[number] / "B_x",
                *urls,
                stderr=stream,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def _wait_for_link(self, number: int) -> None:
        log = self.logs[number][-1]
        until(lambda: " is linked to " in log.read_text(), f"link {number} is ready")

    def _wait_for_writers(self, number: int) -> None:
        """Before that, nobody would know that something was missing."""
        for writer in list(self.writers):
            line = b"\n%d " % writer
            until(lambda line=line: line in self.readers[number].data, f"writer {writer} is heard on bus {number}")  # type: ignore[misc]

    # ------------------------------------------------------------------------------------------ harms

    def link_dies(self) -> None:
        """The victim's link is killed, and started again."""
        self.harmed = True
        self.counts["links killed"] += 1
        self.links[VICTIM].kill()
        self.links[VICTIM].wait()
        self.rest()
        self.links[VICTIM] = self._link(VICTIM)
        self._wait_for_link(VICTIM)

    def bus_dies(self) -> None:
        """The victim is killed, and another bus comes in its place."""
        self.harmed = True
        self._leave_reader()
        log = self.logs[VICTIM][-1]
        said = log.read_text().count("is open again")
        self.no_bus(VICTIM, "B_x")
        until(lambda: log.read_text().count("is open again") > said, "the link has it open again")
        self.readers[VICTIM] = self.collect(self.buses[VICTIM] / "B_x")

    def _leave_reader(self) -> None:
        self.leave(self.readers[VICTIM])
        data = self.readers[VICTIM].data
        self.heard[VICTIM].append(data[: data.rfind(b"\n") + 1])

    # ------------------------------------------------------------------------------------------ the end

    def finish(self) -> Counts:
        """Has all come to its end, and judges."""
        self.mend()
        self.stop_writers()
        self.show("all comes to its end")
        until(self._have_heard_the_last, "all hear all others")
        for link in self.links:
            link.send_signal(signal.SIGTERM)
        for number, link in enumerate(self.links):
            assert link.wait(DEADLINE) == 0, self.logs[number][-1].read_text()
        for reader in self.readers:
            self.leave(reader)
        self._judge()
        return self.judge.conclude()

    def _have_heard_the_last(self) -> bool:
        """Something is said on each bus, until it is heard on all the others: it goes on after what is missing."""
        lines = [b"%d %d %s\n" % (LAST + number, self.last, b"x" * (self.last % 150)) for number in range(BUSES)]
        for number, line in enumerate(lines):
            (self.buses[number] / "B_x").write_bytes(line)
            self.written[LAST + number] = self.last + 1
        self.last += 1
        try:
            until(lambda: all(line in reader.data for line in lines for reader in self.readers), deadline=0.5)
        except AssertionError:
            return False
        return True

    def _judge(self) -> None:
        judge = self.judge
        words = ["".join(log.read_text() for log in logs) for logs in self.logs]
        unsent = 0
        for number, said in enumerate(words):
            judge.expect("Traceback" not in said, f"link {number}: {said[-3000:]}")
            unsent += told(said, "of \\S* not sent")
        for number, reader in enumerate(self.readers):
            who = f"the reader on bus {number}"
            for data in self.heard[number]:
                judge.once(f"{who} that has left", judge.read(who, data))
            found = judge.once(who, judge.read(who, reader.data))
            local = {writer: count for writer, count in self.written.items() if self._home(writer) == number}
            others = {writer: count for writer, count in self.written.items() if self._home(writer) != number}
            if self.harmed and number == VICTIM:
                continue
            if self.harmed:
                others = {writer: count for writer, count in others.items() if self._home(writer) != VICTIM}
            self._judge_missing(number, found, local, others, words[number], unsent)

    def _judge_missing(
        self, number: int, found: Lines, local: dict[int, int], others: dict[int, int], words: str, unsent: int
    ) -> None:
        judge = self.judge
        who = f"the reader on bus {number}"
        lost = judge.missing(who, found, local)
        judge.expect(not lost, f"{who} has not heard {lost} lines of this bus")
        missing = judge.missing(who, found, others)
        is_told = told(words, "of others have not come") + told(words, "not said on") + unsent
        self.counts["lines missing, and told of"] += min(missing, is_told)
        self.counts["lost"] += max(missing - is_told, 0)
        judge.expect(missing <= is_told, f"{who} has not heard {missing} lines of other buses, and {is_told} were told of")

    def _home(self, writer: int) -> int:
        return writer - LAST if writer >= LAST else self.homes[writer]


class Ring(Live):
    """Each bus is linked to two subjects, and each subject to two buses: every line comes on two ways."""

    subjects = ("ab", "bc", "ca")
