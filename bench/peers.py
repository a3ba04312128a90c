"""What is measured: futebus, and the floors under it, each really mounted for as long as the measurement takes."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PATIENCE = 15.0


class Process:
    """A server, and what it has cost so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def _status(self, key: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(key + ":"))
        return int(line.split()[1]) * 1024

    def memory(self) -> int:
        """Resident memory, in bytes."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most resident memory it has had, in bytes."""
        return self._status("VmHWM")

    def cpu(self) -> float:
        """Processor time so far, in seconds, of all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Daemon(Process):
    """A mounted file system and the process that serves it."""

    def __init__(self, directory: Path, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(process)
        self.directory = directory


def clients(bus: Path, channel: str | None = None) -> list[dict[str, Any]]:
    """The clients of a bus, or of one of its channels, as `_stat.json` tells."""
    told = json.loads((bus / "_stat.json").read_bytes())
    return [client for row in told["channels"] if channel in (None, row["name"]) for client in row["clients"]]


def waiting_readers(bus: Path, channel: str | None = None) -> int:
    """How many of them wait for a message."""
    return sum(client["waits"] == "read" for client in clients(bus, channel))


def _is_mounted(directory: Path) -> bool:
    lines = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")[:-1]
    return any(line.split(" ")[4] == str(directory) for line in lines)


@contextmanager
def _mounted(*command: str | Path) -> Iterator[Daemon]:
    """Runs `command MOUNTPOINT` for as long as the context lasts."""
    directory = Path(tempfile.mkdtemp(prefix="futebus-bench-")).resolve()
    process = subprocess.Popen([*map(str, command), str(directory)], stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + PATIENCE
        while not _is_mounted(directory):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeError(f"{command[0]} does not mount: {process.communicate()[1].decode().strip()}")
            time.sleep(0.005)
        yield Daemon(directory, process)
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(directory)], check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
        directory.rmdir()


def futebus(*options: str) -> contextlib.AbstractContextManager[Daemon]:
    """A bus."""
    arguments = ["-o", ",".join(options)] if options else []
    return _mounted(sys.executable, "-m", "futebus.commands.futebus", "-f", *arguments)


def bare_pyfuse3() -> contextlib.AbstractContextManager[Daemon]:
    """A pyfuse3 file system whose handlers return constants."""
    return _mounted(sys.executable, HERE / "bare_pyfuse3.py")


@contextmanager
def compiled(source: str, *flags: str) -> Iterator[Path]:
    """A program made from a C file of this directory, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as build:
        program = Path(build) / "program"
        subprocess.run(["gcc", "-O2", "-pthread", str(HERE / source), "-o", str(program), *flags], check=True)
        yield program


@contextmanager
def bare_libfuse() -> Iterator[Daemon]:
    """A libfuse file system in C whose handlers return constants."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True).stdout
    with compiled("bare_libfuse.c", *flags.split()) as program, _mounted(program, "-f", "-s") as daemon:
        yield daemon
