"""A query's batches as they are published on a subject of a stream, for tests."""

from pathlib import Path

import pytest

from futebus.nats import address, runs
from futebus.nats.access import Access
from futebus.nats.fetching import Fetched
from futebus.nats.reader import Reader
from futebus.spark.remote import Place
from futebus.spark.sink.numbered import Publisher
from futebus.spark.sink.staging import Portion, stage

from ...helpers.nats import Server
from ...helpers.streams import Filled, Filling

QUERY = "a-query"


def place_of(url: str, subject: str = "lines.out") -> Place:
    return Place(address.read_servers(url), Access(), "LINES", subject, f"{url}/LINES/{subject}", 30.0)


def staged(directory: Path, batch: int, *texts: str) -> list[Portion]:
    """A batch as tasks stage it: a partition for each text."""
    return [
        portion
        for partition, text in enumerate(texts)
        for portion in stage(directory, batch, partition, [("lines.out", text.encode())])
    ]


def publish(url: str, directory: Path, batch: int, *texts: str) -> None:
    portions = staged(directory, batch, *texts)
    with Publisher(place_of(url), directory, QUERY) as publisher:
        publisher.publish(batch, portions)


def messages(url: str, subject: str | None = "lines.out") -> list[Fetched]:
    """What a stream has; numbers of lines follow on each other."""
    reader = Reader(address.read_servers(url), Access(), "LINES", "a test")
    try:
        state = reader.state()
        found = list(reader.messages(state.first, state.last + 1, subject))
    finally:
        reader.close()
    return found


def text_of(found: list[Fetched]) -> str:
    line = None
    for message in found:
        where = runs.read(message.headers)
        assert where is not None
        assert where.line == (where.line if line is None else line)
        assert where.lines == message.data.count(b"\n")
        line = where.next
    return b"".join(message.data for message in found).decode()


@pytest.fixture
def filled(keeping: Server, filling: Filling) -> Filled:
    """A stream."""
    return filling(keeping.url)
