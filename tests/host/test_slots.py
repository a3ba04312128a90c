"""What is kept in a file survives, whatever is torn."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.host.slots import MOST, SLOT, Slots, look


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "slots", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_the_newest_is_kept(file: int) -> None:
    slots = Slots(file)
    assert slots.content is None
    assert not slots.is_damaged
    assert look(file) is None
    for number in range(5):
        slots.keep(b"%d" % number * number)
        assert look(file) == slots.content == b"%d" % number * number
    slots.flush()
    slots.close()
    assert Slots(file).content == b"4444"


def test_what_is_too_long_changes_nothing(file: int) -> None:
    slots = Slots(file)
    slots.keep(b"x" * MOST)
    with pytest.raises(ValueError, match="bytes are more than"):
        slots.keep(b"x" * (MOST + 1))
    assert look(file) == b"x" * MOST


@pytest.mark.parametrize("at", [0, 8, 16, 20, 24, 30])
def test_one_that_is_torn_leaves_the_one_before(file: int, at: int) -> None:
    slots = Slots(file)
    slots.keep(b"the one before")
    slots.keep(b"the new one")
    place = at  # the second is in the first slot
    byte = os.pread(file, 1, place)
    os.pwrite(file, bytes([byte[0] ^ 1]), place)
    again = Slots(file)
    assert again.content == b"the one before"
    again.keep(b"the next")
    assert look(file) == b"the next"
    os.pwrite(file, b"torn", SLOT)
    os.pwrite(file, b"torn", 0)
    assert look(file) is None
    assert Slots(file).is_damaged
