"""Recorders among the clients of a channel: marked as such, with how far their spools go."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from futebus.spool.segment import Segment
from futebus.view.looking import look
from futebus.view.told import Look
from futebus.view.web import recorders, visits
from futebus.view.web.recorders import Keeper, Keepers, Kept, has_keepers, process_in

from ...helpers.descriptors import open_files
from ...helpers.hostile import Mislead
from ...helpers.mounts import Mount
from ...helpers.programs import Start
from ...helpers.users import NOBODY
from ...helpers.waiting import DEADLINE, until
from .webs import Web


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked for is found at once, however slow the machine is."""
    monkeypatch.setattr(visits, "WAIT_SECONDS", DEADLINE)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def keepers(seen: Look) -> dict[int, Keeper]:
    return Keepers().find(seen)


def recording(start: Start, place: Path, *arguments: str | Path) -> None:
    """Starts a recorder as it is installed, by its name: `python -m` has another."""
    start(Path(sys.executable).with_name("futebus-record"), *arguments, cwd=place)


def test_how_far_a_recorder_is(bus: Mount, place: Path, start: Start) -> None:
    recording(start, place, "-q", bus / "U_jobs", "jobs")
    recording(start, place, "-q", bus / "+B_log", place / "logs")
    bus.wait_for_clients(1, "U_jobs", role="master")
    (bus / "U_jobs").write_bytes(b"one\ntwo\n")
    served = Web(start, place, bus.path)
    with served.stream("/events", bus=str(bus.path), channel="U_jobs") as events:

        def told() -> bool:
            [client] = events.clients()["clients"]
            keeper = client["keeper"] or {}
            assert keeper.get("command", "futebus-record") == "futebus-record"
            return keeper.get("lines") == 2 and keeper["lost"] == 0 and keeper["last"] > 1e9

        until(told, "its lines are told")
        assert all(channel["kept"] for channel in events.bus()["channels"])
    served.end()


def _lines(found: dict[int, Keeper], pid: int) -> int:
    kept = found[pid].spools.get(b"U_jobs")
    return kept.lines if kept else 0


def spool_of(bus: Mount, place: Path, start: Start) -> int:
    """A recorder of `U_jobs` with one line, in `place`/jobs. Returns its process."""
    recording(start, place, "-q", bus / "U_jobs", "jobs")
    [master] = bus.wait_for_clients(1, "U_jobs", role="master")
    (bus / "U_jobs").write_bytes(b"one\n")
    until(lambda: (found := keepers(look(bus.path))) and _lines(found, master["pid"]) == 1, "it is found")
    return int(master["pid"])


def test_a_spool_of_somebody_else_is_not_looked_into(bus: Mount, place: Path, start: Start) -> None:
    pid = spool_of(bus, place, start)
    os.chown(place / "jobs", 65534, 65534)
    found = keepers(look(bus.path))
    assert found == {pid: Keeper("futebus-record", {})}
    assert found[pid].told(b"U_jobs") == {"command": "futebus-record"}


def test_a_process_of_somebody_else_shows_nobodys_spool(bus: Mount, place: Path, start: Start) -> None:
    """A bus may tell of any process that it is any user's: one that is named so, and has the right arguments."""
    pid = spool_of(bus, place, start)
    named = Path(shutil.copy("/bin/sh", place / "futebus-record"))
    arguments = ["-c", "echo ready; sleep 600; :", "x", "U_jobs", place / "jobs"]
    stranger = start(named, *arguments, **NOBODY)
    mine = start("/bin/sh", *arguments)  # of the right user, and no recorder
    for process in (stranger, mine):
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    seen = look(bus.path)
    [channel] = seen.channels
    [client] = channel.clients
    assert keepers(seen)[pid].spools

    def claimed(number: int) -> dict[int, Keeper]:
        lie = replace(channel, clients=(replace(client, pid=number, uid=os.getuid(), command="futebus-record"),))
        return keepers(replace(seen, channels=(lie,)))

    assert claimed(stranger.pid) == {stranger.pid: Keeper("futebus-record", {})}
    assert claimed(mine.pid) == {mine.pid: Keeper("futebus-record", {})}
    assert claimed(pid)[pid].spools


def test_what_is_linked_into_a_spool_is_not_looked_into(bus: Mount, place: Path, start: Start) -> None:
    pid = spool_of(bus, place, start)
    (place / "jobs").rename(place / "other")
    (place / "jobs").mkdir()
    for file in (place / "other").iterdir():
        (place / "jobs" / file.name).symlink_to(file)
    assert keepers(look(bus.path)) == {pid: Keeper("futebus-record", {})}


def pretending(start: Start, place: Path, spool: Path, **user: Any) -> int:
    """A process that is called like a recorder of `U_jobs`. Returns its number."""
    named = place / "pretending" / "futebus-record"
    named.parent.mkdir()
    process = start(Path(shutil.copy("/bin/sh", named)), "-c", "echo ready; sleep 600; :", "x", "U_jobs", spool, **user)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process.pid


def together(bus: Mount, *pids: int) -> Look:
    """The bus, with a client of each of these processes."""
    seen = look(bus.path)
    [channel] = seen.channels
    [client] = channel.clients
    clients = tuple(replace(client, pid=pid, command="futebus-record") for pid in pids)
    return replace(seen, channels=(replace(channel, clients=clients),))


def test_whose_spool_hangs_keeps_no_other_from_being_seen(
    bus: Mount, place: Path, start: Start, hostile: Mislead, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = spool_of(bus, place, start)
    monkeypatch.setattr(visits, "WAIT_SECONDS", 0.05)
    trap = hostile({})
    trap.hangs.add(("lookup", b"spool"))
    stranger = pretending(start, place, trap.path / "spool", **NOBODY)
    known = Keepers()
    until(lambda: _lines(known.find(together(bus, stranger, pid)), pid) == 1, "it is found")
    (bus / "U_jobs").write_bytes(b"two\n")
    until(lambda: _lines(known.find(together(bus, stranger, pid)), pid) == 2, "it is found again")
    assert known.find(together(bus, stranger, pid))[stranger] == Keeper("futebus-record", {})
    assert visits._places.taken(NOBODY["user"]) == 1, "one hangs, and no second"
    until(lambda: f"/proc/{stranger}" not in open_files(), "that is closed")
    trap.close()
    until(lambda: not visits._places.taken(NOBODY["user"]), "it has come back")


def test_a_spool_without_end_is_none(bus: Mount, place: Path, start: Start, hostile: Mislead) -> None:
    pid = spool_of(bus, place, start)
    endless = hostile({b"spool.json": b"{}"})
    endless.most_listed = 4 * recorders.MOST_FILES
    mine = pretending(start, place, endless.path)
    found = keepers(together(bus, mine, pid))
    assert found[mine] == Keeper("futebus-record", {})
    assert recorders.MOST_FILES < endless.listed < 2 * recorders.MOST_FILES
    assert _lines(found, pid) == 1


@pytest.mark.parametrize("said", [b"[" * 60_000, b'{"format": 1e999}', b'{"format": "\xff"}', b"{}", b""])
def test_who_says_nonsense_of_a_spool_spoils_no_others(bus: Mount, place: Path, start: Start, said: bytes) -> None:
    pid = spool_of(bus, place, start)
    (place / "other").mkdir()
    (place / "other" / "spool.json").write_bytes(said)
    (place / "other" / f"{0:020}.index").touch()
    mine = pretending(start, place, place / "other")
    found = keepers(together(bus, mine, pid))
    assert found[mine] == Keeper("futebus-record", {})
    assert _lines(found, pid) == 1


def test_what_is_called_like_a_segment_and_cannot_be_one(bus: Mount, place: Path, start: Start) -> None:
    pid = spool_of(bus, place, start)
    shutil.copy(place / "jobs" / f"{0:020}.index", place / "jobs" / f"{'9' * 20}.index")
    assert _lines(keepers(look(bus.path)), pid) == 1


def test_of_a_spool_only_what_was_added_is_read(bus: Mount, place: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = spool_of(bus, place, start)
    made: list[Path] = []

    def count(directory: Path, first: int, spool: int) -> Segment:
        made.append(directory)
        return Segment(directory, first, spool)

    monkeypatch.setattr(recorders, "Segment", count)
    known = Keepers()
    assert _lines(known.find(look(bus.path)), pid) == 1
    (bus / "U_jobs").write_bytes(b"two\n")
    until(lambda: _lines(known.find(look(bus.path)), pid) == 2, "it is told")
    assert len(made) == 1
    known.find(replace(look(bus.path), channels=()))
    assert _lines(known.find(look(bus.path)), pid) == 2
    assert len(made) == 2, "what has gone is forgotten"


def test_an_archive_has_its_spools_in_its_directory(bus: Mount, place: Path, start: Start) -> None:
    pid = spool_of(bus, place, start)
    (place / "archive" / "_futebus" / "spools").mkdir(parents=True)
    (place / "jobs").rename(place / "archive" / "_futebus" / "spools" / "U_jobs")
    assert keepers(look(bus.path))[pid].spools == {}
    process = start("sleep", "600", cwd=place)
    with opened(Path("/proc") / str(process.pid)) as directory:
        found = until(lambda: list(process_in(directory, "futebus-archive").places(b"U_jobs")), "it runs")
    assert found == [place / "600" / "_futebus" / "spools" / "U_jobs"]


def test_a_process_with_very_many_arguments(bus: Mount, place: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments are read once in a look, of those there are so many, and nothing is looked for twice."""
    named = Path(shutil.copy("/bin/sh", place / "futebus-record"))
    process = start(named, "-c", "echo ready; sleep 600; :", *["B_x", place / "none"] * 800)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    with open(bus.touch("B_x"), "rb"):
        seen = look(bus.path)
    [channel] = seen.channels
    [client] = channel.clients
    lies = (replace(client, pid=process.pid, command="futebus-record"),) * 200
    lying = replace(seen, channels=tuple(replace(channel, file=b"B_%d" % (n % 2), clients=lies) for n in range(100)))
    read: list[str] = []
    opened_: list[object] = []
    actual_read, actual_open = recorders._read, os.open

    def count_open(path: object, *arguments: Any, **named: Any) -> int:
        opened_.append(path)
        return actual_open(path, *arguments, **named)  # type: ignore[arg-type]

    def count_read(directory: int, name: str) -> bytes:
        read.append(name)
        return actual_read(directory, name)

    monkeypatch.setattr(recorders, "_read", count_read)
    monkeypatch.setattr(os, "open", count_open)
    assert keepers(lying) == {process.pid: Keeper("futebus-record", {})}
    assert read == ["comm", "cmdline"]
    assert len(opened_) <= 3
    opened_.clear()
    keepers(replace(seen, channels=(replace(channel, clients=lies),)))
    assert len(opened_) <= 3 + recorders.MOST_PLACES
    with opened(Path("/proc") / str(process.pid)) as directory:
        assert len(process_in(directory, "futebus-record").words) == recorders.MOST_ARGUMENTS


def test_who_is_no_recorder(bus: Mount) -> None:
    file = os.open(bus.touch("B_x"), os.O_RDONLY)
    seen = look(bus.path)
    assert not has_keepers(seen)
    assert keepers(seen) == {}
    os.close(file)
    assert Keeper("futebus-record", {b"B_x": Kept(3, 4.5, 1)}).told(b"B_x") == {
        "command": "futebus-record",
        "lines": 3,
        "last": 4.5,
        "lost": 1,
    }
