"""What a process of the crowd is told to do, and how it tells of itself."""

import os
import random
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..record import Record


@dataclass
class Orders:
    """What one process is to do."""

    who: str
    role: str
    """What it is: see `crowd.ROLES`."""
    name: str
    """The kind of gateway."""
    address: str
    """Of the gateway."""
    channel: str
    """Its path on the bus."""
    records: str
    """The directory of the records."""
    seed: int
    side: str = "gateway"
    """Where it connects: `gateway` or `bus`."""
    ends: int = 1
    """How often it hears the last text."""
    window: int = 50
    """How many of its messages may be on the way."""
    burst: int = 10
    """How many it sends at once."""
    pause: float = 0.02
    """Seconds between two bursts at most."""
    limit: int = 1 << 60
    """How many it sends in all."""
    board: str = ""
    """A file: see `board`."""
    row: int = 0
    """Its row there."""
    is_slow: bool = False
    """Whether nobody waits for it to hear what was said."""
    count: int = 0
    """How many connections it makes, of who makes many."""
    may_fail: bool = False
    """Whether a request may be answered with an error, since its service is killed."""

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        return asdict(self)


class Worker:
    """A process of the crowd: it has orders, dice and a record."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.who = orders.who
        self.dice = random.Random(orders.seed)
        self.note = Record(Path(orders.records), orders.who)
        self.is_over = False
        """Whether it was told to come to its end."""
        self.is_awake = False
        """Whether one that sleeps was told to read."""
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGUSR1, self._wake)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.is_over = True

    def _wake(self, number: int, frame: FrameType | None) -> None:
        self.is_awake = True

    def tell(self, what: str) -> None:
        """Tells who has started the crowd: `ready`, `quiet`."""
        os.write(1, f"{what} {self.who}\n".encode())
