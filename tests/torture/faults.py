"""Faults of the daemon: it is stopped, killed, unmounted under load, or an error strikes inside it."""

import contextlib
import errno
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.helpers.mounts import FUTEBUS, device_of, run
from tests.helpers.programs import stop
from tests.helpers.waiting import DEADLINE, is_readable, until

from . import calls
from .sick import HANDLERS
from .trial import CREATE, Bus, Counts, Show, mounted, programs, silent

NOT_THERE = {errno.ECONNABORTED, errno.ENOTCONN}


def stopped(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """The daemon is stopped for a while, many times: everybody waits, then all is as before."""
    count = int(400 * scale)
    with mounted(place, "max_queue=50") as bus, programs() as start:
        master = start("stormy", "read", bus / ".U_x", 3 * count, 0.05)
        assert master.stdout
        assert master.stdout.readline() == "open\n"
        writers = [start("stormy", "write", bus / "U_x", f"w{number}", count, 0.05) for number in range(3)]
        counts = Counts(processes=4, messages=3 * count)
        while any(writer.poll() is None for writer in writers):
            stop(bus.daemon.pid)  # nobody gets an answer now: those who ask wait in the kernel
            os.kill(bus.daemon.pid, signal.SIGCONT)
            counts["stops"] += 1
            row = bus.stat()  # it answers again
            assert "U_x" in row
            show(f"stopped {counts['stops']} times")
        assert master.stdout.readline() == "done\n"
        assert master.stdin
        master.stdin.write("\n")
        master.stdin.close()
        assert [process.wait(DEADLINE) for process in (master, *writers)] == [0] * 4
        return counts


# ---------------------------------------------------------------------------------------------- errors inside


def _workload(bus: Bus) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls of every kind that never wait. Each says what it is for."""
    opened: list[int] = []

    def open_(name: str, flags: int) -> None:
        opened.append(os.open(bus / name, flags | os.O_NONBLOCK, 0o666))

    yield "list", lambda: os.listdir(bus.path)
    yield "statvfs", lambda: os.statvfs(bus.path)
    yield "create", lambda: open_("B_x", CREATE)
    yield "open", lambda: open_("B_x", os.O_RDONLY)
    yield "master", lambda: open_(".S_x", CREATE)
    yield "slave", lambda: open_("S_x", os.O_RDWR)
    yield "stat", lambda: os.stat(bus / "B_x")
    yield "chmod", lambda: os.chmod(bus / "B_x", 0o600)
    if len(opened) == 4:
        writer, reader, master, slave = opened
        yield "write", lambda: os.write(writer, b"hello\n")
        yield "read", lambda: os.read(reader, 100)
        yield "ask", lambda: os.write(slave, b"question\n")
        yield "poll", lambda: is_readable(master)
        yield "answer", lambda: os.read(master, 100)
    yield "_stat", bus.stat
    for descriptor in opened:
        yield "close", lambda descriptor=descriptor: os.close(descriptor)  # type: ignore[misc]
    yield "remove", lambda: os.unlink(bus / "B_x")


def _work(bus: Bus) -> dict[str, int]:
    """Does everything. Returns what has failed, and how."""
    failed = {}
    for what, call in _workload(bus):
        try:
            call()
        except OSError as error:
            failed[what] = error.errno or -1
    return failed


REACHED_BY = {
    "Directory.getattr": {"stat"},
    "Directory.setattr": {"chmod"},
    "Directory.statfs": {"statvfs"},
    "Directory.lookup": {"create", "master", "_stat"},
    "Directory.unlink": {"remove"},
    "Directory.opendir": {"list"},
    "Directory.readdir": {"list"},
    "Directory.open": {"open", "slave", "_stat"},
    "Directory.create": {"create", "master"},
    "Bus.look_up": {"create", "master", "remove"},
    "Bus.create": {"create", "master"},
    "Bus.open": {"open", "slave"},
    "Bus.unlink": {"remove"},
    "Bus.write": {"write", "ask"},
    "Bus.read": {"read", "answer"},
    "Nodes.offer": {"create", "master"},
    "Nodes.open": {"create", "master"},
    "Calls.add": {"create", "master", "_stat"},
    "Calls.read": {"read", "answer", "_stat"},
    "Calls.write": {"write", "ask"},
    "OpenStat.read": {"_stat"},
    "stat.Taking": {"_stat"},
}
"""Where the fault is, and which calls must fail with EIO by it; whatever depends on them may fail too."""

UNSEEN = {
    "Directory.poll",
    "Directory.releasedir",
    "Directory.release",
    "Bus.poll",
    "Bus.close",
    "Nodes.close",
    "Nodes.forget",
    "Calls.remove",
    "OpenStat.finish",
}
"""Where nobody is told of a fault: the kernel does not ask how a close went, and poll(2) has no errors of its own."""

LEAVES_A_REST = {
    "Directory.releasedir",
    "Directory.release",
}
"""What the kernel says once and never again: what was not even heard then is never cleared away."""


def errors_inside(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """An error in each place where one can be: the caller gets EIO, the log a traceback, and the bus goes on."""
    assert {f"Directory.{name}" for name in HANDLERS} <= {*REACHED_BY, *UNSEEN}, "every handler is tried"
    counts = Counts()
    for names in (sorted({*REACHED_BY, *UNSEEN} - LEAVES_A_REST), *([name] for name in sorted(LEAVES_A_REST))):
        switches = place / f"switches{counts['mounts']}"
        switches.mkdir()
        command = [sys.executable, "-m", "tests.torture.sick", str(switches), "-d"]
        bus = Bus(place, patience=120, command=command)
        bus.expects_errors = True
        try:
            for name in names * max(1, int(scale / 4)):
                tracebacks = bus.words.count("Traceback")
                (switches / name).touch()
                failed = _work(bus)
                until(lambda bus=bus, before=tracebacks: bus.words.count("Traceback") > before, f"{name}: the log tells")  # type: ignore[misc]
                (switches / name).unlink()
                must = REACHED_BY.get(name, set())
                assert {what for what in must if failed.get(what) == errno.EIO} == must, f"{name}: {failed}"
                if name in UNSEEN - LEAVES_A_REST:
                    assert {error for what, error in failed.items()} <= {errno.EIO}, f"{name}: {failed}"
                assert bus.daemon.poll() is None, f"{name}: the bus goes on"
                with contextlib.suppress(OSError):
                    os.unlink(bus / "B_x")
                if name not in LEAVES_A_REST:
                    bus.wait_for_nobody()
                    assert _work(bus) == {}, f"after {name}"
                counts["errors inside"] += 1
                show(f"{counts['errors inside']} errors: {name}")
            if not LEAVES_A_REST.issuperset(names):
                bus.expect_as_before()
            else:
                reader = os.open(bus / "B_y", os.O_RDONLY | os.O_CREAT)
                (bus / "B_y").write_text("hello\n")
                assert os.read(reader, 100) == b"hello\n"
                os.close(reader)
            bus.unmount()
        finally:
            bus.discard()
        counts["mounts"] += 1
    return counts


def error_in_a_signal(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """An error while a signal for a reader is handled: the reader waits on, and its message arrives."""
    switches = place / "switches"
    switches.mkdir()
    bus = Bus(place, patience=120, command=[sys.executable, "-m", "tests.torture.sick", str(switches), "-d"])
    bus.expects_errors = True
    try:
        with programs() as start:
            for name in ("Bus.cancel", "Calls.interrupt"):
                bus.touch("B_x")
                reader = start("stormy", "read", bus / "B_x", 1, 100)
                assert reader.stdout
                assert reader.stdout.readline() == "open\n"
                bus.wait_for_readers(1, "B_x")
                tracebacks = bus.words.count("Traceback")
                (switches / name).touch()
                reader.send_signal(signal.SIGUSR1)
                until(lambda before=tracebacks: bus.words.count("Traceback") > before, "the log tells")  # type: ignore[misc]
                (switches / name).unlink()
                (bus / "B_x").write_text("w 0\n")
                assert reader.stdout.readline() == "done\n"
                reader.communicate("\n", timeout=DEADLINE)
                bus.wait_for_clients(0, "B_x")
        bus.expect_as_before()
        bus.unmount()
    finally:
        bus.discard()
    return Counts({"errors inside": 2})


# ---------------------------------------------------------------------------------------------- the end of the daemon


class Load:
    """Threads that write, read and open as hard as they can, and note how that ends."""

    def __init__(self, bus: Bus, threads: int = 6) -> None:
        self.bus = bus
        self.is_over = False
        self.ends: list[int] = []
        self.wrong: list[str] = []
        self.calls = 0
        self._threads = []
        for _ in range(threads // 3):
            # Opened here, since the end may come before a thread has made its first call.
            writer, reader = os.open(bus / "B_x", os.O_WRONLY), os.open(bus / "+B_x", os.O_RDONLY)
            self._threads += [
                threading.Thread(target=self._write, args=[writer]),
                threading.Thread(target=self._read, args=[reader]),
                threading.Thread(target=self._churn),
            ]
        for thread in self._threads:
            thread.start()

    def _until_it_fails(self, call: Callable[[], int]) -> None:
        """Calls until the answer is an errno that tells of the end."""
        while not self.is_over:
            error = call()
            self.calls += 1
            if error in (errno.ESHUTDOWN, *NOT_THERE):
                self.ends.append(error)
                return
            if error not in (0, errno.ENOENT):
                self.wrong.append(os.strerror(error))
                return

    def _write(self, descriptor: int) -> None:
        self._until_it_fails(lambda: max(-calls.write(descriptor, b"message\n" * 50), 0))
        os.close(descriptor)

    def _read(self, descriptor: int) -> None:
        def read() -> int:
            data = calls.read(descriptor, 65_536)
            if isinstance(data, int):
                return -data
            if data.replace(b"message\n", b""):
                self.wrong.append(f"{data[:100]!r}")
            return 0 if data else errno.ESHUTDOWN

        self._until_it_fails(read)
        os.close(descriptor)

    def _churn(self) -> None:
        def churn() -> int:
            descriptor = calls.open_(str(self.bus / "B_x"), os.O_RDWR)
            if descriptor < 0:
                # When the mount is gone, the directory below it is there, and empty.
                return errno.ENOTCONN if descriptor == -errno.ENOENT and not device_of(self.bus.path) else -descriptor
            os.close(descriptor)
            return 0

        self._until_it_fails(churn)

    def join(self) -> None:
        """Waits until all have met the end."""
        for thread in self._threads:
            thread.join(DEADLINE)
        hung = sum(thread.is_alive() for thread in self._threads)
        self.is_over = True
        assert not hung, f"{hung} clients hang"
        assert not self.wrong, self.wrong


ENDS: dict[str, Callable[[Bus], object]] = {
    "kill -9": lambda bus: bus.daemon.kill(),
    "umount -l": lambda bus: run("umount", "-l", bus.path),
    "SIGTERM": lambda bus: bus.daemon.terminate(),
    "kill -9 while stopped": lambda bus: run("kill", "-STOP", str(bus.daemon.pid)) and run("kill", "-KILL", str(bus.daemon.pid)),
}


def ends_under_load(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """The daemon is killed or unmounted while clients are at it, and the next is mounted in its place."""
    counts = Counts()
    path = None
    for number in range(len(ENDS) * math.ceil(scale)):
        how = list(ENDS)[number % len(ENDS)]
        if path is None:
            bus = Bus(place, patience=120)
            path = bus.path
        else:
            bus = Remounted(path, place / f"again{number}.log")
        try:
            bus.touch("B_x")
            load = Load(bus)
            until(lambda load=load: load.calls > 500, "the load is there")  # type: ignore[misc]
            ENDS[how](bus)
            load.join()
            assert len(load.ends) == 6
            counts["calls"] += load.calls
            counts["ends"] += 1
            if how.startswith("kill"):
                bus.daemon.wait(DEADLINE)
                assert device_of(path), "a dead mount is left behind"
                bus.let_be()
            else:
                bus.close()
            show(f"{counts['ends']} ends: {how}")
        except BaseException:
            bus.discard()
            raise
    final = Remounted(path, place / "final.log") if path else None
    assert final
    try:
        assert "taking over" in final.words
        final.unmount()
    finally:
        final.discard()
    return counts


class Remounted(Bus):
    """A bus on a directory where one was before."""

    def __init__(self, path: Path, log: Path) -> None:
        super(Bus, self).__init__(path, log, command=FUTEBUS, patience=120)
        self.before = self.first_look()
