"""A bus that is left running: as a service, by a user who is not root, killed and started again, and what it says in its log."""

import logging
import os
import re
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.fuse.mountpoint import unmount
from futebus.host import logs
from futebus.host.mounted import mounted_on, mounts

from ..helpers.kernel import linux
from ..helpers.mounts import FUTEBUS, SHOWN, Mount, Mounting, abort, bash, device_of, mounted_by_fstab, run
from ..helpers.programs import Start
from ..helpers.users import ANN, BECOME, MOUNTER, NOBODY
from ..helpers.waiting import DEADLINE, until

UNITS = Path(__file__).parents[2] / "systemd"


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
    finally:
        run("fusermount3", "-u", directory)
        assert daemon.wait(DEADLINE) == 0
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
        assert run("fusermount3", "-u", directory).returncode == 0
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


# ---------------------------------------------------------------------------------------------- as another user


def status(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_root_mounts_and_somebody_else_serves(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody")
    found = status(bus.daemon.pid)
    assert found["Uid"].split() == found["Gid"].split() == ["65534"] * 4
    assert found["Groups"].split() == ["65534"]
    assert {found[f"Cap{each}"] for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert found["NoNewPrivs"] == "1"
    assert (bus.path.stat().st_uid, bus.path.stat().st_gid) == (65534, 65534)
    # What must still work: names of others' processes, group rights of theirs, the sticky bit, chown.
    channel = bus / "B_x"
    shown = bash(f"touch {channel}; chmod 660 {channel}; exec 3<{channel}; cat {bus / '_stat'}; :", **ANN).stdout
    assert " 64001  bash " in shown
    assert "Operation not permitted" in bash(f"rm -f {bus / 'B_x'}", user=64002, group=64002, extra_groups=[]).stderr
    os.chown(bus / "B_x", 64002, 64002)
    assert (bus / "B_x").stat().st_uid == 64002
    (bus / "B_x").unlink()


def test_who_unmounts_for_it_has_nothing_but_what_that_needs(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody")
    [helper] = children(bus.daemon.pid)
    until(lambda: status(helper)["Name"] == "futebus-umount", "it is ready")
    assert status(helper)["Uid"].split() == ["0"] * 4
    assert int(status(helper)["CapPrm"], 16) == 1 << 21 | 1 << 2, "CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH"
    opened = {os.readlink(f"/proc/{helper}/fd/{number}") for number in os.listdir(f"/proc/{helper}/fd")}
    assert {name for name in opened if not name.startswith("pipe:")} == {os.devnull}
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(helper, number)
    assert bus.stat(), "what ends a service does not end the bus through this process"
    bus.unmount()
    assert not Path(f"/proc/{helper}").exists()


def test_without_allow_other_it_is_the_bus_of_that_user(mounting: Mounting) -> None:
    bus = mounting("user=nobody")
    assert bash(f"echo hi > {bus / 'B_x'}; ls {bus.path}", **NOBODY).stdout.split() == ["B_x", *SHOWN]
    assert "Permission denied" in bash(f"ls {bus.path}").stderr


def test_the_directory_can_belong_to_somebody_else(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody", "uid=0", "mode=755")
    assert (bus.path.stat().st_uid, bus.path.stat().st_gid) == (0, 65534)
    assert "Permission denied" in bash(f"touch {bus / 'B_x'}", **NOBODY).stderr


def test_a_daemon_that_is_killed_leaves_nothing(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody")
    bus.daemon.kill()
    until(lambda: device_of(bus.path) is None, "it has been unmounted")
    bus.was_killed = True


def test_it_ends_whoever_uses_the_bus(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody")
    held = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    bus.unmount()
    os.close(held)


@pytest.mark.parametrize("command", [["umount"], ["umount", "-l"]])
def test_root_unmounts_it_as_any_other(mounting: Mounting, command: list[str]) -> None:
    bus = mounting("allow_other", "user=nobody")
    assert run(*command, bus.path).returncode == 0
    bus.close()


def test_when_both_are_killed_the_next_takes_over(mounting: Mounting, place: Path) -> None:
    bus = mounting("allow_other", "user=nobody")
    for process in [*children(bus.daemon.pid), bus.daemon.pid]:
        os.kill(process, signal.SIGKILL)
    bus.daemon.wait()
    bus.was_killed = True
    assert device_of(bus.path)
    again = Mount(bus.path, place / "again.log", "allow_other", "user=nobody")
    try:
        assert "taking over the mount of a futebus that is dead" in again.words
        again.touch("B_x")
        again.unmount()
    finally:
        again.discard()


def test_it_never_unmounts_another_than_its_own(mounting: Mounting, place: Path) -> None:
    bus, other = mounting(), mounting()
    mount = mounted_on(str(bus.path))
    assert mount
    assert not unmount(mount._replace(id=mount.id + 1_000_000)), "another has been mounted there since"
    assert not unmount(mount._replace(path=str(other.path))), "the path leads to another"
    (place / "link").symlink_to(bus.path)
    assert not unmount(mount._replace(path=str(place / "link"))), "the path ends in a link"
    assert not unmount(mount._replace(path=str(place / "nowhere")))
    assert bus.stat()
    assert other.stat()
    held = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    assert unmount(mount)
    os.close(held)
    bus.close()


def test_who_cannot_reach_the_bus_cannot_serve_it(place: Path) -> None:
    directory = place / "private" / "bus"
    directory.mkdir(parents=True)
    directory.parent.chmod(0o700)
    for arguments in ([], ["-f"]):
        done = run(*FUTEBUS, *arguments, "-o", "user=nobody", directory)
        assert done.returncode == 1
        words = f"futebus: cannot mount on {directory}: who serves the bus cannot reach it: Permission denied\n"
        assert done.stderr.endswith(words)
        assert device_of(directory) is None


@pytest.mark.usefixtures("fuse_for_everybody")
def test_only_root_mounts_for_somebody_else(place: Path) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    try:
        refused = run(sys.executable, "-c", BECOME + MOUNTER, "-o", "user=daemon", directory)
        assert refused.returncode == 1
        assert refused.stderr == "futebus: option 'user=daemon': only root can mount a bus for somebody else\n"
        for oneself in ("user=nobody", "user=65534"):
            mounted = run(sys.executable, "-c", BECOME + MOUNTER, "-o", oneself, directory)
            assert (mounted.returncode, mounted.stderr) == (0, "")
            assert bash(f"fusermount3 -u {directory}", **NOBODY).returncode == 0
            until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)


def test_a_line_of_fstab_with_a_user(place: Path) -> None:
    """mount(8) has an option `user` too, and hands on one that has a value."""
    target = place / "mnt"
    commands = f"echo hi > {target}/B_x; head -3 {target}/_stat; stat -c 'belongs to %U' {target}"
    done = mounted_by_fstab(place, "logs", "allow_other,user=nobody,max_queue=1K,nofail", commands)
    assert done.stderr == ""
    assert re.search(rf"^logs {target} fuse\.futebus \S*\buser_id=65534,", done.stdout, re.MULTILINE)
    assert "at most 1024 messages" in done.stdout
    assert "belongs to nobody" in done.stdout


# ---------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize(("unit", "scope"), [("futebus@.service", "--system"), ("user/futebus.service", "--user")])
def test_the_units_are_in_order(place: Path, unit: str, scope: str) -> None:
    text = (UNITS / unit).read_text()
    assert "\nExecStart=futebus -f $OPTIONS " in text
    copy = place / Path(unit).name
    copy.write_text(text.replace("ExecStart=futebus", f"ExecStart={' '.join(FUTEBUS)}"))
    done = run("systemd-analyze", scope, "verify", "--man=no", copy, env={**os.environ, "XDG_RUNTIME_DIR": str(place)})
    assert (done.returncode, done.stderr) == (0, "")


def setting(text: str, name: str) -> str:
    """What a unit sets something to, the last time that it does."""
    return text.rpartition(f"\n{name}=")[2].partition("\n")[0]


def test_what_the_unit_allows_is_enough(mounting: Mounting, place: Path) -> None:
    """The settings that the kernel enforces are set by hand: capabilities, no new privileges, no writable code."""
    text = (UNITS / "futebus@.service").read_text()
    numbers = {"DAC_READ_SEARCH": 2, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "SYS_ADMIN": 21}
    kept = {numbers[name.removeprefix("CAP_")] for name in setting(text, "CapabilityBoundingSet").split()}
    assert setting(text, "NoNewPrivileges") == setting(text, "MemoryDenyWriteExecute") == "yes"
    script = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
for number in range(64):
    if number not in {kept}:
        libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
bits = sum(1 << number for number in {kept})
assert not libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0))
assert not libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
if {linux() >= (6, 3)}:
    assert not libc.prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE
os.execv(sys.argv[1], sys.argv[1:])
"""
    options = setting(text, "Environment").strip('"').removeprefix("OPTIONS=-o ").replace("user=futebus", "user=nobody")
    command = [sys.executable, "-c", script, *FUTEBUS]
    bus = mounting(options, command=command)
    assert status(bus.daemon.pid)["CapBnd"] == "0" * 16
    for process in [*children(bus.daemon.pid), bus.daemon.pid]:
        os.kill(process, signal.SIGKILL)
    bus.daemon.wait()
    bus.was_killed = True
    again = Mount(bus.path, place / "again.log", options, command=command)
    try:
        assert "taking over" in again.words
        assert bash(f"echo hi > {again / 'B_x'}", **ANN).stderr == ""
        again.unmount()
    finally:
        again.discard()


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
        made.settimeout(20)
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
