"""A program that is interrupted all the time, in the middle of what the client does: `python -m tests.client.interrupted`.

What it loses or doubles by its own fault it must not blame on the client: it counts with what has returned in the same step.
"""

import errno
import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import futebus
import futebus.client as client
from futebus.client.channel import RETRY_SECONDS

INSIDE = os.path.dirname(futebus.__file__)
LONGEST = 0.0005
"""Seconds until the program is interrupted, at most: about as long as a few calls take."""

ENOUGH = 100
"""How often."""
SLIPS = 3
"""How many files may stay open after ten times so many: some of what opens one are calls that cannot tell what they have done."""


class Interrupt(TimeoutError):
    """What a signal's handler raises: of a kind that calls of the system raise, too."""


wanted: list[OSError] = []
raised: list[OSError] = []
"""What the handler is to raise, for those who choose that; and what it has raised."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    if frame and frame.f_code.co_filename.startswith(INSIDE):  # elsewhere the program would have to look after itself
        raise Interrupt


def _raise_once(number: int, frame: FrameType | None) -> None:
    """As `_interrupt`, what was chosen before. From where nobody hears of it, it does not."""
    if not wanted or not frame or not frame.f_code.co_filename.startswith(INSIDE):
        return
    while frame:
        if frame.f_code.co_name == "__del__":
            return
        frame = frame.f_back
    raised.append(wanted.pop())
    raise raised[-1]


@contextmanager
def _soon(pause: float = 0) -> Iterator[None]:
    """Interrupts soon what the client does: once, or again after so many seconds."""
    signal.setitimer(signal.ITIMER_REAL, random.random() * LONGEST + 1e-6, pause)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _read(bus: Path) -> None:
    """Reads what somebody else writes, in every way that there is, until that has been interrupted often enough."""
    got: list[bytes] = []
    hits = 0
    is_enough = threading.Event()
    with client.collect(bus / "U_x", bytes) as master:
        threading.Thread(target=_fill, args=(bus / "U_x", is_enough), daemon=True).start()
        ways = itertools.cycle(range(4))
        while not got or got[-1] != b"end":
            try:
                with _soon():
                    way = next(ways)
                    if way == 0:
                        got.append(master.read())
                    elif way == 1:
                        got.append(master.read(timeout=60))
                    elif way == 2:
                        got.extend(itertools.islice(master, max(1, master.pending)))
                    elif not master.pending:
                        got.extend(master.read_block().splitlines())
            except Interrupt:
                hits += 1
                if hits == ENOUGH:
                    is_enough.set()
    assert got[:-1] == [b"%d" % number for number in range(len(got) - 1)]


def _fill(path: Path, is_enough: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    with open(path, "wb", buffering=0) as out:
        numbers = itertools.count()
        while not is_enough.is_set():
            out.write(b"%d\n" % next(numbers))
        out.write(b"end\n")


def _send(bus: Path) -> None:
    """Sends messages, some longer than one call of the system, until often enough only a part of a call's was accepted."""
    got: list[bytes] = []
    parts = 0
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x") as out:
        reading = threading.Thread(target=_hear, args=(master, got), daemon=True)
        reading.start()
        sent = 0
        while parts < ENOUGH:
            lengths = random.choices((0, 10, 1000, 200_000), (10, 10, 5, 1), k=random.choice((1, 1, 20, 100)))
            batch = [b"%d %s" % (number, b"x" * long) for number, long in enumerate(lengths, sent)]
            out.accepted = 0
            try:
                with _soon():
                    out.send(*batch, timeout=random.choice((None, 60)))
            except Interrupt:
                parts += 0 < out.accepted < len(batch)
            sent += out.accepted
        out.send("end")
        reading.join()
    assert [int(message.partition(b" ")[0]) for message in got] == list(range(sent))


def _hear(master: client.Collector[bytes], got: list[bytes]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    got.extend(itertools.takewhile(lambda message: message != b"end", master))


def _open(bus: Path) -> None:
    """Reads from masters who come and go, while another thread sends, and is interrupted while the channel is opened again."""
    is_enough, is_over = threading.Event(), threading.Event()

    def flap() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        while not is_enough.is_set():
            with client.collect(bus / "U_x"):
                is_enough.wait(LONGEST * 5)  # for somebody to come
        with client.collect(bus / "U_x") as master:
            while not is_over.wait(LONGEST):
                master.send("end")

    flapping = threading.Thread(target=flap, daemon=True)
    flapping.start()
    channel = client.connect(bus / "U_x", wait=60, again=True)

    def talk() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        with suppress(ValueError):  # it is closed
            while channel.send("x"):
                is_over.wait(LONGEST)

    talking = threading.Thread(target=talk, daemon=True)
    talking.start()
    said: list[str] = []
    hits = 0
    while not said:
        try:
            with _soon(0.003):
                said.append(channel.read())
        except Interrupt:
            hits += 1
            if hits == 10 * ENOUGH:
                is_enough.set()
    is_over.set()
    flapping.join()
    channel.close()
    talking.join(60)
    assert not talking.is_alive(), channel._opening
    files = [each for each in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if Path(each).is_relative_to(bus)]
    assert len(files) <= SLIPS, files


def _enter(bus: Path) -> None:
    """Opens a channel. The handler raises what calls of the system have said when there is no bus, or a channel already."""
    signal.signal(signal.SIGALRM, _raise_once)
    came = 0
    while came < 10 * ENOUGH:
        mine = OSError(random.choice((errno.ENOTTY, errno.EINVAL, errno.EEXIST, errno.ENOENT)), "mine")
        wanted[:] = (mine,)
        raised.clear()
        try:
            with _soon():
                client.subscribe(bus / "B_x", wait=random.choice((0, 60)), mode=random.choice((None, 0o600))).close()
                wanted.clear()
            assert not raised, f"swallowed: {raised}"
        except OSError as error:
            if error is not mine:
                raise
            came += 1


def _close(bus: Path) -> None:
    """Closes a channel. Who was kept from that does so again."""
    with client.collect(bus / "U_x"):
        hits = 0
        while hits < 10 * ENOUGH:
            slave = client.connect(bus / "U_x")
            file = slave.fileno()
            try:
                with _soon():
                    slave.close()
            except Interrupt:
                hits += 1
            slave.close()
            assert not Path(f"/proc/self/fd/{file}").exists(), hits


def _keep(bus: Path) -> None:
    """Sends to a new master while something of the old one has not been read, and reads that then."""
    hits = 0
    while hits < ENOUGH:
        with client.collect(bus / "U_x") as master:
            slave = client.connect(bus / "U_x", again=True)
            master.send("one", "two", "three")
        with slave, client.collect(bus / "U_x"):
            try:
                # A sender that finds no master waits a moment.
                signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS[0] + random.random() * LONGEST)
                slave.send("x")
            except Interrupt:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert [slave.read(timeout=60) for _ in range(3)] == ["one", "two", "three"]


def _shut(bus: Path) -> None:
    """Shuts a channel: though the handler raises what a call of the system could have, it is not opened again."""
    hits = 0
    while hits < ENOUGH:
        with client.collect(bus / "U_x", again=True) as jobs:
            try:
                with _soon():
                    jobs.shut()
            except Interrupt:
                hits += 1
            with suppress(client.Ended, client.TimedOut):
                jobs.read(timeout=0)
            assert jobs.joins == 1, hits


if __name__ == "__main__":
    what, place, seed = sys.argv[1:]
    random.seed(int(seed))
    signal.signal(signal.SIGALRM, _interrupt)
    storms = {"read": _read, "send": _send, "open": _open, "enter": _enter, "close": _close, "keep": _keep, "shut": _shut}
    storms[what](Path(place))
