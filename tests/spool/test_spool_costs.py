"""What readers do for a few lines of a long spool, or for a word on it: not more than for those of a short one."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.recorder.show import summary
from futebus.spool import Spool, layout, reader
from futebus.spool.marks import Mark
from futebus.spool.segment import Segment

from .spools import lines_of, numbered, path, small

__all__ = ["path"]


class Counted:
    """How often something was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> None:
        self.count = 0
        self._call: Callable[..., object] = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *arguments, **named: self._called(*arguments, **named))

    def _called(self, *arguments: object, **named: object) -> object:
        self.count += 1
        return self._call(*arguments, **named)


def of_many_segments(path: Path) -> int:
    """Makes a spool of many segments. Returns how many they are."""
    with small(path) as writer:
        for begin in range(0, 20_000, 50):
            writer.append(numbered(begin, begin + 50))
    return len(list(path.glob("*.index")))


def test_a_summary_does_not_read_all_marks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_many_segments(path) > 20
    read = Counted(monkeypatch, Segment, "refresh")
    words = summary(path)
    assert "20000, from 0 up to 20000" in words
    assert f"bytes     {100 * 20_000} " in words
    assert read.count < 5


def test_a_moment_is_found_without_all_marks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_many_segments(path) > 20
    read = Counted(monkeypatch, Segment, "refresh")
    assert Spool(path).offset_at(time.time_ns()) == 20_000
    assert read.count < 5


def test_reading_on_lists_the_directory_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = of_many_segments(path)
    listed = Counted(monkeypatch, reader, "segment_firsts")
    spool = Spool(path)
    assert len(list(spool.pieces(0, 20_000))) == segments
    assert listed.count < 5


def test_a_list_that_retention_has_made_wrong_is_made_anew(path: Path) -> None:
    with small(path) as writer:
        for begin in range(0, 3000, 50):
            writer.append(numbered(begin, begin + 50))
        spool = Spool(path)
        assert lines_of(spool) == numbered(0, 3000)
        writer.retain(offset=2000)
        with pytest.raises(layout.LinesGone, match=f"line 100 of .* the first that is there is {spool.begin}"):
            list(spool.pieces(100, 3000))
        assert lines_of(spool) == numbered(spool.begin, 3000)


def test_lines_with_zeros_cost_no_look_at_all_marks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small(path) as writer:
        for _ in range(500):
            writer.append(b"a\0b\n")
        made = Counted(monkeypatch, Segment, "__getitem__")
        (piece,) = Spool(path).pieces(490, 500)
        assert piece.read() == b"a\0b\n" * 10
    assert made.count < 60
    assert isinstance(Segment(path, 0)[1], Mark)
