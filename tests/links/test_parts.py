"""The parts of a link that need no server: numbers of lines, what waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.links import origin
from futebus.links.origin import MOST_LINES, ORIGIN_SECONDS, Run, Seen, cut
from futebus.links.outbox import ENTRY, Outbox

# ---------------------------------------------------------------------------------------------- numbers

LINES = st.lists(
    st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line).map(lambda line: line + b"\n"), max_size=30
)
NAME = "0123456789abcdef"


def run_of(lines: list[bytes], first: int = 1) -> Run:
    return Run(NAME, first, len(lines), b"".join(lines))


@given(LINES, st.integers(1, 80))
def test_pieces_are_whole_lines_with_their_numbers(lines: list[bytes], most: int) -> None:
    run = run_of(lines, 7)
    pieces = list(cut(run, most))
    assert b"".join(piece.data for piece in pieces) == run.data
    number = 7
    for piece in pieces:
        assert piece.first == number
        assert piece.data.count(b"\n") == piece.count
        assert len(piece.data) <= most or piece.count == 1
        number = piece.next


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), max_size=20))
def test_each_line_is_taken_once_in_order_and_gaps_are_counted(came: list[tuple[int, int]]) -> None:
    seen = Seen()
    taken: list[int] = []
    missed = 0
    for first, count in came:
        new, gap, _ = seen.take(run_of([b"%d\n" % number for number in range(first, first + count)], first))
        missed += gap
        taken += [int(line) for line in new.data.split()] if new else []
    assert taken == sorted(set(taken))
    if came:
        begin = came[0][0]
        end = max([begin, *(first + count for first, count in came if first + count)])
        assert len(taken) + missed == end - begin if taken or missed else True


def test_only_so_many_origins_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "ORIGINS", 2)
    now = 0.0
    seen = Seen(lambda: now)
    runs = {name: Run(name, 1, 1, b"x\n") for name in "abc"}
    assert [seen.take(runs[name])[2] for name in ("a", "b", "a")] == [True] * 3
    for _ in range(2):  # as often as it comes: it is not known again, so it must not be handed on
        assert seen.take(runs["c"]) == (runs["c"], 0, False)
    assert seen.take(Run("c", 1, 0, b"")) == (None, 0, False)
    assert seen.take(runs["a"]) == (None, 0, True), "who was there is known still"
    now = ORIGIN_SECONDS
    assert seen.take(runs["c"]) == (runs["c"], 0, True)
    assert list(seen._next) == ["a", "c"]


def test_where_an_origin_begins_is_told_once() -> None:
    seen = Seen()
    assert seen.take(Run("a", 5, 0, b"")) == (None, 0, True)
    assert seen.take(Run("a", MOST_LINES, 0, b"")) == (None, 0, True)
    assert seen.take(Run("a", 7, 1, b"x\n")) == (Run("a", 7, 1, b"x\n"), 2, True)


def test_no_number_grows_out_of_what_can_be_read() -> None:
    assert origin.read({"Futebus-Origin": NAME, "Futebus-Line": str(MOST_LINES - 2)}, b"x\ny\n") is not None
    for first in (MOST_LINES - 1, MOST_LINES, 10 * MOST_LINES - 1):
        assert origin.read({"Futebus-Origin": NAME, "Futebus-Line": str(first)}, b"x\ny\n") is None


@pytest.mark.parametrize(
    ("headers", "payload"),
    [
        (None, b"x\n"),
        ({}, b"x\n"),
        ({"Futebus-Origin": NAME}, b"x\n"),
        ({"Futebus-Line": "1"}, b"x\n"),
        ({"Futebus-Origin": NAME, "Futebus-Line": "0"}, b"x\n"),
        ({"Futebus-Origin": NAME, "Futebus-Line": "-1"}, b"x\n"),
        ({"Futebus-Origin": NAME, "Futebus-Line": "1" * 20}, b"x\n"),
        ({"Futebus-Origin": "me", "Futebus-Line": "1"}, b"x\n"),
        ({"Futebus-Origin": NAME, "Futebus-Line": "1"}, b"x"),
        ({"Futebus-Origin": NAME, "Futebus-Line": "1"}, b"x\n\ny\n"),
    ],
)
def test_what_is_not_from_a_link(headers: dict[str, str] | None, payload: bytes) -> None:
    assert origin.read(headers, payload) is None
    assert origin.read(origin.headers(run_of([b"x\n"], 5)), b"x\n") == run_of([b"x\n"], 5)


# ---------------------------------------------------------------------------------------------- what waits


class Box:
    """An outbox, and what it tells."""

    def __init__(self, most: int) -> None:
        self.woken = self.freed = self.lost = 0
        self.box = Outbox(self._wake, self._free, self._lose, most)

    def _wake(self) -> None:
        self.woken += 1

    def _free(self) -> None:
        self.freed += 1

    def _lose(self, count: int) -> None:
        self.lost += count


def test_runs_that_follow_each_other_are_one_message() -> None:
    box = Box(10_000).box
    for first in (1, 2, 4):
        box.put(run_of([b"x\n"], first))
    box.put(Run("f" * 16, 5, 1, b"y\n"))
    taken = [box.take(100) for _ in range(4)]
    assert taken == [run_of([b"x\n", b"x\n"]), run_of([b"x\n"], 4), Run("f" * 16, 5, 1, b"y\n"), None]


def test_a_run_that_is_too_long_is_cut_and_the_rest_comes_next() -> None:
    box = Box(10_000).box
    box.put(run_of([b"a\n", b"bb\n", b"cc\n"]))
    box.put(run_of([b"d\n"], 4))
    assert [box.take(3) for _ in range(4)] == [
        run_of([b"a\n"]),
        run_of([b"bb\n"], 2),
        run_of([b"cc\n"], 3),
        run_of([b"d\n"], 4),
    ]


def test_the_oldest_are_dropped_and_counted_unless_there_was_place() -> None:
    told = Box(3 * ENTRY)
    told.box.put(run_of([b"x" * 1000 + b"\n"] * 5))
    assert (told.box.has_place, told.lost) == (False, 0), "there was place before"
    told.box.put(run_of([b"y\n"], 6))
    assert (told.box.has_place, told.lost, told.woken) == (True, 5, 1)
    assert told.box.take(1000) == run_of([b"y\n"], 6)
    assert told.box.is_empty


def test_who_waits_for_place_is_told() -> None:
    told = Box(2 * ENTRY)
    for first in (10, 20):
        told.box.put(run_of([b"x\n"], first))
    assert not told.box.has_place
    assert [told.box.take(100), told.box.take(100), told.freed] == [run_of([b"x\n"], 10), run_of([b"x\n"], 20), 1]
    told.box.put_back([run_of([b"x\n"], 10), run_of([b"x\n"], 20)])
    assert told.box.take(100) == run_of([b"x\n"], 10)
    assert told.box.clear() == 1
