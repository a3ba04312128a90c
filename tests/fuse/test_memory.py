"""A bus that may have no more memory: it refuses what is new, and hands out what it has accepted."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from ..helpers.mounts import FUTEBUS, Mount, Mounting, bash, device_of
from ..helpers.waiting import until

LIMIT_KB = 61_440


def limited(kilobytes: int = LIMIT_KB, kind: str = "v") -> list[str]:
    return ["bash", "-c", f'ulimit -{kind} {kilobytes}; exec "$@"', "bash", *FUTEBUS]


def fill(bus: Mount, piece: bytes, masters: list[int]) -> tuple[int, list[int]]:
    """Writes to ever more masters that do not read, until that is refused. Returns how many bytes were accepted."""
    accepted, writers = 0, []
    for number in range(200):
        try:
            masters.append(os.open(bus / f"{'+' * (len(piece) < 200)}.U_{number}", os.O_RDWR | os.O_CREAT))
            writers.append(os.open(bus / f"U_{number}", os.O_WRONLY | os.O_NONBLOCK))
            with contextlib.suppress(BlockingIOError):
                while True:
                    accepted += os.write(writers[-1], piece)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return accepted, writers
    raise AssertionError("it was never refused")


def opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    return True


def drain(master: int) -> int:
    os.set_blocking(master, False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            count += len(os.read(master, 1 << 20))
    return count


@pytest.mark.parametrize("kind", ["v", "d"])
@pytest.mark.parametrize(
    "piece", [b"x" * 999 + b"\n", b"y" * 131071 + b"\n", b"z\n" * 50, b"a\n"], ids=["1K", "128K", "short", "single"]
)
def test_without_memory_what_is_new_is_refused_and_what_was_accepted_is_handed_out(
    mounting: Mounting, kind: str, piece: bytes
) -> None:
    bus = mounting(command=limited(LIMIT_KB if kind == "v" else 49_152, kind), patience=100)
    bus.expects_errors = True
    masters: list[int] = []
    accepted, writers = fill(bus, piece, masters)
    assert accepted > 30_000  # of "a\n", newer versions of Python leave less place
    for _ in range(500):
        with contextlib.suppress(OSError):
            accepted += os.write(writers[-1], piece)
        with contextlib.suppress(OSError):
            os.close(os.open(bus / "B_x", os.O_RDWR | os.O_CREAT))
    assert "futebus" in bus.stat(), "who looks at it sees it"
    assert bus.daemon.poll() is None
    taken = sum(map(drain, masters))
    assert taken == accepted
    # There is memory again.
    until(lambda: opens(bus / "B_x"), "there is memory again")
    assert os.write(writers[0], piece) == len(piece)
    assert drain(masters[0]) == len(piece)
    for descriptor in [*writers, *masters]:
        os.close(descriptor)
    until(lambda: "there is memory for more again" in bus.words, "it is said")
    bus.unmount()
    assert "there is no memory for more" in bus.words
    assert "Traceback" not in bus.words
    assert bus.words.count("\n") < 300
    bus.was_killed = True


def test_a_memory_that_is_too_small_is_said_before_anything_is_mounted(place: Path) -> None:
    directory = place / "bus"
    directory.mkdir()
    needed = next(
        size
        for size in range(30_000, 90_000, 1000)
        if bash(f"ulimit -v {size}; exec {' '.join(FUTEBUS)} -f -o context=nonsense {directory}").stderr.startswith(
            f"futebus: cannot mount on {directory}: "
        )
    )
    done = bash(f"ulimit -v {needed}; exec {' '.join(FUTEBUS)} {directory}")
    assert done.returncode == 1
    assert "there is too little memory (ulimit -v)" in done.stderr
    assert device_of(directory) is None
