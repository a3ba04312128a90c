"""Where an sbus listens: `-a` of sbusd, read as it reads it.

The one rule: what is removed is ours, or nobody's. A socket that somebody listens on is left alone, and at the end only the one
that was made here is taken away. It stands on nothing of trio's: who waits for the address need not wait until that is loaded.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator

ABSTRACT = "/dev/unix/abstract"

PATH_BYTES = 108
"""Of `sun_path` in unix(7). An abstract name takes all of them, since clients connect with all of it."""

LOCK_SECONDS = 1.0
"""How long to wait for others who replace a socket in the same directory. It takes them milliseconds."""


class BadAddress(Exception):
    """An address cannot be listened on. The text is one sentence."""


class Address:
    """A socket that is listened on.

    Args:
        text: `-a`: a path, `/dev/fd/N`, `/dev/unix/abstract` or `/dev/unix/abstract/HEX`.
        mode: the permissions of a socket that is made.
        replaces: whether to remove whatever stands at the path.

    Raises:
        BadAddress: it cannot be.
    """

    def __init__(self, text: str, mode: int = 0o700, *, replaces: bool = False) -> None:
        self.text = text
        """What was asked for."""
        self.told = ""
        """What whoever started this must be told to find it: the address, if it was chosen here."""
        self.is_passed = False
        """Whether the socket has been there before."""
        self._directory = -1
        self._name = b""
        self._made: tuple[int, int] | None = None
        if number := re.fullmatch(r"/dev/fd/([0-9]+)", text, re.ASCII):
            self.is_passed = True
            self.socket = passed(number[1])
            self._listen()
            return
        path = path_of(text)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            # The file gets the mode of the socket, less the umask, so there is no moment with another one.
            os.fchmod(self.socket.fileno(), mode)
            if path is None:
                self._choose()
            elif path.startswith(b"\0"):
                self._bind(path)
            else:
                self._make(path, replaces)
            self._listen()
        except BaseException:
            self.close()
            raise

    def _bind(self, path: bytes) -> None:
        umask = os.umask(0)
        try:
            self.socket.bind(path)
        except OSError as error:
            raise BadAddress(f"{self.text}: {error.strerror or error}") from None
        finally:
            os.umask(umask)

    def _choose(self) -> None:
        while True:
            path = b"\0" + os.urandom(PATH_BYTES - 1)
            try:
                self.socket.bind(path)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise BadAddress(f"{self.text}: {error.strerror}") from None
            self.told = f"{ABSTRACT}/{path.hex()}"
            return

    def _make(self, path: bytes, replaces: bool) -> None:
        parent, self._name = os.path.split(path)
        try:
            self._directory = os.open(parent or b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BadAddress(f"{self.text}: {error.strerror}") from None
        with locked(self._directory) as is_alone:
            if replaces:
                with contextlib.suppress(OSError):  # bind(2) says what is wrong
                    os.unlink(self._name, dir_fd=self._directory)
            elif is_alone and is_left_over(path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._name, dir_fd=self._directory)
            if self._is_no_socket():
                raise BadAddress(f"{self.text}: something is there that is no socket")
            self._bind(path)
            self._made = self._found()
            self._listen()

    def _listen(self) -> None:
        if not self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            try:
                self.socket.listen(socket.SOMAXCONN)
            except OSError as error:
                raise BadAddress(f"{self.text}: {error.strerror}") from None

    def _is_no_socket(self) -> bool:
        """Whether another kind of file has the name."""
        with contextlib.suppress(OSError):  # there is none, or bind(2) says what is wrong
            return not stat.S_ISSOCK(os.stat(self._name, dir_fd=self._directory, follow_symlinks=False).st_mode)
        return False

    def _found(self) -> tuple[int, int] | None:
        """Which file has the name now."""
        with contextlib.suppress(OSError):
            found = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
            return found.st_dev, found.st_ino
        return None

    def close(self) -> None:
        """Stops listening, and takes away the file that was made, unless somebody has put another in its place."""
        self.socket.close()
        if self._made is not None and self._made == self._found():
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._directory)
        self._made = None
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


def path_of(text: str) -> bytes | None:
    """The `sun_path` that an address means; one that begins with a NUL is abstract. None if one is to be chosen.

    Raises:
        BadAddress: it is too long, or empty.
    """
    if text == ABSTRACT:
        return None
    number = text.removeprefix(ABSTRACT + "/")
    if number != text and len(number) % 2 == 0 and re.fullmatch(r"[0-9A-Fa-f]*", number, re.ASCII):
        path = bytes.fromhex(number)
        if len(path) > PATH_BYTES:
            raise BadAddress(f"{text}: an address has at most {PATH_BYTES} bytes, two digits each")
        if not path.startswith(b"\0") and path:
            return path.partition(b"\0")[0]
        return path.ljust(PATH_BYTES, b"\0")
    path = os.fsencode(text)
    if not path:
        raise BadAddress("an empty path is no address")
    if len(path) >= PATH_BYTES:
        raise BadAddress(f"{text}: the path of a socket has at most {PATH_BYTES - 1} bytes")
    return path


def passed(number: str) -> socket.socket:
    """A socket that this program was started with.

    Raises:
        BadAddress: it is none, or of another kind.
    """
    try:
        # Not one of the three that are closed when all is ready.
        descriptor = fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 3)
    except (OSError, OverflowError, ValueError):
        raise BadAddress(f"/dev/fd/{number}: there is no such descriptor") from None
    try:
        taken = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise BadAddress(f"/dev/fd/{number} is no socket") from None
    if taken.family != socket.AF_UNIX or taken.type != socket.SOCK_SEQPACKET:
        taken.close()
        raise BadAddress(f"/dev/fd/{number} is no SOCK_SEQPACKET socket of the machine")
    if int(number) > 2:
        with contextlib.suppress(OSError):
            os.close(int(number))
    return taken


@contextlib.contextmanager
def locked(directory: int) -> Iterator[bool]:
    """Keeps others from replacing sockets in a directory meanwhile.

    Yields:
        Whether that was possible. Who can read a directory can also keep us from it, and is not waited for.
    """
    end = time.monotonic() + LOCK_SECONDS
    is_locked = False
    while not is_locked and time.monotonic() < end:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            break
    try:
        yield is_locked
    finally:
        if is_locked:
            fcntl.flock(directory, fcntl.LOCK_UN)


def is_left_over(path: bytes) -> bool:
    """Whether there is a socket that nobody listens on: its server was killed."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as trial:
            trial.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
