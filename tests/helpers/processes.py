"""What the kernel tells of processes and of where in it they are, from files of /proc that never wait for whom they are about."""

import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator
from typing import NamedTuple

DISK = re.compile(r"(block|iomap|ext4|xfs|btrfs)_")
"""Where it is in a file system of a disk."""

ENTRY = re.compile(r"do_syscall_|entry_|__x64_sys_|ksys_|asm_|ret_from_fork")
"""What every stack ends in."""


def inside_fuse(stack: list[str]) -> bool:
    """Whether a kernel stack, or the one function that `wchan` tells, is in FUSE, on the side of those who call."""
    return any(re.match(r"_*(fuse_(?!dev_)|request_wait_answer)", function) for function in stack)


def waits_for_disk(stack: list[str]) -> bool:
    """Whether who is in FUSE waits for a page of his own buffer, which is a file of a disk: that is as slow as the disk is."""
    own = stack[: stack.index("handle_mm_fault")] if "handle_mm_fault" in stack else []
    return any(DISK.match(function) for function in own) and not inside_fuse(own)


class Stat(NamedTuple):
    """What /proc/PID/stat tells."""

    name: str
    state: str
    parent: int
    session: int
    ticks: int
    """Of the processor, used so far."""
    threads: int
    started: int

    @classmethod
    def parse(cls, text: bytes) -> "Stat":
        """The name is whatever the process likes, brackets and newlines too."""
        _, _, rest = text.partition(b"(")
        name, _, rest = rest.rpartition(b")")
        fields = rest.split()
        return cls(
            name.decode(errors="backslashreplace"),
            fields[0].decode(),
            int(fields[1]),
            int(fields[3]),
            int(fields[11]) + int(fields[12]),
            int(fields[17]),
            int(fields[19]),
        )


def read(path: str) -> bytes:
    """A file of /proc; nothing if the process has gone or may not be looked at."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def stat_of(task: int | str) -> Stat | None:
    """The stat of `PID` or `PID/task/TID`, unless it has gone."""
    text = read(f"/proc/{task}/stat")
    return Stat.parse(text) if text else None


def state_of(task: int | str) -> str:
    """The letter that says what `PID` or `PID/task/TID` does; X: it has gone."""
    stat = stat_of(task)
    return stat.state if stat else "X"


def has_blocked(pid: int, number: int) -> bool:
    """Whether the main thread of a process has a signal wait until it is taken."""
    return _has_signal(pid, "SigBlk", number)


def has_pending(pid: int, number: int) -> bool:
    """Whether a signal has been sent to a process, and it has not come back from the kernel since to take it."""
    return _has_signal(pid, "ShdPnd", number)


def _has_signal(pid: int, field: str, number: int) -> bool:
    signals = re.search(rb"^%s:\s*(\w+)" % field.encode(), read(f"/proc/{pid}/status"), re.MULTILINE)
    return signals is not None and bool(int(signals[1], 16) >> (number - 1) & 1)


def members(*sessions: int, group: int | None = None) -> list[int]:
    """The processes of sessions that live, or those of one process group in them."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        stat = stat_of(name)
        if stat and stat.state != "Z" and stat.session in sessions:
            with contextlib.suppress(ProcessLookupError):
                if group is None or os.getpgid(int(name)) == group:
                    found.append(int(name))
    return found


def children(pid: int) -> list[int]:
    """Those that the first thread of a process has started."""
    return [int(word) for word in read(f"/proc/{pid}/task/{pid}/children").split()]


def kill_all(pids: Iterable[int]) -> None:
    """Kills processes, as far as they are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def stack_of(task: str) -> list[str]:
    """The functions of the kernel that a task is in, innermost first. Who may not see them gets the one that `wchan` tells."""
    if lines := read(f"/proc/{task}/stack").decode().splitlines():
        functions = [line.split("] ")[-1].partition("+")[0] for line in lines]
        return [function for function in functions if not ENTRY.match(function)]
    function = read(f"/proc/{task}/wchan").decode()
    return [function] if function not in ("", "0") else []


def switches_of(task: str) -> list[bytes]:
    """How often a task has got the processor and lost it: unchanged means that it has not run in between."""
    return re.findall(rb"ctxt_switches:\s*(\d+)", read(f"/proc/{task}/status"))


def tasks_of(pid: int, threads: int) -> list[str]:
    """The tasks of a process, as `PID/task/TID`."""
    if threads == 1:
        return [f"{pid}/task/{pid}"]
    try:
        return [f"{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def links_of(pid: int) -> Iterator[tuple[str, str]]:
    """The numbers of what a process has open, and what that is."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield number, os.readlink(f"/proc/{pid}/fd/{number}")


def connection_of(task: str, stack: list[str]) -> str | None:
    """The number of the file system that a task reads or writes a file of, as FUSE has it; None: it does not, or cannot be told.

    Args:
        task: `PID/task/TID`.
        stack: its stack.
    """
    if not any(re.match(r"vfs_(read|write|iter)|do_(read|write)v", function) for function in stack):
        return None
    called = read(f"/proc/{task}/syscall").split()  # its number, and the descriptor
    if len(called) < 2:
        return None
    mount = re.search(rb"mnt_id:\s*(\d+)", read(f"/proc/{task}/fdinfo/{int(called[1], 16)}"))
    lines = read(f"/proc/{task}/mountinfo").split(b"\n")
    devices = [fields[2] for line in lines if mount and (fields := line.split(b" ", 3))[0] == mount[1]]
    return devices[0].decode().partition(":")[2] if devices else None


def connections_of(pid: int) -> Iterator[tuple[str, str]]:
    """The descriptors by which a process serves file systems of FUSE, and their numbers, as far as they can be seen."""
    for link, target in links_of(pid):
        if target == "/dev/fuse":
            for number in re.findall(rb"fuse_connection:\s*(\d+)", read(f"/proc/{pid}/fdinfo/{link}")):
                yield link, number.decode()


def fuse_mounts() -> list[str]:
    """Where something of FUSE is mounted, read without touching it."""
    lines = os.fsdecode(read("/proc/self/mountinfo")).split("\n")
    return [line.split(" ")[4] for line in lines if line.partition(" - ")[2].startswith("fuse.")]
