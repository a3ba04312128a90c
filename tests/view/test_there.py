"""Which buses are looked at, of all that are mounted."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from futebus.host.mounted import Mount, mounts
from futebus.view import shares
from futebus.view import there as theres
from futebus.view.shares import MOST_LEFT, SHARE
from futebus.view.there import MOST_BUSES, MOST_OF_USER, MOST_REFUSED, There
from futebus.view.told import FOUND, NAMED

from ..helpers.waiting import until

Mounted = Callable[..., None]

ANN, BOB = 64001, 64002


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[Mount]:
    """A mount table."""
    made: list[Mount] = []
    monkeypatch.setattr(theres, "mounts", lambda: made)
    return made


def mount(table: list[Mount], count: int, user: int, path: str = "/mnt/{}", kind: str = "fuse.futebus") -> list[Path]:
    begin = len(table)
    table += [Mount(n, f"0:{n}", path.format(n), kind, (user, user)) for n in range(begin, begin + count)]
    return [Path(each.path) for each in table[begin:]]


def test_a_user_keeps_nobodys_buses_from_being_seen(table: list[Mount]) -> None:
    anns = mount(table, 100, ANN)
    bobs = mount(table, 3, BOB)
    roots = mount(table, 20, 0)
    mount(table, 5, 0, kind="fuse.other")
    there = There()
    assert there.find() == [*anns[:MOST_OF_USER], *bobs, *roots]
    assert there.left_out == 100 - MOST_OF_USER
    assert there.find() == [*anns[:MOST_OF_USER], *bobs, *roots]


def test_so_many_in_all(table: list[Mount]) -> None:
    mine = mount(table, MOST_BUSES + 5, os.getuid())
    there = There()
    assert there.find() == mine[:MOST_BUSES]
    assert there.left_out == 5


def test_those_who_mount_first_do_not_hide_roots(table: list[Mount]) -> None:
    theirs = [mount(table, 30, user) for user in range(ANN, ANN + 10)]
    mine, roots = mount(table, 3, os.getuid() or 77), mount(table, 5, 0)
    there = There()
    found = there.find()
    assert set(roots) <= set(found)
    assert os.getuid() == 0 or set(mine) <= set(found)
    assert len(found) == MOST_BUSES
    counts = sorted(len(set(found) & set(each)) for each in [*theirs, mine][: 10 + (os.getuid() == 0)])
    assert counts[-1] - counts[1] <= 1, "each of the others has as many as the next"
    assert there.left_out == len(table) - MOST_BUSES
    assert there.bounds(roots[0]) == NAMED
    assert there.bounds(theirs[0][0]) == FOUND


def test_those_that_are_for_others_take_no_place(table: list[Mount]) -> None:
    hidden, open_ = mount(table, 40, ANN), mount(table, 2, ANN)
    there = There()
    for _ in range(5):
        for path in there.find():
            there.note(path, is_refused=path in hidden)
    assert there.find() == [*hidden, *open_]
    assert there.left_out == 0
    more = mount(table, 1000, ANN)
    for _ in range(100):
        for path in there.find():
            there.note(path, is_refused=path not in open_)
    found = there.find()
    assert set(open_) <= set(found)
    assert len(found) == MOST_OF_USER + MOST_REFUSED
    assert there.left_out == 42 + len(more) - len(found)
    again = there.find()
    assert again == found


def test_how_often_those_are_looked_at(table: list[Mount], monkeypatch: pytest.MonkeyPatch) -> None:
    [path] = mount(table, 1, ANN)
    there = There()
    there.find()
    assert there.is_due(path)
    there.note(path, is_refused=True)
    there.note(path, is_refused=True)
    assert not there.is_due(path)
    monkeypatch.setattr(theres, "REFUSED_SECONDS", 0.0)
    assert there.is_due(path)
    monkeypatch.undo()
    monkeypatch.setattr(theres, "mounts", lambda: table)
    assert not there.is_due(path), "it was looked at a moment ago"
    table[0] = table[0]._replace(device="0:77")
    assert there.find() == [path]
    assert there.is_due(path), "another bus is mounted there"
    there.note(path, is_refused=True)
    there.note(path, is_refused=False)
    assert there.is_due(path)


def test_what_one_user_has_to_tell_takes_a_share_of_our_time(table: list[Mount], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0, spent=0.0)
    monkeypatch.setattr(shares, "time", SimpleNamespace(monotonic=lambda: clock.now, thread_time=lambda: clock.spent))
    roots, anns, bobs = mount(table, 1, 0), mount(table, 2, ANN), mount(table, 1, BOB)
    there = There()
    there.find()

    def take(path: Path, seconds: float) -> None:
        of_user = there.shares(path)
        assert of_user
        with of_user.looks.taken():
            clock.spent += seconds

    def due() -> list[Path]:
        return [path for path in there.find() if there.is_due(path)]

    assert there.shares(roots[0]) is None
    take(anns[0], MOST_LEFT / 2)
    take(bobs[0], MOST_LEFT / 2)
    assert due() == [*roots, *anns, *bobs]
    take(anns[1], MOST_LEFT)
    assert due() == [*roots, *bobs]
    of_ann = there.shares(anns[0])
    assert of_ann
    assert of_ann.metrics.is_whole
    before = table.copy()
    table[1:3] = []
    there.find()
    assert there.left_out == 0
    table[:] = before
    assert due() == [*roots, *bobs], "who has mounted them anew has taken as much"
    clock.now += MOST_LEFT / SHARE
    assert due() == [*roots, *anns, *bobs]


def test_what_is_mounted_twice_or_under_something_else(table: list[Mount]) -> None:
    [one] = mount(table, 1, 0)
    table.append(table[0]._replace(id=77, path="/again"))
    [below] = mount(table, 1, 0, "/over")
    mount(table, 1, 0, "/over", kind="tmpfs")
    assert There().find() == [one]
    table.append(table[0]._replace(id=78, device="0:78", path=str(below)))
    assert There().find() == [one, below]


def test_where_the_mount_table_cannot_be_read(table: list[Mount], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = mount(table, 3, 0)
    there = There()
    assert there.find() == paths

    def refuse() -> list[Mount]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(theres, "mounts", refuse)
    assert there.find() == paths


def test_the_real_one() -> None:
    until(lambda: set(There().find()) <= {Path(each.path) for each in mounts()}, "they are mounted; others come and go")
