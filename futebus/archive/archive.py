"""Lines become Parquet files, each line once.

The one rule: how far each channel is archived is known from one small file, the state, which names the files that bring the
archive there. It is written when they are complete, and before the first of them gets its place; who finds it moves the rest.

So it makes no difference where a batch is cut off. Before the state is there, nothing has happened: its lines come again. With
the state there, its files get to their places, and the lines that come again are left out by their offsets. This does not even
need Spark's checkpoint. Without it, all that the spools have comes again, and what was archived is left out.

In the directory of the archive:

`channel=B_log/date=2026-11-21/hour=12/….parquet`
    The lines: value, offset, timestamp, address. Date and hour are in UTC.
`_futebus/state/SEQUENCE.json`
    The state; the one with the highest number counts.
`_futebus/staging/`
    Files that are not complete. What is in it when an archive is opened is left over.
`_futebus/swaps/`
    Hours that are being compacted, see compaction.py.
"""

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

from ..nats.marks import Mark
from ..spool import LinesDamaged, LinesGone, Spool
from .storage import ArchiveError, Storage

FORMAT = 1

HIDDEN = "_futebus"
STATE, STAGING = f"{HIDDEN}/state", f"{HIDDEN}/staging"
"""Readers of Parquet leave out what begins with an underscore."""

SETTINGS = {
    # As everybody reads them; Spark's own default is a type that others have given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # A task's lines go to the files of some hours at once, in their order. Otherwise they are sorted first.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
"""How Spark should write, unless somebody wants it otherwise."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a channel is archived."""

    spool: str
    """The identity of the spool."""
    line: int
    """The offset of the first line that is not in the archive."""
    marks: tuple[Mark, ...] = ()
    """Of a stream: some of the messages that are archived, by which it is known; none if an older version has written this."""
    lost: tuple[int, int, int] = (0, 0, 0)
    """Of a stream that has lost messages that are archived: from which number to which these were, and up to which time of this
    machine, in nanoseconds, their lines are looked for in what comes."""

    def to_json(self) -> dict[str, Any]:
        """What a state's file has of it."""
        told: dict[str, Any] = {"spool": self.spool, "line": self.line}
        return told | ({"marks": self.marks} if self.marks else {}) | ({"lost": self.lost} if any(self.lost) else {})

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Position":
        """Reads that. Older versions have written less."""
        first, end, until = told.get("lost", (0, 0, 0))
        marks = tuple(Mark(sequence, time) for sequence, time in told.get("marks", ()))
        return cls(told["spool"], told["line"], marks, (first, end, until))


@dataclass(frozen=True, slots=True)
class State:
    """What an archive knows of itself."""

    archive: str
    """Tells its files from those of any other that wrote to the same directory."""
    sequence: int
    """Counts the states."""
    positions: dict[str, Position]
    moves: list[tuple[str, str]]
    """The files that this state added: where they were complete, and their places."""
    hours: list[str]
    """Directories with files that may have to be compacted."""
    lines: int
    """How many lines were archived in all."""

    def to_json(self) -> str:
        """The text of a state's file."""
        return json.dumps(
            {
                "format": FORMAT,
                "archive": self.archive,
                "sequence": self.sequence,
                "lines": self.lines,
                "positions": {name: at.to_json() for name, at in sorted(self.positions.items())},
                "moves": self.moves,
                "hours": self.hours,
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> "State":
        """Reads the text of a state's file.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        given: dict[str, Any] = json.loads(text)
        if given["format"] != FORMAT:
            raise ValueError("format")
        return cls(
            archive=given["archive"],
            sequence=given["sequence"],
            positions={name: Position.from_json(at) for name, at in given["positions"].items()},
            moves=[(source, target) for source, target in given["moves"]],
            hours=given["hours"],
            lines=given["lines"],
        )


class Archive:
    """An archive that is written. Opening it finishes what was cut off.

    Args:
        spark: a session, which then counts hours in UTC.
        root: where the archive is, an absolute path or a URI.
        spool_of: tells the directory of a channel's spool.

    Raises:
        ArchiveError: there is something wrong with it.
    """

    columns: tuple[str, ...] = ("value", "offset", "timestamp", "address")
    """Of a line, beside its channel."""

    def __init__(self, spark: SparkSession, root: str, spool_of: Callable[[str], Path]) -> None:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.storage = Storage(spark, root)
        self._spool_of = spool_of
        self.lock = threading.RLock()
        """Held by who changes what readers see."""
        self.storage.make_directory(STATE)
        self.reopen()

    _awaited: set[str]
    """The channels whose archived lines may come again. Without the query's checkpoint they do, in many batches."""

    def reopen(self) -> None:
        """Begins anew, after a batch that has failed anywhere: finishes what was cut off, and expects lines that are archived.

        Raises:
            ArchiveError: there is something wrong with it.
        """
        with self.lock:
            self.state = self._load()
            self._awaited = {*self.state.positions}
            self._finish()
            for left in (STAGING, *self._older()):
                self.storage.remove(left)
            self.storage.make_directory(STAGING)

    def _states(self) -> list[str]:
        return [file.name for file in self.storage.files(STATE) if file.name.endswith(".json")]

    def _older(self) -> list[str]:
        return [name for name in self._states() if name != self._name(self.state)]

    @staticmethod
    def _name(state: State) -> str:
        return f"{STATE}/{state.sequence:012d}.json"

    def _load(self) -> State:
        names = self._states()
        if not names:
            return State(uuid.uuid4().hex[:8], 0, {}, [], [], 0)
        try:
            return State.from_json(self.storage.read(names[-1]))
        except (ValueError, KeyError, TypeError):
            raise ArchiveError(f"{self.storage}/{names[-1]} is damaged, or of another format than {FORMAT}") from None

    # ------------------------------------------------------------------------------------------ lines

    def add(self, lines: DataFrame) -> int:
        """Archives the lines of a batch, but for those that are archived already.

        Args:
            lines: channel, and `columns`. Of each channel, lines without gaps.

        Returns:
            How many lines were new.

        Raises:
            ArchiveError: lines are missing.
        """
        staging = self._stage(self._left_out(lines))
        files = self._staged(staging)
        count = 0
        if files:
            count, positions = self._count(lines.sparkSession, staging)
            # From here on each of their batches begins where the one before ended.
            self._awaited -= {name for name, at in positions.items() if at != self.state.positions.get(name)}
            self._publish(staging, files, count, positions)
        self.storage.remove(staging)
        return count

    def _stage(self, new: DataFrame) -> str:
        """Writes lines to a directory of their own, by channel, date and hour. Returns this."""
        staging = f"{STAGING}/{uuid.uuid4().hex}"  # tasks of a Spark that was killed may go on for a moment
        moment = F.col("timestamp")
        new.select(
            *self.columns,
            "channel",
            F.to_date(moment).alias("date"),
            F.lpad(F.hour(moment).cast("string"), 2, "0").alias("hour"),
        ).write.partitionBy("channel", "date", "hour").parquet(self.storage.url(staging))
        return staging

    def _staged(self, staging: str) -> list[str]:
        return [file.name for file in self.storage.files(staging, is_deep=True) if file.name.endswith(".parquet")]

    def _left_out(self, lines: DataFrame) -> DataFrame:
        """The lines that are not archived."""
        known = {name: self.state.positions[name] for name in self._awaited if self._may_come_again(name)}
        self._awaited = {*known}
        if not known:
            return lines
        rows = [(name, at.line) for name, at in known.items()]
        places = lines.sparkSession.createDataFrame(rows, "channel STRING, archived LONG")
        joined = lines.join(F.broadcast(places), "channel", "left")
        return joined.where("archived IS NULL OR offset >= archived")

    def _may_come_again(self, name: str) -> bool:
        """Whether the spool of a channel has lines that are archived."""
        at, directory = self.state.positions[name], self._spool_of(name)
        if not directory.exists():
            return False
        spool = Spool(directory)
        return spool.id == at.spool and spool.begin < at.line

    def _count(self, spark: SparkSession, staging: str) -> tuple[int, dict[str, Position]]:
        """Counts the lines that are staged, and checks that none is missing."""
        staged = self.storage.parquet(spark, "offset LONG, channel STRING", staging)
        rows = staged.groupBy("channel").agg(F.count("*"), F.min("offset"), F.max("offset")).collect()
        positions = dict(self.state.positions)
        total = 0
        for name, count, first, last in rows:
            spool = Spool(self._spool_of(name))
            missing = last - first + 1 - count
            # Damaged lines are left out, and that was told. No others are, or the archive would never have them.
            if missing and missing != _damaged(spool, first, last + 1):
                raise ArchiveError(f"{name}: from line {first} to line {last} there should be {last - first + 1}, not {count}")
            positions[name] = Position(spool.id, last + 1)
            total += count
        return total, positions

    def _publish(self, staging: str, files: list[str], count: int, positions: dict[str, Position]) -> None:
        """Gives files their places in the archive."""
        sequence = self.state.sequence + 1
        moves = []
        for number, name in enumerate(files):
            hour = name.removeprefix(f"{staging}/").rpartition("/")[0]
            moves.append((name, f"{hour}/{self.state.archive}-{sequence:012d}-{number:05d}.parquet"))
        self.storage.sync(files)
        # The way to them as well: once the state names a file, one that is not there is taken for one that was moved.
        self.storage.sync({above for name in files for above in _parents(name)})
        with self.lock:
            old = self.state
            hours = list(dict.fromkeys([*old.hours, *(target.rpartition("/")[0] for _, target in moves)]))
            new = replace(old, sequence=sequence, positions=positions, moves=moves, hours=hours, lines=self.state.lines + count)
            self.storage.write(self._name(new), new.to_json())
            self.state = new
            self._finish()
            self.storage.remove(self._name(old))

    def _finish(self) -> None:
        """Moves the files of the state that are not in their places."""
        left = [(source, target) for source, target in self.state.moves if self.storage.exists(source)]
        directories = {target.rpartition("/")[0] for _, target in left}
        for directory in directories:
            self.storage.make_directory(directory)
        for source, target in left:
            self.storage.move(source, target)
        above = {parent for directory in directories for parent in _parents(directory)}
        self.storage.sync([*directories, *above])

    def forget(self, hour: str) -> None:
        """An hour need not be compacted. It is written down with the next state."""
        with self.lock:
            self.state = replace(self.state, hours=[other for other in self.state.hours if other != hour])


def _damaged(spool: Spool, begin: int, end: int) -> int:
    """How many of these lines cannot be had any more.

    Raises:
        LinesGone: retention has removed some meanwhile, and nobody can tell.
    """
    total = 0

    def note(damage: LinesDamaged) -> None:
        nonlocal total
        total += damage.stop - damage.first

    try:
        for piece in spool.pieces(begin, end, on_damage=note):
            for _ in piece.sound(note):
                pass
    except LinesGone:
        if begin < spool.begin:
            raise  # they are asked for again, and then begin behind those
        return 0
    return total


def _parents(directory: str) -> list[str]:
    """The directories above one, up to that of the archive."""
    parts = directory.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts))]
