"""The short form of the trials of the bus. `scripts/torture` goes on for as long as one likes."""

import re
import sys
from pathlib import Path

import pytest

from . import bus
from .crooked import WAYS
from .trial import silent
from .trials import TRIALS, programs


@pytest.mark.timeout(600)  # the machine may be busy, and all of this is work
@pytest.mark.parametrize("seed", [1, 2])
def test_random_programs_see_nothing_that_the_contract_does_not_allow(place: Path, seed: int) -> None:
    counts = programs(place, seed, 1, silent)
    assert counts["lost"] == 0
    assert min(counts["messages"], counts["messages read"], counts["messages to masters that live"]) > 1000
    assert counts["kills"]
    assert counts["calls ended by a signal"]
    assert counts["snapshots"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [*WAYS, "sleeps"])
def test_a_bus_that_cheats_is_found_out(place: Path, how: str) -> None:
    """Were it not, the trials would prove nothing."""
    command = [sys.executable, "-m", "tests.torture.crooked", how]
    words = {
        "loses": "has lost",
        "doubles": "2 times",
        "alters": "nobody has written",
        "misleads": "from its like",
        "overtakes": "out of order",
        "sleeps": "waits in read|hangs in",
    }
    found = ""
    seconds = 2.0
    while not found and seconds < 100:  # a busy machine may not get round to many messages
        trial = place / f"{seconds:g}"
        trial.mkdir()
        try:
            bus.torture(trial, seed=3, seconds=seconds, deadline=30, command=command)
        except AssertionError as error:
            found = str(error)
        seconds *= 2
    assert re.search(words[how], found), found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TRIALS)
def test_a_trial(place: Path, name: str) -> None:
    trial = TRIALS[name]
    assert trial.run(place, trial.short, silent)
