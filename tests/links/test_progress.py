"""What a delivery keeps."""

import fcntl
import json
import re
from pathlib import Path

import pytest

from futebus.host.slots import look
from futebus.links.progress import Progress, Reached
from futebus.nats.errors import NatsError


def test_long_names_of_spools_push_out_the_oldest(place: Path) -> None:
    progress = Progress(place / "state")
    for number in range(300):
        progress.note_lines(f"x{number:063}", 2**63 - 1)
    names = [f"x{number:063}" for number in range(300)]
    kept = list(progress.lines)
    assert kept == names[-len(kept) :]
    assert len(kept) > 100
    with (place / "state" / "lines").open("rb") as file:
        assert json.loads(look(file.fileno()) or b"") == progress.lines


def test_of_which_subjects_it_is(place: Path) -> None:
    directory = place / "state"
    Progress(directory, "lines.a").close()
    progress = Progress(directory, "lines.b")  # nothing has been written
    progress.note(created="then", sequence=7)
    progress.close()
    for other in (None, "lines.>", "lines.a"):
        with pytest.raises(NatsError, match=rf"/state is of lines.b, and not of {re.escape(other or '>')}: lines would be left"):
            Progress(directory, other)
    progress = Progress(directory, "lines.b")
    assert progress.reached == Reached("then", 7, subjects="lines.b")
    progress.close()


def test_one_that_does_not_know_its_subjects_learns_them(place: Path) -> None:
    progress = Progress(place / "state", "lines.a")
    progress.note(created="then", sequence=7, subjects="")
    progress.close()
    Progress(place / "state").close()
    with pytest.raises(NatsError, match=r"is of >, and not of lines\.a"):
        Progress(place / "state", "lines.a")


def test_who_has_waited_for_one_that_is_discarded_begins_with_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would note in files without a name how far it has come, and the next would begin at the first message."""
    directory = place / "state"
    first = Progress(directory)
    lock = fcntl.flock

    def discarded(file: int, operation: int) -> None:
        first.discard()
        first.close()
        lock(file, operation)

    monkeypatch.setattr("futebus.links.progress.fcntl.flock", discarded)
    with pytest.raises(NatsError, match="is in use: another process delivers"):
        Progress(directory)
    assert not directory.exists()
    monkeypatch.undo()
    kept = Progress(directory)
    kept.close()
    again = Progress(directory)
    again.discard()  # it is not its own
    again.close()
    assert sorted(path.name for path in directory.iterdir()) == ["lines", "process", "reached"]
