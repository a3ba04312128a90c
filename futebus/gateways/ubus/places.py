"""Where ubus sockets are, how one is put there, and how one that is there is reached.

The one rule: nothing is ever removed that is not a socket, and no socket behind which somebody listens.
"""

import atexit
import contextlib
import enum
import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from ...host.home import home

HOME = ".ipc"
"""The directory, in the user's home, that names without a leading `/` or `./` are in (section 9)."""

DIRECTORY_MODE = 0o700
"""Of directories that are made below it: what is in them is their owner's."""

SOCKET_MODE = 0o600
"""Of sockets: permissions alone say who may connect (section 8)."""

LONGEST = 107
"""Bytes of a socket's path: `sun_path` of unix(7), less the NUL."""

LOCK_SECONDS = 2.0
"""How long others may take to put their socket into the same directory."""

DIAL_SECONDS = 5.0
"""How long a service may take to accept one of those who stand in its queue."""

_LOCK_PAUSE = 0.02
_DIAL_PAUSE = 0.01

GONE = frozenset({errno.ENOENT, errno.ECONNREFUSED})
"""What connecting fails with while nobody listens."""


class Kind(enum.Enum):
    """What a ubus does, by the ending of its name (section 5)."""

    SIGNAL = ".signal"
    METHOD = ".method"
    PROPERTY = ".property"
    REST = ".rest"


def kind_of(name: str) -> Kind | None:
    """The kind of a ubus; None if its name does not tell."""
    return next((kind for kind in Kind if name.endswith(kind.value) and Path(name).name != kind.value), None)


def path_of(name: str) -> Path:
    """The path of a ubus: as it is if it begins with `/` or `./`, else below `~/.ipc`.

    Raises:
        OSError: nobody knows where that is.
    """
    if name.startswith(("/", "./")):
        return Path(name)
    return home() / HOME / name


def make_directories(name: str) -> None:
    """Makes the directories for a ubus, for its user alone, if it is below `~/.ipc`. Others are to be there.

    Raises:
        OSError: that cannot be done.
    """
    if not name.startswith(("/", "./")):
        for directory in (*reversed(path_of(name).parents[: name.count("/") + 1]),):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(DIRECTORY_MODE)


def check_length(path: Path) -> None:
    """Checks that a socket can have this path.

    Raises:
        OSError: `ENAMETOOLONG`, `EINVAL`.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a path with a NUL byte", str(path))
    if len(name) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, f"a socket's path has {LONGEST} bytes at most, and not {len(name)}", str(path))


def _new() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


async def dial(path: Path) -> socket.socket:
    """Connects to a ubus that is there.

    Returns:
        The socket, which does not block.

    Raises:
        OSError: nobody listens, or that is not allowed. It says so at once, and waits only for a place in the service's queue.
    """
    check_length(path)
    sock = _new()
    try:
        end = trio.current_time() + DIAL_SECONDS
        while True:
            try:
                sock.connect(os.fsencode(path))
            except BlockingIOError:  # its queue is full
                if trio.current_time() > end:
                    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(path)) from None
                await trio.sleep(_DIAL_PAUSE)
            except OSError as error:
                raise _named(error, path) from None
            else:
                return sock
    except BaseException:
        sock.close()
        raise


def _named(error: OSError, path: Path) -> OSError:
    number = error.errno or errno.EIO
    words = os.strerror(number)
    if number == errno.ECONNREFUSED:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(path.stat().st_mode):
                return OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK), str(path))
        words = "nobody listens there"
    return OSError(number, words, str(path))


class Place:
    """A socket that listens, for as long as a context lasts.

    Args:
        name: of the ubus.
        mode: the socket's permissions.
        warn: is told what is worth a word.

    Raises:
        OSError: nobody knows where it is to be.
    """

    def __init__(self, name: str, mode: int = SOCKET_MODE, warn: Callable[[str], object] = lambda words: None) -> None:
        self.name = name
        self.path = path_of(name)
        self._mode = mode
        self._warn = warn
        self._identity: tuple[int, int] | None = None
        self._socket: socket.socket | None = None

    @property
    def socket(self) -> socket.socket:
        """What listens."""
        assert self._socket
        return self._socket

    async def open(self) -> None:
        """Puts the socket there.

        Raises:
            GatewayError: somebody listens there already, or something is there that is no socket.
            OSError: that cannot be done.
        """
        check_length(self.path)
        make_directories(self.name)
        with await _locked(self.path.parent):
            self._make_way()
            sock = _new()
            try:
                before = os.umask(0o777 & ~self._mode)
                try:
                    sock.bind(os.fsencode(self.path))
                finally:
                    os.umask(before)
                self._identity = _identity(self.path)
                atexit.register(self._remove)  # if what hangs is left behind, nobody comes to close it
                sock.listen(socket.SOMAXCONN)
            except OSError as error:
                sock.close()
                self._remove()
                raise OSError(error.errno, os.strerror(error.errno or errno.EIO), str(self.path)) from None
            self._socket = sock

    def close(self) -> None:
        """Removes the socket, unless another has come into its place."""
        if self._socket:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._socket = None
        self._remove()

    def _make_way(self) -> None:
        try:
            mode = self.path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise OSError(errno.EEXIST, "something is there that is no socket", str(self.path))
        with _new() as probe:
            try:
                probe.connect(os.fsencode(self.path))
            except BlockingIOError:  # its queue is full: it lives
                pass
            except ConnectionRefusedError:
                self._warn(f"{self.path}: who listened there is dead; its socket is replaced")
                self.path.unlink()
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:  # a socket of another type, of which this tells nothing
                    raise OSError(error.errno, os.strerror(error.errno or errno.EIO), str(self.path)) from None
        raise OSError(errno.EADDRINUSE, "somebody listens there already", str(self.path))

    def _remove(self) -> None:
        atexit.unregister(self._remove)
        with contextlib.suppress(OSError):
            if self._identity is not None and _identity(self.path) == self._identity:
                self.path.unlink()
        self._identity = None


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


async def _locked(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Holds the lock of a directory: of two who find the same dead socket, one replaces it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = trio.current_time() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if trio.current_time() > end:
                    break  # whoever may read a directory can lock it, and keeps nobody from starting by that
                await trio.sleep(_LOCK_PAUSE)
    except BaseException:
        os.close(descriptor)
        raise

    @contextlib.contextmanager
    def held() -> Iterator[None]:
        try:
            yield
        finally:
            os.close(descriptor)

    return held()
