"""Who may write a spool: one process at a time."""

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path

from .layout import FORMAT, IDENTITY, LOCK, ForeignSpool, NotASpool, SpoolInUse, sync
from .reader import Spool


class SpoolLock:
    """The right to write a spool, which is created if need be. Children that were forked meanwhile share it.

    Args:
        path: the directory; its parents must exist.
        channel: the name of the channel.

    Raises:
        ForeignSpool: it is the spool of another channel.
        NotASpool: the directory has something else in it.
        SpoolInUse: somebody else writes it.
        OSError: as the system says, `ENOSPC` among others.
    """

    def __init__(self, path: str | os.PathLike[str], channel: str) -> None:
        self.path = Path(path)
        self.channel = channel
        self._file = self._take()
        try:
            self.id = self._identify()
        except BaseException:
            self.close()
            raise

    def _take(self) -> int:
        try:
            if not self.path.is_dir():
                self.path.mkdir()
            # Who was killed while it began one may have left its first two files.
            others = {entry.name for entry in self.path.iterdir()} - {LOCK, IDENTITY + ".new"}
            if others and IDENTITY not in others:
                raise NotASpool(f"{self.path} is no spool, and not empty")
        except FileNotFoundError:
            raise NotASpool(f"{self.path.parent} does not exist") from None
        except (FileExistsError, NotADirectoryError):
            raise NotASpool(f"{self.path} is no directory") from None
        lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise SpoolInUse(f"{self.path} is being written by {f'process {holder}' if holder else 'another process'}") from None
        self._file = lock
        self.sign()
        return lock

    def sign(self) -> None:
        """Notes this process as the one that writes, for people who ask."""
        with contextlib.suppress(OSError):  # a full disk is no reason not to write where there is still room
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _identify(self) -> str:
        file = self.path / IDENTITY
        if not file.exists():
            new = self.path / (IDENTITY + ".new")
            new.write_text(json.dumps({"format": FORMAT, "id": str(uuid.uuid4()), "channel": self.channel}) + "\n")
            sync(new)
            new.rename(file)
            sync(self.path)
        spool = Spool(self.path)
        if spool.channel != self.channel:
            raise ForeignSpool(f"{self.path} is the spool of {spool.channel}, not of {self.channel}")
        return spool.id

    def check(self) -> None:
        """Checks that what is locked is still what is there.

        Raises:
            NotASpool: the directory has been removed, or is another one now.
        """
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file), (self.path / LOCK).stat()):
                return
        raise NotASpool(f"{self.path} has been removed while it was written")

    def close(self) -> None:
        """Gives the right up. Children that share it still have it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
