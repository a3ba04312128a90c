"""The directory that a bus is mounted on: is it there, is it free, is it still mounted; and how it is unmounted.

Root does nothing by a path: somebody else may own a directory of it, and move what it leads to between two looks. A hung file
system hangs whoever touches it, so everything that can be is read from the kernel's mount table instead.

The numbers of a mount are another's as soon as it is gone. So one that is found by them is ours if our connection to the kernel
is still there, or if it is as dead as ours.
"""

import contextlib
import ctypes
import errno
import logging
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from futebus.host.mounted import DEAD, FUSE_TYPE, TABLE, Mount, mount_id, mounted_on, mounts

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
    if _asked(path, mount) not in DEAD:
        return
    if mount.type != FUSE_TYPE:
        raise MountError(f"{path}: a dead {mount.type} is mounted here; unmount it first (fusermount3 -u)")
    log.warning("%s: taking over the mount of a futebus that is dead", path)
    if error := take_away(mount):
        raise MountError(f"{path}: a dead futebus is mounted here, and: {error}")


def take_away(mount: Mount, is_connected: Callable[[], bool] = lambda: False) -> str:
    """Unmounts exactly this mount, whoever uses it, as root or as the user who mounted it. Returns what is wrong.

    Others than root have fusermount3 do it, by the path: it looks whose the mount is that it finds.

    Args:
        mount: it.
        is_connected: tells whether its connection to the kernel is still there. Else it is dead, if it is there.
    """
    if os.geteuid() == 0:
        for _ in range(LOOKS):
            here = _found(mount)
            if here is None or unmount(here, is_connected):  # by the path that it has now
                return ""
        return "it cannot be reached by its path"
    if not is_connected() and not is_left(mount):
        return ""
    try:
        ran = subprocess.run(["fusermount3", "-u", "-z", mount.path], check=False, capture_output=True, text=True)
    except OSError as error:
        return f"fusermount3: {error.strerror}"
    return ran.stderr.strip() if ran.returncode else ""


def is_left(mount: Mount) -> bool:
    """Whether a mount whose connection was cut is still there: one that has its numbers, and no daemon."""
    here = _found(mount)
    if here is None:
        return False
    try:
        directory = os.open(here.path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return True  # out of reach, and whose it is cannot be told
    try:
        return mount_id(directory) != mount.id or _asked(directory, here) != 0
    except MountError:
        return False  # its daemon hangs
    finally:
        os.close(directory)


def _found(mount: Mount) -> Mount | None:
    return next((each for each in mounts() if (each.id, each.device) == (mount.id, mount.device)), None)


def unmount(mount: Mount, is_connected: Callable[[], bool]) -> bool:
    """Unmounts exactly this mount, whoever uses it, and no other that has come into its place.

    The path may lead elsewhere by now: whoever owns a directory of it can move it. So what it leads to is looked at first, and
    then that is unmounted and not the path.

    Args:
        mount: it.
        is_connected: as for `take_away`. It is asked when its numbers cannot become another's any more.

    Returns:
        Whether what has its number was found. It is left alone if it has a daemon that is not ours.
    """
    try:
        directory = os.open(mount.path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        if mount_id(directory) != mount.id:
            return False
        with contextlib.suppress(MountError):  # it hangs
            if is_connected() or _asked(directory, mount) != 0:
                return bool(_libc.umount2(f"/proc/self/fd/{directory}".encode(), _MNT_DETACH) == 0)
        return True
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


def _asked(directory: str | int, mount: Mount) -> int:
    """What a mounted file system answers: 0, or an error number, one of `DEAD` if its daemon is gone; or why nobody can ask.

    A child process asks, since the question never comes back from a daemon that is alive and hangs, and since only who mounted
    a file system gets an answer, root not excepted.

    Args:
        directory: its path, or a descriptor of it.
        mount: it.

    Raises:
        MountError: it does not answer.
    """
    try:
        child = os.fork()
    except OSError as error:
        return error.errno or errno.EAGAIN
    if not child:
        try:
            if os.geteuid() == 0 and mount.owner:
                os.setresgid(*[mount.owner[1]] * 3)
                os.setresuid(*[mount.owner[0]] * 3)
            os.statvfs(directory)  # never answered from a cache, as stat(2) is
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EIO)
        finally:
            os._exit(errno.EIO)
    try:
        pidfd = os.pidfd_open(child)
    except OSError as error:
        os.kill(child, signal.SIGKILL)
        return error.errno or errno.EMFILE
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(_PATIENCE * 1000):
            os.kill(child, signal.SIGKILL)
            raise MountError(f"{mount.path}: what is mounted here does not answer; end its daemon, or unmount it (umount -l)")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
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
