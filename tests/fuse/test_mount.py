"""The command: options, going to the background, ending, and what the next one finds."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from futebus.host.mounted import mounts

from ..helpers.mounts import (
    FUTEBUS,
    LINGERING,
    SHOWN,
    Mount,
    Mounting,
    abort,
    bash,
    device_of,
    have_unmounted,
    mounted_by_fstab,
    run,
)
from ..helpers.programs import Start, stopped
from ..helpers.waiting import DEADLINE, until


@pytest.fixture
def directory(place: Path) -> Path:
    return place


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["/nonexistent"], 1, "futebus: /nonexistent: No such file or directory\n"),
        (["/etc/passwd"], 1, "futebus: /etc/passwd: Not a directory\n"),
        (["-o", "max_queues=1", "DIR"], 1, "futebus: unknown option 'max_queues=1': is max_queue meant? (see"),
        (["-o", "max_queue=many", "DIR"], 1, "futebus: option 'max_queue=many': not a number (K, M, G and T may follow)\n"),
        (["-o", "max_queue=0", "DIR"], 1, "futebus: option max_queue must be from 1 to 4294967295, not 0\n"),
        (["-o", "max_message=1", "DIR"], 1, "futebus: option max_message must be from 2 to 4294967295, not 1\n"),
        (["-o", "mode=rwx", "DIR"], 1, "futebus: option 'mode=rwx': not an octal mode such as 1777\n"),
        (["-o", "mode=77777", "DIR"], 1, "futebus: option 'mode=77777': not an octal mode such as 1777\n"),
        (["-o", "uid=nobody-here", "DIR"], 1, "futebus: option 'uid=nobody-here': no such user\n"),
        (["-o", "gid=nobody-here", "DIR"], 1, "futebus: option 'gid=nobody-here': no such group\n"),
        (["-o", "ro", "DIR"], 1, "futebus: option ro: a bus cannot be read-only"),
        (["-o", "no_interrupt", "DIR"], 1, "futebus: option no_interrupt: "),
        (["-o", "allow_other,,bulk", "DIR"], 1, "futebus: an empty option\n"),
        (["-o", "rw,user_id=0,remount", "DIR"], 1, "futebus: option remount: a bus keeps the options that it was mounted with;"),
        (["-o", "max_read=4096", "DIR"], 1, "futebus: unknown option 'max_read=4096' (see futebus --help)\n"),
        ([], 2, "futebus: a mount point, please (see futebus --help)\n"),
        (["--frob", "DIR"], 2, "futebus: unrecognized arguments: --frob (see futebus --help)\n"),
        ([""], 2, "futebus: the mount point is empty: was a variable not set? (see futebus --help)\n"),
        (["a", "b", "c"], 2, "futebus: one mount point, please, not b c (see futebus --help)\n"),
    ],
)
@pytest.mark.parametrize("foreground", [False, True])
def test_what_is_wrong_is_said_in_one_line(
    directory: Path, arguments: list[str], status: int, words: str, foreground: bool
) -> None:
    arguments = [str(directory) if word == "DIR" else word for word in arguments]
    done = run(*FUTEBUS, *(["-f"] if foreground else []), *arguments)
    assert done.returncode == status
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert device_of(directory) is None


def test_help_and_version() -> None:
    shown = run(*FUTEBUS, "--help")
    assert shown.returncode == 0
    assert "max_queue_bytes" in shown.stdout
    assert run(*FUTEBUS, "--version").stdout.startswith("futebus 0.")


def test_help_is_instant() -> None:
    """It needs none of the heavy parts."""
    code = (
        "import sys; from futebus.commands.futebus import parser; parser().format_help(); "
        "print({'trio', 'pyfuse3'} & set(sys.modules))"
    )
    assert run(sys.executable, "-c", code).stdout == "set()\n"


def test_it_goes_to_the_background_once_the_bus_is_there(directory: Path) -> None:
    try:
        done = run(*FUTEBUS, "-o", "max_queue=2K", "logs", directory)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (directory / "_stat").read_text().startswith("futebus ")
        assert "at most 2048 messages" in (directory / "_stat").read_text()
        assert f"\nlogs {directory} fuse.futebus ".encode() in Path("/proc/mounts").read_bytes()
        have_unmounted(directory)
        until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)


def test_mount_and_fstab_know_it(directory: Path, place: Path) -> None:
    target = place / "mnt"
    options = "max_queue=5K,noauto,nofail,_netdev,x-systemd.automount,defaults,relatime"
    done = mounted_by_fstab(place, "events", options, f"cat {target}/_stat")
    assert done.stderr == ""
    assert f"events {target} fuse.futebus rw," in done.stdout
    assert "at most 5120 messages" in done.stdout


@pytest.mark.parametrize("foreground", [[], ["-f"]])
def test_a_source_grants_nothing(directory: Path, start: Start, foreground: list[str]) -> None:
    """It comes from fstab, or from a script that has it from somebody: it is a name and no option."""
    source = "logs,allow_other\\,dev"
    daemon = start(*FUTEBUS, *foreground, source, directory)
    try:
        until(lambda: device_of(directory) or daemon.poll(), "it is mounted")
        table = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())  # others mount on directories of any name
        line = next(line for line in table.split("\n") if f" {directory} " in line)
        kind, name, options = line.partition(" - ")[2].split(" ")
        assert (kind, name) == ("fuse.futebus", "logs,allow_other\\134,dev")
        assert "allow_other" not in options.split(",")
        have_unmounted(directory)
        until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)


def test_a_bus_is_not_remounted(bus: Mount, place: Path) -> None:
    """mount(8) asks its helper, which is us."""
    command = place / "futebus"
    command.write_text(f'#!/bin/sh\nexec {" ".join(FUTEBUS)} "$@"\n')
    command.chmod(0o755)
    script = f"""
        mount -t tmpfs none /usr/local/bin
        cp {command} /usr/local/bin/futebus
        mount -o remount,noatime {bus.path}
        """
    done = run("unshare", "--mount", "sh", "-c", script)
    assert done.returncode != 0
    words = "option remount: a bus keeps the options that it was mounted with; unmount it and mount it anew"
    assert done.stderr == f"futebus: {words}\n"
    assert bus.stat()


def test_what_looks_at_a_bus_twice_sees_the_same(bus: Mount, place: Path) -> None:
    bus.touch("B_x")
    done = run("tar", "-cf", place / "bus.tar", "-C", bus.path, ".")
    assert (done.returncode, done.stderr) == (0, "")
    before = os.stat(bus / "_stat")
    bus.touch("B_y")
    after = os.stat(bus / "_stat")
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)


def test_it_refuses_a_directory_where_a_bus_is(bus: Mount) -> None:
    done = run(*FUTEBUS, bus.path)
    assert done.returncode == 1
    assert done.stderr == f"futebus: {bus.path}: a bus is mounted here already\n"
    assert bus.stat()


def test_a_mount_point_can_be_relative_and_a_link(place: Path) -> None:
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    try:
        assert run(*FUTEBUS, "link/", cwd=place).stderr == ""
        assert (place / "real" / "_stat").exists()
        assert run(*FUTEBUS, "real", cwd=place).stderr == "futebus: real: a bus is mounted here already\n"
    finally:
        abort(place / "real")


@pytest.mark.parametrize("name", ["wörld", b"w\xf6rld"])
def test_a_directory_has_any_name_in_any_locale(place: Path, name: str | bytes) -> None:
    directory = place / os.fsdecode(name)
    directory.mkdir()
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}  # to Python, all names are ASCII then
    try:
        done = run(*FUTEBUS, directory, env={**os.environ, **locale})
        assert (done.returncode, done.stderr) == (0, "")
        have_unmounted(directory)
        until(lambda: device_of(directory) is None, "it is gone")
    finally:
        abort(directory)


def test_what_libfuse_says_becomes_part_of_the_one_line(directory: Path) -> None:
    done = run(*FUTEBUS, "-o", "context=nonsense", directory)
    assert done.returncode == 1
    assert done.stderr.startswith(f"futebus: cannot mount on {directory}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it(bus: Mount, number: signal.Signals) -> None:
    bus.daemon.send_signal(number)
    bus.close()


def test_signals_that_it_was_started_to_ignore_do_not_end_it(mounting: Mounting) -> None:
    """As nohup(1) does, and a script's `&`."""
    bus = mounting(command=["bash", "-c", "trap '' HUP INT; exec \"$@\"", "bash", *FUTEBUS])
    bus.daemon.send_signal(signal.SIGHUP)
    bus.daemon.send_signal(signal.SIGINT)
    assert bus.clients() == []
    bus.daemon.send_signal(signal.SIGTERM)
    bus.close()
    assert "SIGTERM, shutting down" in bus.words
    assert "SIGHUP" not in bus.words
    assert "SIGINT" not in bus.words


@pytest.mark.parametrize("command", [["umount"], ["fusermount3", "-u"], ["umount", "-l"]])
def test_unmounting_ends_it(bus: Mount, command: list[str]) -> None:
    have_unmounted(bus.path, *command)
    bus.close()


def test_a_bus_in_use_is_busy(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    cat = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    assert "busy" in run("umount", bus.path).stderr
    (bus / "B_x").write_text("still here\n")
    assert cat.stdout
    assert cat.stdout.readline() == "still here\n"


def test_a_lazy_unmount_ends_it_for_those_inside_too(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    cat = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    assert run("umount", "-l", bus.path).returncode == 0
    assert cat.wait(DEADLINE) == 0, "end of file"
    bus.close()


def test_going_down(mounting: Mounting, start: Start) -> None:
    """Blocked writers fail, readers get what they still hold and then the end."""
    bus = mounting("max_queue=3", command=LINGERING)
    idle = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    holding = os.open(bus / "B_x", os.O_RDONLY)
    blocked = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    bash(f"printf '1\\n2\\n3\\n' > {bus / 'U_x'}")
    writer = start("bash", "-c", f"echo late > {bus / 'U_x'}")
    bus.wait_for_blocked_writers(1, "U_x")
    os.write(idle, b"hello\nbye\n")
    bus.daemon.send_signal(signal.SIGTERM)
    assert "Cannot send after transport endpoint shutdown" in writer.communicate(timeout=DEADLINE)[1]
    assert blocked.communicate(timeout=DEADLINE)[0] == "hello\nbye\n"
    assert blocked.returncode == 0
    assert [os.read(holding, 100) for _ in range(3)] == [b"hello\n", b"bye\n", b""]
    assert [os.read(master, 100) for _ in range(4)] == [b"1\n", b"2\n", b"3\n", b""]
    with pytest.raises(BrokenPipeError):  # ESHUTDOWN
        os.write(idle, b"more\n")
    with pytest.raises(BrokenPipeError):
        os.open(bus / "B_x", os.O_RDONLY)
    for descriptor in (idle, holding, master):
        os.close(descriptor)
    bus.close()


def test_who_does_not_leave_is_not_waited_for(bus: Mount) -> None:
    with contextlib.ExitStack() as held:
        idle = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
        held.callback(os.close, idle)
        bus.daemon.send_signal(signal.SIGTERM)
        bus.close()
        with pytest.raises(OSError, match=r"not connected|connection abort"):
            os.read(idle, 100)


def test_it_goes_at_once_when_nobody_is_left(mounting: Mounting, start: Start) -> None:
    bus = mounting(command=LINGERING)
    bus.touch("B_x")
    cat = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    bus.daemon.send_signal(signal.SIGTERM)
    assert cat.wait(DEADLINE) == 0
    bus.close()
    assert "have not closed" not in bus.words


def test_a_daemon_that_is_killed_frees_everybody_and_the_next_takes_over(mounting: Mounting, start: Start, place: Path) -> None:
    bus = mounting("max_queue=1")
    bus.touch("B_x")
    reader = start("cat", bus / "B_x")
    bus.wait_for_readers(1, "B_x")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    bash(f"echo first > {bus / 'U_x'}")
    writer = start("bash", "-c", f"echo late > {bus / 'U_x'}")
    bus.wait_for_blocked_writers(1, "U_x")
    bus.daemon.kill()
    assert "Software caused connection abort" in reader.communicate(timeout=DEADLINE)[1]
    assert "Software caused connection abort" in writer.communicate(timeout=DEADLINE)[1]
    os.close(master)
    with pytest.raises(OSError, match="not connected"):
        os.statvfs(bus.path)
    next_one = Mount(bus.path, place / "next.log")
    try:
        assert "taking over the mount of a futebus that is dead" in next_one.words
        assert os.listdir(next_one.path) == SHOWN
        next_one.unmount()
    finally:
        next_one.discard()
    bus.daemon.wait()
    bus.was_killed = True


def test_a_daemon_that_hangs_is_not_waited_for_for_ever(bus: Mount) -> None:
    with stopped(bus.daemon):
        done = run(*FUTEBUS, bus.path, timeout=DEADLINE)
        assert done.returncode == 1
        assert "does not answer" in done.stderr


def test_of_two_at_the_same_time_one_mounts(directory: Path, start: Start) -> None:
    for _ in range(5):
        both = [start(*FUTEBUS, directory) for _ in range(2)]
        try:
            assert sorted(each.wait(DEADLINE) for each in both) == [0, 1]
            assert sum(each.path == str(directory) for each in mounts()) == 1
            said = [each.communicate()[1] for each in both]
            assert sorted(said) == ["", f"futebus: {directory}: a bus is mounted here already\n"]
            have_unmounted(directory)
        finally:
            abort(directory)
        until(lambda: device_of(directory) is None, "it is unmounted")


def test_auto_unmount_leaves_no_dead_mount(mounting: Mounting) -> None:
    bus = mounting("auto_unmount")
    bus.daemon.kill()
    until(lambda: device_of(bus.path) is None, "it is unmounted")
    bus.was_killed = True


def test_it_refuses_a_libfuse_that_its_hooks_do_not_reach(directory: Path) -> None:
    """Without them a blocked reader could not be killed. Here they come too late: pyfuse3 is bound to libfuse already."""
    code = "import pyfuse3, sys; from futebus.commands.futebus import main; sys.exit(main(sys.argv[1:]))"
    done = run(sys.executable, "-c", code, "-f", directory, env={**os.environ, "LD_BIND_NOW": "1"})
    assert done.returncode == 1
    assert "does not let futebus see signals to blocked clients" in done.stderr
    assert "this libfuse (3." in done.stderr
    assert done.stderr.count("\n") == 1
    assert device_of(directory) is None


def test_its_own_output_is_not_held_open_in_the_background(directory: Path) -> None:
    """`$(futebus …)` must come back, with auto_unmount's helper process too."""
    try:
        done = bash(f'words=$({" ".join(FUTEBUS)} -o auto_unmount {directory} 2>&1); echo "[$words]"')
        assert done.stdout == "[]\n"
    finally:
        abort(directory)


def test_debug_log_tells_what_was_refused(place: Path) -> None:
    target = place / "bus"
    target.mkdir()
    bus = Mount(target, place / "bus.log", command=[*FUTEBUS, "-d"])
    try:
        bash(f"echo > {target}/nothing")
        until(lambda: "create" in bus.words, "it is logged")
        bus.unmount()
    finally:
        bus.discard()


def test_a_thousand_channels_and_clients_at_the_end(mounting: Mounting) -> None:
    bus = mounting()
    held = [os.open(bus / f"B_{number}", os.O_RDWR | os.O_CREAT) for number in range(300)]
    bus.daemon.send_signal(signal.SIGTERM)
    bus.close()
    for descriptor in held:
        os.close(descriptor)
