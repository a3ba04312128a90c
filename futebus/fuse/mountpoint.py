"""The directory that a bus is mounted on: is it there, is it free, is it still mounted; and how it is unmounted.

Root does nothing by a path: somebody else may own a directory of it, and move what it leads to between two looks. A hung file
system hangs whoever touches it, so everything that can be is read from the kernel's mount table instead.

The numbers of a mount are another's as soon as it is gone. So one that is found by them is ours if our connection to the kernel
is still there, or if it is as dead as ours.
"""

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Self

import trio

from futebus.core.text import printable
from futebus.host.mounted import DEAD, FUSE_TYPE, TABLE, Mount, mount_id, mounted_on, mounts

log = logging.getLogger(__name__)

_libc = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2  # sys/mount.h

LOOKS = 10
"""How often a mount is looked for: whoever owns a directory above it can move it."""

_PATIENCE = 5.0
"""Seconds for a mounted file system to answer before it counts as hung; and for another futebus to mount its bus."""

_PAUSE = 0.01
"""Seconds between two tries of something that others keep from being done for a moment."""

_PROGRAMS = "/usr/bin:/bin:/usr/local/bin"
"""Where fusermount3 is, if not in the PATH."""


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
    if error := take_away(mount):
        raise MountError(f"{path}: a dead futebus is mounted here, and: {error}")
    if _found(mount) is None:  # or another that begins now was quicker, and has its numbers
        log.warning("%s: taking over the mount of a futebus that is dead", printable(path))


def take_away(mount: Mount, is_connected: Callable[[], bool] = lambda: False) -> str:
    """Unmounts exactly this mount, whoever uses it, as root or as the user who mounted it, and no other in its place.

    Its path may lead elsewhere by now: whoever owns a directory of it can move it. So what it leads to is looked at first. Root
    unmounts that. Others have fusermount3 do it, which takes what the path leads to when it gets there.

    Args:
        mount: it.
        is_connected: tells whether its connection to the kernel is still there. Else it is dead, if it is there. It is asked
            when the numbers of the mount cannot become another's any more.

    Returns:
        What is wrong. Nothing is, if what has its numbers has a daemon that is not ours: it is left alone.
    """
    wrong = ""
    for _ in range(LOOKS):
        here = _found(mount)  # by the path that it has now
        if here is None:
            return ""
        with _opened(here) as directory:
            if directory is None:
                wrong = "it cannot be reached by its path"
            elif not _is_ours(directory, here, is_connected) or not (wrong := _detach(directory, here.path)):
                return ""
        time.sleep(_PAUSE)
    return wrong


def take_dead(path: str) -> str:
    """Unmounts a bus that nobody serves. It may be about to be mounted: fusermount3 goes on when who has asked it was killed.

    Args:
        path: where that is, as `prepare` has it.

    Returns:
        What is wrong. Nothing is, if there is none.
    """
    for _ in range(LOOKS):
        mount = mounted_on(path)
        if mount and mount.type == FUSE_TYPE:
            with contextlib.suppress(MountError):  # it hangs
                if _asked(path, mount) in DEAD:
                    return take_away(mount)
            return ""
        time.sleep(_PAUSE)
    return ""


def _is_ours(directory: int, mount: Mount, is_connected: Callable[[], bool]) -> bool:
    """Whether a mount that has our numbers is ours, or dead. `directory` is its own."""
    with contextlib.suppress(MountError):  # it hangs
        return is_connected() or _asked(directory, mount) != 0
    return False


def _detach(directory: int, path: str) -> str:
    """Unmounts what a descriptor and a path lead to, whoever uses it. Returns what is wrong."""
    if os.geteuid() == 0:
        if _libc.umount2(f"/proc/self/fd/{directory}".encode(), _MNT_DETACH):
            return os.strerror(ctypes.get_errno())
        return ""
    # A service has a PATH of its own choice, and a line of fstab none. libfuse, which has mounted it, needs none.
    program = shutil.which("fusermount3", path=f"{os.environ.get('PATH', '')}:{_PROGRAMS}") or "fusermount3"
    try:
        ran = subprocess.run([program, "-u", "-z", path], check=False, capture_output=True)
    except OSError as error:
        return f"fusermount3: {error.strerror}"
    words = os.fsdecode(ran.stderr).strip()
    return (words or f"fusermount3 has failed ({ran.returncode})") if ran.returncode else ""


def is_left(mount: Mount) -> bool:
    """Whether a mount whose connection was cut is still there: one that has its numbers, and no daemon."""
    for _ in range(LOOKS):
        here = _found(mount)
        if here is None:
            return False
        with _opened(here) as directory:
            try:
                if directory is not None and _asked(directory, here) == 0:  # out of reach, whose it is cannot be told
                    return False
            except MountError:
                return False  # its daemon hangs
            if _found(mount) == here:
                return True
        # Another one has had its numbers, and was unmounted while it was looked at: that is not dead, but gone. Or it was moved.
    return True


def _found(mount: Mount) -> Mount | None:
    """What has a mount's numbers, and could be it: its path may be another by now."""
    return next((each for each in mounts() if each._replace(path=mount.path) == mount), None)


@contextlib.contextmanager
def _opened(mount: Mount) -> Iterator[int | None]:
    """A descriptor of what a mount's path leads to, if that is a mount of its number. While it is open, no other gets that."""
    try:
        directory = os.open(mount.path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield directory if mount_id(directory) == mount.id else None
    finally:
        os.close(directory)


@contextlib.contextmanager
def alone(path: str) -> Iterator[None]:
    """Inside, no other futebus mounts a bus on a directory: of two that begin at the same time, one finds that of the other.

    Args:
        path: as for `held`.

    Raises:
        MountError: a bus is mounted there already.
    """
    with held(path) as name:
        lock = None
        # What may be another's bus by now is not asked anything.
        if mount_id(int(Path(name).name)) not in {mount.id for mount in mounts() if mount.type == FUSE_TYPE}:
            with contextlib.suppress(OSError):  # others than its owner may not be able to read it; they cannot mount there either
                lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            end = time.monotonic() + _PATIENCE
            while lock is not None and time.monotonic() < end:  # whoever can read it can keep it locked
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_PAUSE)
                except OSError:  # this file system has no locks
                    break
            if (mount := mounted_on(path)) and mount.type == FUSE_TYPE:
                raise MountError(f"{path}: a bus is mounted here already")
            yield
        finally:
            if lock is not None:
                os.close(lock)


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
    """What a mounted file system answers: see `Asking`.

    Raises:
        MountError: it does not answer.
    """
    try:
        asking = Asking(directory, mount.owner if os.geteuid() == 0 else None)
    except OSError as error:
        return error.errno or errno.EAGAIN
    with asking:
        poller = select.poll()
        poller.register(asking.pidfd, select.POLLIN)
        if not poller.poll(_PATIENCE * 1000):
            raise MountError(f"{mount.path}: what is mounted here does not answer; end its daemon, or unmount it (umount -l)")
        return asking.answer()


class Asking:
    """A process that asks a mounted file system something, which every other answers at once, or with an error.

    The question never comes back from a daemon that is alive and hangs. And it cannot be taken back: who is killed while it is on
    its way stays, with all that it has open, until it is answered. So the process has nothing open, above all no connection of a
    daemon to the kernel: the daemon's own question would keep that there for ever.

    Args:
        directory: the path of the file system, or a descriptor of it.
        owner: the user and the group to ask as: only who mounted a file system gets an answer for sure, root not excepted.

    Raises:
        OSError: there can be no such process.
    """

    def __init__(self, directory: str | int, owner: tuple[int, int] | None = None) -> None:
        self._process = os.fork()
        if not self._process:
            _ask(directory, owner)
        try:
            self.pidfd = os.pidfd_open(self._process)
            """Readable when it has been answered."""
        except BaseException:
            os.kill(self._process, signal.SIGKILL)
            raise

    def answer(self) -> int:
        """0, or an error number: one of `DEAD` if the daemon is gone. Waits for it."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        self._process = 0
        return status if status >= 0 else errno.EIO

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process:
            os.kill(self._process, signal.SIGKILL)
        os.close(self.pidfd)


def _ask(directory: str | int, owner: tuple[int, int] | None) -> NoReturn:
    number = errno.EIO
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))  # what they do is for the process that this one was
        if isinstance(directory, int):
            [directory] = kept(directory)
        else:
            kept()
        if owner:
            os.setresgid(*[owner[1]] * 3)
            os.setresuid(*[owner[0]] * 3)
        os.statvfs(directory)  # never answered from a cache, as stat(2) is
        number = 0
    except OSError as error:
        number = error.errno or errno.EIO
    finally:
        os._exit(number)


def kept(*descriptors: int) -> list[int]:
    """Closes all but the standard ones and these, which get the numbers from 3 on."""
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, 3 + len(descriptors)) for each in descriptors]
    for number, each in enumerate(above, 3):
        os.dup2(each, number)
    os.closerange(3 + len(descriptors), os.sysconf("SC_OPEN_MAX"))
    return [*range(3, 3 + len(descriptors))]


def is_mounted(device: str, table: int | None = None) -> bool:
    """Whether a mount of a device is in the mount table.

    Args:
        device: its numbers.
        table: an open one.
    """
    return any(mount.device == device for mount in mounts(table))


async def wait_unmounted(device: str) -> None:
    """Returns when no mount of the device is left in the mount table (`umount -l`, say).

    A lazily unmounted file system goes on for whoever has it open; only the table tells that it is gone.
    """
    table = os.open(TABLE, os.O_RDONLY)
    # The table is always readable; its changes are an exceptional condition, which trio cannot wait for but epoll can.
    changes = select.epoll()
    try:
        changes.register(table, select.EPOLLPRI)
        while is_mounted(device, table):
            await trio.lowlevel.wait_readable(changes)
            changes.poll(0)
    finally:
        trio.lowlevel.notify_closing(changes)
        changes.close()
        os.close(table)
