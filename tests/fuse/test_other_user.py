"""A bus that root mounts and somebody else serves, and the units of the service manager that have it so."""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from futebus.fuse import mountpoint
from futebus.fuse.mountpoint import take_away
from futebus.host.mounted import Mount as MountRow
from futebus.host.mounted import mounted_on

from ..helpers.kernel import linux
from ..helpers.mounts import FUTEBUS, SHOWN, Mount, Mounting, abort, bash, device_of, have_unmounted, mounted_by_fstab, run
from ..helpers.processes import children, state_of
from ..helpers.programs import Start
from ..helpers.users import ANN, BECOME, MOUNTER, NOBODY
from ..helpers.waiting import DEADLINE, until

UNITS = Path(__file__).parents[2] / "systemd"


# ---------------------------------------------------------------------------------------------- as another user


def status(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


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
    rights = {"DAC_READ_SEARCH": 2, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_ADMIN": 21}
    mask = sum(1 << number for number in rights.values())
    # It gives up the others behind taking its name.
    until(lambda: status(helper)["Name"] == "futebus-umount" and int(status(helper)["CapPrm"], 16) == mask, "it is ready")
    assert status(helper)["Uid"].split() == ["0"] * 4
    opened = {os.readlink(f"/proc/{helper}/fd/{number}") for number in os.listdir(f"/proc/{helper}/fd")}
    assert {name for name in opened if not name.startswith("socket:")} == {os.devnull, "anon_inode:[pidfd]"}
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
    have_unmounted(bus.path, *command)
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


def test_it_never_unmounts_another_than_its_own(mounting: Mounting, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus, other = mounting(), mounting()
    mount = mounted_on(str(bus.path))
    assert mount
    assert take_away(mount._replace(id=mount.id + 1_000_000), lambda: True) == "", "another has been mounted there since"
    assert take_away(mount, lambda: False) == "", "another has its number: its own is dead"
    (place / "link").symlink_to(bus.path)
    for path in (other.path, place / "link", place / "nowhere"):  # where it was, a moment after that was looked up
        with monkeypatch.context() as patch:
            patch.setattr(mountpoint, "_found", partial(MountRow._replace, path=str(path)))
            assert take_away(mount, lambda: True) == "it cannot be reached by its path"
    assert bus.stat()
    held = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    assert take_away(mount._replace(path=str(other.path)), lambda: True) == "", "it has been moved meanwhile"
    assert other.stat()
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
            have_unmounted(directory, **NOBODY)
            until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)


@pytest.mark.usefixtures("fuse_for_everybody")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_user_has_mounted_is_unmounted_too(place: Path, start: Start, number: signal.Signals) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    try:
        daemon = start(sys.executable, "-c", BECOME + MOUNTER, "-f", "-o", "auto_unmount", directory)
        assert daemon.stderr
        assert "is mounted" in daemon.stderr.readline()
        [helper] = map(str, children(daemon.pid))
        daemon.send_signal(number)
        assert daemon.wait(DEADLINE) == (0 if number == signal.SIGTERM else -number)
        until(lambda: device_of(directory) is None, "it has been unmounted")
        until(lambda: state_of(helper) in "ZX", "who has done that has ended")
    finally:
        abort(directory)


@pytest.mark.usefixtures("fuse_for_everybody")
@pytest.mark.parametrize("options", [[], ["-o", "auto_unmount"]], ids=["", "auto_unmount"])
def test_what_a_user_has_mounted_is_unmounted_whatever_the_path_of_programs_is(
    place: Path, start: Start, options: list[str]
) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    daemon = start(
        sys.executable, "-c", BECOME + MOUNTER, "-f", *options, directory, env={**os.environ, "PATH": str(place / "none")}
    )
    try:
        assert daemon.stderr
        assert "is mounted" in daemon.stderr.readline()
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0, daemon.stderr.read()
        assert device_of(directory) is None
    finally:
        abort(directory)


@pytest.mark.usefixtures("fuse_for_everybody")
@pytest.mark.parametrize("options", [[], ["-o", "auto_unmount"]], ids=["", "auto_unmount"])
def test_a_directory_that_was_moved_is_unmounted_where_it_is(place: Path, start: Start, options: list[str]) -> None:
    above, moved = place / "above", place / "moved"
    above.mkdir()
    os.chown(above, 65534, 65534)

    def begin() -> "subprocess.Popen[str]":
        (above / "bus").mkdir()
        os.chown(above / "bus", 65534, 65534)
        daemon = start(sys.executable, "-c", BECOME + MOUNTER, "-f", *options, above / "bus")
        assert daemon.stderr
        assert "is mounted" in daemon.stderr.readline()
        return daemon

    try:
        first = begin()
        above.rename(moved)
        above.mkdir()
        os.chown(above, 65534, 65534)
        second = begin()
        first.terminate()
        assert first.wait(DEADLINE) == 0
        assert device_of(moved / "bus") is None
        assert device_of(above / "bus")
        second.terminate()
        assert second.wait(DEADLINE) == 0
    finally:
        abort(moved / "bus")
        abort(above / "bus")


def test_children_may_be_ignored_by_who_starts_it(place: Path, start: Start) -> None:
    try:
        daemon = start("bash", "-c", 'trap "" CHLD; exec "$@"', "-", *FUTEBUS, "-f", "-o", "auto_unmount", place)
        assert daemon.stderr
        assert "is mounted" in daemon.stderr.readline()
        daemon.terminate()
        assert daemon.wait(DEADLINE) == 0, daemon.stderr.read()
        assert device_of(place) is None
    finally:
        abort(place)


def test_when_it_cannot_be_unmounted_that_is_said(mounting: Mounting) -> None:
    bus = mounting("allow_other", "user=nobody")
    assert run("mount", "-t", "tmpfs", "none", bus.path).returncode == 0
    try:
        bus.daemon.send_signal(signal.SIGTERM)
        assert bus.daemon.wait(DEADLINE) == 1
        bus.was_killed = True
        assert "the mount is left" in bus.words
    finally:
        run("umount", bus.path)


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
