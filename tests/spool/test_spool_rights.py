"""Whose a spool is: what permissions it gets, and what others may have prepared for who writes one."""

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.spool import NotASpool, Spool, SpoolLock, SpoolWriter

from ..helpers.mounts import Mount, run
from ..helpers.recorders import RECORD, Recording
from .spools import killed, lines_of, numbered, small

NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids="umask-{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def modes(path: Path) -> set[int]:
    """Of its files but the lock: whoever can read that can lock it."""
    assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600
    return {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir() if file.name != "lock"}


def used(path: Path, mode: int = 0o700) -> None:
    """Begins some segments, removes one, and opens it again."""
    for _ in range(2):
        with SpoolWriter(path, "B_x", segment_bytes=1 << 16, first_segment_bytes=1 << 13, mode=mode) as writer:
            writer.append(numbered(0, 1000))
            writer.append(numbered(0, 1000))
            writer.retain(offset=1000)


@pytest.mark.parametrize(("mode", "file"), [(None, 0o600), (0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o711, 0o600)])
def test_a_spool_gets_the_permissions_that_are_asked_for(path: Path, umask: int, mode: int | None, file: int) -> None:
    if mode is None:
        small(path).close()
    used(path, mode or 0o700)
    assert stat.S_IMODE(path.stat().st_mode) == (mode or 0o700)
    assert {entry.name for entry in path.iterdir()} >= {"lock", "spool.json"}
    assert modes(path) == {file}


def test_a_spool_that_is_there_keeps_its_permissions(path: Path, umask: int) -> None:
    path.mkdir()
    path.chmod(0o750)
    used(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert modes(path) == {0o640}
    path.chmod(0o700)
    with small(path) as writer:
        writer.append(numbered(0, 700))
    assert stat.S_IMODE(max(path.glob("*.lines")).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o600, 0o1700, 0])
def test_permissions_that_make_no_sense_are_refused(path: Path, mode: int) -> None:
    with pytest.raises(ValueError, match="for the owner"):
        SpoolWriter(path, "B_x", mode=mode)
    assert not path.exists()


def test_the_recorder_has_an_option(bus: Mount, place: Path, recording: Recording) -> None:
    os.umask(before := os.umask(0o077))
    assert before is not None
    recorder = recording(bus / "B_x", "--spool-mode", "755")
    (bus / "B_x").write_bytes(b"one\n")
    recorder.end()
    assert stat.S_IMODE(recorder.spool.stat().st_mode) == 0o755
    assert modes(recorder.spool) == {0o644}
    recorder = recording(bus / "B_x", spool=place / "other")
    recorder.end()
    assert stat.S_IMODE(recorder.spool.stat().st_mode) == 0o700
    assert modes(recorder.spool) == {0o600}
    for wrong in ("770", "x", "600", "7777"):
        ended = run(*RECORD, "--spool-mode", wrong, str(bus / "B_x"), str(place / "third"))
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
    assert not (place / "third").exists()


# ---------------------------------------------------------------------------------------------- what others have prepared


def refused(path: Path, words: str) -> None:
    """Nobody takes this for a spool, and whoever tries changes nothing."""
    before = {entry: entry.lstat() for entry in path.iterdir()} if path.is_dir() else {}
    for _ in range(2):
        with pytest.raises(NotASpool, match=words):
            small(path)
        with pytest.raises(NotASpool, match=words):
            SpoolLock(path, "B_x")
    if path.is_dir():
        assert before.keys() == {*path.iterdir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_somebody_else_is_refused(path: Path) -> None:
    path.mkdir(0o755)
    os.chown(path, NOBODY, NOBODY)
    refused(path, "belongs to another user")
    os.chown(path, 0, 0)
    small(path).close()
    os.chown(path, NOBODY, 0)
    refused(path, "belongs to another user")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o707])
def test_a_directory_that_others_can_write_to_is_refused(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)
    refused(path, "others can write to .*: chmod go-w changes that")
    path.chmod(0o755)
    small(path).close()
    path.chmod(mode)
    refused(path, "others can write to")


def test_a_link_is_no_directory(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    path.symlink_to(tmp_path / "other")
    refused(path, "is a symbolic link")
    assert list((tmp_path / "other").iterdir()) == []
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    refused(path, "is a symbolic link")
    assert not (tmp_path / "nothing").exists()


NAMES = ["lock", "spool.json", "spool.json.new", "00000000000000000000.lines", "00000000000000000000.index"]


@pytest.mark.parametrize("name", [*NAMES, "00000000000000000010.lines", "00000000000000000010.new"])
@pytest.mark.parametrize("kind", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_no_other_file_is_written(path: Path, tmp_path: Path, name: str, kind: object) -> None:
    """As root was led to any file of the system by a link in a directory that another user prepared."""
    with small(path) as writer:
        writer.append(numbered(0, 10))
        copy = killed(path)
    copy.chmod(0o700)
    victim = tmp_path / "precious"
    victim.write_bytes(b"precious\n" * 1000)
    (copy / name).unlink(missing_ok=True)
    assert callable(kind)
    kind(victim, copy / name)
    with contextlib.suppress(NotASpool, OSError), small(copy) as writer:
        writer.append(numbered(10, 1000))
        writer.retain(offset=500)
    assert victim.read_bytes() == b"precious\n" * 1000
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644 & ~os.umask(os.umask(0o022))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["lock", "00000000000000000000.lines", "00000000000000000000.index"])
def test_no_file_of_somebody_else_is_written(path: Path, name: str) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
    os.chown(path / name, NOBODY, NOBODY)
    before = (path / name).read_bytes()
    with pytest.raises(NotASpool, match=f"{name} belongs to another user"):
        small(path)
    assert (path / name).read_bytes() == before


def test_a_directory_that_is_moved_away_is_not_mistaken(path: Path, tmp_path: Path) -> None:
    """Whoever owns the directory above can put another one in its place. What is written stays where it was."""
    small(tmp_path / "other", channel="B_x").close()
    kept = Spool(tmp_path / "other").id
    with small(path) as writer:
        writer.append(numbered(0, 10))
        path.rename(tmp_path / "moved")
        (tmp_path / "other").rename(path)
        for begin in range(10, 2000, 10):
            writer.append(numbered(begin, begin + 10))
        writer.retain(offset=1000)
        writer.sync()
        with pytest.raises(NotASpool, match="has been removed"):
            writer._lock.check()
    assert Spool(tmp_path / "moved").end == 2000
    assert Spool(path).id == kept
    assert Spool(path).end == 0
    moved = Spool(tmp_path / "moved")
    assert lines_of(moved) == numbered(moved.begin, 2000)


def test_a_copy_by_hard_links_is_not_changed(path: Path, tmp_path: Path) -> None:
    with small(path) as writer:
        writer.append(numbered(0, 10))
    copy = tmp_path / "copy"
    shutil.copytree(path, copy, copy_function=os.link)
    with pytest.raises(NotASpool, match="has another name somewhere"):
        small(path)
    assert lines_of(copy) == numbered(0, 10)
    shutil.rmtree(copy)
    small(path).close()


LOCKING = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_who_may_read_a_spool_cannot_keep_it_from_being_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "spool"
    used(path, 0o755)
    (path / "lock").chmod(0o644)  # as it was made before
    used(path, 0o755)
    ran = run("setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-c", LOCKING, path / "lock")
    assert "PermissionError" in ran.stderr
