"""How far the lines of a stream have been written to a channel, kept so that it survives the death of whoever writes.

The one rule: before each write(2) it is noted what is to be written, and behind it what was accepted. So only a kill in the
middle of one leaves a doubt, and that is known.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from ..host.durable import sync
from ..host.processes import in_words
from ..host.slots import MOST, Slots
from ..nats.errors import NatsError
from ..nats.marks import Mark, thinned

SPOOLS = 200
"""Of how many spools it is known how far their lines have come, if there is room for so many: the latest, see `_forget_one`."""

MARKS = 128
"""How many messages are remembered before the last one, at most. Each costs a question when a stream has lost messages."""


def source_of(subject: str, spool: str) -> str:
    """A short word for a spool on a subject.

    Servers see to who may publish on which subject, and not to whose spool he says his lines are of: what he says counts on his
    own subject alone.
    """
    return hashlib.sha256(f"{subject} {spool}".encode(errors="surrogateescape")).hexdigest()[:32]


def share_of(subject: str) -> str:
    """A short word for a subject: its spools share what room there is."""
    return hashlib.sha256(subject.encode(errors="surrogateescape")).hexdigest()[:8]


def _new_name() -> str:
    return uuid.uuid4().hex


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
    missing: int = 0
    """How many messages were missing before anybody wanted them, and have not been passed."""
    missing_to: int = 0
    """Up to which number these are. Which they are nobody knows."""
    unsaid: int = 0
    """How many were removed before they could be delivered, and are not said to be."""
    gone_from: int = 0
    """The first of those that were noted last to be removed, but for those before a message that was begun with them."""
    gone_to: int = 0
    """The number behind them."""
    latest: int = 0
    """When the server got the latest message, in nanoseconds, of those from `since` on that have been written."""
    since: int = 0
    """From which number on that is known; 0 if it is not."""


def _count(numbers: range) -> int:
    """How many numbers these are; Python's own `len` knows none above 63 bits."""
    return max(numbers.stop - numbers.start, 0)


def _with_gone(reached: Reached, gone: range, *, is_remembered: bool) -> Reached:
    """Adds messages that are not there any more; see `Progress.note`."""
    last = range(max(gone.start, reached.gone_from), min(gone.stop, reached.gone_to))
    end = reached.missing_to + 1
    before = _count(range(gone.start, min(gone.stop, end))) - _count(range(last.start, min(last.stop, end)))
    before = min(before, reached.missing)
    unsaid = reached.unsaid + _count(gone) - _count(last) - before
    reached = reached._replace(missing=reached.missing - before, unsaid=unsaid)
    if not is_remembered:
        return reached
    if last.start <= last.stop:  # there is nothing between the two
        return reached._replace(gone_from=min(gone.start, reached.gone_from), gone_to=max(gone.stop, reached.gone_to))
    return reached._replace(gone_from=gone.start, gone_to=gone.stop)


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
        file, lines_file, known_file, process = map(self._open, ("reached", "lines", "known", "process"))
        holder = b""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = os.fstat(file).st_nlink == 0
        except BlockingIOError:
            is_held, holder = True, os.pread(process, 32, 0)
        if is_held:  # or was, by somebody who could not begin and has just removed it
            raise NatsError(f"{self.directory} is in use: {in_words(holder)} delivers to this channel")
        with contextlib.suppress(OSError):  # it is for people who ask: a full disk is no reason not to go on
            os.ftruncate(process, 0)
            os.pwrite(process, f"{os.getpid()}\n".encode(), 0)
        self._slots, self._lines_slots, self._known_slots = map(self._map, (file, lines_file, known_file))
        if self._slots.is_damaged or self._lines_slots.is_damaged:
            raise NatsError(f"{self.directory} is damaged: without it, nobody can tell what has been delivered")
        self.owner, self.reached = self._read()
        """Who delivers, by a name of its own; how far."""
        if self.reached.created and self.reached.subjects not in ("", subjects):
            raise NatsError(
                f"{self.directory} is of {self.reached.subjects}, and not of {subjects}: lines would be left out, or come twice;"
                " --consumer names another one, which begins with the first message"
            )
        told = json.loads(self._lines_slots.content or b"{}")
        # Versions before this one kept the numbers alone: nobody knows who shares a subject. So each has one of his own.
        shares = {source: known if isinstance(known, list) else (known, source) for source, known in told.items()}
        self.lines: dict[str, int] = {source: line for source, (line, _) in shares.items()}
        """Of spools, see `source_of`: the number of the next line."""
        self._shares: dict[str, str] = {source: share for source, (_, share) in shares.items()}
        known = json.loads(self._known_slots.content or b'["", 0, []]')
        known += [[], {}][len(known) - 3 :]  # versions before this one remembered no consumers
        self._created, self._looked, marks, self.consumers, self.handed, *_ = known  # and one of them two numbers more
        """`consumers` and `handed`: what is remembered of consumers, see `Owner`. `keep_known` keeps it."""
        # Those behind the last message are of lost ones: who went back has not kept that he forgot them.
        last = self.reached.sequence if self._created == self.reached.created else 0
        self._marks = [Mark(*mark) for mark in marks if mark[0] <= last]
        self._noting, self._keeping = threading.Lock(), threading.Lock()
        self.is_new = is_new = not self._slots.content
        """Whether nobody has used the directory before."""
        if self._lines_slots.content is None:
            self._lines_slots.keep(b"{}")  # from now on, nothing is damage
        if source := self.reached.spool:
            # Of a message that was written in part. What is noted of the next one would be the last of it.
            self.note_lines(source, max(self.reached.line, self.lines.get(source, 0)), self._shares.get(source, source))
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
            return _new_name(), Reached()
        owner, *fields = json.loads(self._slots.content)
        reached = Reached(*fields)
        if 0 < reached.current <= reached.sequence:
            # A version before this one has begun a message of another stream, or of one that had lost some, and did not go back.
            reached = reached._replace(sequence=reached.current - 1, time=0)
        return owner, reached

    def note(self, *, gone: range | None = None, said: int = 0, **changes: str | int) -> None:
        """Notes how far it has come. It survives the death of this process. Any thread may do that.

        Args:
            gone: the numbers of messages that are not there any more, and are to be said to be removed, but for those that were
                missing before anybody wanted them, or were noted last. If a message is begun with this note, they lie before it,
                and are known by it.
            said: of how many it has been said.
            changes: of what is reached.
        """
        with self._noting:
            reached = self.reached
            if changes.get("created", reached.created) != reached.created:
                reached = reached._replace(sequence=0, time=0, since=0, latest=0)  # of another stream nothing has been written
            reached = reached._replace(**changes)  # type: ignore[arg-type]
            if gone:
                reached = _with_gone(reached, gone, is_remembered="current" not in changes)
            self.reached = reached._replace(unsaid=reached.unsaid - said)
            self._slots.keep(json.dumps([self.owner, *self.reached]).encode())

    def done(self, sequence: int, time: int, **changes: Any) -> None:
        """Notes that a message is the last that has been written, and that none has been begun.

        Args:
            sequence: its number.
            time: when the server got it, in nanoseconds; 0 if that is not known.
            changes: of what else is reached.
        """
        self.note(sequence=sequence, time=time, current=0, position=0, intent=0, spool="", line=0, moment=0, **changes)

    def rename(self) -> str:
        """Becomes another than who has a copy of this. Returns the new name."""
        self.owner = _new_name()
        self.note()
        self.flush()
        return self.owner

    def go_on(self, created: str, sequence: int, time: int) -> None:
        """Notes that another has come further: all that is known of lines and messages is of no use any more.

        Args:
            created: when the stream was made.
            sequence: the last message that the other has written.
            time: when the server got it, in nanoseconds; 0 if that is not known.
        """
        self.lines.clear()
        self._shares.clear()
        self._lines_slots.keep(b"{}")
        self._created, self._looked, self._marks = created, 0, [Mark(sequence, time)] if time else []
        self.keep_known()
        subjects, unsaid = self.reached.subjects, self.reached.unsaid
        self.note(**Reached(created, sequence, time=time, subjects=subjects, unsaid=unsaid)._asdict())

    def note_lines(self, spool: str, following: int, share: str) -> None:
        """Notes how far the lines of a spool have come.

        Args:
            spool: see `source_of`.
            following: the number of the next line.
            share: of its subject, see `share_of`.
        """
        self.lines.pop(spool, None)
        self.lines[spool] = following
        self._shares[spool] = share
        while len(self.lines) > SPOOLS or len(kept := self._encoded_lines()) > MOST:
            self._forget_one()
        self._lines_slots.keep(kept)

    def _encoded_lines(self) -> bytes:
        return json.dumps({source: (line, self._shares[source]) for source, line in self.lines.items()}).encode()

    def _forget_one(self) -> None:
        """Forgets the oldest spool of the subject that has the most: who invents spools pushes out his own."""
        counts = Counter(self._shares.values())
        most = max(counts.values())
        source = next(source for source in self.lines if counts[self._shares[source]] == most)
        del self.lines[source], self._shares[source]

    def mark(self, created: str, sequence: int, time: int) -> None:
        """Remembers a message that has been written. It is kept at the next `flush`."""
        self._remember(created)
        while self._marks and self._marks[-1].sequence >= sequence:  # they are not what they were any more
            self._marks.pop()
        self._marks.append(Mark(sequence, time))
        if len(self._marks) > MARKS:
            self._marks = list(thinned(self._marks))

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Messages that have been written before the last one, the oldest first: see `thinned`."""
        if self._created != self.reached.created:
            return ()
        return tuple(mark for mark in self._marks if mark.sequence < self.reached.sequence)

    def look(self, created: str, sequence: int) -> None:
        """Remembers that all up to a message that are to be written have been. It is kept at the next `flush`."""
        self._remember(created)
        self._looked = sequence

    def forget_behind(self, created: str, number: int) -> None:
        """Forgets what is known of the messages behind one: the stream has others there, or none yet.

        Args:
            created: when the stream was made.
            number: of that message.
        """
        self.look(created, min(self.looked(created), number))
        self._marks = [mark for mark in self._marks if mark.sequence <= number]
        if self.reached.gone_to > number + 1:
            self.note(gone_from=min(self.reached.gone_from, number + 1), gone_to=number + 1)

    def looked(self, created: str) -> int:
        """Up to which message of a stream that is known, if nothing else is.

        Args:
            created: when the stream was made.
        """
        return self._looked if self._created == created else 0

    def knows(self, created: str) -> bool:
        """Whether a stream has been seen before.

        Args:
            created: when it was made.
        """
        return created in (self._created, self.reached.created)

    @property
    def has_known(self) -> bool:
        """Whether any stream has."""
        return bool(self._created or self.reached.created)

    def _remember(self, created: str) -> None:
        if created != self._created:
            self._created, self._looked, self._marks = created, 0, []

    def close(self) -> None:
        """Lets go of the directory."""
        self._held.close()

    def discard(self) -> None:
        """Removes the directory, if it is new: of who could not begin nothing is left."""
        if self.is_new:
            with contextlib.suppress(OSError):
                # Who waits to get the lock sees that the one with it has gone.
                for name in ("lines", "known", "process", "reached"):
                    (self.directory / name).unlink()
                self.directory.rmdir()

    def keep_known(self) -> None:
        """Keeps what is known of the stream, and of consumers. It survives the death of this process."""
        with self._keeping:  # two threads do
            known = json.dumps([self._created, self._looked, self._marks, self.consumers, self.handed]).encode()
            if known != self._known_slots.content:
                self._known_slots.keep(known)

    def flush(self) -> None:
        """Has it on the disk. Any thread may do that."""
        self.keep_known()
        self._known_slots.flush()
        self._lines_slots.flush()
        self._slots.flush()
