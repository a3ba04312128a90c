"""The random programs that the processes of a trial run: opens of every kind, odd writes and reads, polls, dups, forks, removals.

Each process has a seed and a record; see `evidence` for what is made of the records.
"""

import errno
import fcntl
import os
import random
import select
import signal
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from . import calls
from .record import Record, text_of

MAX_MESSAGE = 2048
LARGE = 4 * MAX_MESSAGE
"""A read of this size finishes any message."""

LASTING = ("B_0", "A_0", "U_0", "S_0")
"""Channels that live as long as the trial, U and S with a master that is never killed."""

NAMES = (*LASTING, *LASTING, "B_1", "A_1", "U_1", "S_1", ".U_1", ".S_1", "B_1", "A_1")
REMOVED = ("B_1", "A_1", "U_1", "S_1")
END = b"END"
"""The last message of a channel that lasts."""

MODES = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR)
TIMER = 0.02
"""Seconds between the signals that a process sends itself, so that no call waits for ever."""


@dataclass
class File:
    """An open file description, as one of the processes knows it that have it."""

    where: str
    name: str
    flags: int
    descriptors: list[int]
    is_shared: bool = False
    """By two processes: each then reads and writes whole messages only."""
    next_number: int = 0
    pending: deque[bytes] = field(default_factory=deque)
    """Messages to be written, the first of them perhaps begun."""
    begun: bool = False
    """Whether a part of the first message was accepted."""
    torn: bool = False
    """Whether a part of a message was read, and not yet the rest."""
    ids: list[str] = field(default_factory=list)
    """Addresses that are known from what was read."""

    @property
    def reads(self) -> bool:
        """Whether it was opened for reading."""
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writes(self) -> bool:
        """Whether it was opened for writing."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    @property
    def is_addressed(self) -> bool:
        """Whether messages written to it begin with an address."""
        plain = self.name.removeprefix("+")
        return plain.startswith(("A", ".S"))


class Program:
    """One process.

    Args:
        bus: where the bus is mounted.
        records: the directory of the records.
        who: the name of the process.
        seed: of what it does.
    """

    def __init__(self, bus: Path, records: Path, who: str, seed: int) -> None:
        self.bus, self.records, self.who = bus, records, who
        self.dice = random.Random(seed)
        self.note = Record(records, who)
        self.files: list[File] = []
        self.opened = self.forked = 0
        self.is_over = False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.is_over = True

    def listen(self, *, timer: float = TIMER) -> None:
        """Has signals end calls: SIGALRM all the time, if there is a `timer`, SIGUSR1 for fun, SIGTERM to end the process."""
        for number in (signal.SIGALRM, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._stop)
        if timer:
            signal.setitimer(signal.ITIMER_REAL, timer, timer)

    # ------------------------------------------------------------------------------------------ what it can do

    def open(self, name: str, flags: int) -> File | None:
        """Opens a channel."""
        where = f"{self.who}:{self.opened}"
        self.opened += 1
        self.note("open", where, name, flags)
        descriptor = calls.open_(str(self.bus / name), flags)
        if descriptor < 0:
            self.note("opened", where, -descriptor, 0)
            return None
        self.note("opened", where, 0, os.fstat(descriptor).st_ino)
        file = File(where, name, flags, [descriptor])
        self.files.append(file)
        return file

    def compose(self, file: File, count: int, *, valid: bool = False) -> None:
        """Thinks of messages to write; a few of them such as must be refused, unless they are to be `valid`."""
        dice = self.dice
        for _ in range(count):
            size = dice.choice((0, 1, 10, 40, 40, 200, 900, MAX_MESSAGE - 150))
            number, to, kind = file.next_number, "-", dice.random() if not valid else 1.0
            if kind < 0.01:
                size = MAX_MESSAGE + dice.randrange(200)
            if file.is_addressed:
                to = dice.choice(file.ids) if file.ids and dice.random() < 0.7 else dice.choice(("*", "1", "2", "3", "1f", "0a"))
            text = text_of(self.who, file.where, number, to, size)
            address = b"" if to == "-" else b"{%s}" % to.encode()
            is_bad = len(address) + len(text) + 1 > MAX_MESSAGE
            if file.is_addressed and 0.01 < kind < 0.02:
                address, is_bad = dice.choice((b"", b"{}", b"{x}", b"{ffffff0}", b"{5:o}")), True
            # Empty messages are nothing. They stand in front, so that what is left of a line is never only one of them.
            line = b"\n" * (dice.random() < 0.1) + address + text + b"\n"
            file.next_number += 1
            self.note("compose", file.where, number, len(line), is_bad)
            file.pending.append(line)

    def write(self, file: File, size: int) -> int:
        """Writes up to so many bytes of what was composed; whole messages if the description is shared."""
        if file.is_shared:
            data = file.pending[0]
        else:
            pieces: list[bytes] = []
            left = size
            for line in file.pending:
                pieces.append(line[:left])
                left -= len(pieces[-1])
                if not left:
                    break
            data = b"".join(pieces)
        self.note("write", file.where, len(data))
        result = calls.write(self.dice.choice(file.descriptors), data)
        self.note("wrote", file.where, result)
        if result > 0:
            while result:
                line = file.pending.popleft()
                if result < len(line):
                    file.pending.appendleft(line[result:])
                    file.begun = True
                    break
                result -= len(line)
                file.begun = False
        elif result not in (-errno.EAGAIN, -errno.EINTR):
            file.pending.popleft()
            file.begun = False
        return result

    def read(self, file: File, size: int) -> bytes | int:
        """Reads up to so many bytes; whole messages if the description is shared."""
        if file.is_shared:
            size = LARGE
        self.note("read", file.where, size)
        result = calls.read(self.dice.choice(file.descriptors), size)
        self.note("got", file.where, result)
        if isinstance(result, bytes) and result:
            file.torn = not result.endswith(b"\n")
            if result[:1] == b"{":
                address = result[1:].partition(b"}")[0].partition(b":")[0]
                with suppress(ValueError):
                    file.ids = [*file.ids[-9:], f"{int(address[:8], 16):x}"]
        return result

    def set_nonblocking(self, file: File, is_so: bool) -> None:
        """fcntl(F_SETFL)."""
        descriptor = file.descriptors[0]
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK if is_so else flags & ~os.O_NONBLOCK)

    def look_then_read(self, file: File) -> None:
        """Polls; where there is something to read, a read that must not wait must find it."""
        bits = calls.poll(file.descriptors[0], select.POLLIN | select.POLLOUT, self.dice.choice((0, 1, 5)))
        if bits <= 0 or not bits & select.POLLIN or not file.reads or file.is_shared:
            return
        self.set_nonblocking(file, True)
        result = self.read(file, self.dice.choice((1, 100, LARGE)))
        if isinstance(result, int) and result != -errno.EINTR:
            self.note("wrong", f"{file.where}: readable to poll, and then errno {-result}")
        self.set_nonblocking(file, self.dice.random() < 0.5)

    def close(self, file: File) -> None:
        """Closes all descriptors of a description."""
        self.files.remove(file)
        self.note("close", file.where)
        for descriptor in file.descriptors:
            os.close(descriptor)
        self.note("closed", file.where)

    def fork(self) -> None:
        """Forks. Both go on with the same open files."""
        if any(file.begun or file.torn for file in self.files):
            return
        for file in self.files:
            file.is_shared = True
            file.pending.clear()
        self.forked += 1
        child = f"{self.who}f{self.forked}"
        self.note("fork", child)
        seed = self.dice.getrandbits(32)
        if os.fork():
            return
        self.note.close()
        self.who, self.opened, self.forked = child, 0, 0
        self.note = Record(self.records, child)
        self.dice = random.Random(seed)
        for file in self.files:
            file.next_number = 0
        self.listen()
        self.live(self.dice.randrange(5, 60))

    # ------------------------------------------------------------------------------------------ what it does

    def open_something(self) -> None:
        """Opens a channel in some way."""
        dice = self.dice
        name = dice.choice(NAMES)
        flags = dice.choice(MODES)
        for flag, chance in ((os.O_CREAT, 0.4), (os.O_NONBLOCK, 0.3), (os.O_APPEND, 0.2), (os.O_TRUNC, 0.1), (os.O_EXCL, 0.02)):
            flags |= flag * (dice.random() < chance)
        if name.startswith(".") or flags & os.O_EXCL:
            flags |= os.O_CREAT
        self.open(("+" if dice.random() < 0.3 else "") + name, flags)

    def step(self) -> None:
        """Does one thing."""
        dice = self.dice
        if not self.files or (len(self.files) < 4 and dice.random() < 0.1):
            self.open_something()
            return
        file = dice.choice(self.files)
        what = dice.random()
        if what < 0.45 and file.writes:
            if dice.random() < 0.002 and not file.is_shared:
                self.compose(file, 3000)  # more than one request of the kernel
                self.write(file, 3_000_000)
            if not file.pending:
                self.compose(file, dice.choice((1, 1, 3, 20)))
            self.write(file, dice.choice((1, 7, 100, 100, 1000, 5000, 100_000)))
        elif what < 0.85 and file.reads:
            self.read(file, dice.choice((1, 5, 64, 64, LARGE, LARGE, LARGE, 65_536)))
        elif what < 0.90:
            self.look_then_read(file)
        elif what < 0.93:
            self.set_nonblocking(file, dice.random() < 0.5)
        elif what < 0.94:
            file.descriptors.append(os.dup(file.descriptors[0]))
            if dice.random() < 0.5:
                os.close(file.descriptors.pop(0))
        elif what < 0.97:
            self.close(file)
        elif what < 0.975:
            self.fork()
        elif what < 0.985:
            with suppress(OSError):
                os.unlink(self.bus / dice.choice(REMOVED))
        else:
            os.listdir(self.bus)
            with suppress(OSError):
                os.stat(self.bus / dice.choice(NAMES))

    def live(self, steps: int) -> None:
        """Does so many things, then ends."""
        for _ in range(steps):
            if self.is_over:
                break
            self.step()
        self.end()

    def end(self) -> None:
        """Ends the process."""
        while self.files:
            self.close(self.files[0])
        self.note("end")
        os._exit(0)

    def serve(self, name: str) -> None:
        """Is a master that reads everything, and says something itself now and then. At SIGTERM it reads what is left."""
        dice = self.dice
        file = self.open(name, os.O_RDWR | os.O_CREAT)
        assert file
        sizes = dice.choice(((LARGE,), (1, 64, LARGE), (64, LARGE, 65_536)))
        while not self.is_over:
            how = dice.random()
            if how < 0.05 and not file.torn:
                self.compose(file, dice.choice((1, 5)), valid=True)
            if file.pending:
                self.write(file, dice.choice((20, 5000)))
            elif how < 0.2:
                self.look_then_read(file)
                self.set_nonblocking(file, False)
            else:
                self.read(file, dice.choice(sizes))
        self.set_nonblocking(file, True)
        while self.read(file, LARGE) != -errno.EAGAIN:
            pass
        while file.pending:
            self.write(file, 5000)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.is_over = False
        os.write(file.descriptors[0], (b"{*}" if file.is_addressed else b"") + END + b"\n")
        while not self.is_over:  # till SIGTERM comes again
            signal.sigtimedwait({signal.SIGUSR2}, 0.1)
        self.set_nonblocking(file, True)
        while self.read(file, LARGE) != -errno.EAGAIN:
            pass
        self.end()

    def wait_patiently(self, name: str, how: str) -> None:
        """Reads a channel to its last message, and waits for each message for as long as it takes: by `read` or by `poll`."""
        file = self.open(name, os.O_RDONLY | (os.O_NONBLOCK if how != "read" else 0))
        assert file
        epoll = select.epoll()
        epoll.register(file.descriptors[0], select.EPOLLIN | (select.EPOLLET if how == "edge" else 0))
        heard = b""
        while END not in heard:
            if how == "poll":
                calls.poll(file.descriptors[0])
            elif how == "edge":
                epoll.poll()
            while isinstance(result := self.read(file, LARGE), bytes):
                heard = result[-200:]
                if END in heard or not result:
                    break
        epoll.close()
        self.end()


def run(bus: Path, records: Path, who: str, seed: int, role: str) -> None:
    """Makes this process one of the programs. Does not return.

    Args:
        bus: where the bus is mounted.
        records: the directory of the records.
        who: the name of the process.
        seed: of what it does.
        role: `worker`, `master NAME`, or `patient NAME HOW`.
    """
    try:
        program = Program(bus, records, who, seed)
        what, *words = role.split()
        if what == "worker":
            program.listen()
            program.live(program.dice.choice((5, 50, 200, 400)))
        elif what == "master":
            program.listen()
            program.serve(words[0])
        else:
            program.listen(timer=0)
            program.wait_patiently(*words)
    except BaseException:
        import traceback

        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
