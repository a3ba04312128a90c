"""Buses mounted for tests. A bug must never hang the suite: each mount has a deadline after which its connection is aborted."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from futebus.core import kinds

from . import forked
from .processes import state_of
from .waiting import DEADLINE, until
from .watching import WATCH, abort_connection, connection_file

_LIBC = ctypes.CDLL(None, use_errno=True)

PATIENCE = 200.0
"""Seconds that a mount may live: less than a test."""

STOPS = 50
"""How often it is tried to stop a daemon that has nothing in hand: where programs write all the time, it always has."""

WAITING = "waiting calls"
"""What the daemon calls those that it lets wait."""

FUTEBUS = [sys.executable, "-m", "futebus.commands.futebus"]

LINGERING = [
    sys.executable,
    "-c",
    f"""
import sys
from futebus.commands.futebus import main
from futebus.fuse import mount
mount.GRACE = {DEADLINE}
sys.exit(main())
""",
]
"""A bus that waits, when it goes down, until everybody has left: what there is to be read can be read in peace."""


def device_of(mountpoint: Path) -> str | None:
    """Major and minor number of what is mounted on a directory, read without touching it."""
    found = None
    # Any user may mount something of their own on a directory of any name.
    for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")[:-1]:
        fields = line.split(" ")
        if fields[4] == str(mountpoint):
            found = fields[2]
    return found


MNT_DETACH = 2


def unmount(directory: Path, flags: int = 0) -> None:
    """Unmounts a file system by umount2(2). umount(8) would ask it something first."""
    if _LIBC.umount2(os.fsencode(directory), flags):
        raise OSError(ctypes.get_errno(), "umount2")


def cut_connection(mountpoint: Path) -> None:
    """Cuts the connection of a mount that is there, and leaves the mount."""
    device = device_of(mountpoint)
    assert device
    _cut(mountpoint, device)


def _cut(mountpoint: Path, device: str) -> None:
    abort_connection(device.split(":")[1], lambda: device_of(mountpoint) == device)


def abort(mountpoint: Path) -> None:
    """Gets rid of a mount, hung or not: every call that waits on it fails."""
    device = device_of(mountpoint)
    if device is None:
        return
    _cut(mountpoint, device)
    subprocess.run(["umount", "-l", str(mountpoint)], check=False, stderr=subprocess.DEVNULL)


Row = Mapping[str, Any]
"""A channel or a client, as `_stat.json` shows it."""

SHOWN = [name.decode() for name in kinds.SHOWN]
"""What is in the directory of each bus."""


class Mount:
    """A mounted bus and its daemon, which runs in the foreground as `futebus -f` and logs to a file.

    As long as it is there, all processes are watched: see `watching`.
    """

    def __init__(
        self,
        directory: Path,
        log: Path,
        *options: str,
        command: Sequence[str] | None = FUTEBUS,
        patience: float = PATIENCE,
        **popen: Any,
    ) -> None:
        """Mounts it.

        Args:
            directory: where.
            log: what it says on stderr gets there.
            options: of the bus.
            command: what is run; None: the same as if nothing is said, as a copy of a process that has imported it.
            patience: seconds that it may live.
            popen: as for `subprocess.Popen`, with `command`.
        """
        self.path = directory
        self.log = log
        self.expects_errors = False
        """Whether a traceback in the log is what the test is about."""
        self.was_killed = False
        """Whether the test has killed the daemon: then its end is no orderly one."""
        self.was_aborted = ""
        """Why the test was ended by aborting the mount, if it was."""
        arguments = ["-f", *(["-o", ",".join(options)] if options else []), str(directory)]
        begin: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
        if command is None:
            begin, command, popen = forked.begin, FUTEBUS, {"env": forked.environment(), **popen}
        with log.open("wb") as stream:
            self.daemon = begin([*command, *arguments], stderr=stream, stdin=subprocess.DEVNULL, **popen)
        self._watchdog = threading.Timer(patience, self._give_up, [f"the mount was there for {patience:g} seconds"])
        self._watchdog.daemon = True
        self._watchdog.start()
        WATCH.add(self.daemon.pid, self._give_up)
        WATCH.start()
        try:
            until(lambda: self.daemon.poll() is not None or "a bus is mounted" in self.words, "the bus is mounted")
            assert self.daemon.poll() is None, self.words
        except BaseException:
            self.discard()
            raise

    def _give_up(self, why: str) -> None:
        self.was_aborted = why
        self.daemon.kill()
        abort(self.path)

    @property
    def words(self) -> str:
        """What the daemon has logged."""
        return self.log.read_text(errors="replace")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def touch(self, name: str) -> Path:
        """Creates a channel."""
        (self / name).touch()
        return self / name

    # ------------------------------------------------------------------------------------------ what _stat shows

    def stat(self) -> str:
        """The text of `_stat`."""
        return (self / "_stat").read_text()

    def told(self) -> Any:
        """What `_stat.json` tells."""
        return json.loads((self / "_stat.json").read_bytes())

    def clients(self, channel: str | None = None, rw: str = "", **wanted: object) -> list[Row]:
        """The clients as `_stat.json` shows them: those of a channel, those that can do this (`r-`, `-w+`), with these values."""
        return [
            client
            for row in self.told()["channels"]
            for client in row["clients"]
            if channel in (None, row["name"])
            and _access(client).startswith(rw)
            and all(client[name] == value for name, value in wanted.items())
        ]

    def wait_for_live(self, channel: str, role: str) -> None:
        """Waits until somebody reads the channel that has this name now, and not one that has lost it.

        Args:
            channel: its name.
            role: as what.
        """

        def is_read() -> bool:
            live = (row for row in self.told()["channels"] if (row["name"], row["state"]) == (channel, "live"))
            return any(client["reads"] and client["role"] == role for row in live for client in row["clients"])

        until(is_read, f"somebody reads the {channel} that there is")

    def channel(self, name: str) -> Row:
        """A channel as `_stat.json` shows it."""
        return next(row for row in self.told()["channels"] if row["name"] == name)

    def inside(self) -> Mapping[str, int]:
        """What the daemon keeps: open files, nodes, waiting calls and so on."""
        inside: Mapping[str, int] = self.told()["inside"]
        return inside

    @property
    def calls(self) -> int:
        """How many calls the kernel has sent the daemon, or is about to, that are not answered."""
        device = device_of(self.path)
        return int(connection_file(device.split(":")[1], "waiting").read_text()) if device else 0

    def wait_for_clients(self, count: int, channel: str, deadline: float = DEADLINE, **wanted: Any) -> list[Row]:
        """Waits until so many clients are as `clients` asks for, for so many seconds at most."""
        found: list[Row] = []

        def are_there() -> bool:
            found[:] = self.clients(channel, **wanted)
            return len(found) == count

        until(are_there, f"{count} clients of {channel} with {wanted}, last seen: {found}", deadline)
        return found

    def wait_for_readers(self, count: int, channel: str) -> None:
        """Waits until so many clients of a channel are blocked in a read."""
        self.wait_for_clients(count, channel, waits="read")

    def wait_for_blocked_writers(self, count: int, channel: str) -> None:
        """Waits until so many clients of a channel are blocked in a write."""
        self.wait_for_clients(count, channel, waits="write")

    # ------------------------------------------------------------------------------------------ the end

    def unmount(self) -> None:
        """Ends the bus and checks that it went as it should."""
        if self.was_killed:
            return
        if self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
        self.close()

    def close(self) -> None:
        """Sees the daemon off, whose end has been asked for or has come."""
        try:
            status = self.daemon.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._give_up("the daemon did not end")
            raise AssertionError(f"the daemon did not end:\n{self.words}") from None
        finally:
            self.let_be()
        assert not self.was_aborted, f"the mount was aborted: {self.was_aborted}\n{self.words}"
        assert status == 0, self.words
        assert device_of(self.path) is None
        if not self.expects_errors:
            assert "Traceback" not in self.words, self.words
            assert "internal error" not in self.words, self.words

    def let_be(self) -> None:
        """From now on nobody gives the mount up but the test itself."""
        self._watchdog.cancel()
        WATCH.remove(self._give_up)

    def discard(self) -> None:
        """Last resort at the end of a test: nothing is left of the mount, whatever happened."""
        self.let_be()
        self.daemon.kill()
        self.daemon.wait()
        while device_of(self.path):
            abort(self.path)


def _access(client: Row) -> str:
    return f"{'r' if client['reads'] else '-'}{'w' if client['writes'] else '-'}{'+' if client['bulk'] else ''}"


Mounting = Callable[..., Mount]


@contextlib.contextmanager
def hanging(bus: Mount) -> Iterator[None]:
    """The bus hangs meanwhile.

    If it comes to rest at all, it has no call in hand then but those that it had let wait: nothing can end a process one of whose
    calls is in the hands of a daemon that hangs.
    """
    try:
        for left in reversed(range(STOPS)):
            try:
                waiting = bus.inside()[WAITING]
            except PermissionError:  # it is somebody else's, and tells nobody
                left, waiting = 0, 0
            bus.daemon.send_signal(signal.SIGSTOP)
            until(lambda: state_of(bus.daemon.pid) in "TZX", "the daemon is stopped")
            if not left or bus.calls <= waiting:
                break
            bus.daemon.send_signal(signal.SIGCONT)
        yield
    finally:
        bus.daemon.send_signal(signal.SIGCONT)


def run(*command: str | Path, timeout: float = DEADLINE, **popen: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end and returns what it printed. It gets no input."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
        **popen,
    )


def bash(script: str, **popen: Any) -> subprocess.CompletedProcess[str]:
    """Runs a bash script to its end."""
    return run("bash", "-c", script, env={**os.environ, "LC_ALL": "C"}, **popen)


def have_unmounted(directory: Path, *command: str, **popen: Any) -> None:
    """Has a bus unmounted as a user does it, by fusermount3 if nothing else is said, and waits until that is done.

    It is busy for a moment now and then: its daemon looks whether it is there, as does another test's view of all buses.
    """
    words = command or ("fusermount3", "-u")

    def is_done() -> bool:
        done = run(*words, directory, **popen)
        assert done.returncode == 0 or "busy" in done.stderr, done
        return done.returncode == 0

    until(is_done, f"{directory} is unmounted")


def mounted_by_fstab(place: Path, name: str, options: str, commands: str) -> "subprocess.CompletedProcess[str]":
    """Mounts a bus by a line of fstab, as mount(8) does: by mount.fuse3, which finds `futebus` in root's PATH.

    In a mount namespace of its own, /usr/local/bin can hold nothing but our command.

    Args:
        place: an empty directory; the bus is mounted on `mnt` in it.
        name: the source of the line.
        options: the options of the line.
        commands: what a shell does with the bus; it is unmounted after them.
    """
    command, target = place / "futebus", place / "mnt"
    command.write_text(f'#!/bin/sh\nexec {" ".join(FUTEBUS)} "$@"\n')
    command.chmod(0o755)
    target.mkdir()
    (place / "fstab").write_text(f"{name} {target} fuse.futebus {options} 0 0\n")
    script = f"""
        mount -t tmpfs none /usr/local/bin
        cp {command} /usr/local/bin/futebus
        mount --fstab {place}/fstab {target} || exit
        grep {target} /proc/mounts
        {commands}
        umount {target}
        """
    return run("unshare", "--mount", "sh", "-c", script)


def unused(bus: Mount) -> Mapping[str, int]:
    """What the daemon keeps of a bus that nobody uses. Another test's view of all buses may look at it for a moment."""
    inside: Mapping[str, int] = {}

    def is_unused() -> bool:
        nonlocal inside
        inside = bus.inside()
        return not any(count for what, count in inside.items() if what != "tasks")

    until(is_unused, "nobody uses it")
    return inside
