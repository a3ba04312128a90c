"""Hours that have ended are rewritten as few files.

The one rule: a line is in the archive once before and once after. Where a file system can exchange two directories, no reader can
see anything between. Elsewhere, the new files get their places, then the old ones are removed. In between a reader may see lines
twice.

The new files are written to a directory `_futebus/swaps/…`. Once they are complete, and if directories cannot be exchanged, there
is a `swap.json` among them which says what is moved and what is removed. It is finished when the archive is opened again. Without
it, what is in the directory is left over.
"""

import json
import uuid
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's users call it)

from .archive import HIDDEN, Archive
from .storage import ArchiveError, File

SWAPS = f"{HIDDEN}/swaps"
SWAP = "swap.json"

GRACE = timedelta(minutes=5)
"""How long after its end an hour is left alone: the last of its lines are still on their way."""

AHEAD = timedelta(days=1)
"""How much later than now an hour may be that is waited for. Others are of a clock that was wrong, and are looked at at once."""

SCHEMA = "value {}, offset LONG, timestamp TIMESTAMP, address STRING"


class Compaction:
    """Compacts the hours of an archive. Opening it finishes what was cut off.

    Args:
        spark: a session to read and write with.
        archive: which one.
        most_files: how many small files an hour may have.
        file_bytes: how large a file should get. Files of half the size are not small.
        is_binary: whether values are bytes.
        columns: of a line, as Spark writes them, with `{}` for what values are.
        order: by which of them lines are put in order.
        can_exchange: whether to try to exchange directories.
    """

    def __init__(
        self,
        spark: SparkSession,
        archive: Archive,
        *,
        most_files: int,
        file_bytes: int,
        is_binary: bool = False,
        columns: str = SCHEMA,
        order: tuple[str, ...] = ("offset",),
        can_exchange: bool = True,
    ) -> None:
        self._spark, self._archive, self._storage = spark, archive, archive.storage
        self._most_files, self._file_bytes, self._can_exchange = most_files, file_bytes, can_exchange
        self._order = order
        self._schema = columns.format("BINARY" if is_binary else "STRING")
        self.reopen()

    def reopen(self) -> None:
        """Begins anew, after one that has failed anywhere: finishes what was cut off."""
        with self._archive.lock:
            for file in self._storage.files(SWAPS, is_deep=True):
                if file.name.endswith(f"/{SWAP}"):
                    self._finish(file.name)
            self._storage.remove(SWAPS)
            self._storage.make_directory(SWAPS)

    def due(self, now: datetime) -> list[str]:
        """The hours that are to be looked at, oldest first."""
        ends = {hour: _end(hour) for hour in self._archive.state.hours}
        return sorted((hour for hour, end in ends.items() if not now - GRACE < end < now + AHEAD), key=ends.__getitem__)

    def compact(self, hour: str) -> int:
        """Compacts an hour, if it has too many small files.

        Args:
            hour: its directory.

        Returns:
            How many files it has less.

        Raises:
            ArchiveError: what was rewritten is not what was there. Nothing has changed.
        """
        files = self._parquet(hour)
        small = [file for file in files if file.size < self._file_bytes / 2]
        if len(small) <= self._most_files:
            self._archive.forget(hour)
            return 0
        staging = f"{SWAPS}/{uuid.uuid4().hex}"
        new = self._rewrite(hour, small, staging)
        with self._archive.lock:
            is_same = self._parquet(hour) == files  # otherwise lines have come for it; it will be looked at again
            if is_same:
                self._swap(hour, staging, [file.name for file in files], [file.name for file in small], new)
                self._archive.forget(hour)
        # Not after an error: there may be a swap in it that is to be finished.
        self._storage.remove(staging)
        return len(small) - len(new) if is_same else 0

    def _parquet(self, directory: str) -> list[File]:
        return [file for file in self._storage.files(directory) if file.name.endswith(".parquet")]

    def _rewrite(self, hour: str, files: list[File], staging: str) -> list[str]:
        """Writes the lines of an hour's files, in their order, to few new ones. Returns their names, complete and on the disk."""
        names = [file.name.removeprefix(f"{hour}/") for file in files]
        # By the directory: of thousands of files with odd names, each would be a plan of its own.
        old = self._storage.parquet(self._spark, self._schema, hour).where(F.col("_metadata.file_name").isin(names))
        count = -(-sum(file.size for file in files) // self._file_bytes)
        parts = old.coalesce(1) if count == 1 else old.repartitionByRange(count, *self._order)
        parts.sortWithinPartitions(*self._order).write.parquet(self._storage.url(staging))
        lines, found = old.count(), self._storage.parquet(self._spark, self._schema, staging).count()
        if lines != found:
            raise ArchiveError(f"{self._storage}: compaction made {found} lines of {lines}")
        new = []
        for number, file in enumerate(self._parquet(staging)):
            new.append(f"{staging}/{self._archive.state.archive}-{staging.rpartition('/')[2][:12]}-{number:05d}.parquet")
            self._storage.move(file.name, new[-1])
        for file in self._storage.files(staging):
            if file.name not in new:
                self._storage.remove(file.name)
        self._storage.sync([*new, staging, SWAPS])
        return new

    def _swap(self, hour: str, staging: str, files: list[str], small: list[str], new: list[str]) -> None:
        if self._can_exchange and self._storage.local is not None:
            linked = [name for name in files if name not in small]
            for name in linked:
                self._storage.link(name, f"{staging}/{name.rpartition('/')[2]}")
            self._storage.sync([staging])
            if self._storage.exchange(staging, hour):
                self._storage.sync([hour.rpartition("/")[0], SWAPS])
                return
            for name in linked:
                self._storage.remove(f"{staging}/{name.rpartition('/')[2]}")
        moves = [(name, f"{hour}/{name.rpartition('/')[2]}") for name in new]
        swap = f"{staging}/{SWAP}"
        self._storage.write(swap, json.dumps({"moves": moves, "removed": small}, indent=1))
        self._finish(swap)

    def _finish(self, swap: str) -> None:
        given = json.loads(self._storage.read(swap))
        for source, target in given["moves"]:
            if self._storage.exists(source):
                self._storage.move(source, target)
        for name in given["removed"]:
            self._storage.remove(name)
        self._storage.sync({target.rpartition("/")[0] for _, target in given["moves"]})
        self._storage.remove(swap)


def _end(hour: str) -> datetime:
    """When an hour ends, by the name of its directory: `channel=…/date=2026-11-21/hour=12`."""
    values = dict(part.split("=", 1) for part in hour.split("/"))
    return datetime.fromisoformat(values["date"]).replace(tzinfo=UTC) + timedelta(hours=int(values["hour"]) + 1)
