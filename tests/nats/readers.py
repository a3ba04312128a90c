"""Readers of a stream, and messages that tell their numbers."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.reader import Reader
from futebus.nats.stream import Stream

from ..helpers.nats import Server
from ..helpers.waiting import DEADLINE

Reading = Callable[..., Reader]


@pytest.fixture
def reading(keeping: Server) -> Iterator[Reading]:
    """Makes readers of a stream."""
    made = []

    def read() -> Reader:
        made.append(Reader(address.read_servers(keeping.url), Access(), "LINES", "a test"))
        return made[-1]

    yield read
    for reader in made:
        reader.close()


def fill(reader: Reader, count: int, size: int = 100, subjects: tuple[str, ...] = ("lines.a",)) -> None:
    """Publishes messages that tell their numbers, on subjects in turn."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        asked = [
            stream.jetstream.publish(
                subjects[number % len(subjects)], f"{number}\n".encode().rjust(size), DEADLINE, headers={"N": str(number)}
            )
            for number in range(count)
        ]
        for begin in range(0, count, 100):
            await asyncio.gather(*asked[begin : begin + 100])

    reader.do(work)


def numbers(reader: Reader, *what: object, **how: bool) -> list[int]:
    """What messages tell, and what was found out of their order."""
    found = list(reader.messages(*what, **how))  # type: ignore[arg-type]
    assert [message.sequence for message in found] == sorted({message.sequence for message in found})
    return [int(message.headers["N"]) for message in found]
