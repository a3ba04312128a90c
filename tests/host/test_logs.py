"""The log of a daemon to which nobody listens: it stops nobody, and tells afterwards what it has lost."""

import contextlib
import fcntl
import logging
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from futebus.host import logs
from futebus.host.service import ServiceManager

from ..helpers.descriptors import fill
from ..helpers.mounts import FUTEBUS, abort, device_of, have_unmounted
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

LOST = re.compile(r"\((\d+) lines? (?:was|were) not logged: nobody read (?:it|them) in time\)")


def pipe() -> tuple[int, int]:
    return os.pipe()


def pair() -> tuple[int, int]:
    """As journald has it."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return here.detach(), there.detach()


def terminal() -> tuple[int, int]:
    return pty.openpty()


@pytest.fixture(params=[pipe, pair, terminal])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The two ends of something: what is written to the second can be read from the first."""
    ends = request.param()
    are = [os.fstat(descriptor) for descriptor in ends]
    yield ends
    for descriptor, was in zip(ends, are, strict=True):
        with contextlib.suppress(OSError):
            # Not one that the test has closed: its number may be another thread's by now.
            if os.path.samestat(os.fstat(descriptor), was):
                os.close(descriptor)


def read_all(reading: int, pieces: list[bytes] | None = None) -> str:
    """What can be read until there is nothing more."""
    pieces = [] if pieces is None else pieces
    with contextlib.suppress(OSError):  # of a terminal: its other end is closed
        while piece := os.read(reading, 65536):
            pieces.append(piece)
    return text_of(pieces)


def text_of(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")


def test_a_stderr_that_nobody_reads_stops_nobody(place: Path, start: Start, ends: tuple[int, int]) -> None:
    reading, writing = ends
    directory = place / "bus"
    directory.mkdir()
    fill(writing)
    before = fcntl.fcntl(writing, fcntl.F_GETFL)
    daemon = start(*FUTEBUS, "-f", "-d", directory, stderr=writing)
    try:
        until(lambda: device_of(directory), "it is mounted")
        assert "futebus" in (directory / "_stat").read_text()
        for number in range(4000):
            with pytest.raises(OSError, match="Illegal seek"):
                os.open(directory / f"S_{number:0200}", os.O_RDWR | os.O_CREAT)
        assert fcntl.fcntl(writing, fcntl.F_GETFL) == before, "a shell has its terminal open by the same"
        os.close(writing)
        pieces: list[bytes] = []
        reader = threading.Thread(target=lambda: read_all(reading, pieces))
        reader.start()

        def is_told() -> bool:
            # As long as too much waits for the reader, who has only begun, this is lost, too.
            with pytest.raises(OSError, match="Illegal seek"):
                os.open(directory / "S_again", os.O_RDWR | os.O_CREAT)
            return b"S_again" in b"".join(pieces)

        until(is_told, "it is told again what happens")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(DEADLINE) == 0
        reader.join(DEADLINE)
        text = text_of(pieces)
    finally:
        abort(directory)
    refused = [int(name) for name in re.findall(r"S_(\d+): create by process \d+ of user 0: refused", text)]
    assert refused == sorted(refused), "in order"
    lost = sum(map(int, LOST.findall(text)))
    assert lost > 0
    assert len(refused) + lost >= 4000
    assert "shutting down" in text
    assert text.rstrip().endswith("the bus is gone"), text[-500:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_does_not_wait_for_stderr(place: Path, start: Start, ends: tuple[int, int], number: signal.Signals) -> None:
    directory = place / "bus"
    directory.mkdir()
    fill(ends[1])
    daemon = start(*FUTEBUS, "-f", directory, stderr=ends[1])
    try:
        until(lambda: device_of(directory), "it is mounted")
        assert (directory / "_stat").read_text()
        daemon.send_signal(number)
        assert daemon.wait(DEADLINE) == 0
        assert device_of(directory) is None
    finally:
        abort(directory)


def test_a_failure_does_not_wait_for_stderr_either(place: Path, start: Start, ends: tuple[int, int]) -> None:
    """The mount is refused, and that cannot be said."""
    directory = place / "bus"
    directory.mkdir()
    fill(ends[1])
    daemon = start(*FUTEBUS, "-f", "-o", "context=nonsense", directory, stderr=ends[1])
    assert daemon.wait(DEADLINE) == 1


def test_a_stderr_that_is_gone_is_no_trouble(place: Path, start: Start) -> None:
    directory = place / "bus"
    directory.mkdir()
    reading, writing = os.pipe()
    daemon = start(*FUTEBUS, "-f", "-d", directory, stderr=writing)
    try:
        until(lambda: device_of(directory), "it is mounted")
        os.close(reading)
        for _ in range(100):
            with pytest.raises(OSError, match="No such device or address"):
                os.open(directory / "nothing", os.O_RDWR | os.O_CREAT)
        assert (directory / "_stat").read_text()
        have_unmounted(directory)
        assert daemon.wait(DEADLINE) == 0
    finally:
        os.close(writing)
        abort(directory)


# ---------------------------------------------------------------------------------------------- by itself


@pytest.fixture
def outlet() -> Iterator[Callable[[], tuple[logs.Outlet, int]]]:
    opened: list[int] = []

    def make() -> tuple[logs.Outlet, int]:
        opened.extend(os.pipe())
        return logs.Outlet(opened[-1], lambda lost: b"lost %d\n" % lost), opened[-2]

    yield make
    for descriptor in opened:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def test_lines_come_in_order_and_the_last_ones_too(outlet: Callable[[], tuple[logs.Outlet, int]]) -> None:
    made, reading = outlet()
    for number in range(1000):
        made.put(b"%d\n" % number)
    assert made.flush(20)
    assert os.read(reading, 65536).split() == [b"%d" % number for number in range(1000)]


def test_what_is_too_much_is_counted_where_it_is_missing(outlet: Callable[[], tuple[logs.Outlet, int]]) -> None:
    made, reading = outlet()
    line = b"x" * 999 + b"\n"
    for _ in range(1000):
        made.put(line)
    assert not made.flush(0)
    data = bytearray()
    while b"lost" not in data:
        data += os.read(reading, 65536)
    made.put(b"next\n")
    while not data.endswith(b"next\n"):
        data += os.read(reading, 65536)
    *lines, last = bytes(data).splitlines(keepends=True)
    told = [each for each in lines if each.startswith(b"lost")]
    assert sum(int(each.split()[1]) for each in told) == 1000 - lines.count(line)
    assert set(lines) == {line, *told}
    assert lines.index(told[0]) > 200, "what had place is not lost"
    assert last == b"next\n"
    assert 200 < len(lines) < 500


def test_what_could_not_be_written_is_counted_too(outlet: Callable[[], tuple[logs.Outlet, int]], place: Path) -> None:
    """A disk that is full for a while."""
    full = os.open("/dev/full", os.O_WRONLY)
    made = logs.Outlet(full, lambda lost: b"lost %d\n" % lost)
    for number in range(3):
        made.put(b"%d\n" % number)
        assert made.flush(20)
    file = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(file, full)
    made.put(b"next\n")
    assert made.flush(20)
    assert (place / "log").read_bytes() == b"lost 3\nnext\n"
    os.close(file)
    os.close(full)


def test_others_may_make_it_non_blocking(outlet: Callable[[], tuple[logs.Outlet, int]]) -> None:
    made, reading = outlet()
    writing = made._descriptor
    count = fill(writing)
    os.set_blocking(writing, False)
    made.put(b"hello\n")
    data = b""
    while not data.endswith(b"hello\n"):
        data += os.read(reading, 65536)
    assert len(data) == count + 6


class Broken:
    """What cannot be put into words."""

    def __str__(self) -> str:
        raise MemoryError


def test_what_cannot_be_logged_is_not_met_by_who_logs(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """It may be in the middle of closing a file of somebody."""
    handler = logs.Stderr()
    log = logging.Logger("of the test")
    log.addHandler(handler)
    handler.addFilter(logs.Throttle(burst=0, failures=10))
    log.warning("held back")
    log.error("%s", Broken())
    log.error("said")
    assert handler._outlet.flush(20)
    words = capfd.readouterr().err
    assert "said" in words
    assert "Traceback" not in words
    assert "1 line was not logged" in words


# ---------------------------------------------------------------------------------------------- the service manager


def test_a_service_manager_that_is_stuck_stops_nobody(place: Path, start: Start) -> None:
    """It is told again when it listens again."""
    address, directory = str(place / "notify"), place / "bus"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        manager.bind(address)
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"noise", address)
        assert ServiceManager({"NOTIFY_SOCKET": address}).tell("READY=1", patience=0) is False
        daemon = start(*FUTEBUS, "-f", directory, env={**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000"})
        try:
            until(lambda: device_of(directory), "it is mounted")
            for _ in range(300):
                assert (directory / "_stat").read_text()
            manager.settimeout(DEADLINE)
            told: list[str] = []
            while "READY=1" not in told:
                told += manager.recv(4096).decode().split("\n")
            assert [word for word in told if word.startswith("STATUS=")] == ["STATUS=0 clients, 0 channels"]
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(DEADLINE) == 0
        finally:
            abort(directory)
    assert ServiceManager({"NOTIFY_SOCKET": address}).tell("READY=1") is False
    assert ServiceManager({}).tell("READY=1") is True


BUSY = """
import logging, time
from futebus.host import logs

def write(self, data, really=logs.Outlet._write):
    time.sleep(2 * logs.PATIENCE)
    really(self, data)

logs.Outlet._write = write
logs.to_stderr(None, logging.INFO)
logs.log.info("the last words")
"""


def test_the_last_words_wait_for_a_disk_that_is_busy(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        assert subprocess.run([sys.executable, "-c", BUSY], stderr=log, timeout=DEADLINE, check=False).returncode == 0
    assert (tmp_path / "log").read_text() == "futebus: the last words\n"
