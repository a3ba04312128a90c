"""What `futebus-record` shows of a spool: its lines, and a summary. It needs no bus and no lock."""

import contextlib
import datetime
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..core.text import counted, printable, spanned
from ..core.text import size as readable_size
from ..spool import LinesDamaged, LinesGone, Mark, Piece, Spool
from ..spool.layout import segment_firsts, with_stops
from ..spool.segment import Segment, last_mark
from .target import Note, read_note

BLOCK_BYTES = 128 << 10
"""How much is written at once, in whole lines: a bus takes a write line by line, and others want their turn."""

FOLLOW_SECONDS = 0.02
"""How often it is looked for new lines."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


Place = int | datetime.datetime | datetime.timedelta
"""The offset of a line (below 0: from the end), a moment, or how long ago."""


def offset_of(spool: Spool, place: Place) -> int:
    """The offset of the first line at a place. Before the begin there may be an offset, but no moment."""
    if isinstance(place, int):
        return place if place >= 0 else max(spool.end + place, spool.begin)
    moment = datetime.datetime.now(datetime.UTC) - place if isinstance(place, datetime.timedelta) else place
    return spool.offset_at((moment - EPOCH) // datetime.timedelta(microseconds=1) * 1000)


def _extent(spool: Spool) -> str:
    """Which lines a spool has."""
    if spool.end == spool.begin:
        return f"no lines (the next one is {spool.end})"
    return spanned(spool.begin, spool.end)


def replay(
    path: Path,
    begin: Place | None,
    end: Place | None,
    follows: bool,
    note: Callable[[int, int], object] = lambda written, lines: None,
) -> None:
    """Writes lines to standard output.

    Args:
        path: the spool.
        begin: where to begin; None: with the first line that there is.
        end: where to end; None: with the last one.
        follows: whether to go on, and wait for new lines.
        note: is told now and then how many lines are written, and of how many.

    Raises:
        SpoolError: there is no such spool, or the lines are not there.
        OSError: standard output cannot be written.
    """
    spool = Spool(path)
    at = spool.begin if begin is None else offset_of(spool, begin)
    stop = spool.end if end is None else offset_of(spool, end)
    if not spool.begin <= at <= spool.end:
        raise LinesGone(f"{path} has {_extent(spool)}, and not line {at}")
    if stop > spool.end:
        raise LinesGone(f"{path} has {_extent(spool)}, and not line {stop - 1}")
    first = at
    while True:
        for piece in spool.pieces(at, stop, 8 * BLOCK_BYTES):
            for data in _sound(piece):
                for block in blocks(data):
                    write(sys.stdout.fileno(), block)
            note(piece.first + piece.lines - first, stop - first)
        if not follows:
            return
        at = max(at, stop)
        while (stop := spool.end) <= at:
            _end_with_its_reader(sys.stdout.fileno())
            time.sleep(FOLLOW_SECONDS)


def _sound(piece: Piece) -> Iterator[bytes]:
    """The lines of a piece, up to the first that are not what they were.

    Raises:
        LinesDamaged: some are not. It tells of all that lie together there.
        LinesGone: retention was faster.
    """
    try:
        yield piece.read()
        return
    except LinesDamaged as error:
        damage = error
    parts = piece.parts()
    for part in parts:
        if isinstance(part, LinesDamaged):
            stop = part.stop
            for following in parts:
                if not isinstance(following, LinesDamaged):
                    break
                stop = following.stop
            damage = LinesDamaged(part.file, part.first, stop)
            break
        yield part.read()
    raise damage


def _end_with_its_reader(descriptor: int) -> None:
    """Ends as a write would if nobody reads the pipe any more: the next line, and so the next write, may never come."""
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        poller = select.poll()
        poller.register(descriptor, 0)  # POLLERR is told unasked
        if poller.poll(0):
            signal.raise_signal(signal.SIGPIPE)


def blocks(data: bytes) -> Iterator[memoryview]:
    """Cuts lines into blocks of at most `BLOCK_BYTES`, each of whole lines. A line that is longer is a block."""
    view, at = memoryview(data), 0
    while at < len(data):
        stop = data.rfind(b"\n", at, at + BLOCK_BYTES) + 1 or data.find(b"\n", at) + 1 or len(data)
        yield view[at:stop]
        at = stop


def write(descriptor: int, data: memoryview) -> None:
    """Writes all of it, however many calls it takes: a channel accepts what it has room for."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(descriptor, select.POLLOUT)
            poller.poll()
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None


def summary(path: Path) -> str:
    """A spool in some lines, for people.

    Raises:
        SpoolError: there is no such spool.
    """
    spool = Spool(path)
    last = spool.last
    # Of each segment, the last mark only: there may be thousands of segments, with thousands of marks.
    pairs = with_stops(segment_firsts(path))
    segments = {first: mark for first, stop in pairs if (mark := last_mark(path, first, stop=stop))}
    begin = min(segments, default=last.line)
    first_time = _first_time(path, segments)
    lines = sum(mark.byte for mark in segments.values())
    disk = sum(_disk_use(file) for file in path.iterdir())
    rows = {
        "channel": printable(spool.channel),
        "identity": printable(spool.id),
        "lines": f"{last.line - begin}, from {begin} up to {last.line}",
        "bytes": f"{lines} ({readable_size(lines)})" if lines >= 1024 else str(lines),
        "disk": f"{readable_size(disk)} in {counted(len(segments), 'segment')}, with room that is kept for lines to come",
        "first": "-" if first_time is None else _moment(first_time),
        "last": "-" if first_time is None else _moment(last.time),
        "lost": f"{last.lost}, that could not be taken" if last.lost else "none that is known",
    }
    if note := read_note(path):
        rows |= _published(spool, note.of(spool.id))
    return "".join(f"{name:<10}{value}\n" for name, value in rows.items())


def _first_time(path: Path, segments: dict[int, Mark]) -> int | None:
    """When the first line was taken that is there; None if none is."""
    for first, stop in with_stops(segments):
        with contextlib.suppress(LinesGone):  # retention is at work
            if segments[first].byte and len(segment := Segment(path, first, stop=stop)) > 1:
                return segment[1].time
    return None


def _published(spool: Spool, note: Note) -> dict[str, str]:
    """How far the lines of a spool have come in a stream."""
    first = max(note.next, spool.begin)
    lag = spool.size_from(first)
    rows = {
        "stream": printable(note.shown) + ("" if note.created else ", which has not been reached yet"),
        "in stream": f"up to {note.next}" + (f", message {note.sequence}" if note.sequence else ""),
        "lag": f"{counted(max(spool.end - first, 0), 'line')}, {counted(lag, 'byte')}"
        + (f" ({readable_size(lag)})" if lag >= 1024 else ""),
    }
    return rows | ({"trouble": printable(note.trouble)} if note.trouble else {})


def _disk_use(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _moment(nanoseconds: int) -> str:
    return datetime.datetime.fromtimestamp(nanoseconds / 1e9).astimezone().isoformat(" ", "seconds")
