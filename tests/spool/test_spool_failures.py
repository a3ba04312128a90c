"""A spool whose system fails it, call by call.

Each test runs something once to see what it does, and then once for each thing that can go wrong in it. Whatever that was: the
lines that were there are there, for readers, for who goes on with the same writer, and for the next one.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from futebus.spool import Spool

from .failing import (
    WAYS,
    Failing,
    adding,
    adding_when_full,
    ageing,
    ageing_when_full,
    check,
    closed,
    failing,
    left,
    old,
    opening,
    place,
    reading,
    removing,
    syncing,
)
from .spools import killed, lines_of, numbered, small

__all__ = ["failing", "place"]


def opened(path: Path) -> list[str]:
    """The files of a spool that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [name for name in found if name.startswith(f"{path}/")]


def failed(
    place: Path, failing: Failing, at: int, way: tuple[Callable[[], BaseException], bool], act: Callable[[Path], None]
) -> tuple[Path, str]:
    """A copy of the spool on which a call of `act` has failed, the one whose turn it is, and the identity of the spool."""
    path = place / "again"
    shutil.copytree(place / "spool", path)
    identity = Spool(path).id
    failing.name = ""
    with failing.one(at, *way), contextlib.suppress(OSError, KeyboardInterrupt):
        act(path)
    if isinstance(way[0](), OSError):  # who is interrupted may have been about to remember what is open
        assert not opened(path), f"{failing.name}, call {at}"
    return path, identity


@pytest.mark.parametrize(
    ("state", "act"),
    [
        (closed, adding),
        (closed, adding_when_full),
        (closed, syncing),
        (closed, reading),
        (left, opening),
        (left, adding),
        (old, opening),
    ],
    ids=lambda step: step.__name__,
)
@pytest.mark.parametrize(("failure", "is_done"), WAYS, ids=["EIO", "ENOSPC", "interrupt", "interrupt when done"])
def test_a_call_that_fails_takes_no_line(
    place: Path,
    failing: Failing,
    state: Callable[[Path], None],
    act: Callable[[Path], None],
    failure: Callable[[], BaseException],
    is_done: bool,
) -> None:
    state(place / "spool")
    act(killed(place / "spool"))
    for at in itertools.count(1):
        path, identity = failed(place, failing, at, (failure, is_done), act)
        if not failing.name:
            break
        check(path, f"{failing.name}, call {at}: {failure()!r}{' when it was done' * is_done}")
        assert Spool(path).id == identity
        shutil.rmtree(path)
    assert at > 30


def test_who_goes_on_after_a_failure_has_every_line(place: Path, failing: Failing) -> None:
    for failure, is_done in WAYS:
        for at in itertools.count(1):
            path = place / "spool"
            writer = small(path)
            failing.name = ""
            with failing.one(at, failure, is_done):
                while writer.end < 2000:
                    before = writer.end
                    with contextlib.suppress(OSError, KeyboardInterrupt):
                        writer.append(numbered(before, before + 100))
                        continue
                    # Whether it was taken is for the writer to say, once it has looked.
                    writer.prepare()
                    assert writer.end in (before, before + 100)
                    assert lines_of(path) == numbered(0, writer.end)
                    writer.sync()
            assert lines_of(path) == numbered(0, 2000), f"{failing.name}, call {at}"
            writer.close()
            assert lines_of(path) == numbered(0, 2000), f"{failing.name}, call {at}"
            shutil.rmtree(path)
            if not failing.name:
                break
        assert at > 10


@pytest.mark.parametrize(
    ("act", "least"),
    [(removing, 1000), (ageing, 1500), (ageing_when_full, 1500)],
    ids=["offset", "age", "age when full"],
)
def test_a_call_that_fails_while_old_lines_are_removed(
    place: Path, failing: Failing, act: Callable[[Path], None], least: int
) -> None:
    closed(place / "spool")
    act(killed(place / "spool"))
    for failure, is_done in WAYS:
        for at in itertools.count(1):
            path, identity = failed(place, failing, at, (failure, is_done), act)
            note = f"{failing.name}, call {at}: {failure()!r}"
            check(path, note, least)
            assert Spool(path).id == identity, note
            act(path)
            assert Spool(path).begin > 0
            shutil.rmtree(path)
            if not failing.name:
                break
        assert at > 30
