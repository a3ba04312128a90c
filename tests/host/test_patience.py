"""Patience that lasts as long as it says, and longer by the time in which its process was stopped."""

from futebus.host.patience import LOOK_SECONDS, MOST_SECONDS, Patience


def test_it_ends_when_its_seconds_are_over() -> None:
    now = 100.0
    patience = Patience(10 * LOOK_SECONDS, lambda: now)
    seconds = 0.0
    while wait := patience.pause():
        assert wait <= LOOK_SECONDS
        seconds += wait
        now += wait
    assert seconds == 10 * LOOK_SECONDS
    assert patience.left() == 0


def test_a_time_in_which_nobody_could_look_does_not_count() -> None:
    now = 100.0
    patience = Patience(10.0, lambda: now)
    now += 1000
    assert patience.left() == 10 - MOST_SECONDS
    now += LOOK_SECONDS
    assert patience.left() == 10 - MOST_SECONDS - LOOK_SECONDS
