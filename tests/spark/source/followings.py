"""Streams of a real server as Spark's queries follow them, for tests."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from futebus.spark.remote import parse_remote
from futebus.spark.source.following import Following
from futebus.spark.source.query import Offset
from tests.helpers.nats import Server
from tests.helpers.streams import Filled, Filling

Stream = Callable[..., DataFrame]


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)


@pytest.fixture
def stream(spark: SparkSession) -> Stream:
    """Makes streams of a stream."""

    def make(url: str, schema: str | None = None, **options: object) -> DataFrame:
        given = {"startingOffsets": "earliest", **options}
        reader = spark.readStream.format("futebus").options(**{name: str(value) for name, value in given.items()})
        return (reader.schema(schema) if schema else reader).load(url)

    return make


def following(filled: Filled, **options: object) -> Following:
    given = {"path": filled.url, "startingOffsets": "earliest", "pollTimeoutMs": "100", **options}
    return Following(parse_remote({name: str(value) for name, value in given.items()}))


def texts(stream: Following, start: Offset | None, end: Offset) -> list[bytes]:
    """What a batch has."""
    parts = list(stream.partitions(start or stream.initial(), end))
    return [message.data for part in parts for message in stream.reader.messages(part.first, part.end)]
