"""The lock of an archive, what else may be in its place, and what is left of an archive that could not begin."""

import contextlib
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from futebus.archive.guard import guarded
from futebus.archive.order import Order
from futebus.archive.storage import ArchiveError
from futebus.commands.archive import ERRORS
from futebus.spool import Spool, SpoolWriter


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(
        channels=(),
        bus=None,
        pattern=".*",
        root=str(tmp_path / "archive"),
        spools=tmp_path / "spools",
        is_external=True,
        is_slave=False,
        every=1.0,
        batch_bytes=1,
        is_once=True,
        is_binary=False,
        fails_on_loss=False,
        most_files=1,
        file_bytes=1,
        stats=None,
        window=1.0,
        errors=ERRORS,
        master="local",
        conf=(),
    )


@pytest.fixture
def lock(order: Order) -> Path:
    lock = Path(order.root) / "_futebus" / "lock"
    lock.parent.mkdir(parents=True)
    return lock


def test_a_link_is_no_lock(order: Order, lock: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of somebody else")
    lock.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)), guarded(order):
        pass
    assert (tmp_path / "other").read_text() == "of somebody else"


def test_a_pipe_keeps_nobody_waiting(order: Order, lock: Path) -> None:
    os.mkfifo(lock)
    with guarded(order):
        pass


def test_a_directory_that_is_made_is_there_after_a_loss_of_power(order: Order, tmp_path: Path, synced: list[str]) -> None:
    with guarded(order):
        assert {str(tmp_path), order.root} <= {*synced}


@pytest.fixture
def own(order: Order) -> Order:
    """An archive that fills its spools itself, in its own directory."""
    return replace(order, spools=Path(order.root) / "_futebus" / "spools", is_external=False)


def begin(order: Order, lines: bytes = b"", *, has_state: bool = False) -> None:
    """Begins an archive that takes some lines and cannot go on."""
    with contextlib.suppress(ArchiveError), guarded(order):
        with SpoolWriter(order.spool_of("B_log"), "B_log") as spool:
            spool.append(lines)
        if has_state:
            (Path(order.root) / "_futebus" / "state").mkdir()
        raise ArchiveError("it cannot go on")


def test_who_could_not_begin_leaves_no_empty_spool(own: Order) -> None:
    begin(own)
    assert not Path(own.root).exists()
    begin(replace(own, spools=Path(own.root).with_name("spools")))
    assert [*Path(own.root).parent.iterdir()] == []


def test_lines_that_were_taken_stay_and_so_does_what_an_archive_refers_to(own: Order) -> None:
    begin(own, b"one\n")
    assert Spool(own.spool_of("B_log")).end == 1
    other = replace(own, root=f"{own.root}2", spools=Path(f"{own.root}2/_futebus/spools"))
    begin(other, has_state=True)
    assert Spool(other.spool_of("B_log")).end == 0


def test_spools_that_were_there_stay(own: Order) -> None:
    own.spools.mkdir(parents=True)
    begin(own)
    assert Spool(own.spool_of("B_log")).end == 0
