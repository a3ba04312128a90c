"""Users who do not know each other on one bus: what one of them can do to another. The tests run as root and act as others."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from futebus.fuse.filesystem import MAX_STATS_PER_USER
from futebus.fuse.listings import MAX_LISTINGS_PER_USER

from ..helpers.kernel import linux
from ..helpers.mounts import SHOWN, Mount, Mounting, bash
from ..helpers.programs import Start
from ..helpers.users import ANN, BECOME, BOB
from ..helpers.waiting import until
from .strangers import bus, go_on, line_of, python

__all__ = ["bus"]


# ---------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("letter", ["U", "S"])
def test_a_masters_name_cannot_be_taken_while_it_lives(bus: Mount, start: Start, letter: str) -> None:
    script = """
master = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
os.chmod(sys.argv[2], 0o666)
print("here", flush=True)
text = b""
while not text.endswith(b"two\\n"):
    text += os.read(master, 100)
print(text, flush=True)
"""
    name = f"{letter}_x"
    master = python(start, 64001, script, bus / f".{name}", bus / name)
    assert line_of(master) == "here\n"
    before = (bus / name).stat()
    bash(f"touch {bus.path}/B_mine", **BOB)
    for attempt in (
        f"rm -f {bus / name}",
        f"unlink {bus.path}/+{name}",
        f"mv -f {bus.path}/B_mine {bus / name}",
        f"mv {bus / name} {bus.path}/{letter}_y",
        f"ln -f {bus.path}/B_mine {bus / name}",
        f"ln -s B_mine {bus.path}/{letter}_y",
        f": >{bus.path}/.{name}",
        f"exec 3<>{bus.path}/+.{name}",
        f"chmod 777 {bus / name}",
        f"chown 64002 {bus / name}",
        f"chgrp 64002 {bus / name}",
        f"touch -d @0 {bus / name}",
        f"chmod 777 {bus.path}",
        f"rmdir {bus.path}",
    ):
        assert bash(attempt, **BOB).returncode != 0, attempt
    after = (bus / name).stat()
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_gid) == (before.st_ino, before.st_mode, 64001, 64001)
    assert sorted(os.listdir(bus.path)) == ["B_mine", name, *SHOWN]
    assert bash(f"printf 'one\\ntwo\\n' > {bus / name}", **BOB).stderr == ""
    assert "one\\n" in line_of(master)


def test_in_a_directory_that_is_not_sticky_everybody_can_remove(mounting: Mounting) -> None:
    bus = mounting("allow_other", "mode=777")
    bash(f"touch {bus / 'B_x'}", **ANN)
    assert bash(f"rm -f {bus / 'B_x'}", **BOB).stderr == ""


def test_the_directorys_owner_can_remove_what_is_in_it(mounting: Mounting) -> None:
    bus = mounting("allow_other", "uid=64002")
    bash(f"touch {bus / 'B_x'} {bus / 'B_y'}", **ANN)
    assert bash(f"rm -f {bus / 'B_x'}", **BOB).stderr == ""
    assert "Operation not permitted" in bash(f"rm -f {bus / 'B_y'}", user=64003, group=64003, extra_groups=[]).stderr


def test_in_a_setgid_directory_channels_belong_to_its_group(mounting: Mounting) -> None:
    bus = mounting("allow_other", "mode=3777", "gid=64005")
    friend = {"user": 64002, "group": 64002, "extra_groups": [64005]}
    assert bash(f"umask 007; touch {bus / 'B_x'}; exec 3<>{bus.path}/.U_x", **ANN).stderr == ""
    found = (bus / "B_x").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (64001, 64005, 0o660)
    assert bash(f"echo hi > {bus / 'B_x'}", **friend).stderr == ""
    assert "Permission denied" in bash(f"echo hi > {bus / 'B_x'}", **BOB).stderr


def test_who_has_given_a_channel_away_cannot_change_it_by_a_descriptor(bus: Mount, start: Start) -> None:
    """The kernel asks whom the file belonged to when the descriptor was opened: a slave that writes has an inode of its own."""
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    os.chown(bus / "U_x", 64001, 64001)
    os.chmod(bus / "U_x", 0o666)
    script = """
slave = os.open(sys.argv[1], os.O_WRONLY)
os.fchmod(slave, 0o662)
print("here", flush=True)
sys.stdin.readline()
for change in (lambda: os.fchmod(slave, 0o777), lambda: os.fchown(slave, -1, 64001)):
    try:
        change()
    except PermissionError as error:
        print(error.strerror, end=" ", flush=True)
os.write(slave, b"hi\\n")
print(flush=True)
"""
    ann = python(start, 64001, script, bus / "U_x")
    assert line_of(ann) == "here\n"
    os.chown(bus / "U_x", 64002, 64002)
    os.chmod(bus / "U_x", 0o4602)
    go_on(ann)
    assert line_of(ann) == "Operation not permitted Operation not permitted \n"
    found = (bus / "U_x").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode) & 0o777) == (64002, 64002, 0o602)
    assert os.read(master, 10) == b"hi\n", "what the mode lets it do, it does: a write may take away a setuid bit"
    os.close(master)


def test_who_has_given_a_channel_away_cannot_set_its_times_by_a_descriptor_but_to_now(bus: Mount, start: Start) -> None:
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    os.chown(bus / "U_x", 64001, 64001)
    script = """
slave = os.open(sys.argv[1], os.O_WRONLY)
os.utime(slave, ns=(1, 1))
print("here", flush=True)
sys.stdin.readline()
try:
    os.utime(slave, ns=(2, 2))
except PermissionError as error:
    print(error.strerror, end=" ", flush=True)
for touch in ["-d", "@0"], ["-a"], ["-m"], []:
    onto = [(os.POSIX_SPAWN_DUP2, slave, 1), (os.POSIX_SPAWN_CLOSE, 2)]
    process = os.posix_spawnp("touch", ["touch", *touch, "-"], os.environ, file_actions=onto)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), end=" ", flush=True)
print(flush=True)
"""
    ann = python(start, 64001, script, bus / "U_x")
    assert line_of(ann) == "here\n"
    assert (bus / "U_x").stat().st_mtime_ns == 1
    os.chown(bus / "U_x", 64002, 64002)
    os.chmod(bus / "U_x", 0o602)
    go_on(ann)
    assert line_of(ann) == "Operation not permitted 1 1 1 0 \n"
    found = (bus / "U_x").stat()
    assert found.st_atime_ns == found.st_mtime_ns > 10**18, "who may write may touch"
    os.close(master)


def test_who_may_not_write_a_channel_any_more_cannot_set_its_times_to_now_either(bus: Mount, start: Start) -> None:
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    os.chown(bus / "U_x", 64001, 64001)
    (bus / "U_x").chmod(0o600)
    script = """
slave = os.open(sys.argv[1], os.O_WRONLY)
print("here", flush=True)
sys.stdin.readline()
onto = [(os.POSIX_SPAWN_DUP2, slave, 1)]
process = os.posix_spawnp("touch", ["touch", "-"], os.environ, file_actions=onto)
os.waitpid(process, 0)
"""
    ann = python(start, 64001, script, bus / "U_x")
    assert line_of(ann) == "here\n"
    os.utime(bus / "U_x", ns=(1, 1))
    os.chown(bus / "U_x", 64002, 64002)
    go_on(ann)
    assert ann.stderr
    assert "Permission denied" in ann.stderr.read()
    assert (bus / "U_x").stat().st_mtime_ns == 1
    os.close(master)


ASK_ATTRIBUTES = f"""
import ctypes, errno, fcntl
{BECOME}
FS_IOC_GETFLAGS, FILE_GETATTR, AT_FDCWD = 0x80086601, 468, -100
def by_name(name):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(FILE_GETATTR, AT_FDCWD, name.encode(), ctypes.create_string_buffer(24), ctypes.c_size_t(24), 0)
    return errno.errorcode[ctypes.get_errno()]
def by_descriptor(name):
    file = os.open(name, os.O_WRONLY)
    try:
        fcntl.ioctl(file, FS_IOC_GETFLAGS, bytes(8))
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.close(file)
become(64001)
"""
"""The ways to ask for a file's attributes, as chattr(1) sets them: the kernel opens a file for that, by itself."""


def test_who_asks_for_a_channels_attributes_does_not_open_what_is_closed_to_him(bus: Mount, start: Start) -> None:
    master = os.open(bus / ".S_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    (bus / "S_x").chmod(0o600)
    is_known = linux() >= (6, 17)
    stranger = start(sys.executable, "-c", f"{ASK_ATTRIBUTES}print(by_name(sys.argv[1]))", bus / "S_x")
    assert line_of(stranger) == ("EACCES\n" if is_known else "ENOSYS\n")
    with pytest.raises(BlockingIOError):
        os.read(master, 100)
    (bus / "S_x").chmod(0o622)
    writer = start(sys.executable, "-c", f"{ASK_ATTRIBUTES}print(by_descriptor(sys.argv[1]))", bus / "S_x")
    assert line_of(writer) == "EACCES\n"
    os.set_blocking(master, True)
    came = [os.read(master, 100), os.read(master, 100)]
    assert came == [b"{2:o}\n", b"{2:c}\n"], "by open(2) it has been there, and by nothing else"
    (bus / "S_x").chmod(0o644)
    reader = start(sys.executable, "-c", f"{ASK_ATTRIBUTES}print(by_name(sys.argv[1]))", bus / "S_x")
    assert line_of(reader) == ("ENOTSUP\n" if is_known else "ENOSYS\n"), "who may open it may ask"
    os.close(master)


def test_nothing_in_stat_or_the_log_moves_a_terminals_cursor(mounting: Mounting, start: Start) -> None:
    bus = mounting("allow_other", command=[sys.executable, "-m", "futebus.commands.futebus", "-d"])
    script = """
names = [b"B_\\x1b[2J", b"B_\\r\\nfutebus: a lie", b"B_\\xc2\\x9b1m", b"B_\\xe2\\x80\\xae", b"U_\\x07",
         b"X\\x1b[2J\\nfutebus: a lie"]
held = []
for name in names:
    try:
        held.append(os.open(os.fsencode(sys.argv[1]) + b"/" + name, os.O_RDWR | os.O_CREAT))
    except OSError:
        pass
try:
    os.mkdir(os.fsencode(sys.argv[1]) + b"/B_\\x1b[0m")
except PermissionError:
    print(len(held), flush=True)
sys.stdin.readline()
"""
    ann = python(start, 64001, script, bus.path, comm=b"\x1b]0;x\x07\n\x9b")
    assert line_of(ann) == "4\n"
    text = (bus / "_stat").read_bytes().decode()
    assert all(line.isprintable() for line in text.removesuffix("\n").split("\n"))
    assert "B_\\x1b[2J" in text
    assert "\\x1b]0;x\\x07" in text, "the command's name"
    ann.kill()
    bus.wait_for_clients(0, "B_\x1b[2J")
    bus.unmount()
    lines = bus.log.read_bytes().decode().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith(f"futebus: {bus.path}: ") for line in lines)
    pid = ann.pid
    assert f"X\\x1b[2J\\nfutebus: a lie: create by process {pid} of user 64001: refused: " in "\n".join(lines)
    assert f"B_\\x1b[0m: mkdir by process {pid} of user 64001: refused: a bus holds channels only" in "\n".join(lines)


# ---------------------------------------------------------------------------------------------- limits

HOLD = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
become(int(sys.argv[3]))
held = []
try:
    while len(held) < int(sys.argv[2]):
        held.append(os.open(sys.argv[1], os.O_RDONLY))
except OSError as error:
    print(len(held), error.strerror, flush=True)
else:
    print(len(held), flush=True)
sys.stdin.readline()
"""


def hold(start: Start, path: Path, count: int, user: int) -> "subprocess.Popen[str]":
    return start(sys.executable, "-c", BECOME + HOLD, str(path), str(count), str(user))


@pytest.mark.parametrize(("name", "limit"), [("_stat", MAX_STATS_PER_USER), (".", MAX_LISTINGS_PER_USER)])
def test_what_a_user_can_look_at_is_bounded_too(bus: Mount, start: Start, name: str, limit: int) -> None:
    """Each holds a text or a list of names in the daemon's memory."""
    ann = hold(start, bus / name, limit + 1, 64001)
    assert line_of(ann) == f"{limit} Too many users\n"
    assert line_of(hold(start, bus / name, 1, 64002)) == "1\n", "others can look"
    assert line_of(hold(start, bus / name, limit + 1, 0)) == f"{limit + 1}\n", "and root is not bound"
    ann.kill()
    until(lambda: bash(f"ls {bus / name}", **ANN).returncode == 0, "what is closed does not count")


def test_the_limit_per_user_counts_all_processes_and_channels_of_a_user(mounting: Mounting, start: Start) -> None:
    bus = mounting("allow_other", "max_clients_per_user=3")
    for name in ("B_x", "A_x"):
        bus.touch(name).chmod(0o666)
    first, second = hold(start, bus / "B_x", 2, 64001), None
    assert line_of(first) == "2\n"
    second = hold(start, bus / "A_x", 2, 64001)
    assert line_of(second) == "1 Too many users\n"
    assert line_of(hold(start, bus / "A_x", 3, 64002)) == "3\n"
    first.kill()
    bus.wait_for_clients(0, "B_x")
    assert line_of(hold(start, bus / "B_x", 2, 64001)) == "2\n"


def test_who_holds_removed_channels_of_others_is_charged_for_them(mounting: Mounting, start: Start) -> None:
    """By open(O_PATH), which needs no permission. Charged to who had made them, it kept him from ever making another."""
    bus = mounting("allow_other", "max_clients_per_user=20")
    makes = """
for number in range(8):
    made = [os.open(f"{sys.argv[1]}/.U_answer.{number}.{each}", os.O_RDWR | os.O_CREAT, 0o600) for each in range(15)]
    print("made", flush=True)
    sys.stdin.readline()
    for descriptor in made:
        os.close(descriptor)
print("all", flush=True)
"""
    holds = """
held = []
for line in sys.stdin:
    for name in os.listdir(sys.argv[1]):
        if name.startswith("U_"):
            try:
                held.append(os.open(f"{sys.argv[1]}/{name}", os.O_PATH))
            except OSError as error:
                print(error.strerror, flush=True)
                break
    else:
        print(len(held), flush=True)
"""
    bob, ann = python(start, 64002, makes, bus.path), python(start, 64001, holds, bus.path)
    assert bob.stdin
    assert ann.stdin
    said = []
    for _ in range(8):
        assert line_of(bob) == "made\n"
        ann.stdin.write("hold\n")
        ann.stdin.flush()
        said.append(line_of(ann))
        bob.stdin.write("close\n")
        bob.stdin.flush()
        assert bus.stat()  # which has the kernel asked what it can forget
    assert line_of(bob) == "all\n", bob.communicate()
    assert said[0] == "15\n"
    if linux() >= (6, 18):  # before, the kernel cannot be asked what it holds
        assert said[-1] == "Too many users\n"
