"""The directory of a spool and the files in it, for who writes them.

The one rule: a name leads to a file of ours in this very directory, or to none. Nobody else can say what is written, whoever owns
the directories above: no symbolic link is followed, and no file that is written is somebody else's or has another name elsewhere.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Container, Iterator
from pathlib import Path

from ..host.durable import sync, sync_name, write_all
from .layout import PLAIN, NotASpool, names_in

OWN_MODE = 0o700
"""The permissions of a directory that is made: what is said on a channel may be for few."""

OWN_FILE_MODE = 0o600
"""The permissions of a file that is for its owner alone, whoever may read the directory."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when there is no room: it may come."""

_BEGUN = re.compile(r"[0-9]{20}\.(lines|new)")

WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def check_mode(mode: int) -> None:
    """Checks permissions that somebody wants for a directory.

    Raises:
        ValueError: its owner could not use it, or others could write to it.
    """
    if mode & ~0o777 or mode & OWN_MODE != OWN_MODE or mode & WRITABLE:
        raise ValueError(f"everything is for the owner, and writing for nobody else, as with 700, 750 or 755; not {mode:o}")


@contextlib.contextmanager
def blamed(path: Path) -> Iterator[None]:
    """An error has the name of a file: by that the caller knows that it is the spool's and not the channel's."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def close_all(*descriptors: int) -> None:
    """Closes those of them that are open (not -1), each of them also when closing another fails or is interrupted.

    Raises:
        OSError: as close(2), of one of them.
    """
    with contextlib.ExitStack() as stack:
        for descriptor in descriptors:
            if descriptor >= 0:
                stack.callback(os.close, descriptor)


class Directory:
    """The directory of a spool, open. It is made if need be.

    Args:
        path: where it is; the directory above must be there.
        mode: the permissions that it gets if it is made, whatever the umask.

    Raises:
        NotASpool: it is none that this user alone can write to.
        OSError: as the system says.
    """

    def __init__(self, path: Path, mode: int = OWN_MODE) -> None:
        check_mode(mode)
        self.path = path
        self.descriptor = self._open(mode)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _open(self, mode: int) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # somebody else has just made it
                    self.path.mkdir(OWN_MODE)
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            if self.path.parent.is_dir():
                raise NotASpool(f"{self.path} has been removed, or moved, as soon as it was made") from None
            raise NotASpool(f"{self.path.parent} does not exist") from None
        except NotADirectoryError:
            if self.path.is_symlink():
                raise NotASpool(f"{self.path} is a symbolic link, and no directory") from None
            raise NotASpool(f"{self.path} is no directory") from None
        try:
            # Who owns the directory above may have put another one in its place; that keeps its mode.
            if self._is_ours(os.fstat(descriptor)) and not names_in(descriptor):
                os.fchmod(descriptor, mode)
            sync_name(self.path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _is_ours(self, status: os.stat_result) -> bool:
        return status.st_uid in (0, os.geteuid())

    def _check(self) -> None:
        status = os.fstat(self.descriptor)
        if not self._is_ours(status):
            raise NotASpool(f"{self.path} belongs to another user ({status.st_uid}), who could write to it")
        if status.st_mode & WRITABLE:
            raise NotASpool(f"others can write to {self.path}, and so to what a spool has: chmod go-w changes that")
        self.file_mode = status.st_mode & 0o666
        """The permissions that files get: those of the directory."""

    def names(self) -> list[str]:
        """What is in it."""
        return names_in(self.descriptor)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, mode: int | None = None) -> int:
        """Makes an empty file, in place of one of the same name. Returns a descriptor to read and write it.

        Args:
            name: its.
            mode: its permissions; None: those that files have here.
        """
        self.remove(name)
        return self._create(name, mode)

    def _create(self, name: str, mode: int | None = None) -> int:
        mode = self.file_mode if mode is None else mode
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, mode, dir_fd=self.descriptor)
        try:
            os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, name: str, *, creates_with: int | None = None) -> int:
        """Opens a file to read and write it.

        Args:
            name: which one.
            creates_with: the permissions that it is made with if it is not there; None: it is there.

        Raises:
            NotASpool: it is something that this user may not own, or not alone.
            OSError: as open(2).
        """
        if creates_with is not None:
            with contextlib.suppress(FileExistsError, PermissionError):  # or the file system has no permissions
                return self._create(name, creates_with)
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotASpool(f"{self.path / name} is a symbolic link, and no file") from None
            if error.errno == errno.EISDIR:
                raise NotASpool(f"{self.path / name} is a directory, and no file") from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        try:
            self._check_file(name, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_file(self, name: str, status: os.stat_result) -> None:
        file = self.path / name
        if not stat.S_ISREG(status.st_mode):
            raise NotASpool(f"{file} is no file")
        if not self._is_ours(status):
            raise NotASpool(f"{file} belongs to another user ({status.st_uid})")
        if status.st_nlink > 1:
            raise NotASpool(f"{file} has another name somewhere (a hard link), and what is written would be there too")

    def replace(self, name: str, content: bytes, mode: int | None = None) -> None:
        """Gives a file new content, or leaves the old one. It is on the disk when this returns. See `create`."""
        new = f"{name}.new"
        descriptor = self.create(new, mode)
        try:
            write_all(descriptor, content)
        finally:
            os.close(descriptor)
        self.rename(new, name)
        self.sync()

    def rename(self, name: str, to: str) -> None:
        """Gives a file another name, which may have been another's."""
        os.rename(name, to, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def cut(self, name: str, size: int) -> None:
        """Gives back the disk space of a file behind so many bytes."""
        descriptor = self.open(name)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def remove_segment(self, first: int) -> None:
        """Removes a segment. Without an index, lines are none."""
        self.remove(f"{first:020d}.index")
        self.remove(f"{first:020d}.lines")

    def remove_begun(self, kept: Container[str]) -> None:
        """Removes the files of segments that were begun by a writer that was killed before there was an index.

        Args:
            kept: names of files that stay: there are lines in them.
        """
        for name in self.names():
            is_begun = _BEGUN.fullmatch(name) and int(name[:20]) < PLAIN and name not in kept
            if is_begun and (name.endswith(".new") or not self.has(f"{name[:20]}.index")):
                with contextlib.suppress(IsADirectoryError):  # that is nobody's whom we know
                    self.remove(name)

    def sync(self, name: str | None = None) -> None:
        """Has a file on the disk, or which files there are."""
        if name is None:
            os.fsync(self.descriptor)
            return
        sync(name, dir_fd=self.descriptor)

    def is_at(self, path: Path) -> bool:
        """Whether this is what a path leads to."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self.descriptor), path.stat())
        return False

    def close(self) -> None:
        """Lets go of it."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
