"""Streams that tests fill: runs of lines as a bus's publisher says them, and messages of outsiders."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from futebus.nats import address, runs
from futebus.nats.access import Access
from futebus.nats.reader import Reader
from futebus.nats.state import State
from futebus.nats.stream import Overtaken, Stream, UnderWay

NAME = "LINES"
SPOOL = "0123456789abcdef0123456789abcdef"
TIME = 1_700_000_000_123_456_789
"""When all lines were taken."""


class Filled:
    """A stream, which listens to `lines.>`.

    Args:
        url: of its server.
        limits: as `Stream.make` has them.
    """

    def __init__(self, url: str, **limits: Any) -> None:
        self.url = f"{url}/{NAME}"
        self._reader = Reader(address.read_servers(url), Access(), NAME, "a test")
        self._limits = limits
        self._lines: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self.make()

    def make(self) -> None:
        """Makes it, if it is not there."""
        self.do(lambda stream: stream.make(["lines.>"], **self._limits))

    def do(self, work: Callable[[Stream], Any]) -> Any:
        """Does something with it."""
        return self._reader.do(work)

    @property
    def state(self) -> State:
        return self._reader.state()

    def say(self, *lines: str, subject: str = "lines.a", channel: str = "U_log", host: str = "alpha") -> int:
        """Adds a message with these lines. Returns its number."""
        where = runs.Where(SPOOL, self._lines[subject], len(lines), TIME, host, channel)
        return self._add(subject, "".join(f"{line}\n" for line in lines).encode(), runs.headers(where), len(lines))

    def outside(self, payload: bytes, subject: str = "lines.a") -> int:
        """Adds a message that has nothing of ours."""
        return self._add(subject, payload, {}, 0)

    def _add(self, subject: str, payload: bytes, headers: dict[str, str], count: int) -> int:
        async def added(stream: Stream) -> int:
            try:
                return await stream.publish(subject, payload, headers, self._last.get(subject, 0), str(self._lines[subject]))
            except (Overtaken, UnderWay):  # by itself, if a server died before it could say so
                last = await stream.last(subject)
                assert last is not None
                assert (last.data, last.sequence > self._last.get(subject, 0)) == (payload, True)
                return last.sequence

        self._last[subject] = self.do(added)
        self._lines[subject] += count
        return self._last[subject]

    def fill(self, count: int, lines: int = 10, **how: str) -> list[str]:
        """Adds `count` messages of so many lines. Returns these."""
        said = []
        for _ in range(count):
            begin = self._lines[how.get("subject", "lines.a")]
            said.append([f"line {number}" for number in range(begin, begin + lines)])
            self.say(*said[-1], **how)
        return [line for run in said for line in run]

    def purge(self, before: int) -> None:
        """Removes the messages before a number."""
        self.do(lambda stream: stream.jetstream.purge_stream(NAME, seq=before))

    def delete(self, number: int) -> None:
        """Removes a message."""
        self.do(lambda stream: stream.jetstream.delete_msg(NAME, number))

    def remake(self) -> None:
        """Makes it anew: another stream of the same name."""
        self.do(lambda stream: stream.jetstream.delete_stream(NAME))
        self._lines.clear()
        self._last.clear()
        time.sleep(0.002)  # its time tells it from the one before
        self.make()

    def close(self) -> None:
        self._reader.close()


Filling = Callable[..., Filled]


@pytest.fixture
def filling() -> Iterator[Filling]:
    """Makes streams: `filling(server.url, max_msgs=10)`."""
    made: list[Filled] = []

    def make(url: str, **limits: Any) -> Filled:
        made.append(Filled(url, **limits))
        return made[-1]

    yield make
    for filled in made:
        filled.close()


def put_back(patch: pytest.MonkeyPatch, seconds: int = 3600) -> None:
    """Puts back the clock of servers: what comes from now on has come earlier, as far as `Stream.stored` tells."""
    now, stored = time.time_ns(), Stream.stored

    async def earlier(stream: Stream, sequence: int) -> tuple[int, int] | None:
        found = await stored(stream, sequence)
        return found if found is None or found[1] < now else (found[0], found[1] - seconds * 10**9)

    patch.setattr(Stream, "stored", earlier)
