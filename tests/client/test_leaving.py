"""When a channel that was removed is left: not before what waited then is taken, nor for ever after."""

import os
from collections.abc import Iterator

import pytest

from futebus.client.inquire import inquire
from futebus.client.leaving import LEAVE_SECONDS, LOOK_SECONDS, SOON_SECONDS, Leaving

from ..helpers.mounts import Mount, Mounting


class Both:
    """A reader of a B channel, and a writer."""

    def __init__(self, bus: Mount, name: str) -> None:
        self.reader = os.open(bus / name, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
        self.writer = os.open(bus / name, os.O_WRONLY)
        self.leaving = Leaving()

    def say(self, *lines: bytes) -> None:
        for line in lines:
            os.write(self.writer, line)

    def read(self, size: int = 1 << 20) -> bytes:
        return os.read(self.reader, size)

    def begin(self) -> None:
        self.leaving.begin(inquire(self.reader))

    @property
    def is_over(self) -> bool:
        return self.leaving.is_over(inquire(self.reader))

    @property
    def left(self) -> int:
        return self.leaving.left(inquire(self.reader))

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


@pytest.fixture
def both(bus: Mount) -> Iterator[Both]:
    made = Both(bus, "B_x")
    yield made
    made.close()


def test_nothing_waits(both: Both) -> None:
    assert (both.leaving.has_begun, both.leaving.pause) == (False, LOOK_SECONDS)
    both.say(b"a\n")
    both.read()
    both.begin()
    assert (both.leaving.has_begun, both.leaving.pause) == (True, SOON_SECONDS)
    assert both.is_over
    assert not both.left


def test_what_waited_is_taken_though_others_go_on_for_ever(both: Both) -> None:
    both.say(b"a\n", b"b\n")
    both.begin()
    for left in (2, 1):
        both.say(b"more\n")
        assert (both.is_over, both.left) == (False, left)
        both.read()
    # Whether it has the second one to its end, the bus tells when it has begun the next.
    assert both.left == 0 or not both.is_over
    both.say(b"more\n")
    both.read()
    assert (both.is_over, both.left) == (True, 0)


def test_one_that_was_read_in_part_is_taken_to_its_end(both: Both) -> None:
    both.say(b"long\n")
    both.read(2)
    both.begin()
    both.say(b"more\n")
    assert (both.is_over, both.left) == (False, 0)
    both.read()
    both.read()
    assert both.is_over


def test_what_the_bus_drops_is_not_waited_for(mounting: Mounting) -> None:
    both = Both(mounting("max_queue=4"), "B_x")
    both.say(*[b"x\n"] * 6)
    both.begin()
    assert both.leaving.dropped(inquire(both.reader)) == 2
    both.say(*[b"y\n"] * 3)
    assert (both.is_over, both.left) == (False, 1)
    both.say(b"y\n")
    assert both.left == 0
    both.read()
    both.say(b"y\n")
    assert both.is_over
    assert both.leaving.dropped(inquire(both.reader)) == 4
    assert both.leaving.dropped(inquire(both.reader)) == 0
    both.close()


def test_it_is_late_in_the_end(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.say(b"a\n", b"b\n")
    both.begin()
    assert not both.is_over
    assert LEAVE_SECONDS > 10 * SOON_SECONDS
    monkeypatch.setattr("futebus.client.leaving.LEAVE_SECONDS", 0.0)
    both.begin()
    assert (both.is_over, both.left) == (True, 2)
