"""The directory that a bus is mounted on: is it there, is it free, is it still mounted; and how it is unmounted.

Root does nothing by a path: somebody else may own a directory of it, and move what it leads to between two looks. A hung file
system hangs whoever touches it, so everything that can be is read from the kernel's mount table instead.
"""

import contextlib
import ctypes
import logging
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import trio

from futebus.host.mounted import FUSE_TYPE, TABLE, Mount, mount_id, mounted_on, mounts

log = logging.getLogger(__name__)

_libc = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2  # sys/mount.h

LOOKS = 10
"""How often a mount is looked for: whoever owns a directory above it can move it."""

_PATIENCE = 5.0
"""Seconds for a mounted file system to answer before it counts as hung."""


class MountError(Exception):
    """The bus cannot be mounted here. The text is for people."""


class BusLost(Exception):
    """The bus is gone though nobody has unmounted it. The text is for people."""


def prepare(mountpoint: str) -> str:
    """Checks that a bus can be mounted on a directory, and clears away what a dead futebus left there.

    Returns:
        The directory's absolute path without symbolic links.

    Raises:
        MountError: see there.
    """
    try:
        parent, name = os.path.split(os.path.abspath(mountpoint))  # noqa: PTH100 - resolve() would touch the mount itself
    except FileNotFoundError:
        raise MountError(f"{mountpoint}: the working directory, where it begins, has been removed") from None
    path = os.path.join(os.path.realpath(parent), name) if name else "/"  # noqa: PTH118
    if name and (mount := mounted_on(path)) and mount.type.startswith("fuse"):
        _clear(path, mount)
    path = os.path.realpath(path)
    if path == "/":
        raise MountError(f"{mountpoint}: this is the root directory, and a bus would hide everything below it")
    if mount := mounted_on(path):
        if mount.type.startswith("fuse"):
            _clear(path, mount)
        if (still := mounted_on(path)) and still.type == FUSE_TYPE:
            raise MountError(f"{mountpoint}: a bus is mounted here already")
    try:
        is_directory = Path(path).stat() and Path(path).is_dir()
    except OSError as error:
        raise MountError(f"{mountpoint}: {error.strerror}") from None
    if not is_directory:
        raise MountError(f"{mountpoint}: Not a directory")
    return path


def _clear(path: str, mount: Mount) -> None:
    """Unmounts a FUSE file system whose daemon is dead, if it was a futebus."""
    if not _is_dead(path, mount):
        return
    if mount.type != FUSE_TYPE:
        raise MountError(f"{path}: a dead {mount.type} is mounted here; unmount it first (fusermount3 -u)")
    log.warning("%s: taking over the mount of a futebus that is dead", path)
    if error := take_away(mount):
        raise MountError(f"{path}: a dead futebus is mounted here, and: {error}")


def take_away(mount: Mount) -> str:
    """Unmounts exactly this mount, whoever uses it, as root or as the user who mounted it. Returns what is wrong.

    Others than root have fusermount3 do it, by the path: it looks whose the mount is that it finds.
    """
    if os.geteuid() == 0:
        for _ in range(LOOKS):
            here = next((each for each in mounts() if (each.id, each.device) == (mount.id, mount.device)), None)
            if here is None or unmount(here):  # by the path that it has now
                return ""
        return "it cannot be reached by its path"
    try:
        ran = subprocess.run(["fusermount3", "-u", "-z", mount.path], check=False, capture_output=True, text=True)
    except OSError as error:
        return f"fusermount3: {error.strerror}"
    return ran.stderr.strip() if ran.returncode else ""


def unmount(mount: Mount) -> bool:
    """Unmounts exactly this mount, whoever uses it, and no other that has come into its place.

    The path may lead elsewhere by now: whoever owns a directory of it can move it. So what it leads to is looked at first, and
    then that is unmounted and not the path.

    Returns:
        Whether it was there.
    """
    try:
        directory = os.open(mount.path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        if mount_id(directory) != mount.id:
            return False
        return bool(_libc.umount2(f"/proc/self/fd/{directory}".encode(), _MNT_DETACH) == 0)
    finally:
        os.close(directory)


@contextlib.contextmanager
def held(path: str) -> Iterator[str]:
    """A name for a directory that goes on meaning it, whatever becomes of the path.

    Args:
        path: absolute; no part of it is a symbolic link, or it is not what `prepare` has looked at.

    Raises:
        MountError: it is not there any more.
    """
    directory = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        for name in filter(None, path.split("/")):
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        yield f"/proc/self/fd/{directory}"
    except OSError as error:
        raise MountError(f"cannot mount on {path}: {error.strerror}") from None
    finally:
        os.close(directory)


def _is_dead(path: str, mount: Mount) -> bool:
    """Whether a mounted file system is one whose daemon is gone.

    A child process asks, since the question never comes back from a daemon that is alive and hangs, and since only who mounted
    a file system gets an answer, root not excepted.
    """
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0 and mount.owner:
                os.setresgid(*[mount.owner[1]] * 3)
                os.setresuid(*[mount.owner[0]] * 3)
            os.statvfs(path)  # never answered from a cache, as stat(2) is
        except OSError as error:
            os._exit(error.errno if error.errno in (107, 103) else 0)  # ENOTCONN, ECONNABORTED
        finally:
            os._exit(0)
    pidfd = os.pidfd_open(child)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(_PATIENCE * 1000):
            os.kill(child, signal.SIGKILL)
            raise MountError(f"{path}: what is mounted here does not answer; end its daemon, or unmount it (umount -l)")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    finally:
        os.close(pidfd)


async def wait_unmounted(device: str) -> None:
    """Returns when no mount of the device is left in the mount table (`umount -l`, say).

    A lazily unmounted file system goes on for whoever has it open; only the table tells that it is gone.
    """
    table = os.open(TABLE, os.O_RDONLY)
    # The table is always readable; its changes are an exceptional condition, which trio cannot wait for but epoll can.
    changes = select.epoll()
    try:
        changes.register(table, select.EPOLLPRI)
        while any(mount.device == device for mount in mounts(table)):
            await trio.lowlevel.wait_readable(changes)
            changes.poll(0)
    finally:
        trio.lowlevel.notify_closing(changes)
        changes.close()
        os.close(table)
