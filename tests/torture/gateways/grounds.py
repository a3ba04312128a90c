"""Where a round takes place: a bus, a gateway, and the crowd, and what the gateway must be like in the end."""

import contextlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.helpers.mounts import FUTEBUS
from tests.helpers.ports import free_port
from tests.helpers.waiting import DEADLINE, until

from ..trial import Bus
from .kinds import KINDS, SCRIPT, command_of
from .orders import Orders
from .strangers import fuzz_script, place_of

ROOT = Path(__file__).parents[3]

QUEUES = "max_queue=10000000,max_queue_bytes=1G,max_clients=40000"
"""Of the bus: it drops nothing in a round."""


class Ground(Bus):
    """A bus on a directory where another one may have been."""

    def __init__(self, path: Path, log: Path) -> None:
        super(Bus, self).__init__(path, log, QUEUES, command=FUTEBUS, patience=1800)
        try:
            self.before = self.first_look()
        except BaseException:
            self.discard()
            raise


class Crowd:
    """The processes of a round: see `crowd.py`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.told: dict[str, list[str]] = {}
        """Who has started, is ready, is quiet, has ended."""
        self.statuses: dict[str, int] = {}
        self.killed: set[str] = set()
        with log.open("w") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.torture.gateways.crowd"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                cwd=ROOT,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join(DEADLINE)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            what, who, *status = line.split()
            if status:
                self.statuses[who] = int(status[0])
            self.told.setdefault(what, []).append(who)

    def _command(self, **command: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def start(self, orders: Orders) -> str:
        """Starts a process. Returns its name."""
        self._command(**orders.as_json())
        return orders.who

    def signal(self, number: int, *whom: str) -> None:
        """Sends a signal."""
        for who in whom:
            if number == signal.SIGKILL:
                self.killed.add(who)
            self._command(signal=int(number), who=who)

    def wait(self, what: str, *whom: str) -> None:
        """Waits until all of them have told this."""

        def have_told() -> bool:
            self.check()
            assert self._process.poll() is None, self.log.read_text()
            return {*whom} <= {*self.told.get(what, ())}

        try:
            until(have_told)
        except AssertionError as error:
            left = sorted({*whom} - {*self.told.get(what, ())})
            raise AssertionError(f"{left} are not {what}: {error}\n{self.log.read_text()[-3000:]}") from None

    def check(self) -> None:
        """Nobody has ended in another way than it should."""
        failed = {who: status for who, status in [*self.statuses.items()] if status and not (status == -9 and who in self.killed)}
        assert not failed, f"ended with {failed}\n{self.log.read_text()[-3000:]}"


class Gateway:
    """A gateway that can be killed and started again at the same address.

    Args:
        place: where its log and its socket are.
        name: of its kind.
        channel: on the bus.
        options: of its command.
        waits: whether it waits for the bus.
        prefix: a module that is run in its place.
    """

    def __init__(
        self, place: Path, name: str, channel: Path, options: list[str], *, waits: bool, prefix: list[str] | None = None
    ) -> None:
        self.kind, self.name, self.place = KINDS[name], name, place
        self.address = str(place / self.kind.socket) if self.kind.socket else str(free_port())
        self.command = [*command_of(self.kind, prefix), *self.kind.words(name, self.address, channel, options, waits=waits)]
        self.starts = 0
        self.junk: float = 0.0
        """How likely its script says nonsense beside each answer, if it is one."""
        self._scripts: list[Scripting] = []
        self.start()

    @property
    def log(self) -> Path:
        return self.place / f"gateway{self.starts}.log"

    @property
    def words(self) -> str:
        """What all that were here have said."""
        return "".join((self.place / f"gateway{number}.log").read_text() for number in range(1, self.starts + 1))

    def start(self) -> None:
        """Starts it, and does not wait until it is ready."""
        self.starts += 1
        pipe = subprocess.PIPE if self.name == SCRIPT else subprocess.DEVNULL
        with self.log.open("w") as stream:
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=stream, cwd=ROOT)
        if self.name == SCRIPT:
            self._scripts.append(Scripting(self))

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, f"{self.name} has ended with {self.process.returncode}:\n{self.log.read_text()}"
            return self._scripts[-1].is_ready if self._scripts else self.kind.ready in self.log.read_text()

        until(is_ready, f"{self.name} is ready")

    def memory(self, what: str = "VmRSS") -> int:
        """In bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"\n{what}:")[2].split(None, 1)[0]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        if self._scripts:
            self._scripts[-1].end()

    def end(self) -> None:
        """Ends it, and sees that it ends as it should."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end: {self.log.read_text()[-3000:]}") from None
        assert status == 0, f"{self.name} has ended with {status}:\n{self.log.read_text()[-3000:]}"
        self.discard()
        for words in ("Traceback", "internal error", "Exception ignored"):
            assert words not in self.words, self.words[-5000:]
        place = place_of(self.address)
        assert place is None or not place.exists(), f"{self.name} has left its socket behind"

    def discard(self) -> None:
        """Kills what is left of it."""
        self.process.kill()
        self.process.wait()
        for each in self._scripts:
            each.end()


@contextlib.contextmanager
def more_files() -> Iterator[None]:
    """Who is started meanwhile may have as many open files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Scripting(threading.Thread):
    """The script of a gateway: whatever somebody says it says to all."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(daemon=True)
        self.is_ready = False
        self._gateway = gateway
        self._process = gateway.process
        self._dice = random.Random(gateway.starts)
        self.start()

    def run(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        source, sink = self._process.stdout.fileno(), self._process.stdin.fileno()
        os.set_blocking(sink, False)
        heard = answers = b""
        while True:
            # It reads on while it cannot write: the gateway, too, waits for who does not read.
            poll = select.poll()
            poll.register(source, select.POLLIN)
            if answers:
                poll.register(sink, select.POLLOUT)
            bits = dict(poll.poll())
            try:
                if source in bits:
                    data = os.read(source, 1 << 17)
                    if not data:
                        return
                    *lines, heard = (heard + data).split(b"\n")
                    answers += b"".join(self._answers(lines))
                if answers:
                    answers = answers[os.write(sink, answers) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return

    def _answers(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            what, _, words = line.partition(b"\t")
            if what == b"r" and words.startswith(b"1\t"):
                yield b"w\t1\t*\t%s\n" % words.split(b"\t", 2)[2]
            elif line == b"b\t1\t1":
                self.is_ready = True
            if self._gateway.junk and self._dice.random() < self._gateway.junk:
                yield fuzz_script(self._dice, self._gateway.address)

    def end(self) -> None:
        """Sees it off; the gateway has ended."""
        self.join(DEADLINE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
