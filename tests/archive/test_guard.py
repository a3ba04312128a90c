"""The lock of an archive, and what else may be in its place."""

import errno
import os
from pathlib import Path

import pytest

from futebus.archive.guard import guarded
from futebus.archive.order import Order
from futebus.commands.archive import ERRORS


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


def test_a_directory_that_is_made_is_there_after_a_loss_of_power(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    with guarded(order):
        assert {str(tmp_path), order.root} <= {*synced}
