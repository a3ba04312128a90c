"""Where the lines of a spool are published, and a note of how far they have come, in the spool's own directory.

The one rule: what the stream has, the stream says. The note is for when it says nothing: when it is away, or keeps no message of
ours any more; for who wants to know how far behind it is; and for who removes old lines, which must not go before.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ..host.slots import Slots, look
from ..nats.marks import thinned
from ..spool import open_to_read
from ..spool.files import Directory
from . import secret

if TYPE_CHECKING:  # the drain has no use for the network's modules
    from ..nats.access import Access
    from ..nats.address import StreamAddress
    from ..nats.wanted import Wanted

NOTE = "published"
"""The name of the note."""

MOST_WORDS = 1000
"""Bytes that an address, or what is wrong, takes in the note: what is longer is cut."""


class Target(NamedTuple):
    """Where lines are to be published."""

    address: "StreamAddress"
    """With its servers and its subject."""
    access: "Access"
    wanted: "Wanted"
    takes_over: bool
    """Whether the subject is taken over from another spool, which is lost."""

    @property
    def place(self) -> tuple[str, str]:
        """The stream and the subject."""
        return self.address.stream, self.address.subject or ""


class Mark(NamedTuple):
    """A message that the stream has confirmed."""

    sequence: int
    next: int
    """The number of the line behind it."""


class Note(NamedTuple):
    """How far the lines of a spool have come."""

    stream: str
    subject: str
    created: str = ""
    """When the stream was made; "" if it has not been reached yet."""
    next: int = 0
    """The number of the first line that it has not confirmed."""
    checked: int = 0
    """The same, of the lines that it has shown to have: who listens to the subject can confirm in its place."""
    sequence: int = 0
    """The number of the message with the line before; 0 if there is none."""
    most: int = 0
    """The bytes that messages were made for last; 0 if none were."""
    shown: str = ""
    """Where it is, for people."""
    trouble: str = ""
    """What keeps lines from being published, if anything does."""
    secret: str = ""
    """What nobody else can tell: of it, and of what everybody can, the names of messages are made. Not kept with the rest, which
    others may read; see `secret.kept`."""
    marks: tuple[Mark, ...] = ()
    """Of the messages that the stream has confirmed, some: see `thinned`."""
    spool: str = ""
    """Whose lines they are: a spool that has lost all of them goes on as another one. The older format did not have it."""

    def of(self, spool: str) -> "Note":
        """What it says of the lines of a spool: nothing of what has come, if it is another's."""
        return self if self.spool in ("", spool) else self._replace(next=0, checked=0, marks=(), spool=spool)

    @property
    def last(self) -> Mark:
        """The last message that the stream has confirmed; the older format had no marks."""
        return self.marks[-1] if self.marks else Mark(self.sequence, 0)

    def encoded(self) -> bytes:
        """As it is kept."""
        return json.dumps(self._replace(shown=_cut(self.shown), trouble=_cut(self.trouble), secret="")._asdict()).encode()


def _cut(text: str) -> str:
    """A text as far as there is room for it, encoded: half a note would be none."""
    text = text[:MOST_WORDS]
    while len(encoded := json.dumps(text)) > MOST_WORDS:
        # A character takes 12 bytes at most.
        text = text[: -max((len(encoded) - MOST_WORDS) // 12, 1)]
    return text


def _decoded(content: bytes | None) -> Note | None:
    try:
        given = json.loads(content or b"")
        note = Note(**{"checked": given.get("next", 0), **{name: given[name] for name in Note._fields if name in given}})
        note = note._replace(marks=tuple(Mark(int(sequence), int(line)) for sequence, line in note.marks))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = dict.fromkeys(Note._fields, str) | dict.fromkeys(("next", "checked", "sequence", "most"), int) | {"marks": tuple}
    return note if all(isinstance(getattr(note, name), kind) for name, kind in kinds.items()) else None


def read_note(spool: Path) -> Note | None:
    """The note of a spool, whoever writes it meanwhile; None if it has none."""
    try:
        file = open_to_read(spool / NOTE)
    except FileNotFoundError:
        return None
    try:
        return _decoded(look(file))
    finally:
        os.close(file)


def kept_from(spool: Path, place: tuple[str, str], identity: str) -> int:
    """The number of the first line that must be kept, since the stream may not have it.

    Args:
        spool: the directory.
        place: the stream and the subject.
        identity: the spool's.
    """
    note = read_note(spool)
    if note is None or (note.stream, note.subject) != place:
        return 0
    note = note.of(identity)
    return min(note.checked, note.next)


class NoteKeeper:
    """The note of a spool, to write. One process does so at a time.

    Args:
        spool: the directory.
        place: the stream and the subject. A note of others is forgotten with the first that is kept.
        shown: where that is, for people.

    Raises:
        BlockingIOError: another process writes it.
        OSError: as the system says.
        SpoolError: the directory is no place for it.
    """

    def __init__(self, spool: Path, place: tuple[str, str], shown: str) -> None:
        self._directory = Directory(spool)
        try:
            self._file, self._slots = self._open()
        except BaseException:
            self._directory.close()
            raise
        before = _decoded(self._slots.content)
        self.note = before if before and (before.stream, before.subject) == place else Note(*place)
        known = self.note.secret if secret.is_own(self._file) else ""
        try:
            self.note = self.note._replace(shown=shown, secret=secret.kept(self._directory, known))
        except BaseException:
            self.close()
            raise

    def _open(self) -> tuple[int, Slots]:
        file = self._directory.open(NOTE, creates_with=self._directory.file_mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file, Slots(file)
        except BaseException:
            os.close(file)
            raise

    def _is_there(self) -> bool:
        """Whether the file still has its name."""
        try:
            found = os.stat(NOTE, dir_fd=self._directory.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._file))

    def confirmed(self, sequence: int, following: int) -> None:
        """Keeps that the stream has confirmed a message.

        Args:
            sequence: its number.
            following: that of the line behind it.
        """
        marks = thinned((*self.note.marks, Mark(sequence, following)))
        self.keep(next=following, sequence=sequence, marks=marks)

    def keep(self, **changes: str | int | tuple[Mark, ...]) -> None:
        """Keeps the note with changes. It survives the death of this process."""
        note = self.note._replace(**changes)  # type: ignore[arg-type]
        if note != self.note or not self._slots.content:
            self.note = note
            self._slots.keep(note.encoded())

    def flush(self) -> None:
        """Has it on the disk, and in the directory: if somebody has removed it, it is made again.

        Raises:
            OSError: it is not there; this one goes on all the same.
            SpoolError: the directory is no place for it any more.
        """
        if not self._is_there():
            file, slots = self._open()
            slots.keep(self.note.encoded())
            self._close_file()
            self._file, self._slots = file, slots
        self._slots.flush()

    def _close_file(self) -> None:
        self._slots.close()
        os.close(self._file)

    def close(self) -> None:
        """Lets the next one write it."""
        self._close_file()
        self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
