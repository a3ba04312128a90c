"""Streams of channels, for tests, and what is said on these."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from futebus.spool import SpoolWriter
from tests.helpers.mounts import Mount
from tests.helpers.sparks import is_well
from tests.helpers.waiting import until

from .kept import Kept


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., DataFrame]:
    """Makes streams of a channel, with a spool in the test's directory."""

    def make(path: Path | str | None, schema: str | None = None, **options: object) -> DataFrame:
        given = {"spoolLocation": tmp_path / "spool", **options}
        reader = spark.readStream.format("futebus").options(**{name: str(value) for name, value in given.items()})
        if schema:
            reader = reader.schema(schema)
        return reader.load(None if path is None else str(path))

    return make


Stream = Callable[..., DataFrame]


def say(channel: Path, *lines: str) -> None:
    with channel.open("w") as file:
        file.write("".join(line + "\n" for line in lines))


def wait_for_query(bus: Mount, channel: str, kept: Kept) -> None:
    """Waits until a query listens. One that has failed is not waited for."""
    query = kept.query
    assert query
    until(lambda: is_well(query) and bus.clients(channel, rw="r-+"), f"a query on {channel}")


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool of 1,000 lines of 10 bytes, as of a recorder."""
    with SpoolWriter(tmp_path / "spool", "B_log") as writer:
        writer.append(b"".join(b"line %04d\n" % number for number in range(1000)))
    return tmp_path / "spool"


EXTERNAL = {"drain": "external", "startingOffsets": "earliest"}
