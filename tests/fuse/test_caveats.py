"""What does not work, and is said in CAVEATS of futebus(7): it is still so, and what is said to work instead does.

A test that fails here may be good news: the kernel has changed, and the line in the manual page can go.
"""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from futebus.client.inquire import inquire
from tests.helpers.mounts import LINGERING, Mount, Mounting, bash, run
from tests.helpers.waiting import DEADLINE, until
from tests.helpers.watching import WATCH

from ..helpers.processes import state_of
from ..helpers.programs import Start, stop


def test_cp_joins_a_channel_and_tar_does_not(bus: Mount, start: Start, place: Path) -> None:
    bus.touch("B_x")
    copying = start("cp", "-a", bus.path, place / "copy")
    bus.wait_for_readers(1, "B_x")
    copying.terminate()
    copying.wait()
    assert run("tar", "-cf", place / "bus.tar", bus.path.name, cwd=place).returncode == 0


def test_mawk_reads_ahead_unless_it_is_told_not_to(bus: Mount, start: Start, place: Path) -> None:
    bus.touch("B_x")
    shown = {options: place / f"shown{number}" for number, options in enumerate(("", "-W interactive"))}
    for options, path in shown.items():
        path.touch()  # the shell makes it after it has opened the channel
        start("bash", "-c", f"exec mawk {options} '{{ print \"got\", $0; fflush() }}' < {bus.path}/B_x > {path}")
    bus.wait_for_readers(2, "B_x")
    (bus / "B_x").write_text("hello\n")
    until(lambda: shown["-W interactive"].read_text() == "got hello\n", "it is shown")
    bus.wait_for_readers(2, "B_x")  # both have read it, and wait for more
    assert shown[""].read_text() == ""


# ---------------------------------------------------------------------------------------------- Java

READERS = {
    "Scanner": 'System.out.println(new java.util.Scanner(System.in).nextLine());',
    "BufferedInputStream": """var in = new java.io.BufferedInputStream(new java.io.FileInputStream(java.io.FileDescriptor.in));
        byte[] line = new byte[100]; System.out.write(line, 0, in.read(line)); System.out.flush();""",
    "newBufferedReader": """try (var in = java.nio.file.Files.newBufferedReader(java.nio.file.Path.of(args[0]))) {
        System.out.println(in.readLine()); }""",
    "FileReader": """try (var in = new java.io.BufferedReader(new java.io.FileReader(args[0]))) {
        System.out.println(in.readLine()); }""",
    "FileChannel": """try (var in = java.nio.channels.FileChannel.open(java.nio.file.Path.of(args[0]))) {
        var line = java.nio.ByteBuffer.allocate(100); in.read(line);
        System.out.write(line.array(), 0, line.position()); System.out.flush(); }""",
}  # fmt: skip


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a class for each way to read a line."""
    directory = tmp_path_factory.mktemp("java")
    for name, body in READERS.items():
        text = f"public class {name} {{ public static void main(String[] args) throws Exception {{ {body} }} }}"
        (directory / f"{name}.java").write_text(text)
    done = run("javac", *directory.glob("*.java"))
    assert done.returncode == 0, done
    return directory


@pytest.mark.parametrize("name", ["Scanner", "BufferedInputStream"])
def test_java_that_asks_how_much_there_is_fails_on_a_channel_and_works_on_a_pipe(
    bus: Mount, start: Start, java: Path, name: str
) -> None:
    bus.touch("B_j")
    program = f"java -XX:TieredStopAtLevel=1 -cp {java} {name}"
    reader = start("bash", "-c", f"{program} < {bus.path}/B_j")
    bus.wait_for_readers(1, "B_j")
    (bus / "B_j").write_text("hello\n")
    output, words = reader.communicate(timeout=DEADLINE)
    assert "Illegal seek" in words or "NoSuchElementException" in words
    assert output == ""
    reader = start("bash", "-c", f"cat {bus.path}/B_j | {program}")
    bus.wait_for_readers(1, "B_j")
    (bus / "B_j").write_text("hello\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "hello\n"


@pytest.mark.parametrize("name", ["newBufferedReader", "FileReader", "FileChannel"])
def test_java_that_reads_works(bus: Mount, start: Start, java: Path, name: str) -> None:
    bus.touch("B_j")
    reader = start("java", "-XX:TieredStopAtLevel=1", "-cp", java, name, bus / "B_j")
    bus.wait_for_readers(1, "B_j")
    (bus / "B_j").write_text("hello\n")
    assert reader.communicate(timeout=DEADLINE)[0] == "hello\n"


# ---------------------------------------------------------------------------------------------- EINTR

EINTR = """
import ctypes, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)  # os.read would go on by itself
print(libc.read(file, ctypes.create_string_buffer(100), 100), ctypes.get_errno(), flush=True)
"""


def stop_and_go_on(bus: Mount, process: "subprocess.Popen[str]") -> None:
    bus.wait_for_readers(1, "B_x")
    stop(process.pid)
    os.kill(process.pid, signal.SIGCONT)


def test_who_is_stopped_and_goes_on_finds_that_its_read_was_interrupted(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    reader = start(sys.executable, "-c", EINTR, bus / "B_x")
    stop_and_go_on(bus, reader)
    assert reader.communicate(timeout=DEADLINE)[0].split() == ["-1", str(errno.EINTR)]


@pytest.mark.parametrize("program", ["cat", "grep --line-buffered .", "head -n 1", "tee /dev/null", "bash -c 'read x; echo $x'"])
def test_programs_that_go_on_when_they_were_stopped(bus: Mount, start: Start, program: str) -> None:
    bus.touch("B_x")
    reader = start("bash", "-c", f"exec {program} < {bus.path}/B_x")
    stop_and_go_on(bus, reader)
    bus.wait_for_readers(1, "B_x")
    (bus / "B_x").write_text("hello\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "hello\n"


def test_what_reads_from_a_pipe_goes_on(bus: Mount, start: Start) -> None:
    bus.touch("B_x")
    reader = start("bash", "-c", f"cat {bus.path}/B_x | sed -u s/h/H/")
    bus.wait_for_readers(1, "B_x")
    os.killpg(reader.pid, signal.SIGSTOP)
    until(lambda: state_of(reader.pid) == "T", "it is stopped")
    os.killpg(reader.pid, signal.SIGCONT)
    bus.wait_for_readers(1, "B_x")
    (bus / "B_x").write_text("hello\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "Hello\n"


# ---------------------------------------------------------------------------------------------- calls that pipes know


@pytest.mark.parametrize("asks", [False, True])
def test_io_uring_waits_for_a_full_buffer(bus: Mount, start: Start, tmp_path: Path, *, asks: bool) -> None:
    program = tmp_path / "uring"
    assert run("gcc", "-o", program, Path(__file__).with_name("uring.c")).returncode == 0
    bus.touch("B_x")
    channel = os.open(bus / "B_x", os.O_RDONLY)
    if asks:  # as Python's own open() does
        assert os.fstat(channel).st_size == 0
    reader = start(program, "12", stdin=channel)
    until(lambda: reader.poll() is not None or bus.inside()["poll handles"] == 1, "it waits")
    for line in (b"one..\n", b"two..\n"):
        with (bus / "B_x").open("wb", buffering=0) as writer:
            writer.write(line)
    words, complaint = reader.communicate(timeout=DEADLINE)
    os.close(channel)
    if "Function not implemented" in complaint or "not permitted" in complaint:
        assert Path("/proc/sys/kernel/io_uring_disabled").exists(), "this kernel has no io_uring, and nobody can meet this"
        return
    assert words == "12\n", "a pipe would have given 6"


def test_a_read_that_must_not_wait_by_its_own_flag_is_refused(bus: Mount) -> None:
    file = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match=os.strerror(errno.ENOTSUP)):
        os.preadv(file, [bytearray(10)], -1, os.RWF_NOWAIT)
    os.close(file)


def test_a_fifo_cannot_be_made(bus: Mount) -> None:
    with pytest.raises(PermissionError):
        os.mknod(bus / "B_x", stat.S_IFIFO | 0o600)
    with pytest.raises(PermissionError):
        os.mknod(bus / "B_x", stat.S_IFREG | 0o600)


def test_sendfile_after_fstat_finds_nothing_in_stat(bus: Mount) -> None:
    file = os.open(bus / "_stat", os.O_RDONLY)
    read, write = os.pipe()
    assert os.fstat(file).st_size == 0
    assert os.sendfile(write, file, None, 100) == 0
    for each in (file, read, write):
        os.close(each)


def test_a_masters_name_without_creating_is_no_file(bus: Mount) -> None:
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileNotFoundError):
        os.open(bus / ".U_x", os.O_RDWR)
    with pytest.raises(FileExistsError):
        os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    os.close(master)


# ---------------------------------------------------------------------------------------------- the kernel's lock


def test_two_that_append_by_one_description_exclude_each_other(mounting: Mounting, start: Start) -> None:
    """And whoever gets rid of the first, gets rid of both."""
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    file = os.open(bus / "U_x", os.O_WRONLY | os.O_APPEND)
    os.write(file, b"full\n")
    first = start("echo", "first", stdout=file)
    bus.wait_for_blocked_writers(1, "U_x")
    with WATCH.expecting() as stuck:
        second = start("echo", "second", stdout=file)
        until(lambda: state_of(second.pid) == "D", "the second waits in the kernel")
        until(lambda: stuck, "and stays there")
        first.kill()
        first.wait(DEADLINE)
    bus.wait_for_blocked_writers(1, "U_x")
    until(lambda: state_of(second.pid) == "S", "now it waits in the bus")
    second.kill()
    second.wait(DEADLINE)
    os.close(file)
    os.close(master)


CHANGES = {
    "fsync": "os.fsync(1)",
    "fchmod": "os.fchmod(1, 0o644)",
    "futimens": "os.utime(1)",
    "ftruncate": "os.ftruncate(1, 0)",
}


@pytest.mark.parametrize("what", CHANGES)
def test_who_changes_a_channel_by_a_descriptor_waits_for_a_write_by_it(mounting: Mounting, start: Start, what: str) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    file = os.open(bus / "U_x", os.O_WRONLY)
    os.write(file, b"full\n")
    first = start("echo", "first", stdout=file)
    bus.wait_for_blocked_writers(1, "U_x")
    # By its name it is another inode.
    assert run("touch", "-c", bus / "U_x").returncode == 0
    assert run("chmod", "622", bus / "U_x").returncode == 0
    with WATCH.expecting() as stuck:
        second = start(sys.executable, "-c", f"import os; {CHANGES[what]}", stdout=file)
        until(lambda: state_of(second.pid) == "D", "it waits in the kernel")
        until(lambda: stuck, "and stays there")
        first.kill()
        first.wait(DEADLINE)
    assert second.wait(DEADLINE) == 0
    os.close(file)
    os.close(master)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Makes a bind mount of a path and returns where; it is unmounted in the end."""
    place = tmp_path / "bound"

    def bind(path: Path) -> Path:
        if path.is_dir():
            place.mkdir()
        else:
            place.touch()
        subprocess.run(["mount", "--bind", path, place], check=True)
        return place

    yield bind
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("how", [">", ">>"])
def test_a_bind_mount_of_a_channel_is_one_file_for_all_who_write(
    mounting: Mounting, start: Start, bound: Callable[[Path], Path], how: str
) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    place = bound(bus / "U_x")
    (bus / "U_x").write_text("full\n")
    first = start("bash", "-c", f"echo first >{place}")
    bus.wait_for_blocked_writers(1, "U_x")
    with WATCH.expecting() as stuck:
        second = start("bash", "-c", f"echo second {how}{place}")
        until(lambda: state_of(second.pid) == "D", "the second waits in the kernel")
        until(lambda: stuck, "and stays there")
        third = start("bash", "-c", f"echo third {how}{bus / 'U_x'}")
        bus.wait_for_blocked_writers(2, "U_x")
        first.kill()
        first.wait(DEADLINE)
    third.kill()
    third.wait(DEADLINE)
    bus.wait_for_blocked_writers(1, "U_x")
    assert os.read(master, 100) == b"full\n"
    assert second.wait(DEADLINE) == 0
    assert os.read(master, 100) == b"second\n"
    os.close(master)
    until(lambda: "U_x" not in os.listdir(bus.path), "the channel is gone")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="Stale file handle"):
        place.write_text("to nobody\n")
    os.close(master)


@pytest.mark.parametrize("how", [">", ">>"])
def test_at_a_bind_mount_of_the_bus_nobody_waits_for_another(
    mounting: Mounting, start: Start, bound: Callable[[Path], Path], how: str
) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    place = bound(bus.path) / "U_x"
    (bus / "U_x").write_text("full\n")
    start("bash", "-c", f"echo first {how}{place}")
    bus.wait_for_blocked_writers(1, "U_x")
    start("bash", "-c", f"echo second {how}{place}")
    bus.wait_for_blocked_writers(2, "U_x")
    assert run("chmod", "622", place).returncode == 0
    got = b""
    while got.count(b"\n") < 3:
        got += os.read(master, 100)
    assert sorted(got.split()) == [b"first", b"full", b"second"]
    os.close(master)


def test_fionread_tells_nothing(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    before = fcntl.ioctl(reader, termios.FIONREAD, bytes(4))
    (bus / "B_x").write_text("hello\n")
    assert fcntl.ioctl(reader, termios.FIONREAD, bytes(4)) == before
    assert inquire(reader).queued_bytes == 6
    os.close(reader)


def test_a_lazily_unmounted_bus_is_not_found_by_its_path(mounting: Mounting) -> None:
    bus = mounting(command=LINGERING)
    bus.touch("B_x")
    reader = os.open(bus / "B_x", os.O_RDONLY)
    assert run("umount", "-l", bus.path).returncode == 0
    assert list(bus.path.iterdir()) == []
    assert os.read(reader, 100) == b"", "who has it open hears of its end"
    os.close(reader)
    bus.close()


# ---------------------------------------------------------------------------------------------- and what was seen to hold


def test_signals_on_a_shared_description_lose_nothing(bus: Mount) -> None:
    """Readers of one description are interrupted all the time: each line goes to one of them, once."""
    bus.touch("B_x")
    file = os.open(bus / "B_x", os.O_RDONLY)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    taken: list[bytes] = []
    interrupts = 0
    done = threading.Event()

    def read() -> None:
        while (line := os.read(file, 100)) != b"end\n":
            taken.append(line)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for each in readers:
        each.start()

    def interrupt() -> None:
        nonlocal interrupts
        while not done.is_set():
            for each in readers:
                if each.ident is not None and each.is_alive():
                    signal.pthread_kill(each.ident, signal.SIGUSR1)
                    interrupts += 1

    harm = threading.Thread(target=interrupt)
    harm.start()
    lines = [b"%d\n" % number for number in range(2000)]
    for line in lines:
        os.write(writer, line)
    for _ in readers:
        os.write(writer, b"end\n")
    for each in readers:
        each.join()
    done.set()
    harm.join()
    assert sorted(taken, key=int) == lines
    assert interrupts > 0
    os.close(file)
    os.close(writer)


def test_short_lived_slaves_are_told_of_in_order(bus: Mount) -> None:
    """The master hears of each: that it has come, what it says, that it has gone."""
    master = os.open(bus / ".S_x", os.O_RDWR | os.O_CREAT)
    script = f"for i in $(seq 100); do echo $i > {bus.path}/S_x; done"
    assert bash(f"for p in 1 2 3; do {{ {script}; }} & done; wait").returncode == 0
    heard: dict[str, list[str]] = {}
    while sum(words[-1:] == ["c"] for words in heard.values()) < 300:
        address, _, text = os.read(master, 1000).decode().partition("}")
        number, _, event = address.removeprefix("{").partition(":")
        heard.setdefault(number, []).append(event or text.strip())
    assert all(words[0] == "o" and words[1].isdecimal() and words[2] == "c" and len(words) == 3 for words in heard.values())
    os.close(master)
