"""Several users on one bus. The tests run as root and act as others."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..helpers.mounts import FUTEBUS, Mount, Mounting, abort, bash, device_of, have_unmounted, run
from ..helpers.sysctls import protected
from ..helpers.users import ANN, BECOME, BOB, MOUNTER, NOBODY
from ..helpers.waiting import DEADLINE, until

BOB_IN_ANNS_GROUP = {"user": 64002, "group": 64002, "extra_groups": [64001]}


def test_without_allow_other_the_bus_is_its_mounters_alone(bus: Mount) -> None:
    bus.touch("B_x").chmod(0o666)
    assert "Permission denied" in bash(f"cat {bus / '_stat'}", **ANN).stderr
    assert "Permission denied" in bash(f"echo hi > {bus / 'B_x'}", **ANN).stderr


@pytest.mark.parametrize(
    ("mode", "who", "reads", "writes"),
    [
        (0o600, ANN, True, True),
        (0o600, BOB, False, False),
        (0o666, BOB, True, True),
        (0o644, BOB, True, False),
        (0o622, BOB, False, True),
        (0o660, BOB, False, False),
        (0o660, BOB_IN_ANNS_GROUP, True, True),
        (0o606, BOB_IN_ANNS_GROUP, False, False),
        (0o006, ANN, False, False),
    ],
)
def test_permission_bits(mounting: Mounting, mode: int, who: dict[str, object], reads: bool, writes: bool) -> None:
    bus = mounting("allow_other")
    assert bash(f"touch {bus / 'B_x'}; chmod {mode:o} {bus / 'B_x'}", **ANN).returncode == 0
    read = bash(f"dd if={bus / 'B_x'} iflag=nonblock count=1", **who)
    assert ("Resource temporarily unavailable" if reads else "Permission denied") in read.stderr
    write = bash(f"echo hi > {bus / 'B_x'}", **who)
    if writes:
        assert write.stderr == ""
    else:
        assert "Permission denied" in write.stderr


def test_only_the_owner_and_root_remove_or_change_a_channel(mounting: Mounting) -> None:
    bus = mounting("allow_other")
    bash(f"touch {bus / 'B_x'}; chmod 666 {bus / 'B_x'}", **ANN)
    assert "Operation not permitted" in bash(f"rm -f {bus / 'B_x'}", **BOB).stderr
    assert "Operation not permitted" in bash(f"chmod 600 {bus / 'B_x'}", **BOB).stderr
    assert "Operation not permitted" in bash(f"chown 64002 {bus / 'B_x'}", **BOB).stderr
    assert bash(f"rm {bus / 'B_x'}", **ANN).returncode == 0
    bash(f"touch {bus / 'B_x'}", **ANN)
    (bus / "B_x").unlink()


@pytest.mark.parametrize("by", ["path", "descriptor"])
def test_who_reads_a_channel_cannot_open_it_anew_when_it_is_closed_to_him(mounting: Mounting, by: str) -> None:
    """By its descriptor, that is, whatever he has asked of it before."""
    bus = mounting("allow_other")
    file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    os.fchmod(file, 0o666)
    program = """
become(64001)
file = os.open(sys.argv[1], os.O_RDONLY)
for mode in "66":
    assert oct(os.fstat(file).st_mode)[-1] == mode
os.close(os.open(f"/proc/self/fd/{file}", os.O_WRONLY))
print(flush=True)
input()
assert oct(os.stat(f"/proc/self/fd/{file}").st_mode)[-1] == "4"
os.close(os.open(f"/proc/self/fd/{file}", os.O_RDONLY))
try:
    os.open(f"/proc/self/fd/{file}", os.O_WRONLY)
except PermissionError:
    print("refused")
"""
    words = sys.executable, "-c", BECOME + program, bus / "B_x"
    reader = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "\n"
    if by == "path":
        (bus / "B_x").chmod(0o644)
    else:
        os.fchmod(file, 0o644)
    assert reader.communicate("\n", DEADLINE)[0] == "refused\n"
    os.close(file)


@pytest.fixture
def protected_regular() -> Iterator[None]:
    """The sysctl that many distributions set."""
    with protected():
        yield


@pytest.mark.usefixtures("protected_regular")
def test_redirecting_to_somebody_elses_channel_works_whatever_the_sysctl(mounting: Mounting) -> None:
    bus = mounting("allow_other", "uid=64003")
    bash(f"touch {bus / 'B_x'}; chmod 666 {bus / 'B_x'}", **ANN)
    assert bash(f"echo hi > {bus / 'B_x'}", **BOB).stderr == ""
    assert bash(f"echo hi > {bus / 'B_x'}").stderr == "", "not even root could"
    assert "Operation not permitted" in bash(f"rm -f {bus / 'B_x'}", **BOB).stderr, "it still cannot be removed"
    assert bash(f"rm {bus / 'B_x'}", **ANN).returncode == 0


@pytest.mark.usefixtures("protected_regular")
def test_a_change_of_what_is_shown_leaves_what_is_hidden(mounting: Mounting) -> None:
    """Or else `chmod o-r` of the directory would let everybody remove what is others'."""
    bus = mounting("allow_other", "uid=64003")
    bash(f"touch {bus / 'B_x'}", **ANN)
    assert stat.S_IMODE(bus.path.stat().st_mode) == 0o777
    assert bash(f"chmod o-r {bus.path}").stderr == ""
    assert stat.S_IMODE(bus.path.stat().st_mode) == 0o773
    assert "Operation not permitted" in bash(f"rm -f {bus / 'B_x'}", **BOB).stderr


ODD_NAME = """
import threading
os.setgroups([64001]); os.setgid(64002); os.setuid(64002)
def touch():
    with open("/proc/thread-self/comm", "wb") as name:
        name.write(bytes([0x6D, 0xC3]))
    os.utime(sys.argv[1])
    os.close(os.open(sys.argv[1], os.O_WRONLY))
    descriptor = os.open(sys.argv[1], os.O_WRONLY)
    print("open", flush=True)
    sys.stdin.readline()
thread = threading.Thread(target=touch)
thread.start()
thread.join()
"""


def test_a_name_that_is_no_text_takes_no_rights_away(mounting: Mounting) -> None:
    bus = mounting("allow_other")
    bus.touch("B_x").chmod(0o660)
    os.chown(bus / "B_x", 64001, 64001)
    process = subprocess.Popen(
        [sys.executable, "-c", BECOME + ODD_NAME, bus / "B_x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "open\n"
    [client] = bus.clients("B_x")
    assert client["pid"] == process.pid, "and not that of the thread"
    process.communicate("\n", DEADLINE)
    assert process.returncode == 0
    assert "internal error" not in bus.words


def test_the_directorys_mode_says_who_may_create(mounting: Mounting) -> None:
    bus = mounting("allow_other", "mode=755")
    assert "Permission denied" in bash(f"touch {bus / 'B_x'}", **ANN).stderr
    bus.touch("B_x").chmod(0o666)
    assert bash(f"echo hi > {bus / 'B_x'}", **ANN).stderr == ""


RACER = """
path = sys.argv[1]
become(int(sys.argv[2]))
os.umask(0o077)
mine = 0
while mine < 200:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    except PermissionError:
        continue  # it is the other one's
    assert os.fstat(descriptor).st_uid == os.getuid(), "let in where only the owner may"
    mine += 1
    os.unlink(path)
    os.close(descriptor)
print(mine)
"""


def test_a_channel_that_came_between_looking_and_creating_keeps_its_rights(mounting: Mounting) -> None:
    """The kernel checks no permission bits when it believes that it creates: two users race to create one name."""
    bus = mounting("allow_other")
    racers = [
        subprocess.Popen([sys.executable, "-c", BECOME + RACER, bus / "B_x", str(who)], stdout=subprocess.PIPE, text=True)
        for who in (64001, 64002)
    ]
    assert [racer.communicate(timeout=DEADLINE)[0] for racer in racers] == ["200\n"] * 2


def test_the_limit_per_user_is_for_each_but_root(mounting: Mounting) -> None:
    bus = mounting("allow_other", "max_clients_per_user=2")
    bus.touch("B_x").chmod(0o666)
    hold = f"exec 3<>{bus / 'B_x'} 4<>{bus / 'B_x'}; exec 5<>{bus / 'B_x'}"
    assert "Too many users" in bash(hold, **ANN).stderr
    assert "Too many users" in bash(hold, **BOB).stderr
    assert bash(hold).stderr == ""


@pytest.mark.usefixtures("fuse_for_everybody")
def test_a_user_mounts_and_unmounts_a_bus_of_their_own(place: Path) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    try:
        mounted = run(sys.executable, "-c", BECOME + MOUNTER, "logs,allow_other", directory)
        assert (mounted.returncode, mounted.stderr) == (0, "")
        assert f"logs,allow_other {directory} fuse.futebus rw,".encode() in Path("/proc/mounts").read_bytes()
        assert bash(f"echo hi > {directory}/B_x; cat {directory}/_stat", **NOBODY).stdout.startswith("futebus ")
        assert "Permission denied" in bash(f"cat {directory}/_stat").stderr, "without allow_root not even root looks in"
        have_unmounted(directory, **NOBODY)
    finally:
        abort(directory)


@pytest.mark.usefixtures("fuse_for_everybody")
def test_root_takes_over_the_dead_bus_of_a_user(place: Path) -> None:
    directory = place / "mine"
    directory.mkdir()
    os.chown(directory, 65534, 65534)
    daemon = subprocess.Popen([sys.executable, "-c", BECOME + MOUNTER, "-f", directory], stderr=subprocess.DEVNULL)
    try:
        until(lambda: device_of(directory), "the bus is mounted")
        until(lambda: bash(f"cat {directory}/_stat", **NOBODY).returncode == 0, "it answers")
        assert run(*FUTEBUS, directory).stderr == f"futebus: {directory}: a bus is mounted here already\n"
        daemon.kill()
        daemon.wait()
        done = run(*FUTEBUS, directory)
        assert (done.returncode, done.stderr) == (0, f"futebus: {directory}: taking over the mount of a futebus that is dead\n")
        have_unmounted(directory)
    finally:
        daemon.kill()
        daemon.wait()
        abort(directory)


def test_who_opened_is_a_process_also_when_one_of_its_threads_did(bus: Mount) -> None:
    opened: list[int] = []
    thread = threading.Thread(target=lambda: opened.append(os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)))
    thread.start()
    thread.join()
    assert [row["pid"] for row in bus.clients("B_x")] == [os.getpid()]
    os.close(opened[0])
