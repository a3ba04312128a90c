"""A round of what is to be kept: writers on several buses, recorders that publish, a stream, a delivery to a master elsewhere.

The one rule: what is in a spool is in the stream, each line once, and comes to the master; twice only as the delivery has said.
"""

import signal
import subprocess
from pathlib import Path

from tests.helpers.collectors import Collector
from tests.helpers.published import messages, wait_for_line
from tests.helpers.waiting import DEADLINE, until

from ..trial import Counts
from .grounds import ROOT
from .judge import told
from .recorded import Recorded


class Kept(Recorded):
    """See the top."""

    sources = 2

    def begin(self) -> None:
        """Has everything running."""
        self.mount_sources()
        self.sink = self.mount()
        self.master: Collector = self.collect(self.buses[self.sink] / ".U_all")
        for number in range(self.sources):
            self.record(number, f"nats://127.0.0.1:{self.network().port}")
        self.logs: list[Path] = []
        self.to = f"nats://127.0.0.1:{self.network().port}/LINES/lines.>"
        self._deliver()
        self.write_all()

    def _deliver(self) -> None:
        self.logs.append(self.place / f"delivery{len(self.logs)}.log")
        words = ["--wait", "--state", self.place / "state", "--deliver", self.to, self.buses[self.sink] / "U_all"]
        with self.logs[-1].open("w") as stream:
            self.delivery = self.start(*self.command("link"), *words, stderr=stream, stdin=subprocess.DEVNULL, cwd=ROOT)

    # ------------------------------------------------------------------------------------------ harms

    def delivery_dies(self) -> None:
        """The delivery is killed, and started again."""
        self.counts["deliveries killed"] += 1
        self.delivery.kill()
        self.delivery.wait()
        self._deliver()

    # ------------------------------------------------------------------------------------------ the end

    def finish(self) -> Counts:
        """Has all come to its end, and judges."""
        self.mend()
        lines = self.all_recorded()
        for number, data in enumerate(lines):
            wait_for_line(self.server.url, f"lines.{number}", data.count(b"\n"))
        stream = messages(self.server.url)
        for number, data in enumerate(lines):
            found = b"".join(message.data for message in stream if message.subject == f"lines.{number}")
            count, wanted = found.count(b"\n"), data.count(b"\n")
            self.judge.expect(found == data, f"the stream has {count} lines of spool {number}, which has others, {wanted}")
        lasts = [data.splitlines()[-1] + b"\n" for data in lines if data]
        until(lambda: all(last in self.master.data for last in lasts), "the last lines are delivered")
        self.end_recorders()
        self._end()
        self.judge_spools(lines)
        self._judge(sum(data.count(b"\n") for data in lines))
        return self.judge.conclude()

    def _end(self) -> None:
        self.delivery.send_signal(signal.SIGTERM)
        assert self.delivery.wait(DEADLINE) == 0, self.logs[-1].read_text()
        self.leave(self.master)

    def _judge(self, total: int) -> None:
        judge = self.judge
        words = "".join(log.read_text() for log in self.logs)
        judge.expect("Traceback" not in words, words[-3000:])
        once = judge.once("the master", judge.read("the master", self.master.data), told(words, "are? sent again|lines? is sent"))
        heard = sum(map(len, once.values()))
        lost = total - heard
        judge.expect(not lost, f"the master has {heard} lines of {total}")
        self.counts["lost"] += max(lost, 0)
        self.counts["lines published"] = total
