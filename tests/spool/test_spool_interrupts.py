"""A spool whose user interrupts it, line by line of its code: the lines that were there are there."""

import contextlib
import itertools
import linecache
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from futebus.spool import SpoolWriter

from .failing import (
    Failing,
    adding,
    adding_when_full,
    ageing,
    ageing_when_full,
    check,
    failing,
    left,
    opening,
    place,
)
from .spools import SMALL, lines_of, numbered, small

__all__ = ["failing", "place"]


class Interrupting:
    """Raises KeyboardInterrupt before the line of the spool's own code whose turn it is."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.place = ""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "/futebus/spool/" not in frame.f_code.co_filename:
            return None
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_name == "__del__":  # from there no error comes out
                return None
            caller = caller.f_back
        # The line of a with statement is told again when it ends, a moment before the lock is let go; no signal comes there.
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.count += 1
            if self.count == self.at:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace

    @contextlib.contextmanager
    def one(self, at: int) -> Iterator[None]:
        self.count, self.at, self.place = 0, at, ""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)


# Between what opens a directory and the with statement that closes it, too.
@pytest.mark.filterwarnings("ignore:unclosed scandir iterator:ResourceWarning")
@pytest.mark.parametrize("act", [opening, adding, adding_when_full, ageing, ageing_when_full], ids=lambda act: act.__name__)
def test_an_interrupt_takes_no_line(place: Path, act: Callable[[Path], None]) -> None:
    left(place / "spool")
    interrupting = Interrupting()
    at = 1
    places = set()
    while True:
        path = place / "again"
        shutil.copytree(place / "spool", path)
        with interrupting.one(at), contextlib.suppress(KeyboardInterrupt):
            act(path)
        if not interrupting.place:
            break
        check(path, f"{interrupting.place}, line {at}", 1500)
        # A line that has been interrupted before, in a loop, need not be so each time.
        at += 1 if interrupting.place not in places else 17
        places.add(interrupting.place)
        shutil.rmtree(path)
    assert len(places) > 50


def test_who_goes_on_after_an_interrupt_has_every_line(place: Path) -> None:
    interrupting = Interrupting()
    places = set()
    at = 1
    while True:
        path = place / "spool"
        writer = small(path)
        with interrupting.one(at):
            while True:
                with contextlib.suppress(KeyboardInterrupt):
                    if writer.end == 1000:
                        break
                    writer.append(numbered(writer.end, writer.end + 100))
                    continue
                writer.prepare()
                assert not writer.end % 100, interrupting.place
        writer.close()
        assert lines_of(path) == numbered(0, 1000), interrupting.place
        shutil.rmtree(path)
        if not interrupting.place:
            break
        at += 1 if interrupting.place not in places else 17
        places.add(interrupting.place)
    assert len(places) > 50


def test_what_a_read_gave_is_kept_when_the_reader_is_interrupted(place: Path, failing: Failing) -> None:
    source, sink = os.pipe()
    path = place / "spool"
    writer = SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL)
    os.writev(sink, [numbered(0, 10)])
    for at in itertools.count(1):  # until it is the read itself
        with failing.one(at, KeyboardInterrupt, True), contextlib.suppress(KeyboardInterrupt):
            writer.read_from(source, SMALL // 2)
        if failing.name in ("readv", ""):
            break
    assert failing.name == "readv"
    writer.close()
    for descriptor in (source, sink):
        os.close(descriptor)
    with small(path) as writer:
        assert writer.end == 10
    assert lines_of(path) == numbered(0, 10)
