"""A bus that is left running: as a service, killed and started again, and what it says in its log."""

import logging
import os
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.host import logs
from futebus.host.mounted import mounts

from ..helpers.mounts import FUTEBUS, SHOWN, Mount, Mounting, abort, device_of, have_unmounted, run
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until
from .test_ends import LATE


class Manager:
    """As much of systemd as sd_notify(3) tells of, with NotifyAccess=main: it listens to the daemon and to nobody else."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: list[tuple[int, list[str]]] = []
        """Who said it, and what."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)
        if address[0] == "/":
            Path(address).chmod(0o777)
        self._socket.setblocking(False)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "NOTIFY_SOCKET": self.address}

    def words(self, process: int) -> list[str]:
        """All that a process has said so far."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("3i")))
            except BlockingIOError:
                break
            [(_, _, credentials)] = ancillary
            self.told.append((struct.unpack("3i", credentials)[0], data.decode().split("\n")))
        return [word for who, words in self.told if who == process for word in words]

    def wait_for(self, process: int, word: str) -> None:
        until(lambda: word in self.words(process), f"{word!r} was said, and not only {self.told}")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, place: Path) -> Iterator[Manager]:
    made = Manager(str(place / "notify") if request.param == "path" else f"@futebus-{os.getpid()}")
    yield made
    made.close()


# ---------------------------------------------------------------------------------------------- as a service

UNWATCHED = """
import trio
from futebus.fuse import mount
mount.Mounted._watch_mount = lambda self: trio.sleep_forever()
"""
"""Who watches the mount is slower than the kernel, which cuts the connection."""


@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]])
def test_a_service_manager_is_told(mounting: Mounting, manager: Manager, options: list[str]) -> None:
    bus = mounting(*options, env=manager.environment)
    daemon = bus.daemon.pid
    manager.wait_for(daemon, "READY=1")
    assert "STATUS=0 clients, 0 channels" in manager.words(daemon)
    held = [os.open(bus / "B_x", os.O_RDWR | os.O_CREAT) for _ in range(3)]
    manager.wait_for(daemon, "STATUS=3 clients, 1 channel")
    bus.daemon.send_signal(signal.SIGTERM)
    manager.wait_for(daemon, "STOPPING=1")
    for descriptor in held:
        os.close(descriptor)
    bus.close()
    words = manager.words(daemon)
    assert words.index("READY=1") < words.index("STOPPING=1")
    assert {who for who, _ in manager.told} == {daemon}
    assert not any(word.startswith("WATCHDOG") for word in words), "nobody has asked for it"


@pytest.mark.parametrize("code", ["", UNWATCHED], ids=["watched", "unwatched"])
def test_a_service_manager_is_told_of_a_bus_that_only_others_have_used(
    place: Path, manager: Manager, start: Start, code: str
) -> None:
    """Or else it would take its end for a failure, and mount again what somebody has unmounted."""
    (place / "bus").mkdir()
    daemon = start(sys.executable, "-c", code + LATE, "-f", place / "bus", env=manager.environment)
    try:
        until(lambda: device_of(place / "bus"), "it is mounted")
        assert "futebus" in (place / "bus/_stat").read_text()
        assert "READY=1" not in manager.words(daemon.pid)
        have_unmounted(place / "bus")
        assert daemon.wait(DEADLINE) == 0
        words = manager.words(daemon.pid)
        assert words.index("READY=1") < words.index("STOPPING=1")
    finally:
        abort(place / "bus")


def test_it_is_ready_when_the_bus_can_be_used(place: Path, manager: Manager, start: Start) -> None:
    """Whoever is started after the service finds the bus: it is there when READY=1 has been said, not a moment later."""
    directory = place / "bus"
    directory.mkdir()
    daemon = start(*FUTEBUS, "-f", directory, env=manager.environment)
    try:
        while "READY=1" not in manager.words(daemon.pid):
            assert daemon.poll() is None
        (directory / "B_x").touch()
        assert device_of(directory)
        have_unmounted(directory)
        assert daemon.wait(DEADLINE) == 0
    finally:
        abort(directory)


def test_a_watchdog_is_fed_while_the_bus_answers(mounting: Mounting, manager: Manager) -> None:
    bus = mounting(env={**manager.environment, "WATCHDOG_USEC": "20000"})
    until(lambda: manager.words(bus.daemon.pid).count("WATCHDOG=1") >= 5, "it is fed, though nothing happens")
    assert [word for word in manager.words(bus.daemon.pid) if word.startswith("STATUS=")] == ["STATUS=0 clients, 0 channels"]


def test_a_bus_that_goes_to_the_background_does_not_speak_for_its_starter(place: Path, manager: Manager) -> None:
    """A service may mount a bus among other things: it is not ready because the bus is."""
    directory = place / "bus"
    directory.mkdir()
    try:
        assert run(*FUTEBUS, directory, env=manager.environment).returncode == 0
        have_unmounted(directory)
        until(lambda: device_of(directory) is None, "it is gone")
        manager.words(0)
        assert manager.told == []
    finally:
        abort(directory)


@pytest.mark.parametrize("manager", ["path"], indirect=True)
@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]])
def test_restarts_after_kills_leave_a_bus_that_works(place: Path, manager: Manager, options: list[str]) -> None:
    """As systemd does it: kill -9, and the same command again at once."""
    directory = place / "bus"
    directory.mkdir()
    started: list[Mount] = []
    try:
        for number in range(3):
            bus = Mount(directory, place / f"{number}.log", *options, env=manager.environment)
            started.append(bus)
            manager.wait_for(bus.daemon.pid, "READY=1")
            (bus / "B_x").touch(exist_ok=False)
            reader = os.open(bus / "B_x", os.O_RDONLY)
            (bus / "B_x").write_text("hello\n")
            assert os.read(reader, 10) == b"hello\n"
            if number < 2:
                bus.daemon.kill()
                bus.daemon.wait()
            os.close(reader)
        started[-1].unmount()
    finally:
        for bus in started:
            bus.discard()


# ---------------------------------------------------------------------------------------------- logs


def test_the_log_names_bus_channel_and_client(place: Path, start: Start) -> None:
    directory = place / "bus"
    directory.mkdir()
    bus = Mount(directory, place / "log", "max_message=10", "max_queue=3", command=[*FUTEBUS, "-d"])
    try:
        slow = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
        writer = os.open(bus / "B_x", os.O_WRONLY)
        os.write(writer, b"1\n2\n3\n4\n5\n")
        with pytest.raises(OSError, match="Message too long"):
            os.write(writer, b"much too long\n")
        with pytest.raises(FileExistsError):
            os.open(bus / "B_x", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with pytest.raises(OSError, match="Illegal seek"):
            os.open(bus / "S_none", os.O_RDWR | os.O_CREAT)
        os.close(slow)
        until(lambda: "dropped" in bus.words, "its end is noted")
        os.close(writer)
        bus.unmount()
    finally:
        bus.discard()
    who = f"process {os.getpid()} of user 0"
    lines = bus.words.splitlines()
    for words in (
        f"B_x: client {{2}}, {who}: write refused: the message is longer than max_message",
        f"B_x: client {{1}}, {who}: it read too slowly: 2 messages for it were dropped",
        f"S_none: create by {who}: refused: the channel has no master",
    ):
        assert f"futebus: {bus.path}: {words}" in lines
    assert all(line.startswith(f"futebus: {bus.path}: ") for line in lines)


def test_a_mount_point_of_any_name(place: Path, manager: Manager) -> None:
    """It is part of every line of the log, and of _stat."""
    directory = Path(os.fsdecode(os.fsencode(place) + b"/100%s \x1b[2J\nfutebus: a lie\xff"))
    directory.mkdir()
    bus = Mount(directory, place / "log", env=manager.environment)
    try:
        manager.wait_for(bus.daemon.pid, "READY=1")
        assert run(*FUTEBUS, directory).stderr.endswith("100%s \\x1b[2J\\nfutebus: a lie\\xff: a bus is mounted here already\n")
        assert bus.stat().splitlines()[0].isprintable()
        bus.unmount()
        lines = bus.words.splitlines()
        assert all(line.isprintable() for line in lines)
        assert lines[0] == f"futebus: {place}/100%s \\x1b[2J\\nfutebus: a lie\\xff: a bus is mounted"
    finally:
        bus.discard()
        for mount in mounts():
            if mount.path.startswith(str(place)):
                run("umount", "-l", mount.path)


def test_no_path_in_the_mount_table_is_taken_for_a_line() -> None:
    """Any user may mount something of their own on a directory of any name."""
    good = "36 35 0:42 / /mnt/bus rw - fuse.futebus logs rw,user_id=7,group_id=8"
    table = f"{good}\n37 35 0:43 / /home/eve/\x0c\u2028\x1c\x85x rw - fuse.futebus y rw,user_id=9,group_id=9\n"
    table += "38 35 0:44 / /mnt/eve rw - fuse.futebus user_id=7,group_id=8 rw,user_id=9,group_id=9\n"  # and of any source
    with tempfile.TemporaryFile() as file:
        file.write(table.encode())
        file.flush()
        found = mounts(file.fileno())
    assert [(mount.id, mount.device, mount.path, mount.owner) for mount in found] == [
        (36, "0:42", "/mnt/bus", (7, 8)),
        (37, "0:43", "/home/eve/\x0c\u2028\x1c\x85x", (9, 9)),
        (38, "0:44", "/mnt/eve", (9, 9)),
    ]


@pytest.fixture
def syslog(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A system log."""
    address = place / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(address))
        made.settimeout(DEADLINE)
        monkeypatch.setattr(logs, "SYSLOG", str(address))
        yield made


def record(level: int, words: str) -> logging.LogRecord:
    return logging.LogRecord("futebus", level, "", 0, words, None, None)


def test_what_goes_to_the_system_log(syslog: socket.socket) -> None:
    handler = logs.Syslog()
    for level, priority in ((logging.ERROR, 27), (logging.WARNING, 28), (logging.INFO, 30), (logging.DEBUG, 31)):
        handler.emit(record(level, "a \udcff line"))
        assert syslog.recv(1000) == f"<{priority}>futebus[{os.getpid()}]: a \\udcff line".encode()


def test_a_system_log_that_hangs_does_not_stop_the_bus(syslog: socket.socket) -> None:
    handler = logs.Syslog()
    for number in range(10_000):
        handler.emit(record(logging.INFO, f"{number} {'x' * 1000}"))
    assert syslog.recv(2000).split()[1] == b"0"
    syslog.close()
    handler.emit(record(logging.INFO, "nobody hears it"))


def test_clients_cannot_fill_the_log() -> None:
    now = 0.0
    throttle = logs.Throttle(burst=3, failures=2, interval=10, clock=lambda: now)
    assert [throttle.filter(record(logging.INFO, "x")) for _ in range(5)] == [True] * 3 + [False] * 2
    failure = record(logging.ERROR, "100%: a bug")
    assert throttle.filter(failure), "what is wrong with the bus is not hidden by what clients do"
    assert failure.getMessage() == "(2 lines were not logged, there were too many) 100%: a bug"
    assert not throttle.filter(record(logging.WARNING, "x"))
    assert throttle.filter(record(logging.ERROR, "z"))
    assert [throttle.filter(record(logging.ERROR, "z")) for _ in range(7)] == [False] * 7, "but is not said without end either"
    now = 10.0
    next_one = record(logging.INFO, "y")
    assert throttle.filter(next_one)
    assert next_one.getMessage() == "(7 lines were not logged, there were too many) y"
    assert [throttle.filter(record(logging.INFO, "x")) for _ in range(3)] == [True, True, False]
    now = 20.0
    assert throttle.filter(one := record(logging.INFO, "y"))
    assert one.getMessage() == "(1 line was not logged, there were too many) y"
    last = record(logging.INFO, "z")
    assert throttle.filter(last)
    assert last.getMessage() == "z"


def test_the_daemon_is_bound_by_that_unless_it_debugs(mounting: Mounting) -> None:
    """All at once, and more than what two intervals let pass: one may end just then."""
    bus = mounting()
    masters = []
    for number in range(3 * logs.BURST):
        masters.append(os.open(bus / f".U_{number}", os.O_RDWR | os.O_CREAT))
        (bus / f"U_{number}").write_text("unread\n")
    for master in masters:
        os.close(master)
    until(lambda: os.listdir(bus.path) == SHOWN, "all channels are gone")
    until(lambda: bus.words.count("messages unread") > logs.BURST // 2, "the log tells of many")
    assert bus.words.count("messages unread") <= 2 * logs.BURST
