"""Spools for tests: small ones, with numbered lines, as they are, and as a writer that is killed leaves them."""

import shutil
from pathlib import Path

import pytest

from futebus.spool import Spool, SpoolWriter
from futebus.spool.repair import boot

SMALL = 1 << 16
"""Segments short enough that a few lines fill some."""


def small(path: Path, *, channel: str = "B_x", is_continued: bool = False) -> SpoolWriter:
    return SpoolWriter(path, channel, is_continued=is_continued, segment_bytes=SMALL, first_segment_bytes=1 << 13)


def lines_of(spool: Spool | Path, begin: int | None = None, end: int | None = None, size: int = 1000) -> bytes:
    """The lines of a spool, read in pieces of about so many bytes."""
    spool = spool if isinstance(spool, Spool) else Spool(spool)
    pieces = spool.pieces(spool.begin if begin is None else begin, spool.end if end is None else end, size)
    return b"".join(piece.read() for piece in pieces)


_made: dict[int, bytes] = {}
"""Numbered lines, by their length: thousands are asked for thousands of times."""


def numbered(begin: int, end: int, length: int = 100) -> bytes:
    made = _made.get(length, b"")
    if len(made) < end * length:
        more = range(len(made) // length, max(end, 2 * len(made) // length))
        made = _made[length] = made + b"".join(b"%0*d\n" % (length - 1, number) for number in more)
    return made[begin * length : end * length]


def killed(path: Path) -> Path:
    """What would be left if the writer of a spool were killed at this moment."""
    copy = path.with_name(f"{path.name}-{len(list(path.parent.iterdir()))}")
    shutil.copytree(path, copy)
    return copy


def restart(path: Path) -> None:
    """Has a spool be one that was last written before the system was started again: power may have been lost."""
    identity = path / "spool.json"
    identity.write_text(identity.read_text().replace(boot(), "another run of the system"))


def files(path: Path, suffix: str) -> list[Path]:
    """Those of its segments, in order."""
    return sorted(path.glob(f"0*{suffix}"))


def last_file(path: Path, suffix: str) -> Path:
    return max(path.glob(f"*{suffix}"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"
