"""A bus that root mounts and an ordinary user serves: what is given up, when, and who unmounts it in the end.

Nothing but mounting and unmounting needs root. So the daemon gives everything up once the bus is mounted, and a process that does
nothing else waits for the daemon's end to unmount it.
"""

import contextlib
import ctypes
import json
import os
import pwd
import select
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from futebus.core.quantities import MOST_ID, natural
from futebus.host.mounted import Mount

from .mountpoint import kept, take_away, take_dead

_libc = ctypes.CDLL(None, use_errno=True)

# linux/prctl.h, linux/capability.h
_PR_SET_DUMPABLE, _PR_SET_NAME, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 15, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH, _CAP_KILL, _CAP_SETGID, _CAP_SETUID, _CAP_SYS_ADMIN = 2, 5, 6, 7, 21

_ALL_SIGNALS = set(signal.Signals)

_CONNECTED, _GONE = b"+", b"-"
"""What the unmounter is told: the bus is there, and so is its daemon; or not, and then something else may have its numbers."""


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
    """The process that stays who mounts the bus. It unmounts it when it is told to, or when its daemon is gone in whatever way.

    It is there before the bus, or a daemon that is killed in between would leave it.

    Args:
        path: where the bus is to be mounted.

    Raises:
        OSError: there can be no such process.
    """

    def __init__(self, path: str) -> None:
        until_end, self._end = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        daemon = os.pidfd_open(os.getpid())
        self._process = os.fork()
        if self._process:
            os.close(until_end)
            os.close(daemon)
            return
        status = 1
        try:
            status = 1 if _wait_and_unmount(until_end, daemon, path) else 0
        finally:
            os._exit(status)

    def tell(self, mount: Mount) -> None:
        """Tells it what has been mounted."""
        os.write(self._end, json.dumps(mount).encode())

    def unmount(self, is_connected: Callable[[], bool] | None) -> bool:
        """Has the bus unmounted, whoever uses it. Returns whether it is.

        Args:
            is_connected: as for `take_away`; None: it is not mounted any more.
        """
        with contextlib.suppress(OSError):
            os.write(self._end, _CONNECTED if is_connected else _GONE)
            while is_connected and os.read(self._end, 1):
                os.write(self._end, _CONNECTED if is_connected() else _GONE)
        os.close(self._end)
        return os.waitpid(self._process, 0)[1] == 0


def _wait_and_unmount(until_end: int, daemon: int, path: str) -> str:
    """Returns what is wrong in the end."""
    # What ends services and terminals must not end this before the daemon has ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    # Everything else, the connection to the kernel above all: while somebody has it, a dead daemon's clients wait.
    until_end, daemon = kept(until_end, daemon)
    _call(_libc.prctl(_PR_SET_NAME, b"futebus-umount", 0, 0, 0))
    if os.geteuid() == 0:
        # To unmount, to reach the directory, and to ask for the user, since who else asks a mount of his is told nothing; and to
        # end who asks if there is no answer.
        _keep_capabilities(_CAP_SYS_ADMIN, _CAP_DAC_READ_SEARCH, _CAP_SETGID, _CAP_SETUID, _CAP_KILL)
    row, told = _heard(until_end)
    if told == _GONE:
        return ""

    def is_connected() -> bool:
        with contextlib.suppress(OSError):
            os.write(until_end, b"?")
            if answer := os.read(until_end, 1):
                return answer == _CONNECTED
        # The daemon was killed. Its connection is cut when all of it has ended, and what answers then is another bus.
        select.select([daemon], [], [])
        return False

    if not told:
        select.select([daemon], [], [])
    return take_away(row, is_connected) if row else take_dead(path)


def _heard(until_end: int) -> tuple[Mount | None, bytes]:
    """What the daemon has told before its end: what has been mounted, if it is known, and the word for how that is."""
    row = told = b""
    while not told and (packet := os.read(until_end, 65_536)):
        if packet in (_CONNECTED, _GONE):
            told = packet
        else:
            row = packet
    try:
        number, device, path, kind, owner = json.loads(row)
    except ValueError:  # it was killed before it could say so
        return None, told
    return Mount(number, device, path, kind, owner and tuple(owner)), told


def _keep_capabilities(*numbers: int) -> None:
    """Gives up all capabilities of this process but these, as far as it has them, and hands none on to programs that it runs."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Twice the effective, the permitted and the inheritable ones: the first 32, then the others.
    sets = (ctypes.c_uint32 * 6)()
    _call(_libc.capget(header, sets))
    bits = sum(1 << number for number in numbers) & sets[1]
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    _call(_libc.capset(header, sets))


def _call(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
