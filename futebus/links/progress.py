"""How far the lines of a stream have been written to a channel, kept so that it survives the death of whoever writes.

The one rule: before each write(2) it is noted what is to be written, and behind it what was accepted. So only a kill in the
middle of one leaves a doubt, and that is known.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import NamedTuple

from ..host.durable import sync
from ..host.slots import MOST, Slots
from ..nats.errors import NatsError

SPOOLS = 200
"""Of how many spools it is known how far their lines have come, if there is room for so many: the latest."""


def source_of(subject: str, spool: str) -> str:
    """A short word for a spool on a subject.

    Servers see to who may publish on which subject, and not to whose spool he says his lines are of: what he says counts on his
    own subject alone.
    """
    return hashlib.sha256(f"{subject} {spool}".encode(errors="surrogateescape")).hexdigest()[:32]


class Reached(NamedTuple):
    """How far it has come."""

    created: str = ""
    """When the stream was made; "" before the first message."""
    sequence: int = 0
    """The last message that has been written, and all before."""
    current: int = 0
    """The message that is being written; 0 if there is none."""
    position: int = 0
    """How many bytes of its lines were accepted: whole lines."""
    intent: int = 0
    """How many bytes are just being written from there. If that is not 0 when it is opened, somebody was killed while writing,
    and nobody can tell whether these were accepted."""
    spool: str = ""
    """Whose lines these are, if they have numbers: see `source_of`."""
    line: int = 0
    """The number of the next of them."""
    time: int = 0
    """When the server got the last message that has been written, in nanoseconds; 0 if that is not known."""
    moment: int = 0
    """When it got the one that is being written."""
    subjects: str = ""
    """Of which subjects messages are written, perhaps with wildcards; "" if a version has begun it that did not note that."""


class Progress:
    """How far it has come, in a directory, locked for as long as it is open.

    Args:
        directory: it is made if it is not there, for its owner alone.
        subject: of which messages, perhaps with wildcards; None: of all. When some have been written, it cannot be another one:
            a number says how far one has come among those of this one alone.

    Raises:
        NatsError: somebody else has it, or it is of another subject, or damaged.
        OSError: it cannot be used.
    """

    def __init__(self, directory: Path, subject: str | None = None) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        try:
            self._begin(subject or ">")
        except BaseException:
            self.close()
            raise

    def _begin(self, subjects: str) -> None:
        file, lines_file, process = self._open("reached"), self._open("lines"), self._open("process")
        holder = ""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = os.fstat(file).st_nlink == 0
        except BlockingIOError:
            is_held, holder = True, os.pread(process, 32, 0).decode(errors="replace").strip()
        if is_held:  # or was, by somebody who could not begin and has just removed it
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise NatsError(f"{self.directory} is in use: {who} delivers to this channel")
        with contextlib.suppress(OSError):  # it is for people who ask: a full disk is no reason not to go on
            os.ftruncate(process, 0)
            os.pwrite(process, f"{os.getpid()}\n".encode(), 0)
        self._slots, self._lines_slots = self._map(file), self._map(lines_file)
        if self._slots.is_damaged or self._lines_slots.is_damaged:
            raise NatsError(f"{self.directory} is damaged: without it, nobody can tell what has been delivered")
        self.owner, self.reached = self._read()
        """Who delivers, by a name of its own; how far."""
        if self.reached.created and self.reached.subjects not in ("", subjects):
            raise NatsError(
                f"{self.directory} is of {self.reached.subjects}, and not of {subjects}: lines would be left out, or come twice;"
                " --consumer names another one, which begins with the first message"
            )
        self.lines: dict[str, int] = json.loads(self._lines_slots.content or b"{}")
        """Of spools, see `source_of`: the number of the next line."""
        if self.reached.spool:
            self.lines[self.reached.spool] = max(self.reached.line, self.lines.get(self.reached.spool, 0))
        self.is_new = is_new = not self._slots.content
        """Whether nobody has used the directory before."""
        if self._lines_slots.content is None:
            self._lines_slots.keep(b"{}")  # from now on, nothing is damage
        if is_new or self.reached.subjects != subjects:
            self.note(subjects=subjects)
            self.flush()
        if is_new:
            for path in (self.directory, self.directory.parent):
                with contextlib.suppress(OSError):
                    sync(path)

    def _open(self, name: str) -> int:
        file = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._held.callback(os.close, file)
        return file

    def _map(self, file: int) -> Slots:
        slots = Slots(file)
        self._held.callback(slots.close)  # it has the lock, too
        return slots

    def _read(self) -> tuple[str, Reached]:
        if not self._slots.content:
            return uuid.uuid4().hex, Reached()
        owner, *fields = json.loads(self._slots.content)
        return owner, Reached(*fields)

    def note(self, **changes: str | int) -> None:
        """Notes how far it has come. It survives the death of this process."""
        self.reached = self.reached._replace(**changes)  # type: ignore[arg-type]
        self._slots.keep(json.dumps([self.owner, *self.reached]).encode())

    def note_lines(self, spool: str, following: int) -> None:
        """Notes how far the lines of a spool have come."""
        self.lines.pop(spool, None)
        self.lines[spool] = following
        while len(self.lines) > SPOOLS or len(kept := json.dumps(self.lines).encode()) > MOST:
            del self.lines[next(iter(self.lines))]
        self._lines_slots.keep(kept)

    def close(self) -> None:
        """Lets go of the directory."""
        self._held.close()

    def discard(self) -> None:
        """Removes the directory, if it is new: of who could not begin nothing is left."""
        if self.is_new:
            with contextlib.suppress(OSError):
                for name in ("lines", "process", "reached"):  # who waits to get the lock sees that the one with it has gone
                    (self.directory / name).unlink()
                self.directory.rmdir()

    def flush(self) -> None:
        """Has it on the disk."""
        self._lines_slots.flush()
        self._slots.flush()
