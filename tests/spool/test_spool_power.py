"""A loss of power at any moment, on a disk that keeps only what it was told to, or anything more.

The disk is modelled beside the real files: of each it is known what was brought to the disk, and so it is of the directory. After
each call all kinds of rests are made into real files, and a spool is opened there as after the next start of the system.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from futebus.spool import ForeignSpool, LinesDamaged, NotASpool, Spool, room, writer

from .failing import scarce
from .spools import lines_of, numbered, small

CHANGES = "open pwrite write ftruncate posix_fallocate rename unlink fsync fdatasync"
"""The calls after which there may be something else on the disk."""


class Disk:
    """What a directory may look like after a loss of power."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, at_each: Callable[[], None]) -> None:
        monkeypatch.setattr(room, "MARKS", 64)
        self.path = path
        self._at_each = at_each
        self._names: dict[str, int] = {}
        self._kept: dict[int, bytes] = {}
        """The content of files as it was last brought to the disk."""
        self._last: dict[int, bytes] = {}
        """The content of files when they lost their name."""
        self._seen: set[frozenset[tuple[str, bytes]]] = set()
        self.calls = 0
        for name in CHANGES.split():
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if name in ("unlink", "rename"):
                self._last |= self._contents()
            result = call(*arguments, **named)
            if name == "open" and not arguments[1] & os.O_CREAT:
                return result
            if name in ("fsync", "fdatasync"):
                self._sync(arguments[0])
            self.calls += 1
            self._at_each()
            return result

        return wrapped

    def _sync(self, descriptor: int) -> None:
        file = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if file == self.path:
            self._names = self._now()
        elif file.parent == self.path:
            self._kept[file.stat().st_ino] = file.read_bytes()

    def _now(self) -> dict[str, int]:
        return {entry.name: entry.stat().st_ino for entry in self.path.iterdir()}

    def _contents(self) -> dict[int, bytes]:
        return {entry.stat().st_ino: entry.read_bytes() for entry in self.path.iterdir()}

    def rests(self, place: Path) -> Iterator[tuple[str, Path]]:
        """What may be left, each as a directory, with words for what it is."""
        before, now = self._names, self._now()
        last = self._last | self._contents()
        names = {
            "no change of names": before,
            "all changes of names": now,
            "new names, and old ones": before | now,
            "names that went": {name: number for name, number in before.items() if name in now},
        }
        contents: dict[str, Callable[[int], bytes]] = {
            "nothing else": lambda number: self._kept.get(number, b""),
            "zeros": lambda number: self._kept.get(number, bytes(len(last.get(number, b"")))),
            "every content": lambda number: last.get(number, b""),
        }
        for which, there in names.items():
            for what, content in contents.items():
                files = frozenset((name, content(number)) for name, number in there.items())
                if files in self._seen:
                    continue
                self._seen.add(files)
                rest = place / "rest"
                rest.mkdir(mode=0o700)
                for name, data in files:
                    (rest / name).write_bytes(data)
                yield f"call {self.calls}, {which}, {what}", rest
                shutil.rmtree(rest)


@pytest.fixture
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="futebus-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("by", ["age", "age when full", "offset"])
def test_offsets_never_begin_again(place: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    path = place / "spool"
    synced = 0
    identity = ""
    seen = 0
    is_looking = False

    def look() -> None:
        """Opens what is left as the next writer does. Each line tells its own offset."""
        nonlocal seen, is_looking
        if is_looking or not identity:
            return
        is_looking = True
        try:
            for note, rest in disk.rests(place):
                seen += 1
                check(rest, note)
        finally:
            is_looking = False

    def check(rest: Path, note: str) -> None:
        boot = next(boots)
        monkeypatch.setattr(writer, "boot", lambda: boot)
        before = Spool(rest)
        assert before.id == identity, note
        with small(rest) as after:
            if not synced and after.damage:
                return
            assert not after.damage or synced < after.end, f"{note}: {after.damage}"
            assert after.end >= synced, note
            after.append(numbered(after.end, after.end + 5))
            end = after.end
        spool = Spool(rest)
        assert spool.id == identity, note
        assert spool.end == end, note
        for piece in spool.pieces(max(spool.begin, synced), end, 1, on_damage=lambda damage: None):
            for part in piece.sound(lambda damage: None):
                assert part.read() == numbered(part.first, part.first + part.lines), note
        if spool.begin < synced:
            assert lines_of(spool, spool.begin, synced) == numbered(spool.begin, synced), note

    boots = (f"run {number}" for number in range(10**6))
    disk = Disk(path, monkeypatch, look)
    with small(path) as spool:
        identity = Spool(path).id
        for round_ in range(3):
            begin = spool.end
            spool.append(numbered(begin, begin + 50))
            spool.append(numbered(begin + 50, begin + 120))
            spool.sync()
            synced = spool.end
            for more in range(3):
                spool.append(numbered(synced + more * 60, synced + more * 60 + 60))
            if by != "offset":
                moment = time.time()
                while time.time() < moment + 0.002:
                    pass
                with scarce() if by == "age when full" else contextlib.nullcontext():
                    spool.retain(age=0.001)
                assert Spool(path).begin == spool.end
            else:
                spool.retain(offset=spool.end - 60)
                assert round_ == 0 or Spool(path).begin > 0
        look()
    assert seen > 100


def test_a_directory_that_is_made_is_there_after_a_loss_of_power(place: Path, synced: list[str]) -> None:
    small(place / "spool").close()
    assert str(place) in synced


def test_a_spool_that_has_lost_its_segments_is_another(place: Path) -> None:
    path = place / "spool"
    with small(path) as spool:
        spool.append(numbered(0, 10))
        spool.sync()
    before = Spool(path).id
    for file in path.glob("0*"):
        file.unlink()
    with pytest.raises(NotASpool, match="has no segments"):
        _ = Spool(path).end
    with small(path) as spool:
        assert spool.damage == [f"{path} has lost all of its segments, and goes on as a new spool"]
        spool.append(b"another\n")
    with pytest.raises(ForeignSpool):
        Spool(path).check(before, 5)


def test_it_goes_on_where_it_was_when_all_that_was_left_is_gone(place: Path) -> None:
    path = place / "spool"
    with small(path) as spool:
        spool.append(numbered(0, 1000))
        spool.append(numbered(1000, 1100))
        spool.note_lost(3)
        moment = time.time()
        while time.time() < moment + 0.002:
            pass
        assert spool.retain(age=0.001) == 1100
    for file in path.glob("0*"):
        file.unlink()
    with small(path) as spool:
        assert (spool.end, spool.lost) == (1100, 3)
        spool.append(numbered(1100, 1110))
    assert lines_of(path) == numbered(1100, 1110)


def test_lines_without_a_mark_that_did_not_reach_the_disk_are_not_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "spool"
    with small(path) as spool:
        spool.append(numbered(0, 10))
        shutil.copytree(path, place / "rest")
    with (place / "rest" / f"{0:020d}.lines").open("r+b") as file:
        file.seek(1000)
        file.write(numbered(10, 40))
        file.seek(2048)
        file.write(bytes(1024))
    monkeypatch.setattr(writer, "boot", lambda: "another")
    with small(place / "rest") as spool:
        assert spool.end == 20
        spool.append(numbered(20, 30))
    assert lines_of(place / "rest") == numbered(0, 30)


def test_a_reader_that_syncs_keeps_the_segment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "spool"
    disk = Disk(path, monkeypatch, lambda: None)
    with small(path) as spool:
        spool.append(numbered(0, 1000))
        spool.append(numbered(1000, 1010))
        reader = Spool(path)
        begin = reader.begin + 1005  # in the middle of a segment
        reader.sync(begin, 1010)
        for note, rest in disk.rests(place):
            try:
                assert lines_of(rest, begin, 1010) == numbered(begin, 1010), note
            except LinesDamaged as damage:
                raise AssertionError(note) from damage
