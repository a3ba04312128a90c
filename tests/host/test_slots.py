"""What is kept in a file survives, whatever is torn."""

import mmap
import os
import random
from collections.abc import Callable, Iterator
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
    for start in range(0, os.fstat(file).st_size, SLOT):
        os.pwrite(file, b"torn", start)
    assert look(file) is None
    assert Slots(file).is_damaged


class Disk:
    """A disk under a map: which contents each of its pages may have if the power is lost now.

    The system may have brought any page there at any time, each by itself, and the last one that it wrote in part.
    """

    def __init__(self, mapped: mmap.mmap, before: "Disk | None", on_flush: Callable[[], None]) -> None:
        self._mapped, self._on_flush = mapped, on_flush
        self._pages: list[set[bytes]] = (
            before._pages if before else [{bytes(mmap.PAGESIZE)} for _ in range(0, len(mapped), mmap.PAGESIZE)]
        )
        self._note()

    def _now(self, number: int) -> bytes:
        return self._mapped[number * mmap.PAGESIZE : (number + 1) * mmap.PAGESIZE]

    def _note(self) -> None:
        for number, page in enumerate(self._pages):
            page.add(self._now(number))

    def __getitem__(self, where: slice) -> bytes:
        return self._mapped[where]

    def __setitem__(self, where: slice, content: bytes) -> None:
        middle = where.start + len(content) // 2
        for begin, end in ((where.start, middle), (middle, where.stop)):
            self._mapped[begin:end] = content[begin - where.start : end - where.start]
            self._note()

    def flush(self, start: int = 0, size: int | None = None) -> None:
        self._on_flush()
        first = start // mmap.PAGESIZE
        for number in range(first, first + (len(self._mapped) if size is None else size) // mmap.PAGESIZE):
            self._pages[number] = {self._now(number)}

    def close(self) -> None:
        self._mapped.close()

    def after_a_loss_of_power(self, chance: random.Random) -> bytes:
        """What may be there then."""
        found = []
        for page in self._pages:
            versions = sorted(page)
            one, other = chance.choice(versions), chance.choice(versions)
            cut = chance.randrange(mmap.PAGESIZE) if chance.random() < 0.3 else mmap.PAGESIZE
            found.append(one[:cut] + other[cut:])
        return b"".join(found)


@pytest.mark.parametrize("seed", range(30))
def test_what_was_flushed_survives_a_loss_of_power(file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """At each point: while something is kept or brought to the disk, and after a kill and a new beginning."""
    chance = random.Random(seed)
    real, disk = mmap.mmap, None
    kept, flushed = [b""], 0

    def lose_power() -> None:
        for number in range(20):
            image = tmp_path / f"image{number}"
            image.write_bytes(disk.after_a_loss_of_power(chance) if disk else b"")
            with image.open("rb") as copy:
                found = look(copy.fileno())
            assert (found or b"") in kept[flushed:], "it is there, as it was flushed, or was kept since"

    def mapped(descriptor: int, size: int) -> Disk:
        nonlocal disk
        disk = Disk(real(descriptor, size), disk, lose_power)
        return disk

    monkeypatch.setattr(mmap, "mmap", mapped)
    slots = Slots(file)
    for _ in range(60):
        what = chance.random()
        if what < 0.6:
            kept.append(bytes(chance.choices(b"0123456789", k=chance.choice((10, 5000, MOST)))))
            slots.keep(kept[-1])
        elif what < 0.8:
            slots.flush()
            flushed = len(kept) - 1
        elif what < 0.9:
            slots = Slots(file)  # the one before was killed
            assert (slots.content or b"") == kept[-1]
        lose_power()


def test_what_is_kept_while_another_thread_flushes_is_flushed_next(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, news = mmap.mmap, [b"the new one"]

    def flushing() -> None:
        if slots.content == b"the one before" and news:
            slots.keep(news.pop())

    monkeypatch.setattr(mmap, "mmap", lambda descriptor, size: Disk(real(descriptor, size), None, flushing))
    slots = Slots(file)
    slots.flush()
    slots.keep(b"the one before")
    slots.flush()
    assert slots.content == b"the new one"
    slots.flush()
    os.pwrite(file, bytes(2 * SLOT), 0)
    assert look(file) == b"the new one"


def test_a_file_of_two_slots_is_taken_over(file: int) -> None:
    """As versions before have left it: it is safe before anything is changed."""
    slots = Slots(file)
    for number in range(3):
        slots.keep(b"%d" % number * 5000)
    os.ftruncate(file, 2 * SLOT)
    again = Slots(file)
    assert again.content == b"2" * 5000
    os.pwrite(file, bytes(2 * SLOT), 0)
    assert look(file) == b"2" * 5000
