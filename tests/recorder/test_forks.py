"""When a recorder forks: what runs beside that, which is nothing, or a thread that has no lock; and what if it cannot.

And what if it cannot start a thread, or has no descriptor for what it must do.
"""

import resource
import signal
import sys
from pathlib import Path

import pytest

from futebus.spool import Spool

from ..helpers.descriptors import leave
from ..helpers.mounts import Mount
from ..helpers.nats import Server
from ..helpers.programs import Start
from ..helpers.published import lines_in, messages, wait_for_line
from ..helpers.recorders import LASTING, Recording, Remounting, kill
from ..helpers.waiting import DEADLINE, until
from ..spool.spools import lines_of, numbered
from .unforking import CALLS, THREAD

FORKING = [sys.executable, "-m", "tests.recorder.forking"]


def test_whoever_is_killed_nothing_runs_beside_a_fork(bus: Mount, recording: Recording, keeping: Server) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", command=FORKING)
    for number, whom in enumerate(("drain", "publisher", "holder") * 2):
        (bus / "U_x").write_bytes(numbered(10 * number, 10 * number + 10))
        drain, publisher, holder = recorder.drain(), recorder.publisher(), recorder.holder
        kill({"drain": drain, "publisher": publisher, "holder": holder}[whom])
        if whom == "holder":
            until(lambda drain=drain: recorder.holder == drain, "the drain holds the channel")  # type: ignore[misc]
        wait_for_line(keeping.url, "lines", 10 * number + 10)
    last = recorder.holder
    kill(last, signal.SIGTERM)
    assert "forks beside" not in recorder.words


def test_who_waits_for_a_bus_says_nothing_in_its_thread(
    bus: Mount, remounting: Remounting, recording: Recording, keeping: Server
) -> None:
    """The publisher is started again meanwhile, with whatever locks that thread had."""
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", command=FORKING)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    bus.daemon.kill()
    bus.daemon.wait()
    recorder.wait_for("; waiting")
    for _ in range(2):
        kill(recorder.publisher())
        assert recorder.publisher()
    assert "forks beside ['bus']" in recorder.words
    again = remounting(bus)
    recorder.wait_for("back after")
    (again / "U_x").write_bytes(numbered(10, 20))
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)
    assert Spool(recorder.spool).end == 20
    assert "the thread bus says" not in recorder.words


@pytest.fixture
def obstacle(place: Path) -> Path:
    """As long as this file has the name of a call in it, the system has no room for that."""
    return place / "obstacle"


@pytest.fixture
def unforking(obstacle: Path) -> list[str]:
    return [sys.executable, "-m", "tests.recorder.unforking", str(obstacle)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *((call, "no process can be started (Resource temporarily unavailable); what waits there is not lost") for call in CALLS),
        (THREAD, "{spool}: no thread can be started\n"),
    ],
)
def test_nothing_is_lost_while_no_drain_can_be_started(
    bus: Mount, recording: Recording, obstacle: Path, unforking: list[str], call: str, said: str
) -> None:
    recorder = recording(bus / "U_x", command=unforking)
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: Spool(recorder.spool).end == 10, "lines come")
    drain = recorder.drain()
    obstacle.write_text(call)
    kill(drain)
    recorder.wait_for(said.format(spool=recorder.spool))
    (bus / "U_x").write_bytes(numbered(10, 20))
    obstacle.unlink()
    until(lambda: Spool(recorder.spool).end == 20, "they come again")
    recorder.end()
    assert lines_of(recorder.spool) == numbered(0, 20)


def test_one_that_is_ended_while_no_drain_can_be_started(
    bus: Mount, recording: Recording, obstacle: Path, unforking: list[str]
) -> None:
    recorder = recording(bus / "U_x", command=unforking)
    drain = recorder.drain()
    obstacle.write_text("fork")
    kill(drain)
    recorder.wait_for("no process can be started")
    (bus / "U_x").write_bytes(numbered(0, 10))
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert "ended before everything that was queued was taken; 10 lines of it are lost" in recorder.words
    assert "came while it ended" not in recorder.words


def test_lines_are_recorded_while_no_publisher_can_be_started(
    bus: Mount, recording: Recording, keeping: Server, obstacle: Path, unforking: list[str]
) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", command=unforking)
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    publisher = recorder.publisher()
    obstacle.write_text("fork")
    kill(publisher)
    recorder.wait_for("the publisher cannot be started (Resource temporarily unavailable), which loses nothing")
    (bus / "U_x").write_bytes(numbered(10, 20))
    until(lambda: Spool(recorder.spool).end == 20, "lines are recorded")
    obstacle.unlink()
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)


@pytest.mark.parametrize("call", CALLS)
def test_lines_are_recorded_when_no_publisher_can_be_started_at_first(
    bus: Mount, recording: Recording, keeping: Server, obstacle: Path, unforking: list[str], call: str
) -> None:
    obstacle.write_text(call)
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", command=unforking)
    assert "the publisher cannot be started (Resource temporarily unavailable), which loses nothing" in recorder.words
    (bus / "U_x").write_bytes(numbered(0, 10))
    obstacle.unlink()
    wait_for_line(keeping.url, "lines", 10)
    recorder.end()
    assert lines_of(recorder.spool) == numbered(0, 10)


# ---------------------------------------------------------------------------------------------- no thread, no descriptor


def test_a_recorder_is_ended_while_no_thread_can_be_started(
    bus: Mount, recording: Recording, obstacle: Path, unforking: list[str]
) -> None:
    """Without one it cannot ask the bus what was left, since that might hang."""
    recorder = recording(bus / "U_x", command=unforking)
    drain = recorder.drain()
    obstacle.write_text(THREAD)
    kill(drain)
    recorder.wait_for("no thread can be started")
    (bus / "U_x").write_bytes(numbered(0, 10))
    recorder.process.terminate()
    assert recorder.process.wait(DEADLINE) == 1
    assert recorder.words.endswith("taken; how much of it is lost, the bus does not say\n")
    assert "Traceback" not in recorder.words


def test_a_channel_is_waited_for_until_a_thread_can_be_started(
    bus: Mount, place: Path, start: Start, obstacle: Path, unforking: list[str]
) -> None:
    obstacle.write_text(THREAD)
    process = start(*unforking, bus / "U_x", place / "spool")
    assert process.stderr is not None
    assert process.stderr.readline() == f"futebus-record: {bus / 'U_x'}: no thread can be started; trying again\n"
    obstacle.unlink()
    assert process.stderr.readline() == f"futebus-record: recording {bus / 'U_x'} into {place / 'spool'}\n"
    process.terminate()
    assert process.wait(DEADLINE) == 0


def test_a_publisher_that_dies_is_started_when_there_are_descriptors(bus: Mount, recording: Recording, keeping: Server) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    wait_for_line(keeping.url, "lines", 10)
    publisher = recorder.publisher()
    limit = leave(recorder.holder, 0)
    kill(publisher)
    recorder.wait_for("the publisher cannot be started (Too many open files), which loses nothing; trying again")
    leave(recorder.holder, 2)  # enough to start it, and not for anything that it does
    recorder.wait_for("the publisher: Too many open files\nfutebus-record: the publisher failed, which loses nothing")
    (bus / "U_x").write_bytes(numbered(10, 20))
    until(lambda: Spool(recorder.spool).end == 20, "lines are recorded")
    resource.prlimit(recorder.holder, resource.RLIMIT_NOFILE, limit)
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)


def test_a_recorder_without_descriptors_ends_as_ever(bus: Mount, recording: Recording, keeping: Server) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines", command=LASTING)
    recorder.drain()
    leave(recorder.holder, 0)
    (bus / "U_x").write_bytes(numbered(0, 10))
    recorder.end()
    assert lines_of(recorder.spool) == numbered(0, 10)
    assert lines_in(messages(keeping.url)) == numbered(0, 10)
