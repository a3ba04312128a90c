"""A round of many hosts: three buses with recorders, a cluster of three servers, and an archive on a Spark of two workers.

Each is on a host of its own, with a cable that can be pulled; who computes for Spark sees no disk of buses, spools or servers.
With each harm goes one of the servers.

The one rule: what is in the spools is in the archive, each line once, and in the order of its spool.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from tests.archive.archives import table
from tests.helpers.java import QUICK
from tests.helpers.nats import Server
from tests.helpers.processes import kill_all
from tests.helpers.waiting import until

from ..family import family
from ..parquet import count_lines, files
from ..trial import Counts
from .grounds import ROOT
from .judge import Judge
from .land import Host, Land
from .recorded import Recorded

PATIENCE = 400.0
"""Seconds that Spark may take to start, or to catch up, on a machine that has much else to do."""

SPARK_PORT, ROUTE_PORT = 7077, 6222

DEPLOY = "org.apache.spark.deploy"

CONF = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.task.maxFailures": "50",
}
"""Small and quick to start, and soon aware of who is gone."""

APART = """
while [ "$1" != -- ]; do
    umount -l "$1" 2> /dev/null
    mount -t tmpfs none "$1"
    shift
done
shift
exec "$@"
"""
"""Runs a command that does not see what is in some directories, mounts or not: `sh -c APART sh DIRECTORY... -- COMMAND...`."""


class Spread(Recorded):
    """See the top."""

    sources = 3
    rests = (0.1, 2.5)
    pause = 0.05
    pace = 5

    def serve(self) -> None:
        """Makes the hosts, and starts the cluster."""
        self.land = Land(self.start)
        self._store = self.place / "nats"
        self._hosts = [self.land.host(f"nats{number}") for number in range(3)]
        routes = ", ".join(f'"nats-route://{host.address}:{ROUTE_PORT}"' for host in self._hosts)
        self.servers = [self._server(number, host, routes) for number, host in enumerate(self._hosts)]
        self.url = ",".join(server.url for server in self.servers)

    def _server(self, number: int, host: Host, routes: str) -> Server:
        store = self._store / str(number)
        store.mkdir(parents=True)
        configuration = (
            f'server_name: server{number}\nhttp: "{host.address}:-1"\njetstream {{ store_dir: "{store}" }}\n'
            f'cluster {{ name: three, listen: "{host.address}:{ROUTE_PORT}", routes: [{routes}] }}\n'
        )

        def start(*command: str | Path, **popen: Any) -> "subprocess.Popen[str]":
            return self.start(*host.words, *command, **popen)

        return Server(start, store, configuration, address=host.address)

    def begin(self) -> None:
        """Has everything running."""
        self._recording = [self.land.host(f"bus{number}") for number in range(self.sources)]
        self._driving = self.land.host("driver")
        self._working = [self.land.host(f"worker{number}") for number in range(2)]
        self._spools = self.place / "spools"
        self._spools.mkdir()
        self.lake = self.place / "archive"
        self.mount_sources()
        for number, host in enumerate(self._recording):
            self.record(number, self.url, "--stream-replicas", "3", where=host.words)
        self._log = (self.place / "spark.log").open("ab")
        self._stack.callback(self._log.close)
        self._master = self._spark_master()
        self._workers = [self._worker(number) for number in range(2)]
        self._stack.callback(self._kill_workers)
        self.archive: subprocess.Popen[str] | None = None
        for number, bus in enumerate(self.buses):
            writer = len(self.homes)
            self.homes[writer], self.written[writer] = number, 1
            (bus / "U_x").write_bytes(b"%d 0 \n" % writer)
        until(self._has_begun, "the first lines are archived", PATIENCE)
        # Not before: millions would wait for a slow Spark.
        self.write_all()

    def spool(self, number: int) -> Path:
        """Where the lines of a bus are recorded."""
        return self._spools / str(number)

    # ------------------------------------------------------------------------------------------ Spark

    def _apart(self, host: Host, *command: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """Starts something on a host that has no disk of others but that of the archive."""
        hidden = [*(bus.path for bus in self.buses), self._spools, self._store]
        words = [*host.words, "unshare", "--mount", "sh", "-c", APART, "sh", *hidden, "--", *command]
        env = {**os.environ, "LC_ALL": "C.UTF-8", "SPARK_LOCAL_IP": host.address, **environment}
        return self.start(*words, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=ROOT)

    def _daemon(self, host: Host, kind: str, *words: str, **environment: str) -> "subprocess.Popen[str]":
        command = Path(pyspark.__file__).with_name("bin") / "spark-class"
        given = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK, **environment}
        return self._apart(host, command, f"{DEPLOY}.{kind}", "--host", host.address, "--webui-port", "0", *words, **given)

    def _spark_master(self) -> "subprocess.Popen[str]":
        # One that has forgotten its applications has none of them go on, and they wait for good.
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.place}/recovery"
        options = f"{QUICK} -Dspark.worker.timeout=15 -Dspark.deploy.maxExecutorRetries=-1 {recovery}"
        return self._daemon(self._driving, "master.Master", "--port", str(SPARK_PORT), SPARK_DAEMON_JAVA_OPTS=options)

    @property
    def _url_of_spark(self) -> str:
        return f"spark://{self._driving.address}:{SPARK_PORT}"

    def _worker(self, number: int) -> "subprocess.Popen[str]":
        where = self.place / f"worker{number}"
        return self._daemon(
            self._working[number], "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(where), self._url_of_spark
        )

    def _executors(self) -> list[int]:
        """Java's processes that compute, and Python's."""
        return [pid for worker in self._workers for pid, _ in family(worker.pid)]

    def _kill_workers(self) -> None:
        """What computes is in nobody's session."""
        for number in range(len(self._workers)):
            self._kill_worker(number)

    def _kill_worker(self, number: int) -> None:
        worker = self._workers[number]
        kill_all([worker.pid, *(pid for pid, _ in family(worker.pid))])
        worker.wait()

    def _keep_alive(self) -> None:
        """Starts the archive again, as a service manager would."""
        if self.archive is None or self.archive.poll() is not None:
            conf = CONF | {"spark.driver.host": self._driving.address, "spark.driver.bindAddress": self._driving.address}
            words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
            self.archive = self._apart(
                self._driving, sys.executable, "-m", "futebus.commands.archive", "--every", "1s", "--master", self._url_of_spark,
                *words, f"{self.url}/LINES", self.lake,
            )  # fmt: skip

    def _has_begun(self) -> bool:
        self._keep_alive()
        return bool(files(self.lake))

    # ------------------------------------------------------------------------------------------ harms

    def with_a_server(self, harm: Callable[[], None]) -> Callable[[], None]:
        """A harm while one of the servers is dead, hangs, or is cut off."""

        def both() -> None:
            for each in self.servers:
                each.wait_until_current()
            number = self.dice.randrange(3)
            server, host = self.servers[number], self._hosts[number]
            how = self.dice.choice(["killed", "hung", "cut off"])
            self.counts[f"servers {how}"] += 1
            if how == "killed":
                server.kill()
                harm()
                server.begin()
            elif how == "hung":
                with server.hanging():
                    harm()
            else:
                host.cut()
                harm()
                host.mend()

        return both

    def recorder_cut_off(self) -> None:
        """A recorder has no network for a while."""
        self._cut("recorders", self._recording)

    def worker_cut_off(self) -> None:
        """A worker has none."""
        self._cut("workers", self._working)

    def driver_cut_off(self) -> None:
        """Who leads has none."""
        self._cut("drivers", [self._driving])

    def _cut(self, what: str, hosts: list[Host]) -> None:
        self.counts[f"{what} cut off"] += 1
        host = self.dice.choice(hosts)
        host.cut()
        self.rest()
        host.mend()

    def worker_dies(self) -> None:
        """A worker is killed, with all that computes for it, and started again."""
        self.counts["workers killed"] += 1
        number = self.dice.randrange(2)
        self._kill_worker(number)
        self.rest()
        self._workers[number] = self._worker(number)

    def executor_dies(self) -> None:
        """A process that computes is killed."""
        if pids := self._executors():
            self.counts["executors killed"] += 1
            kill_all([self.dice.choice(pids)])
        self.rest()

    def driver_dies(self) -> None:
        """The archive is killed, with its Java, and started again."""
        self.counts["drivers killed"] += 1
        assert self.archive
        kill_all([self.archive.pid, *(pid for pid, _ in family(self.archive.pid))])
        self.archive.wait()
        self.rest()
        self._keep_alive()

    def master_dies(self) -> None:
        """Spark's master is killed, and another one comes in its place."""
        self.counts["masters of Spark killed"] += 1
        self._master.kill()
        self._master.wait()
        self.rest()
        self._master = self._spark_master()

    # ------------------------------------------------------------------------------------------ the end

    def finish(self) -> Counts:
        """Has all come to its end, and judges."""
        self.land.mend()
        lines = self.all_recorded()
        total = sum(data.count(b"\n") for data in lines)

        def is_complete() -> bool:
            self._keep_alive()
            with contextlib.suppress(OSError, pa.ArrowException):  # files come and go while it looks
                count = count_lines(self.lake)
                self.show(f"{count:,} of {total:,} lines archived")
                return count >= total
            return False

        until(is_complete, "all lines are archived", PATIENCE)
        assert self.archive
        self.archive.send_signal(signal.SIGTERM)
        assert self.archive.wait(PATIENCE) == 0, (self.place / "spark.log").read_text()[-3000:]
        self.end_recorders()
        self.judge_spools(lines)
        judge_rows(self.judge, lines, table(self.lake).select(["subject", "sequence", "offset", "value", "host"]).to_pylist())
        return self.judge.conclude()


def judge_rows(judge: Judge, lines: list[bytes], rows: list[dict[str, Any]]) -> None:
    """Judges the rows of an archive: each spool's lines must be there, once, in its order, and from its host."""
    for number, data in enumerate(lines):
        subject = f"lines.{number}"
        mine = sorted((row for row in rows if row["subject"] == subject), key=lambda row: (row["sequence"], row["offset"]))
        found = b"".join(row["value"].encode() + b"\n" for row in mine)
        judge.once(f"the archive, {subject}", judge.read(f"the archive, {subject}", found))
        count, wanted = found.count(b"\n"), data.count(b"\n")
        judge.expect(found == data, f"the archive has {count} lines of spool {number}, which has others, {wanted}")
        judge.expect({row["host"] for row in mine} <= {f"bus{number}"}, f"lines of spool {number} have come from elsewhere")
        judge.counts["lost"] += max(wanted - count, 0)
        judge.counts["lines archived"] += count
