"""Staged lines go out, each batch once and in order; what is not wanted any more is removed."""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from futebus.spark.sink.journal import Journal
from futebus.spark.sink.outlet import SinkError
from futebus.spark.sink.publishing import forget, publish
from futebus.spark.sink.staging import Portion, remove_directory, stage

from ...helpers.collectors import Collect
from ...helpers.descriptors import descriptors
from ...helpers.mounts import Mount, Mounting
from ...helpers.programs import Start
from ...helpers.waiting import DEADLINE, until


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return tmp_path / "staging" / "query"


def staged(query: Path, batch: int, *lines: str, channel: str = "B_log", partition: int = 0) -> list[Portion]:
    return stage(query, batch, partition, [(channel, f"{line}\n".encode()) for line in lines])


def refuse(sentence: str) -> "pytest.RaisesExc[SinkError]":
    return pytest.raises(SinkError, match=f"^{re.escape(sentence)}$")


def names(query: Path) -> list[str]:
    return sorted(os.listdir(query))


def test_a_batch_goes_out_once(query: Path, bus: Mount, collect: Collect) -> None:
    channel = collect(bus / "B_log")
    for batch in range(3):
        publish(query, bus.path, batch, staged(query, batch, f"{batch}a", f"{batch}b"))
        assert names(query) == ["journal"]
        # Spark could not tell, and has run it again.
        publish(query, bus.path, batch, staged(query, batch, f"{batch}b", f"{batch}a"))
        assert names(query) == ["journal"]
    publish(query, bus.path, 0, staged(query, 0, "0a", "0b"))
    assert channel.settled() == b"0a\n0b\n1a\n1b\n2a\n2b\n"


def test_parts_and_channels_in_order(query: Path, bus: Mount, collect: Collect) -> None:
    channels = [collect(bus / "B_log"), collect(bus / ".U_jobs")]
    segments = [
        *stage(query, 0, 1, [("U_jobs", b"1\n"), ("B_log", b"1\n"), ("B_log", b"2\n"), ("U_jobs", b"2\n2\n")]),
        *stage(query, 0, 0, []),
        *stage(query, 0, 2, [("B_log", b"3\n"), ("U_jobs", b"3\n")]),
    ]
    assert [segment[1:] for segment in segments] == [
        ("U_jobs", 0, 2),
        ("B_log", 2, 4),
        ("U_jobs", 6, 4),
        ("B_log", 0, 2),
        ("U_jobs", 2, 2),
    ]
    before = descriptors()
    publish(query, bus.path, 0, segments)
    assert descriptors() == before
    assert [channel.settled() for channel in channels] == [b"1\n2\n3\n", b"1\n2\n2\n3\n"]


def test_lines_of_any_length(query: Path, mounting: Mounting, collect: Collect) -> None:
    bus = mounting("max_message=4M,max_queue_bytes=4M")
    channel = collect(bus / ".U_jobs")
    lines = [bytes([65 + number % 26]) * (number**5) + b"\n" for number in range(1, 20)]
    publish(query, bus.path, 0, stage(query, 0, 0, [("U_jobs", b"".join(lines))]))
    assert channel.settled() == b"".join(lines)


def test_what_is_left_of_batches_is_removed(query: Path, bus: Mount) -> None:
    for batch in (2, 10, 11):
        staged(query, batch, "an attempt that failed")
    (query / "10.segments").write_text("[]")
    (query / "notes").write_text("of somebody")
    publish(query, bus.path, 10, staged(query, 10, "a"))
    assert [name.partition("-")[0] for name in names(query)] == ["11", "journal", "notes"]


def test_an_empty_batch(query: Path, bus: Mount, collect: Collect) -> None:
    channel = collect(bus / "B_log")
    publish(query, bus.path, 0, [])
    publish(query, bus.path, 0, staged(query, 0, "this batch was empty"))
    publish(query, bus.path, 1, staged(query, 1, "a"))
    assert channel.settled() == b"a\n"


def test_a_line_that_is_refused(query: Path, mounting: Mounting, collect: Collect, capfd: pytest.CaptureFixture[str]) -> None:
    bus = mounting("max_message=100")
    channel = collect(bus / "B_log")
    lines = ["a", "b" * 100, "c"]
    sentence = f"{bus / 'B_log'}: a message of 101 bytes is longer than the bus takes (max_message): '{'b' * 60}'"
    for _ in range(2):
        with refuse(sentence):
            publish(query, bus.path, 7, staged(query, 7, *lines))
    assert channel.settled() == b"a\n"
    # On a bus that takes it, it goes on where it was.
    other = mounting()
    channel = collect(other / "B_log")
    publish(query, other.path, 7, staged(query, 7, "something else"))
    assert channel.settled() == b"b" * 100 + b"\nc\n"
    assert capfd.readouterr().err == ""  # nothing was in doubt
    assert names(query) == ["journal"]


def test_an_older_batch_is_finished_first(query: Path, bus: Mount, collect: Collect) -> None:
    with refuse(f"{bus / 'U_jobs'} has no master"):
        publish(query, bus.path, 7, staged(query, 7, "a", channel="U_jobs"))
    channel = collect(bus / ".U_jobs")
    publish(query, bus.path, 8, staged(query, 8, "b", channel="U_jobs"))
    assert channel.settled() == b"a\nb\n"


def test_a_batch_of_which_nothing_is_out_is_forgotten(
    query: Path, bus: Mount, collect: Collect, capfd: pytest.CaptureFixture[str]
) -> None:
    segments = staged(query, 7, "a", channel="U_jobs")
    with refuse(f"{bus / 'U_jobs'} has no master"):
        publish(query, bus.path, 7, segments)
    forget(query, 7, [segment.file for segment in segments])
    assert names(query) == ["journal"]
    channel = collect(bus / "B_log")
    publish(query, bus.path, 7, staged(query, 7, "b"))
    assert channel.settled() == b"b\n"
    assert capfd.readouterr().err == ""


def test_a_batch_of_which_a_part_is_out_is_kept(
    query: Path, bus: Mount, collect: Collect, capfd: pytest.CaptureFixture[str]
) -> None:
    channel = collect(bus / "B_log")
    segments = [*staged(query, 7, "a"), *staged(query, 7, "b", channel="U_jobs")]
    with refuse(f"{bus / 'U_jobs'} has no master"):
        publish(query, bus.path, 7, segments)
    forget(query, 7, [segment.file for segment in segments])
    assert capfd.readouterr().err == "futebus: a part of batch 7 is out; the rest follows when it is committed again\n"
    again = [*staged(query, 7, "b", channel="U_jobs"), *staged(query, 7, "a")]
    forget(query, 7, [segment.file for segment in again])
    assert len(names(query)) == 4
    master = collect(bus / ".U_jobs")
    publish(query, bus.path, 7, staged(query, 7, "b", channel="U_jobs"))
    assert (channel.settled(), master.settled()) == (b"a\n", b"b\n")


def test_forgetting_what_is_out_or_never_was(query: Path, bus: Mount, collect: Collect) -> None:
    forget(query, 0, ["0-0-x.lines"])
    assert not query.exists()
    channel = collect(bus / "B_log")
    publish(query, bus.path, 0, staged(query, 0, "a"))
    later = staged(query, 0, "a")
    forget(query, 0, [later[0].file])
    publish(query, bus.path, 0, staged(query, 0, "a"))
    publish(query, bus.path, 1, staged(query, 1, "b"))
    assert channel.settled() == b"a\nb\n"


def test_a_publisher_waits_for_another(query: Path, bus: Mount, collect: Collect, start: Start) -> None:
    channel = collect(bus / "B_log")
    segments = staged(query, 0, "a")
    script = (
        "import sys; from pathlib import Path; from futebus.spark.sink.publishing import *;"
        "publish(Path(sys.argv[1]), Path(sys.argv[2]), 0, [Portion(*eval(sys.argv[3]))])"
    )
    with Journal(query / "journal"):
        other = start(sys.executable, "-c", script, query, bus.path, repr(tuple(segments[0])))
        assert other.stderr
        assert other.stderr.readline() == f"futebus: waiting for another publisher to end, who has {query}/journal\n"
        assert channel.data == b""
    assert other.wait(DEADLINE) == 0
    assert channel.settled() == b"a\n"


def test_files_that_are_gone(query: Path, bus: Mount) -> None:
    (segment,) = staged(query, 0, "abc")
    path = query / segment.file
    os.truncate(path, 3)
    with refuse(f"{path} is shorter than it was"):
        publish(query, bus.path, 0, [segment])
    path.unlink()
    with refuse(
        f"{path} cannot be read (No such file or directory): the driver and all executors must share the stagingLocation"
    ):
        publish(query, bus.path, 0, [segment])
    # Neither has begun the batch.
    publish(query, bus.path, 0, staged(query, 0, "abc"))
    assert bus.channel("B_log")["messages_in"] == 1


def test_a_task_that_fails_leaves_no_file(query: Path) -> None:
    def blocks() -> Iterator[tuple[str, bytes]]:
        yield "B_log", b"a\n"
        until(lambda: len(names(query)) == 1)
        raise SinkError("a row has no channel")

    with refuse("a row has no channel"):
        stage(query, 0, 0, blocks())
    assert names(query) == []


def test_where_nothing_can_be_staged(tmp_path: Path, bus: Mount) -> None:
    def lines() -> Iterable[tuple[str, bytes]]:
        return [("B_log", b"a\n")]

    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match=r"^.*/file/query/.*\.lines cannot be written: Not a directory$"):
        stage(tmp_path / "file" / "query", 0, 0, lines())
    with pytest.raises(SinkError, match=r"^.*/query/.*\.lines cannot be written: Operation not permitted$"):
        stage(bus / "query", 0, 0, lines())


def test_a_directory_is_removed_while_tasks_stage(tmp_path: Path) -> None:
    # Spark gives a job up, and has its directory removed, while tasks of it still begin.
    def task(directory: Path) -> None:
        while directory.exists():
            with contextlib.suppress(SinkError):
                stage(directory, 0, 0, [("B_log", b"a\n")], makes_directory=False)

    for job in range(20):
        directory = tmp_path / f"job-{job}"
        directory.mkdir()
        tasks = [threading.Thread(target=task, args=[directory], daemon=True) for _ in range(4)]
        for thread in tasks:
            thread.start()
        for _ in range(20):
            stage(directory, 0, 0, [("B_log", b"a\n")], makes_directory=False)
        remove_directory(directory)
        for thread in tasks:
            thread.join(DEADLINE)
        assert names(tmp_path) == []
