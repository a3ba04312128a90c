"""Threads that go where users lead them: each user has his own, and there are only so many."""

import os
from collections.abc import Callable
from functools import partial

import pytest

from futebus.view import complaints
from futebus.view.web import visits
from futebus.view.web.visits import MOST_OF_OTHERS, MOST_OF_USER, Visits

from ...helpers.waiting import DEADLINE

ANN, BOB = 64001, 64002

Threads = list[Callable[[], object]]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """Those that were begun: they run when the test says so."""
    begun: Threads = []
    monkeypatch.setattr("futebus.view.errands.start", begun.append)
    monkeypatch.setattr("futebus.view.errands.PATIENCE", DEADLINE)
    monkeypatch.setattr(visits, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(visits, "_places", visits._Places())
    return begun


def asked(**words: str) -> dict[int, Callable[[], str]]:
    return {{"ann": ANN, "bob": BOB}[user]: partial(str, word) for user, word in words.items()}


def test_who_hangs_has_no_second_thread_and_the_others_go_on(threads: Threads) -> None:
    known = Visits[str]()
    assert known.find(asked(ann="one", bob="one")) == {}
    ann, bob = threads
    bob()
    assert known.find(asked(ann="two", bob="two")) == {BOB: "one"}
    assert len(threads) == 2, "it is asked again with the next look"
    assert known.find(asked(ann="two", bob="two")) == {BOB: "one"}
    assert len(threads) == 3, "what was found last stays as long as nothing newer has come"
    threads[2]()
    assert known.find(asked(ann="three", bob="three")) == {BOB: "two"}
    ann()
    assert known.find(asked(ann="three")) == {ANN: "one"}


def test_of_who_does_not_come_back_nothing_is_told(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Visits[str]()
    known.find(asked(ann="one"))
    threads[0]()
    known.find(asked(ann="two"))
    assert known.find(asked(ann="two")) == {ANN: "one"}
    monkeypatch.setattr("futebus.view.errands.PATIENCE", -1.0)
    assert known.find(asked(ann="two")) == {}
    assert len(threads) == 2


def test_so_many_threads_and_no_more(threads: Threads) -> None:
    for _ in range(2 * MOST_OF_USER):
        Visits[str]().find(asked(ann="x"))
    assert len(threads) == MOST_OF_USER
    for user in range(65000, 65000 + 2 * MOST_OF_OTHERS):
        Visits[str]().find({user: str})
    assert len(threads) == MOST_OF_OTHERS
    for _ in range(2 * MOST_OF_USER):
        Visits[str]().find({os.getuid(): str})
    assert len(threads) == MOST_OF_OTHERS + MOST_OF_USER, "they take no place of who runs this"
    for thread in [*threads]:
        thread()
    known = Visits[str]()
    known.find(asked(bob="y"))
    threads[-1]()
    assert known.find(asked(bob="y")) == {BOB: "y"}


def test_what_fails_finds_nothing(threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(complaints, "_told", {})
    known = Visits[float]()
    for _ in range(3):
        assert known.find({ANN: lambda: 1 / 0}) == {}
        threads[-1]()
    # The records, and not their text: with Spark's logger in the process, it is JSON.
    assert [record.exc_info and record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]

    def refuse(run: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("futebus.view.errands.start", refuse)
    assert known.find({BOB: lambda: 1.0}) == {}
    assert not visits._places.taken(BOB)
