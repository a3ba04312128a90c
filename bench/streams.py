"""Eight writers of a U channel that is recorded: with its lines published in a stream, each acknowledged, and without.

One nats-server with file storage, on the same host. Lines count when they are in the spool, or acknowledged by the stream.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from futebus.recorder.target import read_note
from futebus.spool import Spool

from . import bulk, collect, peers, servers
from .figures import Figure, Row

LINES = 250_000
"""Lines of each writer in a timed run."""

ALONE, PUBLISHED = "recorder alone, in the spool", "recorder --to, acknowledged by a stream"
PATIENCE = 120.0


@contextmanager
def _recorder(channel: Path, spool: Path, *options: str) -> Iterator[None]:
    words = [sys.executable, "-m", "futebus.commands.record", *options, str(channel), str(spool)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    assert process.stderr
    try:
        said = process.stderr.readline().decode()
        if " recording " not in said:
            raise RuntimeError(f"the recorder does not begin: {said}")
        yield
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def record(files: list[Path], count: int, place: Path, port: int | None) -> float:
    """Has these files written by a writer each, `count` lines in all. Returns the lines a second.

    Args:
        files: what is written.
        count: how many lines that is.
        place: an empty directory.
        port: of a server, if they are to be published.
    """
    spool = place / "spool"
    options = [] if port is None else ["--to", f"nats://127.0.0.1:{port}/BENCH/bench"]
    with ExitStack() as stack:
        bus = stack.enter_context(peers.futebus())
        channel = bus.directory / "U_bench"
        stack.enter_context(_recorder(channel, spool, *options))
        begin = time.monotonic()
        for file in files:
            descriptor = os.open(channel, os.O_WRONLY)
            stack.callback(bulk.end, subprocess.Popen(["cat", str(file)], stdout=descriptor))
            os.close(descriptor)
        while _done(spool, is_published=port is not None) < count:
            if time.monotonic() - begin > PATIENCE:
                raise RuntimeError(f"after {PATIENCE:g} s, {_done(spool, is_published=port is not None)} of {count} lines")
            time.sleep(0.005)
        return count / (time.monotonic() - begin)


def _done(spool: Path, *, is_published: bool) -> int:
    if not is_published:
        return Spool(spool).end
    note = read_note(spool)
    return note.next if note else 0


def run(rounds: int, show: Callable[[str], None]) -> Row:
    """Measures both side by side, each time with a fresh bus, spool and server."""
    row = Row("hosts-stream", "100-byte lines of 8 writers to a U channel that is recorded: lines kept per second")
    if absent := servers.missing("nats-server"):
        row.notes.append(f"skipped: {', '.join(absent)} not installed")
        return row
    values: dict[str, list[float]] = {ALONE: [], PUBLISHED: []}
    count = collect.WRITERS * LINES
    with tempfile.TemporaryDirectory(prefix="futebus-bench-") as directory:
        files = collect.write_files(Path(directory), LINES)
        for round_ in range(rounds):
            for name, rates in values.items():
                show(f"hosts-stream: round {round_ + 1} of {rounds}, {name}")
                with ExitStack() as stack:
                    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="futebus-bench-")))
                    port = stack.enter_context(servers.jetstream()) if name == PUBLISHED else None
                    rates.append(record(files, count, place, port))
    row.figures.extend(Figure(name, "lines/s", rates, {"written": f"{count:,}"}) for name, rates in values.items())
    return row
