"""Numbers of a mount are given to the next one as soon as they are free. A bus that was unmounted leaves that one alone."""

import errno
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from futebus.fuse import mountpoint
from futebus.fuse.mountpoint import is_left, take_away
from futebus.host.mounted import mounted_on

from ..helpers.mounts import MNT_DETACH, Mount, Mounting, abort, device_of, hanging, run, unmount
from ..helpers.processes import children, state_of
from ..helpers.programs import Start, stop
from ..helpers.users import BECOME, MOUNTER, NOBODY
from ..helpers.waiting import DEADLINE, until
from ..helpers.watching import abort_connection

TRIES = 40
"""How often a test begins anew because other processes have got the numbers."""


def with_numbers(mounting: Mounting, bus: Mount, *options: str) -> Mount | None:
    """Unmounts a bus whose daemon is stopped, and mounts another one in its place.

    Returns:
        The other; None if none gets the same numbers.
    """
    before = mounted_on(str(bus.path))
    assert before
    unmount(bus.path, MNT_DETACH)  # as long as another test's view of all buses holds it, its numbers are not free
    for _ in range(3):
        other = mounting(*options, at=bus.path, command=None)  # soon, as a copy: what others mount meanwhile gets the numbers
        there = mounted_on(str(bus.path))
        assert there
        if (there.id, there.device) == (before.id, before.device):
            return other
        other.unmount()
    return None


@pytest.mark.parametrize("is_hung", [False, True], ids=["which serves", "which hangs"])
@pytest.mark.parametrize("is_told", [False, True], ids=["", "also told to end"])
@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]], ids=["root", "nobody"])
def test_a_bus_that_was_unmounted_leaves_the_next_one_alone(
    mounting: Mounting, options: list[str], is_told: bool, is_hung: bool
) -> None:
    for _ in range(TRIES):
        bus = mounting(*options)
        with hanging(bus):
            other = with_numbers(mounting, bus, *options)
            if is_told:
                bus.daemon.send_signal(signal.SIGTERM)
            if other and is_hung:
                stop(other.daemon.pid)
        with ExitStack() as stack:
            if other and is_hung:
                stack.callback(other.daemon.send_signal, signal.SIGCONT)
            assert bus.daemon.wait(DEADLINE) == 0, bus.words
            bus.let_be()
            assert "the connection to the kernel was cut" not in bus.words
        if other:
            break
    else:
        raise AssertionError("others have had the numbers each time")
    assert other.stat()
    other.unmount()


def _has_ended(pid: str) -> bool:
    return state_of(pid) in "ZX"


@pytest.mark.parametrize("options", [["auto_unmount"], ["user=nobody"]], ids=["root", "nobody"])
def test_it_is_left_alone_also_if_the_first_is_killed(mounting: Mounting, options: list[str]) -> None:
    for _ in range(TRIES):
        bus = mounting(*options)
        unmounter = str(children(bus.daemon.pid)[0])
        with hanging(bus):
            other = with_numbers(mounting, bus, *options)
            bus.daemon.kill()
        until(partial(_has_ended, unmounter), "who would unmount it has ended")
        bus.was_killed = True
        bus.let_be()
        if other:
            break
    else:
        raise AssertionError("others have had the numbers each time")
    assert device_of(other.path)
    other.unmount()


@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]], ids=["root", "nobody"])
def test_the_next_one_is_left_alone_while_a_client_keeps_the_old_one(mounting: Mounting, options: list[str]) -> None:
    bus = mounting(*options)
    with (bus / "B_x").open("wb"):
        assert run("umount", "-l", bus.path).returncode == 0
        other = mounting(*options, at=bus.path)
        assert bus.daemon.wait(DEADLINE) == 0, bus.words
    assert other.stat()
    other.unmount()


@pytest.mark.usefixtures("fuse_for_everybody")
def test_so_it_is_without_root(place: Path, start: Start) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)

    def begin() -> "subprocess.Popen[str]":
        daemon = start(sys.executable, "-c", BECOME + MOUNTER, "-f", directory)
        until(lambda: device_of(directory), "it is mounted")
        assert daemon.stderr
        assert "is mounted" in daemon.stderr.readline()
        return daemon

    holding = "import sys; held = open(sys.argv[1], 'wb'); print(flush=True); sys.stdin.read()"
    try:
        old = begin()
        client = start(sys.executable, "-c", BECOME + "become(65534)\n" + holding, directory / "B_x", stdin=subprocess.PIPE)
        assert client.stdout
        assert client.stdout.readline() == "\n"
        assert run("fusermount3", "-u", "-z", directory, **NOBODY).returncode == 0
        new = begin()
        assert old.wait(DEADLINE) == 0
        assert device_of(directory)
        client.kill()
        new.send_signal(signal.SIGTERM)
        assert new.wait(DEADLINE) == 0
    finally:
        abort(directory)


def waits_for_a_word(pid: int) -> bool:
    """Whether a process waits for what another one sends it, or for its end."""
    return Path(f"/proc/{pid}/wchan").read_text() in ("__skb_wait_for_more_packets", "do_wait")


def unmounters(bus: Mount) -> list[int]:
    """Its children that unmount it: they have this name soon after they have begun."""
    return [pid for pid in children(bus.daemon.pid) if Path(f"/proc/{pid}/comm").read_text() == "futebus-umount\n"]


def test_who_unmounts_late_leaves_the_next_one_alone(mounting: Mounting) -> None:
    for _ in range(TRIES):
        bus = mounting("auto_unmount")
        [unmounter] = until(lambda: unmounters(bus), "it has one that unmounts")  # noqa: B023
        stop(unmounter)
        try:
            bus.daemon.send_signal(signal.SIGTERM)
            until(lambda: waits_for_a_word(bus.daemon.pid), "the unmounter is told")  # noqa: B023
            other = with_numbers(mounting, bus)
        finally:
            os.kill(unmounter, signal.SIGCONT)
        assert bus.daemon.wait(DEADLINE) == 0, bus.words
        bus.let_be()
        if other:
            assert other.stat()
            other.unmount()
            break
    else:
        raise AssertionError("others have had the numbers each time")


def test_what_another_has_mounted_is_not_it(mounting: Mounting) -> None:
    bus = mounting("user=nobody")
    mount = mounted_on(str(bus.path))
    assert mount
    with hanging(bus):
        assert not is_left(mount._replace(owner=(0, 0)))
        assert take_away(mount._replace(owner=(0, 0)), lambda: True) == ""
    assert device_of(bus.path)


@pytest.mark.parametrize("look", ["_opened", "_asked"])
def test_another_one_that_goes_while_it_is_looked_at_is_not_left(
    mounting: Mounting, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    real = getattr(mountpoint, look)
    for _ in range(TRIES):
        bus = mounting()
        mount = mounted_on(str(bus.path))
        assert mount
        looks = list[object]()

        def late(*given: object) -> object:
            looks.append(given)  # noqa: B023
            bus.unmount()  # noqa: B023
            return real(*given)

        monkeypatch.setattr(mountpoint, look, late)
        assert not is_left(mount)
        if len(looks) == 1:
            break
    else:
        raise AssertionError("others have had the numbers each time")


def test_one_that_is_cut_below_another_mount_says_so(mounting: Mounting) -> None:
    bus = mounting()
    device = device_of(bus.path)
    assert device
    assert run("mount", "-t", "tmpfs", "none", bus.path).returncode == 0
    try:
        abort_connection(device.split(":")[1], lambda: True)
        assert bus.daemon.wait(DEADLINE) == 1
        bus.was_killed = True
        assert "the connection to the kernel was cut" in bus.words
        assert "the mount is left" in bus.words
    finally:
        run("umount", bus.path)


@pytest.mark.parametrize("function", ["fork", "pidfd_open"])
def test_a_dead_mount_is_taken_away_also_if_it_cannot_be_asked(
    mounting: Mounting, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    bus = mounting()
    mount = mounted_on(str(bus.path))
    assert mount
    bus.daemon.kill()
    bus.daemon.wait()
    bus.was_killed = True

    def fails(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, function, fails)
    assert is_left(mount)
    assert take_away(mount) == ""
    assert device_of(bus.path) is None
