"""Queries that tests look at: what each batch has brought is kept."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from tests.helpers.sparks import is_well
from tests.helpers.waiting import DEADLINE, until


class Kept:
    """A query that keeps the rows of each batch, once for each batch."""

    def __init__(self, place: Path) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.checkpoint = place / "checkpoint"
        self.query: StreamingQuery | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = rows.collect()

    def start(self, stream: DataFrame, **trigger: Any) -> "Kept":
        writer = stream.writeStream.foreachBatch(self).option("checkpointLocation", str(self.checkpoint))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def values(self) -> list[str]:
        return [row.value for row in self.rows]

    def wait_for(self, count: int) -> list[Row]:
        assert self.query is not None
        query = self.query
        until(lambda: is_well(query) and len(self.rows) >= count, f"{count} rows")
        return self.rows

    def finish(self) -> list[Row]:
        assert self.query is not None
        assert self.query.awaitTermination(int(DEADLINE))
        return self.rows

    def settle(self) -> None:
        """Waits until what has come is written down as done: who stops it before, and starts it again, gets that again."""
        until((self.checkpoint / "commits" / str(max(self.batches))).exists, "the last batch is done")

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    """Makes queries, and stops them."""
    with contextlib.ExitStack() as stack:

        def make(stream: DataFrame, name: str = "query", **trigger: Any) -> Kept:
            place = tmp_path / name
            place.mkdir(exist_ok=True)
            made = Kept(place).start(stream, **trigger)
            stack.callback(made.stop)
            return made

        yield make


Keep = Callable[..., Kept]
