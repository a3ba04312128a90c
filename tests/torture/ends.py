"""The ends of resources: descriptors, memory, clients, channels, queues. Who asks for too much is refused; the bus goes on."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.mounts import SHOWN
from tests.helpers.waiting import until

from .trial import CREATE, Counts, Show, mounted, silent

MIB = 1 << 20


def errno_of(call: Callable[[], object]) -> int:
    """The errno that a call fails with, 0 if it does not."""
    try:
        call()
    except OSError as error:
        return error.errno or -1
    return 0


def descriptors(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """The daemon can open no file any more: whatever clients do, it needs none. Not even to see that something is mounted."""
    with mounted(place) as bus:
        used = {int(number) for number in os.listdir(f"/proc/{bus.daemon.pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        bus.limit(resource.RLIMIT_NOFILE, free)
        counts = Counts()
        for number in range(int(200 * scale)):
            reader = os.open(bus / f"B_{number}", os.O_RDONLY | os.O_CREAT)
            (bus / f"B_{number}").write_text("hello\n")
            assert os.read(reader, 100) == b"hello\n"
            assert bus.clients(f"B_{number}")[0]["pid"] == os.getpid()
            os.close(reader)
            os.unlink(bus / f"B_{number}")
            counts["messages"] += 1
        # The mount table changes, and the daemon looks at it.
        other = place / "other"
        other.mkdir()
        assert subprocess.run(["mount", "-t", "tmpfs", "none", other], check=False).returncode == 0
        assert subprocess.run(["umount", other], check=False).returncode == 0
        bus.touch("B_x")
        return counts


def memory(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """The daemon gets no memory any more: calls that need some fail, and when there is some again all is as before."""
    with mounted(place) as bus:
        bus.expects_errors = True
        counts = Counts()
        for extra in (24, 8, 2, 0) * max(1, int(scale / 4)):
            bus.limit(resource.RLIMIT_AS, bus.memory("VmSize") + extra * MIB)
            opened = []
            for number in range(15):
                with contextlib.suppress(OSError):
                    master = os.open(bus / f".U_{number}", CREATE)
                    opened.append(master)
                    slave = os.open(bus / f"U_{number}", os.O_WRONLY | os.O_NONBLOCK)
                    opened.append(slave)
                    block = (b"x" * 999 + b"\n") * 500
                    for _ in range(10):
                        error = errno_of(lambda slave=slave, block=block: os.write(slave, block))  # type: ignore[misc]
                        assert error in (0, errno.EIO, errno.ENOMEM, errno.EAGAIN), os.strerror(error)
                        counts["calls refused"] += error in (errno.EIO, errno.ENOMEM)
                        counts["messages"] += 500 * (not error)
            for descriptor in opened:
                os.close(descriptor)
            bus.limit(resource.RLIMIT_AS, -1)
            assert bus.daemon.poll() is None, "the bus goes on"
            reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
            (bus / "B_x").write_text("hello\n")
            assert os.read(reader, 100) == b"hello\n"
            os.close(reader)
            show(f"{counts['calls refused']} calls refused")
        assert counts["calls refused"]
        return counts


AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
opened = []
try:
    for number in range(int(sys.argv[2])):
        opened.append(os.open(sys.argv[1], os.O_RDONLY))
except OSError as error:
    print(len(opened), error.errno)
"""


def clients(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """max_clients, max_clients_per_user, max_channels: one more is refused, and one less makes place again."""
    place.chmod(0o755)
    with mounted(place, "max_clients=50", "max_clients_per_user=20", "max_channels=10", "allow_other") as bus:
        counts = Counts()
        path = bus / "B_x"
        for _ in range(max(1, int(scale))):
            path.touch()
            path.chmod(0o666)
            done = subprocess.run(
                [sys.executable, "-c", AS_NOBODY, path, "60"], capture_output=True, text=True, check=False, cwd="/", timeout=60
            )
            assert done.stdout.split() == ["20", str(errno.EUSERS)], done
            bus.wait_for_clients(0, "B_x")
            opened = [os.open(path, os.O_RDONLY) for _ in range(50)]
            assert errno_of(lambda: os.open(bus / "B_x", os.O_RDONLY)) == errno.ENFILE
            os.close(opened.pop())
            until(lambda: not errno_of(lambda: os.close(os.open(path, os.O_RDONLY))), "there is place again")
            for descriptor in opened:
                os.close(descriptor)
            bus.wait_for_clients(0, "B_x")
            for number in range(9):
                bus.touch(f"B_n{number}")
            assert errno_of(lambda: bus.touch("B_more")) == errno.ENOSPC
            assert errno_of(lambda: os.open(bus / ".U_more", CREATE)) == errno.ENOSPC
            os.unlink(bus / "B_n0")
            bus.touch("B_more")
            bus.remove_channels()
            counts["calls refused"] += 43
        return counts


def queues(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """Readers that never read cost no more than their queues, however much is written."""
    limit = 4 * MIB
    with mounted(place, f"max_queue_bytes={limit}") as bus:
        readers = [os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT) for _ in range(10)]
        writer = os.open(bus / "B_x", os.O_WRONLY)
        block = (b"y" * 499 + b"\n") * 1000
        total = int(40 * scale) * MIB
        for _ in range(2 * limit // len(block)):
            os.write(writer, block)
        before = bus.memory()
        written = 0
        while written < total:
            written += os.write(writer, block)
            show(f"{written // MIB} MiB written")
        grown = bus.memory() - before
        assert grown < 8 * MIB, f"{grown:,} bytes more after {written:,}"
        rows = bus.clients("B_x", rw="r-")
        assert all(row["dropped"] for row in rows)
        for reader in readers:
            assert os.read(reader, 1000) == block[:500]
            os.close(reader)
        os.close(writer)
        return Counts({"messages": written // 500, "bytes": written})


def endless_message(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """A writer that never writes a newline is told that its message is too long, and holds no more than one message."""
    with mounted(place) as bus:
        reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
        writer = os.open(bus / "B_x", os.O_WRONLY)
        counts = Counts()
        before = 0
        for size in (65_536, MIB, 8 * MIB):
            block = b"z" * size
            for number in range(max(2, int(16 * MIB * scale / size))):
                error = errno_of(lambda block=block: os.write(writer, block))  # type: ignore[misc]
                assert error in (0, errno.EMSGSIZE)
                assert error or size < 262_144
                counts["calls refused"] += error == errno.EMSGSIZE
                counts["bytes"] += size
                if size == 8 * MIB and number == 0:
                    before = bus.memory()
            show(f"{counts['bytes'] // MIB} MiB written")
        assert bus.memory() - before < 4 * MIB
        error = errno_of(lambda: os.write(writer, b"end of it\n"))
        os.write(writer, b"short\n")
        os.set_blocking(reader, False)
        got = os.read(reader, 300_000)
        if got.endswith(b"end of it\n"):
            got = os.read(reader, 300_000)
        assert got == b"short\n"
        os.close(reader)
        os.close(writer)
        return counts


def opens(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """A service is opened and closed very many times. The master is told of each; one that does not read is not flooded."""
    with mounted(place) as bus:
        master = os.open(bus / "+.S_x", CREATE)
        total = int(2000 * scale)
        told = 0
        memory = 0
        for number in range(total):
            os.close(os.open(bus / "S_x", os.O_WRONLY))
            if number % 1000 == 999:
                told += os.read(master, MIB).count(b"\n")
                if number // 1000 == 4:
                    memory = bus.memory()
                show(f"{number + 1:,} of {total:,} opens")
        bus.wait_for_clients(1, "S_x")
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                told += os.read(master, MIB).count(b"\n")
        assert told == 2 * total, f"told of {told} opens and closes, and there were {total}"
        if memory:
            assert bus.memory() < 1.1 * memory
        if scale > 30:
            error = 0
            for _ in range(70_000):
                if error := errno_of(lambda: os.close(os.open(bus / "S_x", os.O_WRONLY))):
                    break
            assert error == errno.EUSERS
        os.close(master)
        return Counts({"opens": total})


def channels(place: Path, scale: float = 1, show: Show = silent) -> Counts:
    """Thousands of channels: they are listed, shown, written to and removed."""
    total = min(int(1000 * scale), 10_000)
    with mounted(place, "max_channels=20000") as bus:
        for number in range(total):
            bus.touch(f"B_{number}")
            show(f"{number + 1:,} channels")
        assert len(os.listdir(bus.path)) == total + len(SHOWN)
        assert f", {total} channels" in bus.stat()
        reader = os.open(bus / f"B_{total - 1}", os.O_RDONLY)
        (bus / f"B_{total - 1}").write_text("hello\n")
        assert os.read(reader, 100) == b"hello\n"
        os.close(reader)
        return Counts(channels=total)
