"""When it is said what keeps lines from being published."""

import itertools

from futebus.host.troubles import MOST_RETURNS, MOST_SENTENCES, SAY_SECONDS, Troubles

DAY = 24 * 3600


class Clock:
    """A clock that stands."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def said_in_a_day(*sentences: str) -> list[tuple[float, str]]:
    """What is said when something is tried every five seconds, and these go wrong in turn."""
    clock, said = Clock(), []
    troubles = Troubles(clock)
    while clock.now < DAY:
        for sentence in sentences:
            if troubles.is_due(sentence):
                said.append((clock.now, sentence))
            clock.now += 5
    return said


def test_the_same_is_said_more_and_more_seldom() -> None:
    said = said_in_a_day("away")
    assert [at for at, _ in said[:4]] == [0, 60, 180, 420]
    assert len(said) < 14
    assert max(after - before for (before, _), (after, _) in itertools.pairwise(said)) <= SAY_SECONDS[1] + 5


def test_another_is_said_at_once_though_not_for_every_try() -> None:
    said = said_in_a_day("away", "full")
    assert said[:2] == [(0, "away"), (5, "full")]
    assert len(said) < 2 * 14


def test_sentences_with_numbers_share_their_time() -> None:
    said = said_in_a_day(*(f"connection {number} failed" for number in range(1000)))
    assert len(said) < (MOST_SENTENCES + 1) * 14


def test_what_comes_back_is_said_at_once() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    assert not troubles.end()
    assert troubles.is_due("away")
    assert not troubles.is_due("away")
    assert troubles.end()
    assert troubles.is_well
    assert troubles.is_due("away")
    assert not troubles.is_well


def test_what_goes_and_comes_back_again_and_again_is_said_now_and_then() -> None:
    clock, said = Clock(), 0
    troubles = Troubles(clock)
    while clock.now < 3600:
        is_said = troubles.is_due("full")
        said += is_said
        clock.now += 1
        assert troubles.end() == is_said
    assert MOST_RETURNS < said <= MOST_RETURNS + 1 + 3600 / SAY_SECONDS[0]
    clock.now += SAY_SECONDS[0]
    assert troubles.is_due("full")


def test_what_lasts_is_said_soon_after_it_has_begun_whatever_was_before() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    for seconds in (10, 10, 10, 10 * 3600):
        end = clock.now + seconds
        while clock.now < end:
            troubles.is_due("away")
            clock.now += 5
        assert troubles.end()
        clock.now += 30
    begin = clock.now
    while not troubles.is_due("away"):
        clock.now += 5
    assert clock.now <= begin + SAY_SECONDS[0]
