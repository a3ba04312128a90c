"""The note of how far the lines of a spool have come."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from futebus.host.slots import MOST, Slots
from futebus.recorder.secret import SECRET
from futebus.recorder.target import MOST_WORDS, NOTE, Note, NoteKeeper, kept_from, read_note
from futebus.spool.files import Directory


@pytest.mark.parametrize("text", ["x", "\u00e4", "\U0001f600", '"', "\n", "\udcff", "x\U0001f600"])
def test_long_texts_are_cut_and_the_note_is_whole(tmp_path: Path, text: str) -> None:
    with NoteKeeper(tmp_path, ("S" * 255, "s." * 500 + "s"), text * 20_000) as keeper:
        keeper.keep(next=7, created="then", trouble=text * 20_000)
    note = read_note(tmp_path)
    assert note
    assert (note.stream, note.subject, note.next, note.created) == ("S" * 255, "s." * 500 + "s", 7, "then")
    for kept in (note.shown, note.trouble):
        assert (text * 20_000).startswith(kept)
        assert len(kept) >= MOST_WORDS // 12 - 2
    assert len(note.encoded()) <= MOST


def test_short_texts_stay_as_they_are(tmp_path: Path) -> None:
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        keeper.keep(trouble="away")
        kept = keeper.note
    assert kept == Note("S", "s", shown="nats://h/S/s", trouble="away", secret=kept.secret)
    assert read_note(tmp_path) == kept._replace(secret="")
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        assert keeper.note.secret == kept.secret
        assert len(kept.secret) == 32


def test_marks_are_the_fewer_the_older_they_are(tmp_path: Path) -> None:
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        for number in range(1, 3001):
            keeper.confirmed(3 * number, number)
            marks = keeper.note.marks
            assert (marks[0], marks[-1]) == ((3, 1), (3 * number, number))
            assert list(marks) == sorted(set(marks))
        assert len(marks) <= 40
        for newer, older in zip(marks[:0:-1], marks[-2::-1], strict=True):
            just_before = 3 * number - (newer.sequence - 3)
            assert 3 * number - older.sequence <= 2 * just_before
    note = read_note(tmp_path)
    assert note
    assert note.marks == marks


@pytest.mark.parametrize(
    "text", [b"[" * 10_000, b'{"stream": "S", "subject": "s", "shown": 5}', b'{"stream": "S", "subject": "s", "marks": [5]}']
)
def test_a_note_that_somebody_else_has_made_up_is_none(tmp_path: Path, text: bytes) -> None:
    with open(tmp_path / NOTE, "w+b") as file:
        slots = Slots(file.fileno())
        slots.keep(text)
        slots.close()
    assert read_note(tmp_path) is None


@pytest.mark.parametrize("how", ["removed", "another", "renamed"])
def test_a_note_that_is_gone_is_made_again(tmp_path: Path, how: str) -> None:
    note = tmp_path / "published"
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        keeper.keep(next=7, checked=7)
        keeper.flush()
        if how == "renamed":
            note.rename(tmp_path / "other")
        else:
            note.unlink()
        if how == "another":
            with NoteKeeper(tmp_path, ("S", "s"), "an old copy") as other:
                other.keep(next=3, checked=3)
        assert kept_from(tmp_path, ("S", "s"), "") == (3 if how == "another" else 0)  # nothing may go
        keeper.keep(next=8, checked=8)
        keeper.flush()
        assert read_note(tmp_path) == keeper.note._replace(secret="")
        keeper.keep(next=9, checked=9)
        assert kept_from(tmp_path, ("S", "s"), "") == 9
        with pytest.raises(BlockingIOError):
            NoteKeeper(tmp_path, ("S", "s"), "")


def test_what_is_confirmed_is_kept_until_the_stream_has_shown_it(tmp_path: Path) -> None:
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        keeper.confirmed(1, 7)
        assert kept_from(tmp_path, ("S", "s"), "") == 0
        keeper.keep(checked=7)
        keeper.confirmed(2, 9)
        assert kept_from(tmp_path, ("S", "s"), "") == 7
        assert kept_from(tmp_path, ("S", "other"), "") == 0


def test_a_note_has_no_place_any_more(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with NoteKeeper(spool, ("S", "s"), "nats://h/S/s") as keeper:
        keeper.keep(next=7)
        shutil.rmtree(spool)
        with pytest.raises(OSError, match="No such file"):
            keeper.flush()
        keeper.keep(next=8)
        assert not spool.exists()


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_the_secret_is_the_owners_whoever_may_read_the_note(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with NoteKeeper(tmp_path, ("S", "s"), "nats://h/S/s") as keeper:
        keeper.keep(next=7)
        keeper.flush()
        secret = keeper.note.secret
    for file in tmp_path.iterdir():
        is_open = bool(file.stat().st_mode & 0o077)
        assert is_open == (mode != 0o700 and file.name != SECRET)
        assert (secret.encode() in file.read_bytes()) == (file.name == SECRET)
    with NoteKeeper(tmp_path, ("S", "other"), "nats://h/S/other") as keeper:
        assert keeper.note.secret == secret


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_spool_of_before_keeps_its_secret_if_it_is_one(tmp_path: Path, mode: int) -> None:
    """It had it in the note."""
    tmp_path.chmod(mode)
    secret = "0123456789abcdef" * 2
    with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
        keeper.keep(next=7)
    (tmp_path / SECRET).unlink()
    with open(tmp_path / NOTE, "r+b") as file:
        slots = Slots(file.fileno())
        slots.keep(json.dumps(Note("S", "s", next=7, secret=secret)._asdict()).encode())
        slots.close()
    for _ in range(2):
        with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
            assert (keeper.note.next, keeper.note.secret == secret) == (7, mode == 0o700)


@pytest.mark.parametrize("how", ["read by others", "cut", "of others"])
def test_a_secret_that_is_none_is_made_anew(tmp_path: Path, how: str) -> None:
    with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
        before = keeper.note.secret
    file = tmp_path / SECRET
    if how == "read by others":
        file.chmod(0o644)
    else:
        file.write_bytes(before.encode()[:10] if how == "cut" else b"\xff" * 100)
    with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
        assert keeper.note.secret != before
        assert len(keeper.note.secret) == 32
        assert file.read_text() == keeper.note.secret
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_secret_that_has_no_room_is_good_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(Directory, "replace", replace)
    with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
        assert len(keeper.note.secret) == 32


def test_of_another_spool_it_says_nothing(tmp_path: Path) -> None:
    """One that has lost all of its lines goes on as another one: the lines that come now are not those that the stream has."""
    with NoteKeeper(tmp_path, ("S", "s"), "") as keeper:
        keeper.confirmed(3, 1000)
        keeper.keep(checked=1000)
        assert kept_from(tmp_path, ("S", "s"), "new") == 1000  # of an older version: it does not say whose it is
        keeper.keep(spool="old")
        assert kept_from(tmp_path, ("S", "s"), "old") == 1000
        assert kept_from(tmp_path, ("S", "s"), "new") == 0
        assert keeper.note.of("old") == keeper.note
        assert keeper.note.of("new").sequence == 3
