"""The short form of the trials of the bus. `scripts/torture` goes on for as long as one likes."""

import re
import sys
from pathlib import Path

import pytest

from . import bus
from .crooked import WAYS
from .trial import Counts, silent
from .trials import TRIALS, programs


@pytest.mark.timeout(900)  # the machine may be busy, and all of this is work
@pytest.mark.parametrize("seed", [1, 2])
def test_random_programs_see_nothing_that_the_contract_does_not_allow(place: Path, seed: int) -> None:
    scale = 1.0
    while not is_much(programs(new_place(place, scale), seed, scale, silent)):
        scale *= 2
        assert scale < 20, "everything happens, in a few minutes at the latest"


def is_much(counts: Counts) -> bool:
    """Whether so much has happened that it proves something: a busy machine may not get round to it in eight seconds."""
    assert counts["lost"] == 0
    happened = (counts["kills"], counts["calls ended by a signal"], counts["snapshots"])
    return min(counts["messages"], counts["messages read"], counts["messages to masters that live"]) > 1000 and all(happened)


def new_place(place: Path, number: float) -> Path:
    """An empty directory for a trial."""
    trial = place / f"{number:g}"
    trial.mkdir()
    return trial


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [*WAYS, "sleeps"])
def test_a_bus_that_cheats_is_found_out(place: Path, how: str) -> None:
    """Were it not, the trials would prove nothing."""
    command = [sys.executable, "-m", "tests.torture.crooked", how]
    words = {
        "loses": "has lost",
        "doubles": "2 times",
        "alters": "nobody has written",
        "misleads": "from its like|messages for or from|2 times",  # to a fellow; to another address; to one who gets all anyway
        "overtakes": "out of order",
        "sleeps": "waits in read|hangs in",
    }
    found = ""
    seconds = 2.0
    # A busy machine may not get round to many messages. And those few may say it otherwise: what overtakes a notice of a client's
    # end makes that wrong, and nothing else.
    while not re.search(words[how], found) and seconds < 100:
        try:
            bus.torture(new_place(place, seconds), seed=3, seconds=seconds, deadline=30, command=command)
        except AssertionError as error:
            found = str(error)
        seconds *= 2
    assert re.search(words[how], found), found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(TRIALS))
def test_a_trial(place: Path, name: str) -> None:
    trial = TRIALS[name]
    assert trial.run(place, trial.short, silent)
