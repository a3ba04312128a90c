"""What the sink makes of columns and options, and what it says of those that it cannot use."""

import re
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from futebus.spark.sink.outlet import SinkError
from futebus.spark.sink.sink import Target, target

from ...helpers.mounts import Mount

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
}


def aim(columns: str, **options: str | Path) -> Target:
    fields = [column.split() for column in columns.split(", ")]
    schema = StructType([StructField(name, TYPES[kind]) for name, kind in fields])
    found = target(schema, {name: str(value) for name, value in options.items()})
    assert isinstance(found, Target)
    return found


def test_a_channel(bus: Mount) -> None:
    found = aim("value string", path=bus / "B_log")
    assert (found.bus, found.channel, found.staging) == (bus.path, "B_log", None)
    assert found.columns == (0, None, None)


def test_the_channel_is_there_when_a_query_begins(bus: Mount) -> None:
    """Who wants to hear what will come needs a file to open."""
    aim("value string", path=bus / "B_log")
    assert (bus / "B_log").exists()


def test_channels_by_column(bus: Mount, place: Path) -> None:
    options: dict[str, str | Path] = {"PATH": f"{bus.path}/", "Delivery": "Staged", "STAGINGlocation": place / "a" / "b"}
    found = aim("Address string, CHANNEL string, Value binary", **options)
    assert (found.bus, found.channel, found.staging) == (bus.path, None, place / "a" / "b")
    assert found.columns == (2, 1, 0)
    assert (place / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("channel string", "there is no column `value`, which is the line to be sent"),
        ("value string, Offset bigint", "there is a column `Offset`: a bus takes value, channel and address only"),
        ("value string, VALUE string", "there are two columns `value`"),
        ("value bigint", "the column `value` is BIGINT: it must be STRING or BINARY"),
        ("value string, channel binary", "the column `channel` is BINARY: it must be STRING"),
        ("value string, address int", "the column `address` is INT: it must be STRING"),
    ],
)
def test_columns_that_cannot_be(columns: str, sentence: str, bus: Mount) -> None:
    with pytest.raises(SinkError, match=f"^{re.escape(sentence)}$"):
        aim(columns, path=bus / "A_chat")


WRONG: list[tuple[str, dict[str, str], str]] = [
    ("", {}, "there is no path: it is a channel, such as /mnt/bus/B_log, or the bus if there is a column `channel`"),
    ("", {"path": "bus/B_log"}, "path is a local path that begins with a slash, not 'bus/B_log'"),
    ("", {"path": "file:/bus/B_log"}, "path is a local path that begins with a slash, not 'file:/bus/B_log'"),
    ("", {"path": "BUS"}, "BUS is a directory: without a column `channel`, the path is a channel, such as BUS/B_log"),
    ("", {"path": "BUS/log"}, "'log' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
    ("", {"path": "BUS/.U_a"}, "'.U_a' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
    ("", {"path": "BUS/_stat"}, "'_stat' is not the name of a channel: it begins with U, S, A or B and has no slash in it"),
    ("", {"path": "BUS/B" + "x" * 255}, f"the channel name '{'B' + 'x' * 255}' is longer than 255 bytes"),
    ("", {"path": "/nowhere/B_log"}, "there is no directory /nowhere"),
    ("", {"path": "PLACE/B_log"}, "no bus is mounted on PLACE"),
    ("", {"path": "BUS/B_file/B_log"}, "BUS/B_file is a file and not the directory of a bus"),
    (", address string", {"path": "BUS/S_x"}, "S_x takes no addresses: a column `address` is for A channels only"),
    (", channel string", {"path": "BUS/B_file"}, "BUS/B_file is a file and not the directory of a bus"),
    (", channel string", {"path": "BUS/B_new"}, "there is no directory BUS/B_new"),
    ("", {"delivery": "exact"}, "delivery is direct or staged, not 'exact'"),
    (
        "",
        {"delivery": "staged"},
        "there is no stagingLocation: delivery=staged needs one, a directory that driver and executors share",
    ),
    (
        "",
        {"delivery": "staged", "stagingLocation": "hdfs://x/y"},
        "stagingLocation is a local path that begins with a slash, not 'hdfs://x/y'",
    ),
    (
        "",
        {"delivery": "staged", "stagingLocation": "BUS/staging"},
        "BUS/staging cannot be written: Operation not permitted",
    ),
]
"""Columns beside `value`, options, and what is said of them. BUS and PLACE are directories with and without a bus."""


def test_options_that_cannot_be(bus: Mount, place: Path) -> None:
    bus.touch("B_file")

    def real(text: str) -> str:
        return text.replace("BUS", str(bus.path)).replace("PLACE", str(place))

    for columns, options, sentence in WRONG:
        given = {"path": "BUS/B_log", **options} if options else {}
        with pytest.raises(SinkError, match=f"^{re.escape(real(sentence))}$"):
            aim(f"value string{columns}", **{name: real(value) for name, value in given.items()})
