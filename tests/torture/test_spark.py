"""The short form of the crash trials of Spark. `scripts/torture spark` goes on for as long as one likes."""

from pathlib import Path

import pytest

from .spark import torture


@pytest.mark.timeout(300)
@pytest.mark.parametrize("has_recorder", [True, False], ids=["recorder", "query drains"])
def test_every_accepted_line_is_archived_once_whoever_is_killed(place: Path, has_recorder: bool) -> None:
    verdict = torture(place, seed=4, has_recorder=has_recorder, seconds=8)
    assert verdict.accepted
    assert verdict.archived > 1000


@pytest.mark.timeout(300)
def test_a_bus_that_dies_takes_its_queue_and_a_full_disk_takes_nothing(place: Path) -> None:
    verdict = torture(place, seed=165, has_recorder=True, seconds=9, harms=["bus", "disk"])
    assert verdict.kills["bus"]
    assert verdict.kills["disk"]
