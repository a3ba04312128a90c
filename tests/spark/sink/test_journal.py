"""The journal of what is published: there is always a whole record in it, whatever has been torn."""

import fcntl
import mmap
import re
from pathlib import Path

import pytest

from futebus.spark.sink.journal import Journal, Record, State
from futebus.spark.sink.outlet import SinkError

from ...helpers.descriptors import descriptors

SLOTS = (0, mmap.PAGESIZE)

WHEN = "2026-01-02T03:04:05.678901+00:00"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def newest(path: Path) -> Record:
    with Journal(path) as journal:
        return journal.record


def spoil(path: Path, start: int, size: int = 20) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        was = file.read(size)
        file.seek(start)
        file.write(bytes(byte ^ 0x5A for byte in was))


def test_a_new_one(path: Path) -> None:
    assert newest(path) == Record(-1, State.DONE)
    assert newest(path) == Record(-1, State.DONE)


def test_what_was_noted_is_there(path: Path) -> None:
    for number in range(5):
        with Journal(path) as journal:
            journal.note_durably(Record(number, State.BEGUN))
            journal.note(Record(number, State.BEGUN, 1 << 31, 1 << 62, number, 1 << 63, WHEN))
        assert newest(path) == Record(number, State.BEGUN, 1 << 31, 1 << 62, number, 1 << 63, WHEN)


def test_a_torn_record_is_not_believed(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(7):
            journal.note(Record(number, State.DONE))
    whole = path.read_bytes()
    spoiled = set()
    for slot in SLOTS:
        for place in range(8, 56, 8):
            path.write_bytes(whole)
            spoil(path, slot + place, 1)
            spoiled.add((slot, newest(path).batch))
    assert spoiled == {(SLOTS[0], 6), (SLOTS[1], 5)} or spoiled == {(SLOTS[0], 5), (SLOTS[1], 6)}


def test_what_a_stream_has_confirmed_may_be_missing(path: Path) -> None:
    """As in journals of old, or since somebody of old has written there, or it is torn."""
    record = Record(7, State.BEGUN, 0, 10, 3, 12, WHEN)
    with Journal(path) as journal:
        for _ in range(2):
            journal.note(record)
    whole = path.read_bytes()
    for place in range(52, 52 + 8 + 64 + 4, 4):
        path.write_bytes(whole)
        for slot in SLOTS:
            spoil(path, slot + place, 4)
        assert newest(path) == record._replace(sequence=0, created="")


def test_the_first_record_may_be_torn(path: Path) -> None:
    with Journal(path) as journal:
        journal.note(Record(3, State.BEGUN))
    written = [slot for slot in SLOTS if path.read_bytes()[slot]]
    assert len(written) == 1
    spoil(path, written[0], 1)
    assert newest(path) == Record(-1, State.DONE)


def test_without_a_whole_record_nobody_can_tell(path: Path) -> None:
    with Journal(path) as journal:
        journal.note(Record(1, State.DONE))
        journal.note(Record(2, State.DONE))
    for slot in SLOTS:
        spoil(path, slot)
    before = descriptors()
    sentence = f"{path} is damaged: without it, nobody can tell which batches are out"
    with pytest.raises(SinkError, match=f"^{re.escape(sentence)}$"):
        Journal(path)
    assert descriptors() == before


def test_it_is_locked_while_it_is_open(path: Path) -> None:
    with Journal(path), path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=f"^{re.escape(str(tmp_path))}/no/journal cannot be opened: No such file or directory$"):
        Journal(tmp_path / "no" / "journal")
