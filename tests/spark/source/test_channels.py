"""Channels that a pattern matches, whoever made them and whatever they are called: a reader as Spark uses it, without Spark."""

import contextlib
import errno
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from futebus.recorder.channel import open_channel
from futebus.recorder.drain import Drain
from futebus.spark.compat import ReadAllAvailable
from futebus.spark.options import SCHEMA, QueryError
from futebus.spark.source.drains import DrainThread
from futebus.spark.source.query import Offset
from futebus.spark.source.stream import FutebusStreamReader
from futebus.spool import Spool, SpoolInUse, SpoolLock, SpoolWriter, is_in_use

from ...helpers.descriptors import descriptors
from ...helpers.insistent import Insistent
from ...helpers.mounts import SHOWN, Mount, Mounting
from ...helpers.waiting import DEADLINE, until

Said = list[tuple[str, str]]


class Driver:
    """Asks a reader what Spark asks it, in Spark's order."""

    def __init__(self, bus: Path, spools: Path, start: Offset | None = None, **options: str) -> None:
        given = {"path": str(bus), "subscribePattern": "(?s).*", "spoolLocation": str(spools), "pollTimeoutMs": "50", **options}
        self.reader = FutebusStreamReader(SCHEMA, given)
        initial = self.reader.initialOffset() if start is None else start
        self.offsets = [initial]
        self.said: Said = []

    @property
    def at(self) -> Offset:
        return self.offsets[-1]

    def batch(self) -> bool:
        """Runs a batch if there is something new. Returns whether there was."""
        end = self.reader.latestOffset(self.at, ReadAllAvailable())
        if end == self.at:
            return False
        if len(self.offsets) > 1:
            self.reader.commit(self.at)
        for part in self.reader.partitions(self.at, end):
            for rows in self.reader.read(part):
                self.said += [(row["channel"], row["value"]) for row in rows.to_pylist()]
        self.offsets.append(end)
        return True

    def wait_for(self, lines: int) -> None:
        until(lambda: self.batch() and len(self.said) >= lines, f"{lines} lines, and not only {len(self.said)}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        until(lambda: (self.batch(), condition())[1], what)

    def words(self, capsys: pytest.CaptureFixture[str], count: int) -> list[str]:
        """Waits until so many lines have been said to people. Returns them."""
        words: list[str] = []

        def said() -> bool:
            words.extend(capsys.readouterr().err.splitlines())
            return len(words) == count

        self.wait_until(said, f"{count} lines are said")
        return words


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    """Makes drivers, and stops their readers."""
    kept = signal.getsignal(signal.SIGTERM)
    made: list[Driver] = []

    def make(*given: Any, **options: Any) -> Driver:
        made.append(Driver(*given, **options))
        return made[-1]

    yield make
    for driver in made:
        driver.reader.stop()
    signal.signal(signal.SIGTERM, kept)


Drive = Callable[..., Driver]


def drains() -> int:
    return sum(thread.name.startswith("drain ") for thread in threading.enumerate())


def listens(bus: Mount, count: int) -> bool:
    return len(bus.clients(rw="r-+")) == count


def is_live(bus: Mount, count: int) -> bool:
    """Whether so many slaves are on channels that have their names: a drain may not have seen yet that its channel has gone."""
    live = [row for row in bus.told()["channels"] if row["state"] == "live"]
    slaves = [client for row in live for client in row["clients"] if client["role"] == "slave"]
    return len(slaves) == count


@contextlib.contextmanager
def without_thread(monkeypatch: pytest.MonkeyPatch, channel: str) -> Iterator[None]:
    """The system has no thread for the drain of a channel meanwhile."""
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == f"drain {channel}":
            raise RuntimeError("can't start new thread")
        begin(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


ODD = ["B_a b ", "B_new\nline", "B_\x1b[2J", "B_wörld", "B_%41,x", "B_\\", "A_'\"*?[]{}", "B_" + "n" * 252]
UNFIT = [os.fsdecode(b"B_\xff"), "B_" + "n" * 253]


def test_odd_names(bus: Mount, place: Path, drive: Drive, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ODD + UNFIT:
        bus.touch(name)
    driver = drive(bus.path, place / "spools")
    driver.wait_until(lambda: drains() == len(ODD), "all that can be are read")
    for name in ODD:
        (bus / name).write_text("{*}hello\n" if name[0] == "A" else "hello\n")
    driver.wait_for(len(ODD))
    assert sorted(driver.said) == sorted((name, "hello") for name in ODD)
    words = capsys.readouterr().err
    assert all(line.isprintable() for line in words.splitlines())
    assert sorted(words.splitlines()) == [
        rf"futebus: {bus.path}/B_\xff: its name is no UTF-8, and Spark has no other text; it is left out",
        f"futebus: {bus.path}/B_{'n' * 253}: File name too long; it is left out",
    ]
    for _ in range(3):  # and nothing more
        driver.batch()
    assert capsys.readouterr().err == ""


def test_channels_that_go_are_given_back(bus: Mount, place: Path, drive: Drive) -> None:
    """Services come and go by the dozen, some under names that were there before. Each line comes once."""
    driver = drive(bus.path, place / "spools")
    before = descriptors()
    expected: Said = []
    for round_ in range(3):
        names = [f"U_{number}" for number in range(round_, round_ + 8)]
        masters = [os.open(bus / f".{name}", os.O_RDWR | os.O_CREAT) for name in names]
        driver.wait_until(lambda: drains() == 8 and is_live(bus, 8), "they are read")
        for name, master in zip(names, masters, strict=True):
            os.write(master, f"{name} in round {round_}\n".encode())
            expected.append((name, f"{name} in round {round_}"))
            os.close(master)
        driver.wait_for(len(expected))
    assert sorted(driver.said) == sorted(expected)
    driver.wait_until(lambda: not drains() and descriptors() == before, "their threads and open files are gone")
    # One that stays, and has something to say now and then.
    bus.touch("B_stays")
    driver.wait_until(lambda: listens(bus, 1), "it is read")

    def is_rest_gone() -> bool:
        (bus / "B_stays").write_text("more\n")
        return [entry.name for entry in (place / "spools").iterdir() if entry.is_dir()] == ["B_stays"]

    driver.wait_until(is_rest_gone, "their spools are gone")
    assert list(driver.at) == ["B_stays"]
    assert sorted(said for said in driver.said if said[0] != "B_stays") == sorted(expected)


def test_a_query_that_is_killed_while_channels_come_and_go(bus: Mount, place: Path, drive: Drive) -> None:
    """It begins again with each offset that Spark may have noted last."""
    expected: Said = []
    said: Said = []
    start: Offset | None = None
    bus.touch("B_stays")
    for number in range(12):
        driver = drive(bus.path, place / "spools", start)
        if number % 4 < 2:  # it is there in every other pair of lives
            master = os.open(bus / ".U_goes", os.O_RDWR | os.O_CREAT)
            driver.wait_until(lambda: listens(bus, 2), "both are read")
            os.write(master, f"goes {number}\n".encode())
            expected.append(("U_goes", f"goes {number}"))
            os.close(master)
        driver.wait_until(lambda: listens(bus, 1), "the other is read")
        (bus / "B_stays").write_text(f"stays {number}\n")
        expected.append(("B_stays", f"stays {number}"))
        driver.wait_for(len(expected) - len(said))
        for _ in range(number % 3):  # more or less of what follows
            (bus / "B_stays").write_text("again\n")
            driver.wait_for(len(driver.said) + 1)
        start = driver.at
        said += [line for line in driver.said if line[1] != "again"]
        driver.reader.stop()
    assert sorted(said) == sorted(expected)


def test_what_somebody_removes_is_not_made_again(bus: Mount, place: Path, drive: Drive) -> None:
    bus.touch("B_x")
    driver = drive(bus.path, place / "spools")
    driver.wait_until(lambda: listens(bus, 1), "it is read")
    (bus / "B_x").unlink()
    driver.wait_until(lambda: not drains(), "it is given back")
    driver.batch()
    assert [entry.name for entry in bus.path.iterdir()] == SHOWN


def test_a_bus_that_goes_and_comes(mounting: Mounting, place: Path, drive: Drive, capsys: pytest.CaptureFixture[str]) -> None:
    bus = mounting()
    bus.touch("B_x")
    driver = drive(bus.path, place / "spools")
    driver.wait_until(lambda: listens(bus, 1), "it is read")
    (bus / "B_x").write_text("one\n")
    driver.wait_for(1)
    bus.unmount()
    driver.wait_until(lambda: not drains(), "it is given back")
    again = Mount(bus.path, place / "again.log")
    try:
        again.touch("B_x")
        driver.wait_until(lambda: listens(again, 1), "it is read again")
        (again / "B_x").write_text("two\n")
        driver.wait_for(2)
        assert [value for _, value in driver.said] == ["one", "two"]
        words = capsys.readouterr().err.splitlines()
        assert words == [f"futebus: no bus is mounted on {bus.path}; waiting", f"futebus: {bus.path}: the bus is back"]
        driver.reader.stop()
        again.unmount()
    finally:
        again.discard()


# ---------------------------------------------------------------------------------------------- in processes of their own

CHILD = """
import os, resource, sys
from futebus.spool import Spool
from tests.helpers.waiting import until
from tests.spark.source.test_channels import Driver
from futebus.spark.source import channels, drains, running
from pathlib import Path
bus, spools = map(Path, sys.argv[1:3])
before, after = sys.argv[3:]
exec(before)
driver = Driver(bus, spools)
print("begun", flush=True)
driver.wait_for(1)
exec(after)
print(driver.said)
driver.reader.stop()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_channels_that_may_not_be_read(mounting: Mounting, place: Path, start: Any) -> None:
    bus = mounting("allow_other")
    for number in range(150):
        bus.touch(f"B_secret{number}").chmod(0o620)
    bus.touch("B_open").chmod(0o666)
    (place / "spools").mkdir()
    os.chown(place / "spools", 65534, 65534)
    child = start(sys.executable, "-c", CHILD, bus.path, place / "spools", "os.setuid(65534)", "")
    assert child.stdout.readline() == "begun\n"
    until(lambda: listens(bus, 1), "what may be read is read")
    (bus / "B_open").write_text("hello\n")
    said, words = child.communicate(timeout=DEADLINE)
    assert said == "[('B_open', 'hello')]\n"
    lines = words.splitlines()
    assert len(lines) == 101
    assert lines[0] == f"futebus: {bus.path}/B_secret0: Permission denied; it is left out"
    assert lines[-1] == "futebus: more are left out; they are not named"
    assert [entry.name for entry in (place / "spools").iterdir() if entry.is_dir()] == ["B_open"]


def test_more_channels_than_open_files(bus: Mount, place: Path, start: Any) -> None:
    for number in range(30):
        bus.touch(f"B_{number:02}")
    before = "resource.setrlimit(resource.RLIMIT_NOFILE, (208, 208))"
    child = start(sys.executable, "-c", CHILD, bus.path, place / "spools", before, "")
    assert child.stdout.readline() == "begun\n"
    until(lambda: listens(bus, 10), "ten are read")
    (bus / "B_00").write_text("hello\n")
    said, words = child.communicate(timeout=DEADLINE)
    assert said == "[('B_00', 'hello')]\n"
    assert len(words.splitlines()) == 20
    assert f"futebus: {bus.path}/B_10: more than 10 channels need more open files (ulimit -n); it is left out\n" in words


def test_a_spark_that_has_gone_is_no_error(bus: Mount, place: Path, start: Any) -> None:
    """Its process for the source does this when the connection is closed before SIGTERM comes."""
    end = "try:\n raise EOFError\nfinally:\n driver.reader.stop()"
    child = start(sys.executable, "-c", CHILD, bus.touch("B_x").parent, place / "spools", "", end)
    assert child.stdout.readline() == "begun\n"
    until(lambda: listens(bus, 1), "it is read")
    (bus / "B_x").write_text("hello\n")
    assert child.communicate(timeout=DEADLINE) == ("", "")
    assert child.returncode == 0
    assert not bus.clients("B_x")


def test_a_signal_takes_nothing_from_who_has_just_written(bus: Mount, place: Path, start: Any) -> None:
    """Spark sends one or two, at any moment: also while the drains wait for what the main thread holds."""
    before = """begun, done = [], []
notify = drains.DrainThread._notify
def counted(self):
 begun.append(self)
 notify(self)
 done.append(self)
drains.DrainThread._notify = counted
"""
    end = """with driver.reader._running._news:
 (bus / "B_x").write_text("more\\n")
 until(lambda: len(begun) > len(done), "the drain waits for what is held here")
 (bus / "B_x").write_text("more\\n" * 49)
 os.kill(os.getpid(), 15)
 os.kill(os.getpid(), 15)
"""
    child = start(sys.executable, "-c", CHILD, bus.touch("B_x").parent, place / "spools", before, end)
    assert child.stdout.readline() == "begun\n"
    until(lambda: listens(bus, 1), "it is read")
    (bus / "B_x").write_text("hello\n")
    assert child.communicate(timeout=DEADLINE)[1] == ""
    assert child.returncode == 128 + signal.SIGTERM
    assert Spool(place / "spools" / "B_x").end == 51


# ---------------------------------------------------------------------------------------------- spools of recorders


def test_spools_that_cannot_be_read_are_left_out(place: Path, drive: Drive, capsys: pytest.CaptureFixture[str]) -> None:
    spools = place / "spools"
    for name in ("B_good", "B_bad", UNFIT[0]):
        spools.mkdir(exist_ok=True)
        with SpoolWriter(spools / name, name) as writer:
            writer.append(b"hello\n")
    (spools / "B_begun").mkdir()
    identity = (spools / "B_bad" / "spool.json").read_text()
    (spools / "B_begun" / "spool.json").write_text(identity.replace("B_bad", "B_begun"))
    (spools / "B_bad" / "spool.json").write_text("{")
    driver = drive(spools, spools, drain="external", startingOffsets="earliest")
    driver.wait_for(1)
    assert driver.said == [("B_good", "hello")]
    words = driver.words(capsys, 3)
    assert sorted(words) == sorted(
        [
            f"futebus: {spools / 'B_bad' / 'spool.json'} is damaged; it is left out",
            f"futebus: {spools / 'B_begun'} has no segments yet: who made it has not begun, or could not; it is left out",
            rf"futebus: {spools}/B_\xff: its name is no UTF-8, and Spark has no other text; it is left out",
        ]
    )


@pytest.mark.parametrize("is_found", [True, False])
def test_a_drain_that_cannot_begin_keeps_nothing_open(
    bus: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """A master that is kept open without being drained would have its writers wait for ever."""

    def fails(directory: Path) -> Spool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(directory))

    bus.touch("B_x")
    before = descriptors()
    monkeypatch.setattr("futebus.spark.source.drains.Spool", fails)
    with pytest.raises(OSError, match="Too many open files"):
        DrainThread(bus / "B_x", tmp_path / "spool", False, threading.Condition(), is_found=is_found)
    assert descriptors() == before
    assert bus.clients("B_x") == []


@pytest.mark.parametrize("how", ["finish", "stop"])
@pytest.mark.parametrize("is_found", [True, False])
def test_a_drain_that_is_ended_while_it_begins_ends(
    bus: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool, how: str
) -> None:
    """By another thread, which does not wait for what will never end, and leaves nothing open."""
    bus.touch("B_x")
    before = descriptors()
    drain = DrainThread(bus / "B_x", tmp_path / "spool", False, threading.Condition(), is_found=is_found)

    class Begun(Drain):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            getattr(drain, how)()

    monkeypatch.setattr("futebus.spark.source.drains.PATIENCE", 2 * DEADLINE)
    monkeypatch.setattr("futebus.spark.source.drains.Drain", Begun)
    beginning = threading.Thread(target=drain.start, daemon=True)
    beginning.start()
    until(lambda: drain.is_started or not beginning.is_alive(), "it has begun, or not")
    stopping = threading.Thread(target=drain.stop, daemon=True)
    stopping.start()
    stopping.join(DEADLINE)
    assert not stopping.is_alive()
    until(lambda: descriptors() == before, "nothing is open")
    assert not drains()


def test_what_a_channel_said_that_came_later_is_not_forgotten_when_the_first_batch_fails(
    bus: Mount, place: Path, drive: Drive
) -> None:
    bus.touch("B_a")
    first = drive(bus.path, place)
    bus.touch("B_b")
    until(lambda: (first.reader.latestOffset(first.at, ReadAllAvailable()), listens(bus, 2))[1], "it is read")
    (bus / "B_b").write_bytes(b"line\n")
    # Otherwise the first batch may be one without lines, in which the channel has come, and the one with the line the second.
    until(lambda: first.reader.reportLatestOffset()["B_b"]["line"] == 1, "it is in the spool")
    first.wait_for(1)
    assert len(first.offsets) == 2
    first.reader.stop()
    second = drive(bus.path, place)
    second.wait_for(1)
    assert second.said == first.said == [("B_b", "line")]


def test_where_a_query_begins_is_known_of_a_spool_that_is_away_for_once(place: Path, drive: Drive) -> None:
    spools = place / "spools"
    spools.mkdir()
    for name in ("B_a", "B_b"):
        with SpoolWriter(spools / name, name) as writer:
            writer.append(b"before\n" * 5)
    first = drive(spools, spools, drain="external")
    first.reader.stop()
    (spools / "B_b").rename(place / "away")
    second = drive(spools, spools, drain="external")
    assert second.at == {"B_a": first.at["B_a"]}
    second.reader.stop()
    (place / "away").rename(spools / "B_b")
    with SpoolWriter(spools / "B_b", "B_b") as writer:
        writer.append(b"line\n")
    third = drive(spools, spools, drain="external")
    assert third.at == first.at
    third.wait_for(1)
    assert third.said == [("B_b", "line")]


def test_what_waits_on_the_bus_when_a_query_ends_is_in_its_spool(bus: Mount, tmp_path: Path) -> None:
    """Who has written it does not write it again."""
    waits = threading.Event()

    class News(threading.Condition):
        def __enter__(self) -> bool:
            if threading.current_thread() is threading.main_thread():
                return super().__enter__()
            waits.set()
            entered = super().__enter__()
            waits.clear()
            return entered

    news = News()
    drain = DrainThread(bus / "U_x", tmp_path / "spool", True, news)
    drain.start()
    with news:
        (bus / "U_x").write_bytes(b"line\n")
        until(waits.is_set, "the drain waits, to tell that there is a line, or that there is none")
        (bus / "U_x").write_bytes(b"line\n" * 99)
        drain.finish()
    drain.stop()
    assert Spool(tmp_path / "spool").end == 100


def test_what_is_written_while_a_query_ends_is_in_its_spool(mounting: Mounting, tmp_path: Path) -> None:
    """As long as it is accepted."""
    bus = mounting("max_queue=1000")
    drain = DrainThread(bus / "U_x", tmp_path / "spool", True, threading.Condition())
    drain.start()
    writer = Insistent(bus / "U_x", at_once=5000, pause=0)
    until(lambda: Spool(tmp_path / "spool").end, "it comes")
    drain.stop()
    sent = writer.wait()
    assert Spool(tmp_path / "spool").end == sent


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_no_spool_of_a_channel_leaves_that_out(
    bus: Mount, place: Path, drive: Drive, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    """Whoever may make channels could end a query otherwise, by their names. They may be there before it begins."""
    spools = place / "spools"
    spools.mkdir()
    (spools / "Backup").touch()
    (spools / "Apps").mkdir()
    (spools / "Apps" / "app").touch()
    with SpoolWriter(spools / "B_copy", "B_of") as writer:
        writer.append(b"line\n")
    (spools / "B_theirs").mkdir()
    os.chown(spools / "B_theirs", 65534, 65534)
    names = ["Backup", "Apps", "B_copy", "B_theirs"]
    bus.touch("B_good")
    for name in names if is_there else ():
        bus.touch(name)
    driver = drive(bus.path, spools)
    for name in () if is_there else names:
        bus.touch(name)
    words = driver.words(capsys, len(names))
    (bus / "B_good").write_text("hello\n")
    driver.wait_for(1)
    assert driver.said == [("B_good", "hello")]
    assert sorted(words) == [
        f"futebus: {spools / 'Apps'} is no spool, and not empty; it is left out",
        f"futebus: {spools / 'B_copy'} is the spool of B_of, not of B_copy; it is left out",
        f"futebus: {spools / 'B_theirs'} belongs to another user (65534), who could write to it; it is left out",
        f"futebus: {spools / 'Backup'} is no directory; it is left out",
    ]


@pytest.mark.parametrize("is_found", [True, False])
def test_who_waits_for_spools_has_no_channel_open(
    bus: Mount, place: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """Nobody would take what it says meanwhile. The process of the same query before this one may have them all."""
    monkeypatch.setattr("futebus.spark.source.drains.PATIENCE", DEADLINE)
    spools, names = place / "spools", [f"B_{number}" for number in range(3)]
    spools.mkdir()
    for name in names:
        bus.touch(name)
    given = {"subscribePattern": ".*"} if is_found else {"subscribe": ",".join(names)}
    given |= {"path": str(bus.path), "spoolLocation": str(spools)}
    locks = [SpoolLock(spools / name, name) for name in names[1:]]
    looked: set[Path] = set()

    def note(spool: Path, channel: str) -> bool:
        looked.add(spool)
        return is_in_use(spool, channel)

    monkeypatch.setattr("futebus.spark.source.drains.is_in_use", note)
    with ThreadPoolExecutor() as threads:
        reader = FutebusStreamReader(SCHEMA, given)
        begun = threads.submit(reader.initialOffset)
        for number, lock in enumerate(locks):
            until(lambda: spools / names[number + 1] in looked, "it waits for that")  # noqa: B023
            assert not begun.done()
            assert bus.clients(rw="r-+") == []
            lock.close()
        assert sorted(begun.result(DEADLINE)) == names
        until(lambda: listens(bus, len(names)), "it reads them all")
        reader.stop()


def test_what_comes_is_taken_while_other_channels_are_still_to_be_opened(
    bus: Mount, place: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many, the first has said more than the bus keeps before the last is open. And the query begins with it."""
    spools, names = place / "spools", [f"B_{number}" for number in range(3)]
    for name in names:
        bus.touch(name)
    opened: list[Path] = []

    def open_slowly(channel: Path, *given: Any, **options: Any) -> int:
        for before in opened:
            (bus / before.name).write_bytes(b"line\n")
        for number, before in enumerate(opened):
            spool = Spool(spools / before.name)
            until(lambda: spool.end == len(opened) - number, "it is taken")  # noqa: B023
        opened.append(channel)
        return open_channel(channel, *given, **options)

    monkeypatch.setattr("futebus.spark.source.drains.open_channel", open_slowly)
    driver = drive(bus.path, spools)
    driver.wait_for(3)
    assert sorted(driver.said) == sorted((opened[number].name, "line") for number in (0, 0, 1))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_channel_for_which_no_thread_can_be_had_is_left_out_and_not_kept_open(
    bus: Mount, place: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    """Nobody would take what it says. It is tried again."""
    if is_there:
        with SpoolWriter(place / "B_full", "B_full") as writer:
            writer.append(b"before\n")
    for name in ("B_full", "B_good"):
        bus.touch(name)
    with without_thread(monkeypatch, "B_full"):
        driver = drive(bus.path, place, startingOffsets="earliest")
        assert driver.words(capsys, 1) == [
            f"futebus: {bus / 'B_full'} cannot be recorded: can't start new thread; it is left out"
        ]
        assert listens(bus, 1)
        assert (place / "B_full").exists() == is_there
    driver.wait_until(lambda: listens(bus, 2), "it is read")
    for name in ("B_full", "B_good"):
        (bus / name).write_bytes(b"line\n")
    expected = [("B_full", "before")] * is_there + [("B_full", "line"), ("B_good", "line")]
    driver.wait_for(len(expected))
    assert sorted(driver.said) == expected


def test_where_a_query_begins_is_kept_when_a_channel_cannot_be_had_for_once(
    bus: Mount, place: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process of it that ended in its first batch. What is in the spool is read meanwhile, too."""
    bus.touch("B_x")
    first = drive(bus.path, place)
    assert first.at["B_x"]["line"] == 0
    (bus / "B_x").write_bytes(b"one\ntwo\n")
    until(lambda: Spool(place / "B_x").end == 2, "they are taken")
    first.reader.stop()
    with without_thread(monkeypatch, "B_x"):
        second = drive(bus.path, place)
        assert second.at == first.at
        second.reader.prepareForTriggerAvailableNow()
        assert second.batch()
        second.reader.stop()
    third = drive(bus.path, place)
    assert third.at == first.at
    third.wait_for(2)
    assert second.said == third.said == [("B_x", "one"), ("B_x", "two")]


def test_what_cannot_be_had_keeps_nobody_waiting_again_and_tells_its_master_nothing(
    bus: Mount, place: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A spool of another channel is none of this one, whoever fills it; and what is no spool stays none."""
    monkeypatch.setattr("futebus.spark.source.drains.PATIENCE", 0.1)
    monkeypatch.setattr("futebus.spark.source.channels.RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("futebus.spark.source.running.LOOK_SECONDS", 0.0)
    looked: list[str] = []

    def note(spool: Path, channel: str) -> bool:
        looked.append(channel)
        return is_in_use(spool, channel)

    monkeypatch.setattr("futebus.spark.source.drains.is_in_use", note)
    tries: list[str] = []

    def take(lock: SpoolLock) -> None:
        tries.append(lock.channel)
        taking(lock)

    taking = SpoolLock._take
    monkeypatch.setattr(SpoolLock, "_take", take)
    with contextlib.ExitStack() as stack:
        masters = {}
        for name in ("S_foreign", "S_none"):
            masters[name] = os.open(bus / f".{name}", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
            stack.callback(os.close, masters[name])
        stack.enter_context(SpoolWriter(place / "S_foreign", "B_other"))
        (place / "S_none").mkdir()
        (place / "S_none" / "file").touch()
        lock = stack.enter_context((place / "S_none" / "lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        driver = drive(bus.path, place)
        words = driver.words(capsys, 2)
        driver.wait_until(lambda: tries.count("S_none") > 3 and tries.count("S_foreign") > 3, "they are tried again")
        assert sorted(words) == [
            f"futebus: {place / 'S_foreign'} is the spool of B_other, not of S_foreign; it is left out",
            f"futebus: {place / 'S_none'} is no spool, and not empty; it is left out",
        ]
        assert looked.count("S_foreign") == 1
        count = looked.count("S_none")
        driver.wait_until(lambda: tries.count("S_none") > 6, "it is tried again")
        assert looked.count("S_none") == count
        for master in masters.values():
            with pytest.raises(BlockingIOError):
                os.read(master, 100)


FAILING = """
import signal, sys
from futebus.spark.options import SCHEMA, QueryError
from futebus.spark.source.stream import FutebusStreamReader
reader = FutebusStreamReader(SCHEMA, {"subscribe": sys.argv[1] + "/U_x", "spoolLocation": sys.argv[2]})
try:
    reader.initialOffset()
except QueryError as error:
    print(error, flush=True)
signal.pause()
"""
"""A query of a channel without a master, and what runs it goes on."""


def test_a_signal_ends_the_process_when_everything_was_stopped_already(bus: Mount, place: Path, start: Any) -> None:
    child = start(sys.executable, "-c", FAILING, bus.path, place / "spools")
    assert "has no master" in child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    assert child.wait(DEADLINE) == 128 + signal.SIGTERM


def test_a_spool_that_somebody_else_fills_is_said_though_its_channel_was_found(
    bus: Mount, place: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("futebus.spark.source.drains.PATIENCE", 0.1)
    bus.touch("B_x")
    (place / "spools").mkdir()
    with SpoolWriter(place / "spools" / "B_x", "B_x"), pytest.raises(QueryError, match=r"spark\.streams\.active"):
        drive(bus.path, place / "spools")


def test_a_spool_that_another_query_has_is_said_with_what_to_do(bus: Mount, tmp_path: Path) -> None:
    """The same line typed twice, after Ctrl-C: the first query still runs."""
    with SpoolWriter(tmp_path / "spool", "B_x"), pytest.raises(SpoolInUse) as refused:
        DrainThread(bus / "B_x", tmp_path / "spool", False, threading.Condition())
    assert "spark.streams.active" in str(refused.value)
    assert "spoolLocation of its own" in str(refused.value)
