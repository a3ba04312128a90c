"""Whether one user can keep another waiting: the round trip of a line while somebody floods the bus.

Two processes of one user send a line to and fro on a channel of their own, with a short pause between two round trips. Another
user's processes do one thing as fast as they can. All share the processors with the daemon, so a part of what is measured is the
kernel's scheduler.
"""

import contextlib
import itertools
import os
import resource
import signal
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from . import peers
from .figures import Figure, Row

FLOODER, OTHER = 64001, 64002
"""The users, if root measures; else both are who measures."""
FLOODERS = 6
"""Processes that flood."""
CROWD = 5000
"""Clients of the flooding user on one channel."""
WRITERS = 300
"""Writes that wait for a master at once."""
COUNT = 200
"""Round trips in each round."""
PAUSE = 0.002
"""Seconds between two round trips, so that they meet all that a flood does."""
LINE = b"ping\n"
BLOCK = 1 << 20
Show = Callable[[str], None]
Work = Callable[[Path], Callable[[], object]]
"""Given the bus, prepares a flood. What it returns is done again and again."""


def _become(user: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def _forked(user: int, work: Callable[[], object]) -> int:
    """Does something in a process of a user. Returns its ID."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.alarm(0)
            _become(user)
            work()
            status = 0
        finally:
            os._exit(status)
    return child


@contextmanager
def _running(processes: list[int]) -> Iterator[None]:
    """Kills the processes in the end."""
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in processes:
            os.waitpid(process, 0)


# ---------------------------------------------------------------------------------------------- the floods


def _lines(bus: Path) -> Callable[[], object]:
    descriptor = os.open(bus / "B_flood", os.O_WRONLY | os.O_CREAT)
    return lambda: os.write(descriptor, LINE)


def _blocks(channel: str, block: bytes) -> Work:
    def prepare(bus: Path) -> Callable[[], object]:
        descriptor = os.open(bus / channel, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)

        def again() -> None:
            with contextlib.suppress(OSError):  # no such client, for a while
                os.write(descriptor, block)

        return again

    return prepare


def _now_and_then(bus: Path) -> Callable[[], object]:
    again = _lines(bus)

    def after_a_while() -> None:
        time.sleep(0.1)
        again()

    return after_a_while


def _reads(bus: Path) -> Callable[[], object]:
    descriptor = os.open(bus / "A_flood", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)

    def again() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 4096)

    return again


def _opens(bus: Path) -> Callable[[], object]:
    return lambda: os.close(os.open(bus / "B_flood", os.O_RDWR | os.O_CREAT))


def _creates(bus: Path) -> Callable[[], object]:
    name = bus / f"B_flood{os.getpid()}"

    def again() -> None:
        os.close(os.open(name, os.O_RDWR | os.O_CREAT))
        name.unlink()

    return again


def _stats(bus: Path) -> Callable[[], object]:
    return lambda: (bus / "B_flood").stat()


def _lists(bus: Path) -> Callable[[], object]:
    return lambda: [entry.stat() for entry in os.scandir(bus)]


def _snapshots(bus: Path) -> Callable[[], object]:
    return lambda: (bus / "_stat").read_bytes()


def _lets_in(bus: Path) -> Callable[[], object]:
    """A master that reads in bulk makes place for hundreds of long writes at once."""
    name = f"U_flood{os.getpid()}"
    master = os.open(bus / f"+.{name}", os.O_RDWR | os.O_CREAT)

    def write() -> NoReturn:
        descriptor = os.open(bus / name, os.O_WRONLY)
        while True:
            os.write(descriptor, b"a\n\n" * 170_000)

    for _ in range(WRITERS):
        threading.Thread(target=write, daemon=True).start()
    return lambda: os.read(master, BLOCK)


def _pages(bus: Path) -> Callable[[], object]:
    """Has the kernel read pages of channels, which nobody waits for."""
    files = []
    for number in range(13):
        files.append(os.open(bus / f"B_flood{os.getpid()}_{number}", os.O_RDWR | os.O_CREAT))
        os.write(files[-1], b"a line\n" * 15_000)

    def again() -> None:
        for file in files:
            os.posix_fadvise(file, 0, 4096, os.POSIX_FADV_WILLNEED)
        os.close(os.open(bus / "B_flood", os.O_RDWR))

    return again


def _holds(bus: Path) -> Callable[[], object]:
    """Holds channels that are removed and closed, which are no clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    name = bus / f"B_flood{os.getpid()}"
    for _ in range(min(hard - 100, 4000)):
        os.close(os.open(name, os.O_RDWR | os.O_CREAT))
        os.open(name, os.O_PATH)
        name.unlink()
    return _snapshots(bus)


class Flood(NamedTuple):
    """What the flooding user does."""

    name: str
    work: Work | None = None
    flooders: int = FLOODERS
    crowd: str = ""
    """What `crowd.c` is told to do, if there is a crowd."""
    channels: int = 0
    """How many channels more there are."""


FLOODS = [
    Flood("quiet"),
    Flood("writing lines", _lines),
    Flood("writing 1 MiB of lines", _blocks("B_flood", b"a line\n" * (BLOCK // 7))),
    Flood("writing 1 MiB of newlines", _blocks("B_flood", b"\n" * BLOCK)),
    Flood("writing 1 MiB of lines with empty ones between", _blocks("B_flood", b"a\n\n" * (BLOCK // 3))),
    Flood("writing 1 MiB of addressed lines", _blocks("A_flood", b"{2}a\n{*}b\n" * (BLOCK // 10))),
    Flood("reading, O_NONBLOCK", _reads),
    Flood("opening and closing", _opens),
    Flood("creating and removing", _creates),
    Flood("stat", _stats),
    Flood("ls -l of 2,000 channels", _lists, channels=2000),
    Flood(f"cat _stat, {CROWD:,} clients", _snapshots, crowd="idle"),
    Flood(f"lines to {CROWD:,} idle clients", _lines, 1, "idle"),
    Flood(f"65,000 lines at once to {CROWD:,} that never read", _blocks("B_flood", b"a\n" * 65_000), 1, "idle"),
    Flood(f"{WRITERS} long writes to a master that reads in bulk", _lets_in, 1),
    Flood("asking for pages of channels", _pages),
    Flood("cat _stat, holding removed channels", _holds, 1),
    Flood(f"lines to {CROWD:,} in epoll(7)", _lines, 1, "poll"),
    Flood(f"a line now and then to {CROWD:,} in read(2)", _now_and_then, 1, "read"),
]


def _for_ever(work: Work, bus: Path) -> NoReturn:
    again = work(bus)
    while True:
        again()


@contextmanager
def _program() -> Iterator[Path]:
    """The crowd's program, for all users."""
    with peers.compiled("crowd.c") as program:
        program.parent.chmod(0o755)
        yield program


@contextmanager
def _crowd(program: Path, bus: Path, what: str) -> Iterator[None]:
    """Many clients of the flooding user, in one process."""

    def become() -> None:
        _become(FLOODER)

    command = [str(program), str(bus / "B_flood"), str(CROWD), what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=become)
    try:
        assert process.stdout
        if not process.stdout.read(1):
            raise RuntimeError(f"{CROWD} clients cannot be started")
        yield
    finally:
        process.kill()
        process.communicate()


# ---------------------------------------------------------------------------------------------- the round trip


def _echo(channel: Path) -> NoReturn:
    descriptor = os.open(channel, os.O_RDWR)
    while True:
        os.write(descriptor, os.read(descriptor, 100))


def _ping(channel: Path, results: int) -> None:
    descriptor = os.open(channel, os.O_RDWR)
    times = []
    for _ in range(COUNT):
        time.sleep(PAUSE)
        begin = time.perf_counter()
        os.write(descriptor, LINE)
        os.read(descriptor, 100)
        times.append(time.perf_counter() - begin)
    os.write(results, struct.pack(f"{COUNT}d", *times))


def _times(bus: Path) -> list[float]:
    """Seconds of each round trip."""
    channel = bus / "B_other"
    echo = _forked(OTHER, lambda: _echo(channel))
    with _running([echo]):
        while not peers.waiting_readers(bus, "B_other"):
            time.sleep(0.01)
        results, result = os.pipe()
        ping = _forked(OTHER, lambda: _ping(channel, result))
        os.close(result)
        with _running([ping]), os.fdopen(results, "rb") as stream:
            return list(struct.unpack(f"{COUNT}d", stream.read()))


def measure(flood: Flood, program: Path) -> list[float]:
    """Seconds of each round trip under a flood, on a fresh bus."""
    with ExitStack() as stack:
        options = ["allow_other"] if os.geteuid() == 0 else []
        bus = stack.enter_context(peers.futebus(*options, f"max_clients_per_user={CROWD + 100}")).directory
        for name in ("B_flood", "B_other", "A_flood", *(f"B_{number}" for number in range(flood.channels))):
            (bus / name).touch()
            (bus / name).chmod(0o666)
        if flood.crowd:
            stack.enter_context(_crowd(program, bus, flood.crowd))
        if flood.work:
            work = flood.work
            flooders = [_forked(FLOODER, lambda: _for_ever(work, bus)) for _ in range(flood.flooders)]
            stack.enter_context(_running(flooders))
            times = _times(bus)
            if any(os.waitpid(flooder, os.WNOHANG)[0] for flooder in flooders):
                raise RuntimeError(f"{flood.name}: a flood has ended early")
            return times
        return _times(bus)


def run(rounds: int, show: Show) -> Row:
    """Measures all floods, one after the other, each on a bus of its own."""
    all_times: dict[str, list[list[float]]] = {flood.name: [] for flood in FLOODS}
    with _program() as program:
        for round_ in range(rounds):
            for flood in FLOODS:
                show(f"flood: round {round_ + 1} of {rounds}, {flood.name}")
                all_times[flood.name].append([seconds * 1e3 for seconds in measure(flood, program)])
    figures = []
    for name, each in all_times.items():
        ordered = sorted(itertools.chain.from_iterable(each))
        details = {"99 %": f"{ordered[len(ordered) * 99 // 100]:.1f}", f"worst of {len(ordered)}": f"{ordered[-1]:.1f}"}
        figures.append(Figure(name, "ms", [statistics.median(times) for times in each], details))
    row = Row("flood", "The round trip of one user's line while another user floods the bus", figures)
    row.notes.append(f"{FLOODERS} processes flood, or one that writes to a crowd. Each value is a median of {COUNT} round trips.")
    row.notes.append("What the worst are when it is quiet is the machine's part in the others.")
    return row
