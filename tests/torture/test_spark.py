"""The short form of the crash trials of Spark. `scripts/torture spark` goes on for as long as one likes."""

import sys
from pathlib import Path

import pytest

from .crooked_archive import WAYS, changed
from .spark import torture, trial_of
from .trial import silent


@pytest.mark.timeout(1500)  # the machine may be busy, and it is as many harms as it is
@pytest.mark.parametrize("has_recorder", [True, False], ids=["recorder", "query drains"])
def test_every_accepted_line_is_archived_once_whoever_is_killed(place: Path, has_recorder: bool) -> None:
    verdict = torture(place, seed=4, has_recorder=has_recorder, seconds=8, least=1)
    assert verdict.accepted
    assert verdict.archived > 1000


@pytest.mark.timeout(1500)
def test_a_bus_that_dies_takes_its_queue_and_a_full_disk_takes_nothing(place: Path) -> None:
    verdict = torture(place, seed=165, has_recorder=True, seconds=9, harms=["bus", "disk"], least=2)
    assert verdict.kills["bus"]
    assert verdict.kills["disk"]


# ---------------------------------------------------------------------------------------------- that it can fail


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("how", "words"),
    [("loses", "lines were lost"), ("doubles", "in the archive twice"), ("alters", "nobody has written|archive twice|lost")],
)
def test_a_bus_that_cheats_a_recorder_is_found_out(place: Path, how: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        torture(place, 1, True, 3, harms=(), bus=[sys.executable, "-m", "tests.torture.crooked", how])


@pytest.mark.timeout(1500)
def test_an_archive_that_cheats_is_found_out(place: Path) -> None:
    with trial_of(place, 1, has_recorder=True) as trial:
        trial.start_writers()
        trial.run(2, silent)
        trial.settle(silent)
        assert trial.judge().lost == 0
        for change, words in WAYS.values():
            with changed(trial.disk / "archive", change), pytest.raises(AssertionError, match=words):
                trial.judge()
        assert trial.judge().archived > 100, "and as it was it is in order"
