"""How a bus ends when it is not told to in an orderly way, and what is left of it then."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..helpers.mounts import (
    FUTEBUS,
    MNT_DETACH,
    Mount,
    Mounting,
    abort,
    bash,
    cut_connection,
    device_of,
    have_unmounted,
    run,
    unmount,
)
from ..helpers.processes import children, state_of
from ..helpers.programs import Start
from ..helpers.users import BECOME, MOUNTER
from ..helpers.waiting import DEADLINE, until

TRIES = 20
"""How often a test begins anew because another one has looked at its bus."""

CUT = "the connection to the kernel was cut"


def cut(bus: Mount, how: str) -> None:
    """Cuts the bus's connection to the kernel, while somebody uses the bus."""
    if how == "abort":
        cut_connection(bus.path)
    else:
        held = os.open(bus.path, os.O_PATH)  # who uses it is cut off at once, and may have gone before umount(8) looks
        try:
            assert "busy" in run("umount", "-f", bus.path).stderr
        finally:
            os.close(held)


@pytest.mark.parametrize("how", ["umount -f", "abort"])
@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]])
def test_a_bus_whose_connection_is_cut_says_so_and_fails(mounting: Mounting, start: Start, options: list[str], how: str) -> None:
    bus = mounting(*options)
    bus.touch("B_x")
    cat = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    cut(bus, how)
    assert bus.daemon.wait(DEADLINE) == 1
    bus.was_killed = True
    assert cat.wait(DEADLINE) != 0
    assert device_of(bus.path) is None, "the dead mount is taken away"
    assert bus.words.count(CUT) == 1
    assert "the bus is gone\n" not in bus.words
    assert "Traceback" not in bus.words
    again = mounting()
    assert again.stat()


HARMED = """
import os, sys
import futebus.fuse.mount as life
from futebus.commands.futebus import main
owner, name, number = sys.argv[1:4]
owner = getattr(life, owner, life)
def after(function):
    def call(*arguments):
        result = function(*arguments)
        os.kill(os.getpid(), int(number))
        return result
    return call
setattr(owner, name, after(getattr(owner, name)))
sys.exit(main(sys.argv[4:]))
"""
"""A daemon that gets a signal when it has called a function of its own: `OWNER NAME SIGNAL`."""

UNSEEN = """
import futebus.fuse.mount as life
from pyfuse3 import FUSEError
async def lookup(*asked):
    raise FUSEError(2)
life.Directory.lookup = lookup
"""
"""A daemon whose bus nobody uses: another test's view of all buses may find it."""

LATE = """
import os, signal, sys
import futebus.fuse.mountpoint as mountpoint
from futebus.commands.futebus import main
mountpoint._ask = lambda *asked: os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(main(sys.argv[1:]))
"""
"""A daemon whose own question to its bus does not get there."""

MOUNTED = ["life", "mounted_on"]
"""What it calls when the bus has just been mounted."""


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("moment", [["Mounted", "_mount_it"], ["Asking", "answer"]])
def test_a_bus_that_is_unmounted_before_it_was_seen_to_answer_says_so(
    place: Path, start: Start, moment: list[str], is_kept: bool
) -> None:
    """What lies under it may answer in its place. And who looks at it just then keeps it connected."""
    daemon = start(sys.executable, "-c", UNSEEN + HARMED, *moment, str(int(signal.SIGSTOP)), "-f", place)
    with contextlib.ExitStack() as opened:
        opened.callback(abort, place)
        until(lambda: state_of(daemon.pid) == "T", "it is mounted")
        if is_kept:
            opened.callback(os.close, os.open(place, os.O_PATH))
        unmount(place, MNT_DETACH)
        daemon.send_signal(signal.SIGCONT)
        _, said = daemon.communicate(timeout=DEADLINE)
        assert said.endswith(f"futebus: cannot mount on {place}: it was unmounted before it could be used\n")
        assert daemon.returncode == 1


@pytest.mark.parametrize("options", [[], ["-f"], ["-f", "-o", "allow_other,user=nobody"]])
def test_a_bus_that_others_have_used_before_its_daemon_was_to_see_whether_it_answers_was_there(
    place: Path, start: Start, options: list[str]
) -> None:
    daemon = start(sys.executable, "-c", LATE, *options, place)
    try:
        until(lambda: device_of(place), "it is mounted")
        assert "futebus" in (place / "_stat").read_text()
        have_unmounted(place)
        _, said = daemon.communicate(timeout=DEADLINE)
        assert daemon.returncode == 0, said
        if "-f" in options:
            assert [line.rpartition(": ")[2] for line in said.splitlines()] == [
                "a bus is mounted",
                "unmounted, shutting down",
                "the bus is gone",
            ]
    finally:
        abort(place)


@pytest.mark.parametrize("options", [[], ["-o", "auto_unmount"], ["-o", "allow_other,user=nobody"]])
@pytest.mark.parametrize("moment", [MOUNTED, ["Mounted", "_mount_it"], ["Directory", "statfs"]])
def test_a_daemon_that_is_killed_as_it_starts_ends(place: Path, start: Start, moment: list[str], options: list[str]) -> None:
    """Also while its own question to its bus is on its way: who asks cannot be killed before that is answered."""
    daemon = start(sys.executable, "-c", HARMED, *moment, str(int(signal.SIGKILL)), "-f", *options, place)
    try:
        assert daemon.wait(DEADLINE) == -signal.SIGKILL
        if options:
            until(lambda: device_of(place) is None, "it is unmounted")
        else:
            until(lambda: run("stat", "-f", place).stderr.endswith("Transport endpoint is not connected\n"), "it is dead")
    finally:
        abort(place)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_in_the_background_that_is_ended_as_it_starts_says_so(place: Path, number: signal.Signals) -> None:
    try:
        done = run(sys.executable, "-c", HARMED, *MOUNTED, str(int(number)), "-o", "auto_unmount", place)
        how = "was told to end before anybody could use it" if number == signal.SIGTERM else "was killed by SIGKILL"
        assert (done.returncode, done.stderr) == (1, f"futebus: the process that was to serve the bus {how}\n")
        until(lambda: device_of(place) is None, "it is unmounted")
    finally:
        abort(place)


UNABLE = """
import sys
import futebus.fuse.mount as life
from futebus.commands.futebus import main
def fail(*arguments):
    raise RuntimeError("an error that nobody has thought of")
life.trio.run, life.take_away = fail, lambda *arguments: "it is like that"
sys.exit(main(sys.argv[1:]))
"""


def test_a_mount_that_is_left_after_a_failure_is_said(place: Path) -> None:
    try:
        done = run(sys.executable, "-c", UNABLE, place)
        assert done.returncode == 1
        assert done.stderr.startswith("futebus: the mount is left: it is like that\nfutebus: the bus has failed\n")
    finally:
        abort(place)


MOVED = """
import os, sys
import futebus.fuse.mount as life
from futebus.commands.futebus import main
def moved(self, function=life.Mounted._mount_it):
    function(self)
    above = os.path.dirname(sys.argv[-1])
    os.rename(above, above.replace("above", "moved"))
life.Mounted._mount_it = moved
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_a_bus_that_is_moved_before_it_has_answered_is_no_bus(place: Path, foreground: list[str]) -> None:
    """Nobody waits for it."""
    directory = place / "above" / "bus"
    directory.mkdir(parents=True)
    try:
        done = run(sys.executable, "-c", MOVED, *foreground, directory)
        words = f"futebus: cannot mount on {directory}: who serves the bus cannot reach it: No such file or directory\n"
        assert (done.returncode, done.stderr.endswith(words)) == (1, True), done.stderr
        assert device_of(place / "moved" / "bus") is None
    finally:
        abort(place / "moved" / "bus")


PATIENT = f"""
import sys
from futebus.commands.futebus import main
from futebus.fuse import mount
mount.LAST_LOOK = {DEADLINE}
sys.exit(main())
"""
"""A daemon that waits long to see that it was unmounted: umount(8) may be slow."""


def test_forcing_an_unmount_of_a_bus_that_nobody_uses_is_orderly(mounting: Mounting) -> None:
    for _ in range(TRIES):
        bus = mounting("user=nobody", command=[sys.executable, "-c", PATIENT])
        done = run("umount", "-f", bus.path)
        if done.returncode == 0:
            break
        assert "busy" in done.stderr, "another test, which shows all buses, uses it for a moment"
        bus.was_killed = True
        bus.discard()
    bus.close()
    assert CUT not in bus.words


@pytest.mark.usefixtures("fuse_for_everybody")
def test_who_is_not_root_has_the_dead_mount_taken_away_too(place: Path, start: Start) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    try:
        daemon = start(sys.executable, "-c", BECOME + MOUNTER, "-f", directory)
        words = daemon.stderr
        assert words
        until(lambda: "a bus is mounted" in words.readline(), "it is mounted, and knows that")
        assert bash(f"cat {directory}/_stat", user=65534, group=65534, extra_groups=[]).returncode == 0
        cut_connection(directory)
        assert daemon.wait(DEADLINE) == 1
        assert device_of(directory) is None
        assert CUT in daemon.communicate()[1]
    finally:
        abort(directory)


def test_a_second_signal_does_not_end_it_before_it_has_unmounted(mounting: Mounting) -> None:
    """The first is being obeyed: `timeout`, a service manager and somebody at the terminal may all say it."""
    for _ in range(5):
        bus = mounting()
        held = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
        while bus.daemon.poll() is None:
            bus.daemon.send_signal(signal.SIGTERM)
            bus.daemon.send_signal(signal.SIGINT)
            if "shutting down" in bus.words and held >= 0:
                os.close(held)
                held = -1
        bus.close()


def test_one_that_is_being_mounted_in_the_background_can_be_ended(place: Path, start: Start) -> None:
    directory = place / "bus"
    directory.mkdir()
    try:
        for tries in range(8):
            starting = start(*FUTEBUS, directory)
            until(lambda: starting.poll() is not None or device_of(directory), "it is being mounted")  # noqa: B023
            if tries % 2:
                until(lambda: starting.poll() is not None or (directory / "_stat").exists(), "it is mounted")  # noqa: B023
            starting.send_signal(signal.SIGTERM)
            status = starting.wait(DEADLINE)
            if status == 0:  # the signal was late
                run("fusermount3", "-u", "-z", directory)
            until(lambda: device_of(directory) is None, "nothing is left")
            assert status in (0, -signal.SIGTERM)
    finally:
        abort(directory)


def stopped_child(parent: int) -> int | None:
    """Stops a child of a process that is what that is. Returns its number; None: it has none, or another, or it has ended.

    Others are one that looks at a dead bus, and ldconfig(8), which trio starts when it is imported.
    """
    if not (found := children(parent)):
        return None
    child = str(found[0])
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(child), signal.SIGSTOP)
    state = until(lambda: state if (state := state_of(child)) in "TZX" else "", "it has stopped")
    if state == "T" and _is_forked(parent, child):
        return int(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(child), signal.SIGCONT)
    return None


def _is_forked(parent: int, child: str) -> bool:
    """Whether a process that is stopped is a copy of its parent for good: while it becomes another program, its parent waits."""
    waits = state_of(parent) in "DX"
    with contextlib.suppress(OSError):  # the parent has ended
        return not waits and Path(f"/proc/{child}/exe").readlink() == Path(f"/proc/{parent}/exe").readlink()
    return False


def being_mounted(start: Start, directory: Path) -> tuple["subprocess.Popen[str]", int]:
    """A bus in the background, stopped before it is ready: the process that waits for it, and the one that is to serve it."""
    directory.mkdir()

    def stopped() -> tuple["subprocess.Popen[str]", int] | None:
        starting = start(*FUTEBUS, directory)
        child = until(lambda: stopped_child(starting.pid) or starting.poll() is not None, "there is who serves it")
        if child is not True and device_of(directory) is None:
            return starting, child
        # It was faster.
        if child is not True:
            os.kill(child, signal.SIGKILL)
        abort(directory)
        return None

    found = until(stopped, "one is stopped in time")
    assert found
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_waits_for_one_in_the_background_ends_by_the_signal(place: Path, start: Start, number: signal.Signals) -> None:
    """Else a script would go on after Ctrl-C, and nobody would know what the failure was."""
    directory = place / "bus"
    try:
        starting, child = being_mounted(start, directory)
        starting.send_signal(number)
        os.kill(child, signal.SIGCONT)
        assert starting.communicate(timeout=DEADLINE) == ("", "")
        assert starting.returncode == -number
        assert device_of(directory) is None
    finally:
        abort(directory)


def test_that_one_in_the_background_was_killed_is_said(place: Path, start: Start) -> None:
    directory = place / "bus"
    try:
        starting, child = being_mounted(start, directory)
        os.kill(child, signal.SIGKILL)
        said = "futebus: the process that was to serve the bus was killed by SIGKILL\n"
        assert starting.communicate(timeout=DEADLINE) == ("", said)
        assert starting.returncode == 1
    finally:
        abort(directory)


@pytest.mark.parametrize("number", [8, 12, 16, 20])
def test_too_few_descriptors_are_said_before_anything_is_mounted(place: Path, number: int) -> None:
    directory = place / "bus"
    directory.mkdir()
    for foreground in ("-f", ""):
        done = bash(f"ulimit -n {number}; exec {' '.join(FUTEBUS)} {foreground} {directory}")
        assert done.returncode == 1
        assert "file descriptors are needed (ulimit -n): Too many open files" in done.stderr
        assert done.stderr.count("\n") == 1
        assert device_of(directory) is None


def test_standard_descriptors_that_are_closed_are_not_taken_for_others(place: Path) -> None:
    """The first that is opened would be number 2, and what is printed would go there."""
    directory = place / "bus"
    directory.mkdir()
    try:
        assert bash(f"exec {' '.join(FUTEBUS)} {directory} <&- >&- 2>&-").returncode == 0
        assert (directory / "_stat").read_text().startswith("futebus")
        have_unmounted(directory)
        until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)
