"""Which hours are looked at, to be compacted."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from futebus.archive.archive import Archive
from futebus.archive.compaction import Compaction


class NoStorage:
    """Storage that has nothing."""

    def files(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def remove(self, name: str) -> None:
        pass

    make_directory = remove


@pytest.mark.parametrize(
    ("date", "hour", "is_due"),
    [
        ("2026-11-21", 9, True),
        ("2026-11-21", 10, False),  # it has just ended
        ("2026-11-21", 11, False),
        ("2026-11-22", 8, False),
        ("2026-11-22", 12, True),  # nothing would ever come to be compacted with it
        ("2262-04-11", 23, True),
    ],
)
def test_hours_that_are_due(date: str, hour: int, is_due: bool) -> None:
    name = f"channel=U_log/date={date}/hour={hour:02}"
    archive = SimpleNamespace(state=SimpleNamespace(hours=[name]), storage=NoStorage(), lock=nullcontext())
    compaction = Compaction(cast(SparkSession, None), cast(Archive, archive), most_files=1, file_bytes=1)
    assert compaction.due(datetime(2026, 11, 21, 11, 3, tzinfo=UTC)) == [name] * is_due
