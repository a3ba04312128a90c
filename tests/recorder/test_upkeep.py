"""When lines that are taken are brought to the disk."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from futebus.recorder.recording import Recording
from futebus.recorder.upkeep import Upkeep
from futebus.spool import Spool, SpoolLock, SpoolWriter

from ..helpers.waiting import DEADLINE, until
from ..spool.spools import numbered


@pytest.mark.parametrize("sync", [0.0, 0.01])
def test_what_the_drain_before_has_taken_is_brought_to_the_disk(
    tmp_path: Path, sync: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could do that, and nothing new need come for a long time."""
    synced: list[int] = []
    monkeypatch.setattr(SpoolWriter, "sync", lambda writer: synced.append(writer.end))
    with (
        closing(SpoolLock(tmp_path / "spool", "B_x")) as lock,
        SpoolWriter(lock.path, "B_x", segment_bytes=1 << 20, lock=lock) as writer,
    ):
        writer.append(numbered(0, 10))
        recording = Recording(tmp_path / "B_x", tmp_path / "spool", False, None, 1 << 20, None, None, sync)
        upkeep = Upkeep(writer, lock, recording, print)
        try:
            upkeep.look()
            until(lambda: synced[:1] == [10], "they are brought to the disk")
        finally:
            upkeep.stop()


def test_old_lines_go_however_long_others_may_wait_for_the_disk(tmp_path: Path) -> None:
    with (
        closing(SpoolLock(tmp_path / "spool", "B_x")) as lock,
        SpoolWriter(lock.path, "B_x", segment_bytes=1 << 12, lock=lock) as writer,
    ):
        recording = Recording(tmp_path / "B_x", tmp_path / "spool", False, None, 1 << 12, 1 << 13, None, 3600.0)
        upkeep = Upkeep(writer, lock, recording, print)
        try:
            for number in range(10):
                writer.append(numbered(1000 * number, 1000 * number + 1000))
                upkeep.look()
            until(lambda: Spool(lock.path).begin >= 7000, "all but the last are gone")
        finally:
            upkeep.stop()


def test_what_comes_while_lines_are_brought_to_the_disk_is_brought_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    is_made = threading.Event()
    with (
        closing(SpoolLock(tmp_path / "spool", "B_x")) as lock,
        SpoolWriter(lock.path, "B_x", segment_bytes=1 << 20, lock=lock) as writer,
    ):

        def sync(writer: SpoolWriter) -> None:
            synced.append(writer.end)
            if len(synced) == 1:
                assert is_made.wait(DEADLINE)
                writer.append(numbered(10, 20))
                upkeep.look()

        monkeypatch.setattr(SpoolWriter, "sync", sync)
        writer.append(numbered(0, 10))
        recording = Recording(tmp_path / "B_x", tmp_path / "spool", False, None, 1 << 20, None, None, 0.01)
        upkeep = Upkeep(writer, lock, recording, print)
        is_made.set()
        try:
            until(lambda: synced == [10, 20], "they are brought to the disk")
        finally:
            upkeep.stop()
