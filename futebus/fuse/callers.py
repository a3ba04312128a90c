"""Who makes a request: what the kernel tells of them, and what it does not."""

import os
from pathlib import Path

from pyfuse3 import RequestContext

from futebus.core.channel import Channel
from futebus.core.client import Access, Owner

from .attributes import Root


def owner(ctx: RequestContext) -> Owner:
    """The user, group and process that a request comes from."""
    return Owner(ctx.uid, ctx.gid, process(ctx.pid))


def process(thread: int) -> int:
    """The process that a thread belongs to: the kernel tells of threads, people know processes."""
    try:
        os.close(os.pidfd_open(thread))  # works for the first thread of a process only, whose ID is the process's
    except OSError:
        for process in _status(thread, b"Tgid"):
            return int(process)
    return thread


def _status(thread: int, field: bytes) -> list[bytes]:
    """What proc(5) tells of a thread; nothing if it is gone, or of another PID namespace. It may call itself anything."""
    try:
        status = Path(f"/proc/{thread}/status").read_bytes()
    except OSError:
        return []
    return status.partition(b"\n" + field + b":")[2].partition(b"\n")[0].split()


def may_open(ctx: RequestContext, file: Channel | Root, access: Access) -> bool:
    """Whether the permission bits of a channel, or of the directory, let the caller open it.

    The kernel checks that by itself (default_permissions), unless it believes that it creates the file, or opens it for a call
    that needs no such permission, or goes by the owner whom it had when it was opened.
    """
    wanted = 4 * access.reads | 2 * access.writes
    if ctx.uid == file.uid:
        granted = file.mode >> 6
    elif file.gid == ctx.gid or file.gid in map(int, _status(ctx.pid, b"Groups")):
        granted = file.mode >> 3
    else:
        granted = file.mode
    return ctx.uid == 0 or not wanted & ~granted
