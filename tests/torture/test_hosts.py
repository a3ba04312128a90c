"""The short form of the torture of the hosts. `scripts/torture hosts` goes on for as long as one likes."""

import re
from pathlib import Path

import pytest

from .hosts.judge import Judge
from .hosts.rounds import play
from .hosts.spread import judge_rows

ROUNDS = [
    ("kept", "kills"),
    ("kept", "all"),
    ("live", "kills"),
    ("live", "server"),
    ("live", "buses"),
    ("ring", "network"),
    ("spread", "all"),
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kind", "harm"), ROUNDS)
def test_hosts_stand_what_is_done_to_them(place: Path, kind: str, harm: str) -> None:
    counts = play(place, kind, harm, 1, 2)
    assert counts["lines heard"]
    assert not counts["lost"]


# Whether a stream or a master lacks lines is chance; who loses the very last ones has these waited for in vain.
LOST = r"which has others|has all that was accepted|line \d+ is in the stream|last lines are delivered|master has \d+ lines of"

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


LINES = [b"0 0 \n0 1 x\n", b"1 0 \n"]
ROWS = [
    {"subject": "lines.0", "sequence": 1, "offset": 0, "value": "0 0 ", "host": "bus0"},
    {"subject": "lines.0", "sequence": 1, "offset": 1, "value": "0 1 x", "host": "bus0"},
    {"subject": "lines.1", "sequence": 2, "offset": 0, "value": "1 0 ", "host": "bus1"},
]


def test_an_archive_that_has_everything_is_right() -> None:
    judge = Judge()
    judge_rows(judge, LINES, ROWS)
    assert judge.conclude() == {"lines heard": 3, "lines archived": 3, "lost": 0, "lines that came twice, as announced": 0}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS[1:], "which has others"),
        ([*ROWS, ROWS[0] | {"sequence": 3}], "1 lines twice"),
        ([ROWS[0] | {"offset": 1}, ROWS[1] | {"offset": 0}, ROWS[2]], "out of order"),
        ([ROWS[0] | {"value": "0 0"}, *ROWS[1:]], "what nobody has written"),
        ([*ROWS[:2], ROWS[2] | {"host": "bus0"}], "have come from elsewhere"),
    ],
)
def test_an_archive_that_is_wrong_is_found_out(rows: list[dict[str, object]], words: str) -> None:
    judge = Judge()
    judge_rows(judge, LINES, rows)
    with pytest.raises(AssertionError, match=words):
        judge.conclude()
