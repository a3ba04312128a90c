"""What a delivery keeps."""

import fcntl
import itertools
import json
import re
from pathlib import Path

import pytest

from futebus.host.slots import Slots, look
from futebus.links.progress import MARKS, SPOOLS, Progress, Reached, share_of, source_of
from futebus.nats.errors import NatsError
from futebus.nats.marks import Mark


def with_marks(directory: Path) -> Progress:
    """Remembers thirty messages."""
    progress = Progress(directory)
    for sequence in range(1, 31):
        progress.mark("then", sequence, sequence)
    return progress


def test_long_names_of_spools_push_out_the_oldest(place: Path) -> None:
    progress = Progress(place / "state")
    for number in range(300):
        progress.note_lines(f"x{number:063}", 2**63 - 1, "a")
    names = [f"x{number:063}" for number in range(300)]
    kept = list(progress.lines)
    assert kept == names[-len(kept) :]
    assert len(kept) > 100
    with (place / "state" / "lines").open("rb") as file:
        assert json.loads(look(file.fileno()) or b"") == {name: [2**63 - 1, "a"] for name in kept}


def test_who_invents_spools_pushes_out_his_own(place: Path) -> None:
    """Each subject has a fair share of what is known."""
    progress = Progress(place / "state")
    shares = {f"lines.{number}": [source_of(f"lines.{number}", f"{spool}") for spool in range(3)] for number in range(20)}
    for subject, sources in shares.items():
        for source in sources:
            progress.note_lines(source, 7, share_of(subject))
    invented = [source_of("lines.mine", f"invented{number}") for number in range(3 * SPOOLS)]
    for source in invented:
        progress.note_lines(source, 1, share_of("lines.mine"))
    assert [source for source in progress.lines if source in invented] == invented[-(SPOOLS - 60) :]
    assert all(progress.lines[source] == 7 for sources in shares.values() for source in sources)
    for number in range(20, SPOOLS + 20):  # honest ones, too many: each has one in the end, and the latest stay
        progress.note_lines(source_of(f"lines.{number}", "0"), 7, share_of(f"lines.{number}"))
    assert list(progress.lines) == [source_of(f"lines.{number}", "0") for number in range(20, SPOOLS + 20)]
    kept = dict(progress.lines)
    progress.close()
    assert Progress(place / "state").lines == kept


def test_what_versions_before_have_kept_is_read(place: Path) -> None:
    """They knew the numbers of lines alone, and no messages but the last."""
    progress = Progress(place / "state")
    progress.note(created="then", sequence=7, time=77)
    progress.close()
    old = {source_of("lines", f"{number}"): number for number in range(SPOOLS)}
    with (place / "state" / "lines").open("r+b") as file:
        slots = Slots(file.fileno())
        slots.keep(json.dumps(old).encode())
        slots.close()
    (place / "state" / "known").unlink()
    progress = Progress(place / "state")
    assert (progress.lines, progress.marks, progress.looked("then"), progress.reached.time) == (old, (), 0, 77)
    for number in range(50):
        progress.note_lines(source_of("lines.mine", f"invented{number}"), 1, share_of("lines.mine"))
    assert sum(progress.lines.get(source) == number for source, number in old.items()) == SPOOLS - 1
    progress.close()


def test_messages_are_remembered_and_the_older_the_fewer(place: Path) -> None:
    progress = Progress(place / "state")
    for sequence in range(1, 10_001):
        progress.mark("then", sequence, 10 * sequence)
        progress.note(created="then", sequence=sequence, time=10 * sequence)
        assert len(progress.marks) <= MARKS
    progress.look("then", 12_000)
    progress.flush()
    marks = progress.marks
    assert all(time == 10 * sequence for sequence, time in marks)
    numbers = [0, *(mark.sequence for mark in marks), 10_000]
    assert all(10_000 - one <= 2 * (10_000 - other) + 2 * MARKS for one, other in itertools.pairwise(numbers[1:]))
    progress.close()
    progress = Progress(place / "state")
    assert (progress.marks, progress.looked(progress.reached.created)) == (marks, 12_000)
    for sequence in (9_000, 9_001):  # the stream had lost the others
        progress.mark("then", sequence, 1)
        progress.note(sequence=sequence, time=1)
    assert progress.marks == (*(mark for mark in marks if mark.sequence < 9_000), Mark(9_000, 1))
    progress.note(created="now", current=1)
    assert (progress.marks, progress.looked(progress.reached.created)) == ((), 0)
    progress.mark("now", 1, 1)
    progress.note(created="now", sequence=1, time=1)
    progress.mark("now", 2, 2)
    assert not progress.marks
    progress.note(sequence=2, time=2)
    assert progress.marks == (Mark(1, 1),)
    progress.close()


def test_what_was_missing_before_is_no_loss(place: Path) -> None:
    """Nobody knows which of them that is: in the end the count is right."""
    progress = Progress(place / "state")
    progress.note(missing=3, missing_to=100)
    progress.note(gone=range(5, 7))
    assert progress.reached.unsaid == 0
    progress.note(gone=range(10, 20))
    assert progress.reached.unsaid == 9
    progress.note(said=9, missing=3)
    progress.note(gone=range(100, 103))  # what came later was not missing then
    assert (progress.reached.unsaid, progress.reached.missing) == (2, 2)
    progress.close()
    progress = Progress(place / "state")
    progress.note(gone=range(50, 53))
    assert (progress.reached.unsaid, progress.reached.missing) == (3, 0)
    progress.go_on("then", 200, 0)
    assert progress.reached.unsaid == 3
    progress.close()


def test_two_numbers_more_than_are_known_are_no_damage(place: Path) -> None:
    progress = Progress(place / "state")
    progress.note(created="then")
    progress.close()
    with (place / "state" / "known").open("r+b") as file:
        slots = Slots(file.fileno())
        slots.keep(json.dumps(["then", 7, [], [], {}, 3, 100]).encode())
        slots.close()
    progress = Progress(place / "state")
    assert progress.looked("then") == 7
    progress.close()


def test_what_has_gone_is_counted_once(place: Path) -> None:
    """Also when it is noted again with more before and behind it."""
    progress = Progress(place / "state")
    progress.note(missing=2, missing_to=12)
    progress.note(gone=range(11, 21))
    assert (progress.reached.unsaid, progress.reached.missing) == (8, 0)
    progress.note(gone=range(5, 31), said=8)
    assert progress.reached.unsaid == 16
    progress.note(gone=range(5, 31), said=16)
    assert progress.reached.unsaid == 0
    progress.note(gone=range(40, 41))
    assert progress.reached.unsaid == 1
    progress.close()


def test_a_loss_that_goes_on_is_one(place: Path) -> None:
    progress = Progress(place / "state")
    for begin, end in ((10, 20), (20, 30), (5, 10)):
        progress.note(gone=range(begin, end))
    progress.note(gone=range(5, 30))
    assert progress.reached.unsaid == 25
    progress.note(gone=range(31, 41))
    assert (progress.reached.gone_from, progress.reached.gone_to) == (31, 41)
    progress.note(current=30, gone=range(28, 30))
    assert (progress.reached.gone_from, progress.reached.gone_to, progress.reached.unsaid) == (31, 41, 37)
    progress.note(gone=range(41, 2**64))
    assert progress.reached.unsaid == 37 + 2**64 - 41
    progress.close()


def test_what_a_server_has_lost_is_forgotten(place: Path) -> None:
    progress = with_marks(place / "state")
    progress.note(created="then", sequence=30, time=30)
    progress.look("then", 50)
    progress.note(gone=range(40, 51))
    progress.forget_behind("then", 45)
    assert (progress.looked("then"), progress.reached.gone_from, progress.reached.gone_to) == (45, 40, 46)
    progress.note(gone=range(40, 51), said=11)
    assert progress.reached.unsaid == 5, "from 46 on they are others"
    progress.forget_behind("then", 20)
    assert (progress.looked("then"), progress.marks[-1]) == (20, Mark(20, 20))
    assert progress.reached.gone_from == progress.reached.gone_to == 21
    progress.close()


def test_who_goes_on_for_another_has_forgotten_when_he_notes_it(place: Path) -> None:
    progress = with_marks(place / "state")
    progress.look("then", 50)
    progress.note(created="then", sequence=30, time=30, since=1, latest=30)
    progress.flush()
    progress.go_on("then", 40, 0)
    progress.close()  # as if it were killed: nothing more is kept
    progress = Progress(place / "state")
    assert (progress.marks, progress.looked("then"), progress.reached.sequence) == ((), 0, 40)
    assert (progress.reached.since, progress.reached.latest) == (0, 0)
    progress.close()


def test_what_is_remembered_behind_the_last_message_is_of_lost_ones(place: Path) -> None:
    """Who has gone back, and is killed before he has kept that he forgot them."""
    progress = with_marks(place / "state")
    progress.note(created="then", sequence=30, time=30)
    progress.flush()
    progress.note(sequence=20, time=20)
    progress.close()
    progress = Progress(place / "state")
    progress.note(sequence=40, time=40)
    assert progress.marks[-1] == Mark(20, 20)
    progress.close()


def test_a_message_that_was_begun_is_behind_all_that_are_written(place: Path) -> None:
    """Versions before this one did not go back when they began another stream, and left out what is behind it."""
    progress = Progress(place / "state")
    progress.note(created="now", sequence=30, time=7, current=3, position=10)
    progress.close()
    progress = Progress(place / "state")
    reached = progress.reached
    assert (reached.sequence, reached.time, reached.current, reached.position) == (2, 0, 3, 10)
    progress.close()


def test_of_another_stream_nothing_has_been_written(place: Path) -> None:
    progress = Progress(place / "state")
    progress.note(created="then", sequence=30, time=7)
    progress.note(created="now", current=1)
    assert (progress.reached.sequence, progress.reached.time, progress.reached.current) == (0, 0, 1)
    progress.close()


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
    assert sorted(path.name for path in directory.iterdir()) == ["known", "lines", "process", "reached"]


@pytest.mark.parametrize("how", ["gone back", "another's message"])
def test_the_lines_of_a_message_that_was_written_in_part_are_known_behind_what_comes_next(place: Path, how: str) -> None:
    """A server may have lost it, and its recorder adds it again."""
    source = source_of("lines", "spool")
    progress = Progress(place / "state")
    progress.note(created="then", sequence=7, current=8, position=50, spool=source, line=123)
    progress.close()
    progress = Progress(place / "state")
    if how == "gone back":
        progress.done(5, 55)
    else:
        progress.note(current=8, position=0, spool="", line=0)
    progress.close()
    progress = Progress(place / "state")
    assert progress.lines == {source: 123}
    progress.close()
