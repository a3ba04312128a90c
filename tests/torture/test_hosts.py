"""The short form of the torture of the hosts. `scripts/torture hosts` goes on for as long as one likes."""

import re
from pathlib import Path

import pytest

from .hosts.rounds import play

ROUNDS = [
    ("kept", "kills"),
    ("kept", "all"),
    ("live", "kills"),
    ("live", "server"),
    ("live", "buses"),
    ("ring", "network"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "harm"), ROUNDS)
def test_hosts_stand_what_is_done_to_them(place: Path, kind: str, harm: str) -> None:
    counts = play(place, kind, harm, 1, 2)
    assert counts["lines heard"]
    assert not counts["lost"]


# Whether a stream or a master lacks lines is chance; who loses the very last ones has these waited for in vain.
LOST = r"which has others|has all that was accepted|the last lines are delivered|the master has \d+ lines of"

CROOKS = [
    ("kept", "kills", "loses", LOST),
    ("kept", "kills", "doubles", "lines twice"),
    ("live", "kills", "overtakes", "out of order"),
    ("live", "network", "alters", "what nobody has written"),
    ("live", "kills", "loses", "were told of|all hear all others"),
    ("live", "server", "hides", "0 were told of"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "harm", "how", "words"), CROOKS)
def test_who_cheats_is_found_out(place: Path, kind: str, harm: str, how: str, words: str) -> None:
    """Were it not, the rounds would prove nothing."""
    found = ""
    seconds = 1.0
    while not found and seconds < 50:  # a busy machine may not get round to many messages
        here = place / f"{seconds:g}"
        here.mkdir()
        try:
            play(here, kind, harm, 2, seconds, prefix=["tests.torture.hosts.crooked", how])
        except AssertionError as error:
            found = str(error)
        seconds *= 2
    assert re.search(words, found), found
