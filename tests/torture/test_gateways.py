"""The short form of the torture of the gateways. `scripts/torture gateways` goes on for as long as one likes."""

import re
from pathlib import Path

import pytest

from .gateways.harms import play

ROUNDS = [
    ("tmb", "fuzz"),
    ("sbus", "flood"),
    ("sbus --channel", "kills"),
    ("ubus .method", "kills"),
    ("ubus .rest", "fuzz"),
    ("ubus .signal", "stuck"),
    ("ubus .property", "silence"),
    ("ubus script", "stuck"),
]
"""Each gateway once, and each harm."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "harm"), ROUNDS)
def test_a_gateway_stands_what_is_done_to_it(place: Path, name: str, harm: str) -> None:
    counts = play(place, name, harm, 1, 0.4)
    assert counts["messages"]
    assert not counts["lost"]


CROOKS = [
    ("tmb", "overtakes", "out of order"),
    ("sbus", "doubles", "twice"),
    ("ubus .rest", "alters", "for an answer to"),
    ("ubus script", "loses", "missing"),
    ("ubus script", "litters", "has left its socket behind"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "how", "words"), CROOKS)
def test_a_gateway_that_cheats_is_found_out(place: Path, name: str, how: str, words: str) -> None:
    """Were it not, the rounds would prove nothing."""
    found = ""
    seconds = 0.4
    while not found and seconds < 50:  # a busy machine may not get round to many messages
        here = place / f"{seconds:g}"
        here.mkdir()
        try:
            play(here, name, "flood", 2, seconds, prefix=["tests.torture.gateways.crooked", how])
        except AssertionError as error:
            found = str(error)
        seconds *= 2
    assert re.search(words, found), found
