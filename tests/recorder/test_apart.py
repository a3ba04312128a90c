"""What is done in a thread, so that nobody waits for it for ever: who gets what it returns."""

import threading
from collections.abc import Callable

import pytest

from futebus.recorder.apart import apart

from ..helpers.waiting import DEADLINE, until


def test_what_is_returned_when_it_was_given_up_is_undone() -> None:
    goes_on = threading.Event()
    undone: list[int] = []

    def work(wait: Callable[[float], bool]) -> int:
        assert not wait(DEADLINE)
        assert goes_on.wait(DEADLINE)
        return 7

    assert apart(work, lambda seconds: False, undo=undone.append) is None
    assert not undone
    goes_on.set()
    until(lambda: undone == [7], "it is undone")


def test_what_is_about_to_be_returned_is_waited_for() -> None:
    undone: list[int] = []

    def work(wait: Callable[[float], bool]) -> int:
        assert not wait(DEADLINE)
        return 7

    assert apart(work, lambda seconds: False, grace=DEADLINE, undo=undone.append) == 7
    assert not undone


def test_an_error_is_met_by_who_waits() -> None:
    def work(wait: Callable[[float], bool]) -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        apart(work)
