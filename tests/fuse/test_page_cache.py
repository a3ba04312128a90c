"""The kernel reads on behalf of nobody: pages that mmap, sendfile and readahead want. Such a read must never wait.

Whoever waits for a page cannot be killed, and a dozen of the kernel's background reads that wait once stopped every close.
"""

import ctypes
import errno
import mmap
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.mounts import Mount, Mounting, bash
from tests.helpers.waiting import DEADLINE, until

from ..helpers.programs import Start

CHANNELS = 40
"""More than the kernel has background requests by default (12)."""


def test_reads_ahead_keep_no_close_from_being_sent(bus: Mount) -> None:
    files = []
    for number in range(CHANNELS):
        file = os.open(bus / f"B_{number}", os.O_RDWR | os.O_CREAT)
        os.write(file, b"a line\n" * 15_000)
        for start in range(0, 1 << 20, 4096):
            os.posix_fadvise(file, start, 4096, os.POSIX_FADV_WILLNEED)
        files.append(file)
    for _ in range(3):
        master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
        os.close(master)
        until(lambda: not (bus / "U_x").exists(), "the master is released")
    for file in files:
        os.close(file)
    until(lambda: bus.clients() == [], "all are released")


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_page_of_a_channel_cannot_be_had(bus: Mount, mode: str) -> None:
    """Who touches one gets SIGBUS, at once."""
    bus.touch("B_x")
    program = """
import ctypes, mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY if sys.argv[2] == "r" else os.O_RDWR)
if sys.argv[2] != "r":
    os.write(file, b"line" * 1000 + b"\\n")
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p  # Python's own looks at the size first
mapped = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_PRIVATE, file, ctypes.c_long(0))
print("mapped", flush=True)
ctypes.string_at(mapped, 1)
"""
    done = subprocess.run([sys.executable, "-c", program, bus / "B_x", mode], capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == -signal.SIGBUS, done
    assert done.stdout == b"mapped\n"


def test_shared_maps_are_refused(bus: Mount) -> None:
    file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
        mmap.mmap(file, 4096, mmap.MAP_SHARED)
    os.close(file)


NEW = os.O_RDWR | os.O_CREAT
"""How a channel is opened that is not there yet."""


def is_refused(file: int) -> bool:
    """Whether sendfile(2) says that it is not for this. Otherwise it finds an end of file."""
    read, write = os.pipe()
    try:
        assert os.sendfile(write, file, None, 100) == 0
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return True
    finally:
        os.close(read)
        os.close(write)
    return False


@pytest.mark.parametrize("flags", [NEW, os.O_RDONLY | os.O_CREAT, os.O_RDONLY])
def test_sendfile_says_that_it_is_not_for_channels(bus: Mount, flags: int) -> None:
    """It would find an end of file otherwise, or wait beyond the reach of signals. Programs then use read(2).

    Whatever else is done with the channel.
    """
    if not flags & os.O_CREAT:
        bus.touch("B_x")
    file = os.open(bus / "B_x", flags)
    size = 1 << 20 if flags == NEW else 0
    assert is_refused(file)
    for _ in range(2):
        assert os.fstat(file).st_size == size
        assert is_refused(file)
    os.fchmod(file, 0o640)
    os.utime(file)
    assert is_refused(file)
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o640
    assert os.fstat(file).st_size == size
    assert is_refused(file)
    (bus / "B_x").write_text("a line\n")
    assert os.read(file, 100) == b"a line\n"
    assert is_refused(file)
    os.close(file)


def test_sendfile_says_so_of_stat_too(bus: Mount) -> None:
    file = os.open(bus / "_stat", os.O_RDONLY)
    assert is_refused(file)
    os.close(file)


@pytest.mark.parametrize("command", ["tail -n 1", "tail -qn 1", "busybox tail -n 1"])
def test_tail_prints_the_end_of_stat(bus: Mount, command: str) -> None:
    """It looks for lines from the end on, where a file can be read from there."""
    assert bash(f"{command} {bus.path}/_stat").stdout.startswith("inside: ")
    assert bash(f"{command} {bus.path}/_stat {bus.path}/_stat").stdout.count("inside: ") == 2


def test_who_has_found_a_channel_before_it_was_opened_changes_nothing_for_its_reader(bus: Mount) -> None:
    """As stat(2) and ls(1) do between their look-up and their question, if somebody is quick."""
    bus.touch("B_x")
    found = os.open(bus / "B_x", os.O_PATH)
    file = os.open(bus / "B_x", os.O_RDONLY)
    assert os.fstat(found).st_size == 0
    assert is_refused(file)
    for each in (found, file):
        os.close(each)


@pytest.mark.parametrize("by", ["its path", "another descriptor", "the descriptor itself"])
def test_a_change_of_its_permissions_is_no_end_of_file_for_a_reader(bus: Mount, by: str) -> None:
    """Whose fstat(2) must be believed then. Who opens it later notices nothing of that."""
    other = os.open(bus / "B_x", NEW)
    file = os.open(bus / "B_x", os.O_RDONLY)
    what: dict[str, int | Path] = {"its path": bus / "B_x", "another descriptor": other, "the descriptor itself": file}
    os.chmod(what[by], 0o600)
    size = 0 if by == "the descriptor itself" else 1 << 20
    for _ in range(2):
        assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600
        assert os.fstat(file).st_size == size
        assert is_refused(file)
    os.close(file)
    for _ in range(2):
        file = os.open(bus / "B_x", os.O_RDONLY)
        assert os.fstat(file).st_size == 0
        assert is_refused(file)
        os.close(file)
    os.close(other)


@pytest.mark.parametrize(
    "call",
    [
        "stat({})",
        "utime({})",
        "chmod({}, 0o644)",
        "truncate({}, 0)",
        "close(os.open({}, os.O_WRONLY | os.O_TRUNC))",
        "close(os.open({}, os.O_RDONLY | os.O_TRUNC))",
        "chmod({}, 0o600 + time.time_ns() % 64)",
    ],
)
def test_what_others_do_with_a_channel_while_it_is_opened_changes_nothing_for_its_readers(
    bus: Mount, start: Start, call: str
) -> None:
    bus.touch("B_x")
    words = f"os.{call.format(repr(os.fspath(bus / 'B_x')))}"
    other = start(sys.executable, "-c", f"import os, time\nprint(flush=True)\nwhile True: {words}")
    assert other.stdout is not None
    other.stdout.readline()
    for _ in range(2000):
        file = os.open(bus / "B_x", os.O_RDONLY)
        assert is_refused(file)
        os.close(file)
    assert other.poll() is None


def test_what_copies_files_reads_a_channel(bus: Mount, start: Start, tmp_path: Path) -> None:
    """It asks for the size first, and then has the kernel copy, if it can."""
    bus.touch("B_x")
    copy = tmp_path / "copy"
    start(sys.executable, "-c", "import shutil, sys\nshutil.copyfile(*sys.argv[1:])", bus / "B_x", copy)
    bus.wait_for_readers(1, "B_x")
    with (bus / "B_x").open("w") as writer:
        for _ in range(10_000):
            writer.write(f"{'a line':100}\n")
    until(lambda: copy.exists() and copy.stat().st_size, "something is copied")


@pytest.mark.parametrize("looks", [False, True])
def test_busybox_cat_reads_a_channel_into_a_pipe(bus: Mount, start: Start, looks: bool) -> None:
    bus.touch("B_r")
    cat = start("bash", "-c", f"busybox cat {bus.path}/B_r | cat")
    if looks:
        # Others who look at the channel change nothing of what the kernel thinks of the open file.
        for _ in range(20):
            assert (bus / "B_r").stat().st_size == 0
            bash(f"ls -l {bus.path}")
    bus.wait_for_readers(1, "B_r")
    (bus / "B_r").write_text("hello\n")
    assert cat.stdout is not None
    assert cat.stdout.readline() == "hello\n"


@pytest.mark.parametrize("where", ["file", "pipe", "terminal"])
def test_busybox_cat_reads_stat(bus: Mount, where: str) -> None:
    cat = f"busybox cat {bus.path}/_stat"
    script = {
        "file": f"{cat} > {bus.path}.copy; cat {bus.path}.copy",
        "pipe": f"{cat} | cat",
        "terminal": f"script -qec '{cat}' /dev/null",
    }
    keep = (bus / "_stat").open()  # and others may have it open
    assert "inside: " in bash(script[where]).stdout
    keep.close()


def test_an_open_channel_has_a_size_for_its_writers_only(bus: Mount) -> None:
    writer = os.open(bus / "B_x", os.O_WRONLY | os.O_CREAT)
    reader = os.open(bus / "B_x", os.O_RDONLY)
    assert os.fstat(writer).st_size == 1 << 20
    assert os.fstat(reader).st_size == 0
    assert (bus / "B_x").stat().st_size == 0
    assert bash(f"test -s {bus.path}/B_x").returncode == 1
    os.close(reader)
    os.close(writer)


def test_tar_does_not_wait(bus: Mount) -> None:
    writer = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    done = bash(f"timeout {DEADLINE:.0f} tar -C {bus.path} -cf - . | tar -tf -")
    assert {"./B_x", "./U_x", "./_stat"} <= set(done.stdout.split())
    os.close(writer)
    os.close(master)


@pytest.mark.parametrize("how", [">", "1<>"])
def test_writers_of_one_description_exclude_nobody_in_the_kernel(mounting: Mounting, start: Start, how: str) -> None:
    """The lock that a write holds would have the second wait beyond the reach of signals."""
    bus = mounting("max_queue=4")
    script = f"for i in 1 2 3; do while echo $i; do :; done & done {how} {bus.path}/U_jobs; wait"
    check_that_three_can_wait(bus, start, ["bash", "-c", script])


@pytest.mark.parametrize("how", ["O_TRUNC", "O_TRUNC | os.O_CREAT", "O_CREAT"])
def test_writers_need_not_ask_for_a_size_to_exclude_nobody(mounting: Mounting, start: Start, how: str) -> None:
    """As bash does before its echo."""
    bus = mounting("max_queue=4")
    script = f"""
import os
file = os.open({str(bus / "U_jobs")!r}, os.O_WRONLY | os.{how})
for _ in 1, 2:
    if not os.fork():
        break
while True:
    os.write(file, b"x\\n")
"""
    check_that_three_can_wait(bus, start, [sys.executable, "-c", script])


def check_that_three_can_wait(bus: Mount, start: Start, command: list[str]) -> None:
    """In their writes to `U_jobs` by one description, where signals reach them."""
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    process = start(*command, stdout=None)
    until(lambda: waiting_writes(process.pid) == 3, "three processes wait in the bus")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(DEADLINE)
    os.close(master)


def waiting_writes(group: int) -> int:
    """How many processes of a group wait, interruptibly, for the bus to answer."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    state, _, its_group = file.read().rpartition(b") ")[2].split()[:3]
                with open(f"/proc/{entry.name}/syscall", "rb") as file:
                    call = file.read().split()[0]
            except OSError:
                continue
            count += int(its_group) == group and state == b"S" and call == WRITE
    return count


WRITE = b"1" if ctypes.sizeof(ctypes.c_long) == 8 and os.uname().machine == "x86_64" else b"64"
"""The number of write(2)."""
