"""Who may write a spool: one process at a time."""

import contextlib
import fcntl
import io
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from ..host.processes import in_words
from .files import OWN_FILE_MODE, OWN_MODE, Directory
from .layout import FORMAT, IDENTITY, LOCK, ForeignSpool, Identity, NotASpool, SpoolError, SpoolInUse, read_identity
from .reader import Spool

LOOK_SECONDS = 0.02
"""How often it is tried, while somebody else has it."""

GONE_SECONDS = 1.0
"""For how long it is tried again, without patience too, where it is removed again and again."""


class _Gone(NotASpool):
    """What was locked is not there any more: there may be another one now."""


_MAY_BE_GONE = (NotASpool, FileNotFoundError)
"""What is found where a spool is just being removed."""


def is_in_use(path: Path, channel: str) -> bool:
    """Whether somebody writes the spool of a channel, as far as this user can tell. Nothing is made or changed.

    Args:
        path: the directory.
        channel: the name of the channel. Another one's spool can be had neither now nor later, so it counts as not in use.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        with contextlib.suppress(NotASpool):  # it may just be begun
            if read_identity(path).channel != channel:
                return False
        with open(path / LOCK, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
            if os.fstat(file.fileno()).st_uid in (0, os.geteuid()):  # else it is no spool of ours, and its owner could hold us up
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


class SpoolLock:
    """The right to write a spool, which is created if need be. Children that were forked meanwhile share it.

    Args:
        path: the directory; its parents must exist.
        channel: the name of the channel.
        mode: the permissions of the directory, if it is made. Files have the same, but cannot be executed.
        patience: seconds for which it is waited for. Who was killed a moment ago may still be about to end, and so may the
            children that share it. What is locked then is what is there then: it may have been removed meanwhile.

    Raises:
        ForeignSpool: it is the spool of another channel.
        NotASpool: the directory has something else in it, or others can write to it.
        SpoolInUse: somebody else writes it.
        OSError: as the system says, `ENOSPC` among others.
    """

    def __init__(self, path: str | os.PathLike[str], channel: str, *, mode: int = OWN_MODE, patience: float = 0) -> None:
        self.path = Path(path)
        self.channel = channel
        self._file: io.FileIO | None = None
        self._noting = threading.Lock()
        self._was_in_use = False
        """Whether somebody had it when it was tried before. He may just remove it, and that takes him a while."""
        began = time.monotonic()
        while not self._has_taken(mode, time.monotonic() - began - patience):
            time.sleep(LOOK_SECONDS)

    def __del__(self) -> None:
        # Whom an interrupt has kept from closing it should not be in its own way.
        if hasattr(self, "directory"):
            self.close()

    @property
    def id(self) -> str:
        """The spool's identity."""
        return self.identity.id

    def _has_taken(self, mode: int, late: float) -> bool:
        """Tries to get the right.

        Args:
            mode: of the directory, if it is made.
            late: for how many seconds patience has been over.

        Returns:
            Whether it is ours; or else it is to be tried again.
        """
        self.directory = Directory(self.path, mode)
        try:
            self._take()
            self.identity = self._identify()
        except BaseException as error:
            self._was_in_use = self._was_in_use or isinstance(error, SpoolInUse)
            has_gone = isinstance(error, _Gone) or not self.directory.is_at(self.path)
            self.close()
            if late < 0 and self._was_in_use and isinstance(error, (SpoolInUse, *_MAY_BE_GONE)):
                return False
            if late < GONE_SECONDS and has_gone and isinstance(error, _MAY_BE_GONE):
                return False
            raise
        return True

    def _take(self) -> None:
        # Who was killed while it began one may have left its first two files.
        others = {*self.directory.names()} - {LOCK, IDENTITY + ".new"}
        if others and IDENTITY not in others:
            raise NotASpool(f"{self.path} is no spool, and not empty")
        # Who can read it can lock it. Whoever may read the lines should not be able to keep them from being written.
        self._file = io.FileIO(self.directory.open(LOCK, creates_with=OWN_FILE_MODE), "r+")
        with contextlib.suppress(PermissionError):  # it is root's, or the file system has no permissions
            os.fchmod(self._file.fileno(), OWN_FILE_MODE)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(NotASpool, OSError):  # it may just be begun
                if (other := read_identity(self.path, self.directory.descriptor).channel) != self.channel:
                    raise ForeignSpool(self._foreign(other)) from None  # it need not be waited for
            raise SpoolInUse(f"{self.path} is being written by {self._holder()}") from None
        if not self._is_there():  # who had it may have removed the spool
            raise _Gone(f"{self.path} has been removed, or moved")
        self.sign()

    def _holder(self) -> str:
        """Who has it, for people."""
        assert self._file is not None
        return in_words(os.pread(self._file.fileno(), 32, 0))

    def sign(self) -> None:
        """Notes this process as the one that writes, for people who ask."""
        assert self._file is not None
        with contextlib.suppress(OSError):  # a full disk is no reason not to write where there is still room
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), f"{os.getpid()}\n".encode(), 0)

    def _identify(self) -> Identity:
        self.directory.remove(IDENTITY + ".new")
        if not self.directory.has(IDENTITY):
            self.directory.replace(IDENTITY, Identity(FORMAT, str(uuid.uuid4()), self.channel).encoded())
        return self.read_again()

    def read_again(self) -> Identity:
        """What the spool says of itself now: another process with this lock may have noted something."""
        with self._noting:
            self.identity = read_identity(self.path, self.directory.descriptor)
        if self.identity.channel != self.channel:
            # Somebody may have mistyped the channel's name before. It is not for us to tell that nobody has this spool open.
            hint = "; it has no lines, so rm -r takes it out of the way" if self._has_no_lines() else ""
            raise ForeignSpool(self._foreign(self.identity.channel) + hint)
        return self.identity

    def _foreign(self, other: str) -> str:
        return f"{self.path} is the spool of {other}, not of {self.channel}"

    def _has_no_lines(self) -> bool:
        try:
            last = Spool(self.path).last
        except (SpoolError, OSError):
            return False
        return not (last.line or last.lost)

    def note(self, **changes: Any) -> None:
        """Has the spool say something else of itself, from now on and after a loss of power. Any thread may call it.

        Args:
            changes: fields of `Identity`.
        """
        with self._noting:
            identity = self.identity._replace(**changes)
            if identity != self.identity:
                self.directory.replace(IDENTITY, identity.encoded())
                self.identity = identity

    def check(self) -> None:
        """Checks that what is locked is still what is there.

        Raises:
            NotASpool: the directory has been removed, or is another one now.
        """
        if not self._is_there():
            raise NotASpool(f"{self.path} has been removed, or moved, while it was written")

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            lock = os.stat(LOCK, dir_fd=self.directory.descriptor, follow_symlinks=False)
            if self._file and os.path.samestat(os.fstat(self._file.fileno()), lock):
                return self.directory.is_at(self.path)
        return False

    def keep(self) -> bool:
        """Sees to it that the spool still says whose it is: without that it would be none. For the process that writes lines.

        Returns:
            Whether that was gone, and is there again.
        """
        with contextlib.suppress(OSError):  # it is tried again
            try:
                read_identity(self.path, self.directory.descriptor)
            except NotASpool:
                with self._noting:
                    self.directory.replace(IDENTITY, self.identity.encoded())
                return True
        return False

    def close(self) -> None:
        """Gives the right up. Children that share it still have it."""
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self.directory.close()
