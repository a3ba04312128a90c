"""The note of how far the lines of a spool have come."""

from pathlib import Path

import pytest

from futebus.host.slots import MOST
from futebus.recorder.target import MOST_WORDS, Note, NoteKeeper, read_note


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
    assert read_note(tmp_path) == kept == Note("S", "s", shown="nats://h/S/s", trouble="away")
