"""A bus that root mounts and an ordinary user serves: what is given up, when, and who unmounts it in the end.

Nothing but mounting and unmounting needs root. So the daemon gives everything up once the bus is mounted, and a process that does
nothing else waits for the daemon's end to unmount it.
"""

import contextlib
import ctypes
import os
import pwd
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from futebus.core.quantities import MOST_ID, natural
from futebus.host.mounted import Mount

from .mountpoint import take_away

_libc = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h, linux/capability.h
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH, _CAP_SYS_ADMIN = 2, 21

_ALL_SIGNALS = set(signal.Signals)


@dataclass(frozen=True)
class User:
    """Who serves the bus."""

    name: str
    uid: int
    gid: int

    @classmethod
    def named(cls, text: str) -> "User":
        """Looks a user up, by name or number.

        Raises:
            KeyError: there is none.
        """
        number = natural(text, MOST_ID)
        entry = pwd.getpwnam(text) if number is None else pwd.getpwuid(number)
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @property
    def groups(self) -> list[int]:
        """All groups that the user is in."""
        return os.getgrouplist(self.name, self.gid)


@contextlib.contextmanager
def mounting_for(user: User) -> Iterator[None]:
    """Inside, what root mounts is the user's: libfuse tells the kernel the real IDs, which need not be those that give the right.

    It is the user, and without allow_other the user alone, whom the kernel lets in then.
    """
    os.setresgid(user.gid, -1, -1)
    os.setresuid(user.uid, -1, -1)
    try:
        yield
    finally:
        os.setresuid(0, -1, -1)
        os.setresgid(0, -1, -1)


def become(user: User) -> None:
    """Gives up everything of root's, for good: IDs, groups, capabilities, and the way back by setuid programs.

    Raises:
        OSError: something of it cannot be given up.
    """
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    _keep_capabilities()
    _call(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # Who was another user cannot be looked into by processes of the new one, unless it says so: the bus holds others' messages.
    _call(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


class Unmounter:
    """The process that stays root. It unmounts the bus when it is told to, or when its daemon is gone in whatever way.

    Args:
        mount: the bus.
    """

    def __init__(self, mount: Mount) -> None:
        until_end, self._end = os.pipe()
        self._process = os.fork()
        if self._process:
            os.close(until_end)
            return
        status = 1
        try:
            _wait_and_unmount(until_end, mount)
            status = 0
        finally:
            os._exit(status)

    def unmount(self, *, is_there: bool) -> None:
        """Has the bus unmounted, whoever uses it, and returns when it is.

        Args:
            is_there: whether it is still mounted. If not, another may have its numbers, and its place, by now.
        """
        if not is_there:
            with contextlib.suppress(OSError):
                os.write(self._end, b"-")
        os.close(self._end)
        os.waitpid(self._process, 0)


def _wait_and_unmount(until_end: int, mount: Mount) -> None:
    # What ends services and terminals must not end this before the daemon has ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    # Everything else, the connection to the kernel above all: while somebody has it, a dead daemon's clients wait.
    os.dup2(until_end, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    Path("/proc/self/comm").write_text("futebus-umount")
    _keep_capabilities(_CAP_SYS_ADMIN, _CAP_DAC_READ_SEARCH)
    if not os.read(3, 1):
        take_away(mount, lambda: True)


def _keep_capabilities(*numbers: int) -> None:
    """Gives up all capabilities of this process but these, and hands none on to programs that it runs."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    bits = sum(1 << number for number in numbers)
    # Twice the effective, the permitted and the inheritable ones: the first 32, then the others.
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    _call(_libc.capset(header, sets))


def _call(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
