"""Who descends from a process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


def family(pid: int) -> Iterator[tuple[int, str]]:
    """The processes that descend from one, with their command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # Bytes: somebody else's process may be called anything.
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    left = children.get(pid, [])
    while left:
        child = left.pop()
        with contextlib.suppress(OSError):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        left += children.get(child, [])
