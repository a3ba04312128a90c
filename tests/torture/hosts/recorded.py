"""Buses with writers, and recorders that publish in a stream: what rounds of streams begin with.

The one rule: what a bus has accepted is in its spool, each line once, in the order of its writer.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from futebus.spool import Spool
from tests.helpers.recorders import Recorder, is_alive, kill
from tests.helpers.waiting import until
from tests.spool.spools import lines_of

from .grounds import ROOT, Round

PARTS = ("drain", "publisher", "holder")


class Recorded(Round):
    """See the top."""

    sources: int
    """How many buses with writers there are."""

    def mount_sources(self) -> None:
        """Mounts the buses that writers write on. Theirs are the first numbers."""
        self.recorders: list[Recorder] = []
        for _ in range(self.sources):
            self.mount()

    def record(self, number: int, servers: str, *options: str, where: Sequence[str] = ()) -> None:
        """Starts the recorder of a bus.

        Args:
            number: of the bus.
            servers: the beginning of the URL of its subject.
            options: of its own.
            where: the words in front of a command that runs on its host.
        """
        log, spool = self.place / f"record{number}.log", self.spool(number)
        to = ["--to", f"{servers}/LINES/lines.{number}", "--stream-subjects", "lines.>", *options]
        with log.open("w") as stream:
            process = self.start(
                *where, *self.command("record"), *to, self.buses[number] / "U_x", spool,
                stderr=stream, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        recorder = Recorder(process, spool, log)
        recorder.wait_for("recording ")
        self.recorders.append(recorder)

    def spool(self, number: int) -> Path:
        """Where the lines of a bus are recorded."""
        return self.place / f"spool{number}"

    def write_all(self) -> None:
        """Starts the writers of all."""
        for number in range(self.sources):
            self.write(number, "U_x")
        until(lambda: all(Spool(self.spool(number)).end for number in range(self.sources)), "somebody has written on each")

    # ------------------------------------------------------------------------------------------ harms

    def part_dies(self) -> None:
        """A process of a recorder is killed; the others start it again."""
        recorder = self.dice.choice(self.recorders)
        part = self.dice.choice(PARTS)
        self.counts[f"{part}s killed"] += 1
        if part == "holder":
            drain = recorder.drain()
            kill(recorder.holder)
            until(lambda: recorder.holder == drain, "the drain holds the channel")
        else:
            kill(recorder.publisher() if part == "publisher" else recorder.drain())

    def source_dies(self) -> None:
        """A bus with writers dies."""
        number = self.dice.randrange(self.sources)
        recorder = self.recorders[number]
        said = recorder.words.count("back after")
        self.no_bus(number, "U_x")
        until(lambda: recorder.words.count("back after") > said, "it is recorded again")

    # ------------------------------------------------------------------------------------------ the end

    def all_recorded(self) -> list[bytes]:
        """Has the writers end. Returns what the spools have when all that was accepted is there."""
        self.stop_writers()
        self.show("all comes to its end")
        for number, recorder in enumerate(self.recorders):
            accepted = sum(count for writer, count in self.written.items() if self.homes[writer] == number)
            until(lambda recorder=recorder, accepted=accepted: Spool(recorder.spool).end >= accepted, "all is recorded")  # type: ignore[misc]
        return [self._lines(number) for number in range(self.sources)]

    def _lines(self, number: int) -> bytes:
        spool = self.recorders[number].spool
        count = 0

        def is_all() -> bool:
            nonlocal count
            before, count = count, Spool(spool).end
            found = self.judge.read(f"spool {number}", lines_of(spool))
            mine = {writer: lines for writer, lines in self.written.items() if self.homes[writer] == number}
            return before == count and all(len(found.get(writer, [])) >= lines for writer, lines in mine.items())

        until(is_all, f"spool {number} has all that was accepted")
        return lines_of(spool)

    def end_recorders(self) -> None:
        """Ends them, as they should."""
        for recorder in self.recorders:
            holder = recorder.holder
            os.kill(holder, signal.SIGTERM)
            until(lambda holder=holder: not is_alive(holder), "a recorder ends")  # type: ignore[misc]
            assert "Traceback" not in recorder.words, recorder.words[-3000:]

    def judge_spools(self, lines: list[bytes]) -> None:
        """Judges what was recorded. What is heard is counted from then on."""
        judge = self.judge
        for number, data in enumerate(lines):
            found = judge.once(f"spool {number}", judge.read(f"spool {number}", data))
            mine = {writer: count for writer, count in self.written.items() if self.homes[writer] == number}
            killed = [writer for writer in self.killed if self.homes[writer] == number]
            lost = judge.missing(f"spool {number}", found, mine, killed)
            judge.expect(not lost, f"spool {number} has lost {lost} lines")
            self.counts["lost"] += lost
        judge.counts["lines heard"] = 0
