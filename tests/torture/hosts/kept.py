"""A round of what is to be kept: writers on several buses, recorders that publish, a stream, a delivery to a master elsewhere.

The one rule: what is in a spool is in the stream, each line once, and comes to the master; twice only as the delivery has said.
"""

import os
import signal
import subprocess
from pathlib import Path

from futebus.spool import Spool
from tests.helpers.collectors import Collector
from tests.helpers.published import messages, wait_for_line
from tests.helpers.recorders import Recorder, is_alive, kill
from tests.helpers.waiting import DEADLINE, until
from tests.spool.spools import lines_of

from ..trial import Counts
from .grounds import ROOT, Round
from .judge import told

SOURCES = 2
"""Buses with writers."""

PARTS = ("drain", "publisher", "holder")


class Kept(Round):
    """See the top."""

    def begin(self) -> None:
        """Has everything running."""
        self.recorders: list[Recorder] = []
        for _ in range(SOURCES):
            self.mount()
        self.sink = self.mount()
        self.master: Collector = self.collect(self.buses[self.sink] / ".U_all")
        for number in range(SOURCES):
            self._record(number)
        self.logs: list[Path] = []
        self.to = f"nats://127.0.0.1:{self.network().port}/LINES/lines.>"
        self._deliver()
        for number in range(SOURCES):
            self.write(number, "U_x")

    def _record(self, number: int) -> None:
        log, spool = self.place / f"record{number}.log", self.place / f"spool{number}"
        to = f"nats://127.0.0.1:{self.network().port}/LINES/lines.{number}"
        with log.open("w") as stream:
            process = self.start(
                *self.command("record"), "--to", to, "--stream-subjects", "lines.>", self.buses[number] / "U_x", spool,
                stderr=stream, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip
        recorder = Recorder(process, spool, log)
        recorder.wait_for("recording ")
        self.recorders.append(recorder)

    def _deliver(self) -> None:
        self.logs.append(self.place / f"delivery{len(self.logs)}.log")
        words = ["--wait", "--state", self.place / "state", "--deliver", self.to, self.buses[self.sink] / "U_all"]
        with self.logs[-1].open("w") as stream:
            self.delivery = self.start(*self.command("link"), *words, stderr=stream, stdin=subprocess.DEVNULL, cwd=ROOT)

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

    def delivery_dies(self) -> None:
        """The delivery is killed, and started again."""
        self.counts["deliveries killed"] += 1
        self.delivery.kill()
        self.delivery.wait()
        self._deliver()

    def source_dies(self) -> None:
        """A bus with writers dies."""
        number = self.dice.randrange(SOURCES)
        recorder = self.recorders[number]
        said = recorder.words.count("back after")
        self.no_bus(number, "U_x")
        until(lambda: recorder.words.count("back after") > said, "it is recorded again")

    # ------------------------------------------------------------------------------------------ the end

    def finish(self) -> Counts:
        """Has all come to its end, and judges."""
        self.mend()
        self.stop_writers()
        self.show("all comes to its end")
        for number, recorder in enumerate(self.recorders):
            accepted = sum(count for writer, count in self.written.items() if self.homes[writer] == number)
            until(lambda recorder=recorder, accepted=accepted: Spool(recorder.spool).end >= accepted, "all is recorded")  # type: ignore[misc]
        lines = [self._lines(number) for number in range(SOURCES)]
        total = sum(data.count(b"\n") for data in lines)
        for number, data in enumerate(lines):
            wait_for_line(self.server.url, f"lines.{number}", data.count(b"\n"))
        stream = messages(self.server.url)
        for number, data in enumerate(lines):
            found = b"".join(message.data for message in stream if message.subject == f"lines.{number}")
            count, wanted = found.count(b"\n"), data.count(b"\n")
            self.judge.expect(found == data, f"the stream has {count} lines of spool {number}, which has others, {wanted}")
        lasts = [data.splitlines()[-1] + b"\n" for data in lines if data]
        until(lambda: all(last in self.master.data for last in lasts), "the last lines are delivered")
        self._end()
        self._judge(lines, total)
        return self.judge.conclude()

    def _lines(self, number: int) -> bytes:
        """What is in a spool when all has come that was accepted."""
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

    def _end(self) -> None:
        for recorder in self.recorders:
            holder = recorder.holder
            os.kill(holder, signal.SIGTERM)
            until(lambda holder=holder: not is_alive(holder), "a recorder ends")  # type: ignore[misc]
            assert "Traceback" not in recorder.words, recorder.words[-3000:]
        self.delivery.send_signal(signal.SIGTERM)
        assert self.delivery.wait(DEADLINE) == 0, self.logs[-1].read_text()
        self.leave(self.master)

    def _judge(self, lines: list[bytes], total: int) -> None:
        judge = self.judge
        for number, data in enumerate(lines):
            found = judge.once(f"spool {number}", judge.read(f"spool {number}", data))
            mine = {writer: count for writer, count in self.written.items() if self.homes[writer] == number}
            killed = [writer for writer in self.killed if self.homes[writer] == number]
            lost = judge.missing(f"spool {number}", found, mine, killed)
            judge.expect(not lost, f"spool {number} has lost {lost} lines")
            self.counts["lost"] += lost
        judge.counts["lines heard"] = 0
        words = "".join(log.read_text() for log in self.logs)
        judge.expect("Traceback" not in words, words[-3000:])
        once = judge.once("the master", judge.read("the master", self.master.data), told(words, "are? sent again|lines? is sent"))
        heard = sum(map(len, once.values()))
        lost = total - heard
        judge.expect(not lost, f"the master has {heard} lines of {total}")
        self.counts["lost"] += max(lost, 0)
        self.counts["lines published"] = total
