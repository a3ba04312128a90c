"""What tests of archives share: the command, lines with times of one's choice, and readers that know nothing of Spark."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from ..helpers import java

COMMAND = [sys.executable, "-m", "futebus.commands.archive"]
QUICK = ["--conf", f"spark.driver.extraJavaOptions={java.QUICK}", "--master", "local[2]"]

PARTITIONS = pa.schema([("channel", pa.string()), ("date", pa.string()), ("hour", pa.string())])
SCHEMA = "channel STRING, value STRING, offset LONG, timestamp TIMESTAMP, address STRING"


class Line(NamedTuple):
    """A line as a stream gives it."""

    channel: str
    value: str | bytes | None
    offset: int
    timestamp: datetime
    address: str | None = None


def lines(channel: str, offsets: Iterable[int], moment: str) -> list[Line]:
    """Lines of a channel, with text of their own, taken at one moment (UTC)."""
    return [Line(channel, f"{channel} says {offset}", offset, datetime.fromisoformat(moment + "+00:00")) for offset in offsets]


def table(root: Path) -> pa.Table:
    """An archive as pyarrow reads it, also while it is written: see futebus-archive(1)."""
    found = [str(file) for file in files(root) if file.suffix == ".parquet"]
    if not found:
        return pa.table({})
    hive = ds.partitioning(PARTITIONS, flavor="hive")
    return ds.dataset(found, format="parquet", partitioning=hive, partition_base_dir=str(root)).to_table()


def read(root: Path) -> list[Line]:
    """The lines of an archive, by channel and offset; each must lie where its time says."""
    found = []
    for row in table(root).to_pylist():
        moment: datetime = row["timestamp"].astimezone(UTC)
        assert (row["date"], row["hour"]) == (f"{moment:%Y-%m-%d}", f"{moment:%H}")
        found.append(Line(row["channel"], row["value"], row["offset"], moment, row["address"]))
    return sorted(found, key=lambda line: (line.channel, line.offset))


def files(root: Path) -> list[Path]:
    """The files of an archive that readers see."""
    return sorted(root.glob("channel=*/*/*/*"))
