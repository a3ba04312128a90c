"""An archive may lie in any directory, and a channel may have any name: Spark reads what it has written, and nothing else."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from futebus.archive.archive import Archive
from futebus.archive.storage import Storage
from futebus.spool import SpoolWriter

from .archives import lines, read
from .test_parquet import batch, compaction

ODD = ["a b", "a%20b", "100%", "a+b", "[a]", "{a,b}", "*", "a?", "a\\b", "a:b", "a#b", "it's", '"a"', "wörld", "-a", "new\nline"]
PARTITIONS = ["channel=B_a b}", "channel=B_%5Ba] b}"]


@pytest.mark.parametrize("name", ODD)
def test_what_is_written_is_what_is_read(session: SparkSession, tmp_path: Path, name: str) -> None:
    root = tmp_path / name / "archive"
    storage = Storage(session, str(root))
    for number, directory in enumerate([*PARTITIONS, "plain"]):
        session.range(number + 1).coalesce(1).write.parquet(storage.url(directory))
        assert (root / directory).is_dir()
        (file,) = [file.name for file in storage.files(directory) if file.name.endswith(".parquet")]
        for place in (directory, file):
            assert storage.parquet(session, "id LONG", place).count() == number + 1
    both = storage.parquet(session, "id LONG, channel STRING", *PARTITIONS, is_partitioned=True)
    assert both.where("channel = 'B_[a] b}'").count() == 2
    assert both.count() == 3
    assert [*tmp_path.iterdir()] == [tmp_path / name]


def test_lines_are_archived_and_compacted_in_any_directory(session: SparkSession, tmp_path: Path) -> None:
    root, channel = tmp_path / " ".join(each for each in ODD if "\n" not in each), "B_ %41[a]{b}*?\\ü"
    (tmp_path / "spool").mkdir()
    SpoolWriter(tmp_path / "spool" / "B", channel).close()
    archive = Archive(session, str(root), lambda _: tmp_path / "spool" / "B")
    said = []
    for begin in range(0, 20, 4):
        new = lines(channel, range(begin, begin + 4), f"2026-11-21T10:{begin + 10}:00")
        assert archive.add(batch(session, new)) == 4
        said += new
    assert read(root) == said
    compacting = compaction(session, archive)
    (hour,) = compacting.due(datetime(2026, 11, 23, tzinfo=UTC))
    assert compacting.compact(hour) == 4
    assert read(root) == said
    assert {each.name for each in tmp_path.iterdir()} == {root.name, "spool"}
