"""Whose an archive is: the directories that it begins with, and the lock of who writes it.

The one rule: one process writes an archive, and who could not begin leaves nothing behind.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..host.durable import sync_name
from ..spark.source.drains import remove
from .archive import HIDDEN
from .order import Order
from .storage import ArchiveError

LOCK = "lock"


@contextlib.contextmanager
def guarded(order: Order) -> Iterator[None]:
    """Has an archive's directories there, and nobody else write it.

    Another host is not seen: of such a one, Spark's checkpoint is the guard.

    Raises:
        ArchiveError: another process writes it, or something is in the way of a directory.
        OSError: a directory cannot be made.
    """
    hidden = Path(order.root) / HIDDEN
    wanted = [hidden.parent, hidden] if order.is_local else []
    if not order.is_external and order.stream is None:
        wanted.append(order.spools)
    made: list[Path] = []
    try:
        made += (each for each in wanted if _make(each))
    except (ArchiveError, OSError) as error:
        _unmake(made)
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise ArchiveError(f"{error.filename} is no directory") from None
        raise
    lock = hidden / LOCK
    with _held(lock, order.root) if order.is_local else contextlib.nullcontext():
        try:
            yield
        except BaseException:
            if order.spools in made:
                _unmake_spools(order.spools, hidden)
            _unmake(made, lock)
            raise


@contextlib.contextmanager
def _held(lock: Path, root: str) -> Iterator[None]:
    # Of a pipe in its place nobody would ever answer, and what a link leads to is not ours.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(lock, flags, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file).st_nlink:
                raise BlockingIOError  # who had it could not begin, and has just removed it
        except BlockingIOError:
            raise ArchiveError(f"{root} is being written by another futebus-archive") from None
        yield
    finally:
        os.close(file)


def _make(directory: Path) -> bool:
    """Makes a directory if it is not there; not the one above it: if that is missing it is a slip, or a disk that is not mounted.

    Returns:
        Whether it was not there.

    Raises:
        ArchiveError: there is none above it.
        OSError: it cannot be made.
    """
    is_new = not directory.exists()
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise ArchiveError(f"{directory.parent} does not exist") from None
    if is_new:
        sync_name(directory)
    return is_new


def _unmake_spools(spools: Path, hidden: Path) -> None:
    """Removes spools that no line has come into, if nothing of the archive refers to them yet: Spark had still to start."""
    with contextlib.suppress(OSError):
        if {*hidden.iterdir()} <= {hidden / LOCK, spools}:
            for spool in spools.iterdir():
                remove(spool, spool.name)


def _unmake(made: Sequence[Path], lock: Path | None = None) -> None:
    """Removes directories, as far as nothing is in them but the lock, if we hold it."""
    with contextlib.suppress(OSError):  # something is in one: there it ends
        for directory in reversed(made):
            if lock is not None and directory == lock.parent and os.listdir(directory) == [lock.name]:  # noqa: PTH208
                lock.unlink()
            directory.rmdir()
