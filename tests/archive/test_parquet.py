"""Batches of lines become Parquet files, and small files large ones, each line once, wherever it is cut off."""

import io
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import DataFrame, SparkSession

from futebus.archive import run
from futebus.archive.archive import Archive, State
from futebus.archive.compaction import GRACE, Compaction
from futebus.archive.storage import ArchiveError, Storage, StorageError
from futebus.commands import archive as command
from futebus.host.terminal import Terminal
from futebus.spool import Spool, SpoolWriter

from ..helpers.waiting import until
from ..spool.spools import last_file, numbered
from .archives import SCHEMA, Line, files, lines, read, table

HOUR = "channel=B_log/date=2026-11-21/hour=10"
END = datetime(2026, 11, 21, 11, tzinfo=UTC)


class Cut(Exception):
    """Here a process was killed."""


class Killer:
    """Cuts off what is done to the files of an archive: at the step number `at`, counted from 1, which is not done any more."""

    STEPS = ("write", "make_directory", "move", "remove")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        self.done = 0
        for name in self.STEPS:
            monkeypatch.setattr(Storage, name, self._counted(getattr(Storage, name)))

    def _counted(self, step: Callable[..., None]) -> Callable[..., None]:
        def counted(storage: Storage, *arguments: str) -> None:
            self.done += 1
            if self.done == self.at:
                raise Cut
            step(storage, *arguments)

        return counted


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(monkeypatch)


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    """Spools of two channels. Only who they are matters here."""
    for channel in ("A_chat", "B_log"):
        (tmp_path / "spools").mkdir(exist_ok=True)
        SpoolWriter(tmp_path / "spools" / channel, channel).close()
    return tmp_path / "spools"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def opened(session: SparkSession, root: Path, spools: Path) -> Archive:
    return Archive(session, str(root), lambda name: spools / name)


def batch(session: SparkSession, *parts: list[Line]) -> DataFrame:
    """Lines as a batch with one task, so one file for each hour."""
    return session.createDataFrame([line for part in parts for line in part], SCHEMA).coalesce(1)


def test_lines_lie_by_channel_date_and_hour(session: SparkSession, root: Path, spools: Path) -> None:
    before, after = lines("B_log", range(3), "2026-11-20T23:59:59"), lines("B_log", range(3, 5), "2026-11-21T00:00:00")
    chat = [Line("A_chat", "hi\u2028{5} ü", 0, before[0].timestamp, "2f"), Line("A_chat", "", 1, after[0].timestamp, "*")]
    archive = opened(session, root, spools)
    assert archive.add(batch(session, before, chat, after)) == 7
    assert read(root) == [*chat, *before, *after]
    assert {str(path.parent.relative_to(root)) for path in files(root)} == {
        "channel=A_chat/date=2026-11-20/hour=23",
        "channel=A_chat/date=2026-11-21/hour=00",
        "channel=B_log/date=2026-11-20/hour=23",
        "channel=B_log/date=2026-11-21/hour=00",
    }
    rows = session.read.parquet(str(root)).orderBy("channel", "offset").collect()
    assert [(row.channel, row.value) for row in rows] == [(line.channel, line.value) for line in (*chat, *before, *after)]


def test_a_batch_that_is_cut_off_anywhere_is_archived_once(
    session: SparkSession, root: Path, spools: Path, killer: Killer
) -> None:
    said: list[Line] = []
    steps = 0
    while True:
        # Each batch is cut off one step later than the one before, until one is not cut off any more.
        steps += 1
        begin = len(said)
        new = [
            *lines("B_log", range(begin, begin + 3), "2026-11-21T10:59:59"),
            *lines("B_log", range(begin + 3, begin + 5), "2026-11-21T11:00:00"),
        ]
        archive = opened(session, root, spools)
        killer.at, killer.done = steps, 0
        try:
            archive.add(batch(session, new))
        except Cut:
            seen = read(root) if files(root) else []
            assert len(set(seen)) == len(seen), steps
            assert set(seen) >= set(said), steps
            said += new
            killer.at = 0
            archive = opened(session, root, spools)
            archive.add(batch(session, new))
            assert read(root) == said, steps
            continue
        break
    assert steps > 8  # the state, two directories, two files, what is tidied up
    killer.at = 0
    assert opened(session, root, spools).add(batch(session, said, new)) == 0
    assert read(root) == said + new
    assert len(list((root / "_futebus" / "state").iterdir())) == 1
    assert not list((root / "_futebus" / "staging").iterdir())


def test_opening_an_archive_that_was_cut_off_may_be_cut_off(
    session: SparkSession, root: Path, spools: Path, killer: Killer
) -> None:
    said = [*lines("B_log", range(2), "2026-11-21T10:00:00"), *lines("B_log", range(2, 4), "2026-11-21T11:00:00")]
    archive = opened(session, root, spools)
    killer.at, killer.done = 3, 0  # the state is written, and no file moved
    with pytest.raises(Cut):
        archive.add(batch(session, said))
    assert not files(root)
    while killer.done >= killer.at:
        killer.at, killer.done = killer.at + 1, 0
        try:
            archive = opened(session, root, spools)
        except Cut:
            continue
    assert killer.at > 5
    assert read(root) == said


def test_lines_of_a_new_spool_are_not_taken_for_those_of_the_old_one(session: SparkSession, root: Path, spools: Path) -> None:
    old, new = lines("B_log", range(5), "2026-11-21T10:00:00"), lines("B_log", range(3), "2026-11-21T12:00:00")
    opened(session, root, spools).add(batch(session, old))
    (spools / "B_log").rename(spools / "old")
    SpoolWriter(spools / "B_log", "B_log").close()
    assert opened(session, root, spools).add(batch(session, new)) == 3
    assert sorted(read(root)) == sorted(old + new)


def test_lines_that_come_again_in_many_batches_are_left_out(session: SparkSession, root: Path, spools: Path) -> None:
    """Without the query's checkpoint they do. Channels have not come equally far then."""
    log, chat = (lines(name, range(6), "2026-11-21T10:00:00") for name in ("B_log", "A_chat"))
    assert opened(session, root, spools).add(batch(session, log[:5], chat[:5])) == 10
    archive = opened(session, root, spools)
    assert [archive.add(batch(session, part)) for part in ([*log[:2], *chat[:1]], log[2:4], [*log[4:], *chat[1:3]])] == [0, 0, 1]
    assert archive.add(batch(session, chat[3:])) == 1
    log += lines("B_log", range(6, 7), "2026-11-21T10:00:00")
    assert archive.add(batch(session, log[6:])) == 1
    assert read(root) == chat + log


def test_a_batch_with_a_gap_is_refused(session: SparkSession, root: Path, spools: Path) -> None:
    gap = [*lines("B_log", range(5), "2026-11-21T10:00:00"), *lines("B_log", range(6, 8), "2026-11-21T10:00:00")]
    with pytest.raises(ArchiveError, match="B_log: from line 0 to line 7 there should be 8, not 7"):
        opened(session, root, spools).add(batch(session, gap))
    assert not files(root)


def test_a_batch_without_the_lines_that_are_damaged_is_archived(session: SparkSession, root: Path, spools: Path) -> None:
    """A loss of power has taken them. The source has left them out and said so; nobody will ever have them."""
    with SpoolWriter(spools / "B_log", "B_log") as writer:
        for begin in range(0, 40, 10):
            writer.append(numbered(begin, begin + 10))
    with last_file(spools / "B_log", ".lines").open("r+b") as file:
        file.seek(1400)
        file.write(bytes(512))
    left = [*lines("B_log", range(10), "2026-11-21T10:00:00"), *lines("B_log", range(20, 40), "2026-11-21T10:00:00")]
    archive = opened(session, root, spools)
    with pytest.raises(ArchiveError, match="from line 0 to line 39 there should be 40, not 29"):
        archive.add(batch(session, left[:-2], left[-1:]))
    assert archive.add(batch(session, left)) == 30
    assert read(root) == left
    assert archive.state.positions["B_log"].line == 40


def test_the_way_to_a_file_is_on_the_disk_before_the_state_names_it(
    session: SparkSession, root: Path, spools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there after a loss of power would be taken for what has its place already."""
    synced: set[str] = set()
    sync, write = Storage.sync, Storage.write

    def syncing(storage: Storage, names: Iterable[str]) -> None:
        names = [*names]
        synced.update(names)
        sync(storage, names)

    def writing(storage: Storage, name: str, text: str) -> None:
        for source, _ in State.from_json(text).moves:
            parts = source.split("/")
            assert synced >= {"/".join(parts[:depth]) for depth in range(len(parts) + 1)}
            seen.append(source)
        write(storage, name, text)

    seen: list[str] = []
    archive = opened(session, root, spools)
    monkeypatch.setattr(Storage, "sync", syncing)
    monkeypatch.setattr(Storage, "write", writing)
    archive.add(batch(session, lines("B_log", range(5), "2026-11-21T10:59:59")))
    assert seen


def test_a_damaged_state_is_not_taken_for_none(session: SparkSession, root: Path, spools: Path) -> None:
    opened(session, root, spools).add(batch(session, lines("B_log", range(5), "2026-11-21T10:00:00")))
    (state,) = (root / "_futebus" / "state").iterdir()
    state.write_text(state.read_text()[:-2])
    with pytest.raises(ArchiveError, match=r"state/0+1.json is damaged"):
        opened(session, root, spools)


def test_storage_that_spark_does_not_know(session: SparkSession, spools: Path) -> None:
    with pytest.raises(ArchiveError, match=r"^nosuch://place/archive: No FileSystem for scheme"):
        Archive(session, "nosuch://place/archive", lambda name: spools / name)


@pytest.fixture
def said(session: SparkSession, root: Path, spools: Path) -> list[Line]:
    """The lines of an archive with five files for one hour, and one for the next."""
    archive = opened(session, root, spools)
    for begin in range(0, 20, 4):
        archive.add(batch(session, lines("B_log", range(begin, begin + 4), f"2026-11-21T10:{begin + 10}:00")))
    archive.add(batch(session, lines("B_log", range(20, 22), "2026-11-21T11:00:00")))
    assert len(files(root)) == 6
    return read(root)


def compaction(session: SparkSession, archive: Archive, *, can_exchange: bool = True, most_files: int = 4) -> Compaction:
    return Compaction(session, archive, most_files=most_files, file_bytes=1 << 20, can_exchange=can_exchange)


class Watcher:
    """A reader that looks at an archive again and again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.seen: set[int] = set()
        self.looks = 0
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self.seen.add(table(self._root).num_rows)
                self.looks += 1
            except FileNotFoundError:
                pass  # it was listed before and opened after


@pytest.fixture
def watcher(root: Path, said: list[Line]) -> Iterator[Watcher]:
    with Watcher(root) as watching:
        until(lambda: watching.looks, "it looks")
        yield watching


def test_an_hour_that_has_ended_becomes_one_file(
    session: SparkSession, root: Path, spools: Path, said: list[Line], watcher: Watcher
) -> None:
    archive = opened(session, root, spools)
    compacting = compaction(session, archive)
    assert compacting.due(END + GRACE - timedelta(seconds=1)) == []
    assert compacting.due(END + GRACE) == [HOUR]
    assert compacting.compact(HOUR) == 4
    looks = watcher.looks
    until(lambda: watcher.looks > looks, "it has looked since")
    assert watcher.seen == {len(said)}
    assert len(files(root)) == 2
    assert read(root) == said
    assert compacting.due(END + GRACE) == []
    assert not list((root / "_futebus" / "swaps").iterdir())
    # Lines that come late are looked at again, and what is forgotten stays so.
    late = lines("B_log", range(22, 24), "2026-11-21T10:59:59")
    archive.add(batch(session, late))
    assert compacting.due(END + GRACE) == [HOUR]
    assert compacting.compact(HOUR) == 0
    assert compacting.due(END + GRACE) == []
    assert read(root) == [*said, *late]


def test_a_large_file_is_not_written_again(session: SparkSession, root: Path, spools: Path, said: list[Line]) -> None:
    archive = opened(session, root, spools)
    long = [line._replace(value=random.randbytes(500).hex()) for line in lines("B_log", range(22, 222), "2026-11-21T10:40:00")]
    archive.add(batch(session, long))
    (large,) = [path for path in files(root) if path.stat().st_size > 50_000]
    inode = large.stat().st_ino
    assert Compaction(session, archive, most_files=4, file_bytes=100_000).compact(HOUR) == 4
    assert large.stat().st_ino == inode
    assert len(files(root)) == 3
    assert read(root) == said + long


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_compaction_that_is_cut_off_anywhere(
    session: SparkSession, root: Path, spools: Path, said: list[Line], killer: Killer, can_exchange: bool
) -> None:
    # What is done before files change places is the same with both.
    steps = 0 if can_exchange else 3
    is_cut = True
    while is_cut:
        steps += 1
        copy = root.with_name(f"{steps}")
        shutil.copytree(root, copy)
        compacting = compaction(session, opened(session, copy, spools), can_exchange=can_exchange)
        killer.at, killer.done = steps, 0
        try:
            compacting.compact(HOUR)
            is_cut = False
        except Cut:
            assert set(read(copy)) == set(said), steps
        killer.at = 0
        compaction(session, opened(session, copy, spools))
        assert read(copy) == said, steps
        assert len(files(copy)) in (2, 6)
        assert not list((copy / "_futebus" / "swaps").iterdir())
    assert len(files(copy)) == 2
    assert steps > (3 if can_exchange else 10)


def test_a_compaction_that_fails_is_tried_again(
    session: SparkSession, root: Path, spools: Path, said: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a running archive does it: a storage that does not answer in the midst of it ends nothing."""
    monkeypatch.setattr(run, "COMPACTION_SECONDS", 0.05)
    shown = io.StringIO()
    order = command._order(command.parser().parse_args([str(root.parent / "B_log"), str(root)]))
    archiving = run.Archiving(order, Terminal("test", shown))
    archiving._archive = opened(session, root, spools)
    archiving._compaction = compaction(session, archiving._archive, can_exchange=False)
    removed, failures = Storage.remove, iter([StorageError("the network is away"), OSError(5, "Input/output error")])

    def failing(storage: Storage, name: str) -> None:
        if name.startswith(HOUR) and (failure := next(failures, None)):
            raise failure
        removed(storage, name)

    monkeypatch.setattr(Storage, "remove", failing)
    thread = threading.Thread(target=archiving._compact)
    thread.start()
    try:
        until(lambda: archiving._failure or len(files(root)) == 2, "it is compacted")
    finally:
        archiving._stopping.set()
        thread.join()
    assert archiving._failure is None
    assert read(root) == said
    assert shown.getvalue().splitlines() == [
        f"test: compaction has failed, and is tried again in 0.05 s: {why}"
        for why in ("the network is away", "Input/output error")
    ]


def test_an_index_is_read_once_to_tell_what_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have thousands of marks; and another spool may come into the place of one."""
    opened_: list[str] = []

    class Opened(Spool):
        def __init__(self, path: Path) -> None:
            opened_.append(path.name)
            super().__init__(path)

    monkeypatch.setattr(run, "Spool", Opened)
    words = ["--external", "--spools", str(tmp_path), str(tmp_path / "B_a"), str(tmp_path / "B_b"), str(tmp_path / "archive")]
    archiving = run.Archiving(command._order(command.parser().parse_args(words)), Terminal("test", io.StringIO()))
    archiving._archive = SimpleNamespace(state=SimpleNamespace(positions={}))  # type: ignore[assignment]
    assert archiving._behind() == 0  # there are none yet
    opened_.clear()
    with SpoolWriter(tmp_path / "B_a", "B_a") as one, SpoolWriter(tmp_path / "B_b", "B_b") as two:
        one.append(numbered(0, 10))
        assert archiving._behind() == 10
        two.append(numbered(0, 5))
        assert archiving._behind() == 15
        one.append(numbered(10, 20))
        assert archiving._behind() == 25
    assert sorted(opened_) == ["B_a", "B_b"]
    shutil.rmtree(tmp_path / "B_a")
    with SpoolWriter(tmp_path / "B_a", "B_a") as one:
        one.append(numbered(0, 3))
        until(lambda: archiving._behind() == 8, "the other one is seen")
