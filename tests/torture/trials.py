"""All trials of the bus, each with how hard it is tried in the test suite and in ten minutes of scripts/torture."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from . import bus, ends, faults, leaks, services, storms
from .trial import Counts, Show


class Trial(NamedTuple):
    """One of them."""

    run: Callable[[Path, float, Show], Counts]
    short: float
    long: float


TRIALS = {
    "storm on read": Trial(storms.storm, 1, 10),
    "storm on poll": Trial(partial(storms.storm, polls=True), 1, 10),
    "killed while waiting": Trial(storms.killed_while_waiting, 1, 5),
    "services": Trial(services.services, 1, 10),
    "no descriptors": Trial(ends.descriptors, 1, 5),
    "no memory": Trial(ends.memory, 1, 20),
    "no more clients": Trial(ends.clients, 1, 10),
    "nobody reads": Trial(ends.queues, 1, 25),
    "no newline": Trial(ends.endless_message, 1, 64),
    "opens of a service": Trial(ends.opens, 1, 500),
    "many channels": Trial(ends.channels, 1, 10),
    "daemon stopped": Trial(faults.stopped, 1, 15),
    "errors inside": Trial(faults.errors_inside, 1, 4),
    "error in a signal": Trial(faults.error_in_a_signal, 1, 1),
    "daemon ends under load": Trial(faults.ends_under_load, 1, 5),
    "churn": Trial(leaks.churn, 1, 18.5),
}
"""By name, but for the random programs."""


def programs(place: Path, seed: int, scale: float, show: Show) -> Counts:
    """The random programs: eight seconds at scale 1."""
    return bus.torture(place, seed, 8 * scale, show)
