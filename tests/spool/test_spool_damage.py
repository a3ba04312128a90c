"""Spools of which a part did not reach the disk, or was destroyed there: who reads them is told which lines they are."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from futebus.spool import LinesDamaged, LinesGone, NotASpool, Piece, Spool, SpoolError, SpoolWriter
from futebus.spool.layout import MARK
from futebus.spool.segment import Segment

from ..helpers.mounts import run
from ..helpers.recorders import RECORD
from ..helpers.waiting import until
from .spools import SMALL, files, lines_of, numbered, restart, small

EACH = 50
"""How many lines each append has."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A spool of some segments, of 650 lines each."""
    path = tmp_path / "spool"
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        for begin in range(0, 3000, EACH):
            writer.append(numbered(begin, begin + EACH))
    return path


def hole(file: Path, start: int, size: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(size))


def found(path: Path, begin: int | None = None, end: int | None = None, size: int = 10_000) -> tuple[list[int], list[range]]:
    """The numbers of the lines that there are, and what is said to be damaged."""
    spool = Spool(path)
    numbers: list[int] = []
    damage: list[range] = []

    def note(what: LinesDamaged) -> None:
        damage.append(range(what.first, what.stop))

    begin = spool.begin if begin is None else begin
    for piece in spool.pieces(begin, spool.end if end is None else end, size, on_damage=note):
        for part in piece.sound(note):
            numbers += [int(line) for line in part.read().splitlines()]
            assert len(part.read().splitlines()) == part.lines == sum(count for count, _ in part.times)
            assert numbers[-1] == part.first + part.lines - 1
    return numbers, damage


def test_a_hole_is_told_with_its_lines(path: Path) -> None:
    second = files(path, ".lines")[1]
    first = int(second.stem)
    hole(second, 8192, 4096)
    spool = Spool(path)
    with pytest.raises(LinesDamaged, match=f"{second} is damaged, .* lines {first + 50} to {first + 99} ") as caught:
        lines_of(spool)
    assert (caught.value.first, caught.value.stop) == (first + 50, first + 100)
    # The hole goes on in the next append.
    assert lines_of(spool, 0, first + 50) == numbered(0, first + 50)
    assert lines_of(spool, first + 150, 3000) == numbered(first + 150, 3000)
    numbers, damage = found(path)
    assert [number for lost in damage for number in lost] == list(range(first + 50, first + 150))
    assert numbers == [number for number in range(3000) if not first + 50 <= number < first + 150]


@pytest.mark.parametrize("begin", [0, 1, 49, 60, 99, 100])
@pytest.mark.parametrize("end", [60, 99, 100, 101, 300])
def test_lines_are_never_counted_across_a_hole(path: Path, begin: int, end: int) -> None:
    hole(files(path, ".lines")[0], 5600, 512)  # in the second append
    if begin < end:
        numbers, damage = found(path, begin, end)
        lost = [number for part in damage for number in part]
        assert sorted(numbers + lost) == list(range(begin, end))
        assert {*lost} == {*range(50, 100)} & {*range(begin, end)}


def test_a_hole_within_a_line_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with SpoolWriter(path, "B_x") as writer:
        writer.append(b"x" * 20_000 + b"\n")
        writer.append(b"y" * 20_000 + b"\n")
    hole(files(path, ".lines")[0], 8192, 512)
    with pytest.raises(LinesDamaged, match="its line 0 is lost"):
        lines_of(path)
    assert lines_of(path, 1, 2) == b"y" * 20_000 + b"\n"
    with SpoolWriter(path, "B_x") as writer:
        assert writer.end == 2
    assert lines_of(path, 1, 2) == b"y" * 20_000 + b"\n"
    restart(path)
    with SpoolWriter(path, "B_x") as writer:
        assert writer.end == 2, "it is not the last segment by now"


def test_lines_may_have_zeros(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    lines = b"".join(b"%d" % number + bytes(5000) + b"\n" for number in range(100))
    with small(path) as writer:
        writer.append(b"plain\n")
        writer.append(lines)
        writer.append(b"plain again\n")
    with small(path) as writer:
        assert (writer.end, writer.damage, writer.recovered) == (102, [], 0)
    assert lines_of(path) == b"plain\n" + lines + b"plain again\n"
    # A line that is gone among them is seen by its newline.
    last = next(file for file in files(path, ".lines") if b"\0\n" in file.read_bytes())
    hole(last, last.read_bytes().index(b"\0\n") + 1, 1)
    with pytest.raises(LinesDamaged):
        lines_of(path)


def test_a_spool_of_the_format_before_may_have_zeros(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    lines = b"a\0b\n" * 100
    with small(path) as writer:
        writer.append(lines)
    plain = MARK.unpack(files(path, ".index")[0].read_bytes()[-MARK.size :])[3]
    assert plain == 0, "no mark says that there are none"
    identity = json.loads((path / "spool.json").read_bytes())
    (path / "spool.json").write_text(json.dumps({"format": 1, "id": identity["id"], "channel": "B_x"}))
    assert lines_of(path) == lines
    with small(path) as writer:
        writer.append(b"c\n")
    assert lines_of(path) == lines + b"c\n"
    assert json.loads((path / "spool.json").read_bytes())["format"] == 2
    assert Spool(path).id == identity["id"]


def cut_short(path: Path) -> None:
    os.truncate(files(path, ".lines")[1], 3000)


def without_lines(path: Path) -> None:
    files(path, ".lines")[1].unlink()


@pytest.mark.parametrize(
    "harm",
    [cut_short, without_lines],
    ids=lambda harm: harm.__name__,
)
def test_a_segment_that_is_not_whole_is_told_by_readers_and_by_who_opens_it(path: Path, harm: Callable[[Path], None]) -> None:
    second, third = (int(file.stem) for file in files(path, ".lines")[1:3])
    harm(path)
    spool = Spool(path)
    with pytest.raises(LinesGone):
        lines_of(spool)
    for offset in (second + 300, second + 325):
        with pytest.raises(LinesGone):
            lines_of(spool, offset, offset + 20)
    assert lines_of(spool, 0, second) == numbered(0, second)
    assert lines_of(spool, third, 3000) == numbered(third, 3000)
    assert spool.offset_after(0, 10**9) == 3000
    assert spool.offset_at(spool.last.time + 1) == 3000
    spool.lost_before(second + 300)
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        if harm is not without_lines:
            assert writer.end == 3000
        assert len(writer.damage) == 1
        assert str(path) in writer.damage[0]
        assert f"to {third - 1} are lost" in writer.damage[0]
        writer.append(numbered(3000, 3010))
    assert lines_of(path, third, 3010) == numbered(third, 3010)


@pytest.mark.parametrize("gone", [(0,), (1,), (1, 2), (-1,), (0, 1, 2, 3, 4)], ids=str)
def test_lines_without_an_index_are_found_again_when_the_spool_is_opened(path: Path, gone: tuple[int, ...]) -> None:
    indexes = files(path, ".index")
    assert len(indexes) == 5
    last = Spool(path).last
    moments = [Segment(path, int(index.stem))[-1].time for index in indexes]
    for number in gone:
        indexes[number].unlink()
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        words = [f"{indexes[number]} is damaged; its lines are found without it" for number in gone]
        assert writer.damage == writer.changed == words
        assert writer.end == 3000
        assert all(index.exists() for index in indexes)
    spool = Spool(path)
    for size in (1000, 10_000, 1 << 20):
        assert found(path, size=size) == ([*range(3000)], [])
    assert spool.last.time >= last.time
    times = [Segment(path, int(index.stem))[-1].time for index in indexes]
    assert times == sorted(times)
    assert all(time >= moment for time, moment in zip(times, moments, strict=True)), "what is known less exactly is not too early"
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        assert not writer.damage
        writer.append(numbered(3000, 3010))
    assert lines_of(path) == numbered(0, 3010)


@pytest.mark.parametrize("harm", [cut_short, without_lines], ids=lambda harm: harm.__name__)
def test_where_lines_are_gone_too_the_others_are_found_again(path: Path, harm: Callable[[Path], None]) -> None:
    second, third = (int(file.stem) for file in files(path, ".lines")[1:3])
    files(path, ".index")[1].unlink()
    harm(path)
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        assert writer.end == 3000
        assert writer.damage
    numbers, damage = found(path)
    assert [number for number in numbers if not second <= number < third] == [*range(second), *range(third, 3000)]
    assert sorted({*range(second, third)} - {*numbers}) == [number for each in damage for number in each]


def empty(index: bytes) -> bytes:
    return b""


def zeros(index: bytes) -> bytes:
    return bytes(len(index))


def short(index: bytes) -> bytes:
    return index[: 5 * MARK.size]


def cut_within_a_mark(index: bytes) -> bytes:
    return index[: 5 * MARK.size + 3]


def noise(index: bytes) -> bytes:
    return random.Random(1).randbytes(len(index))


def at(place: int, harm: bytes) -> Callable[[bytes], bytes]:
    """Puts something at a mark; a negative one counts from the end."""

    def harmed(index: bytes) -> bytes:
        begin = place * MARK.size % len(index)
        return (index[:begin] + harm)[: len(index)] + index[begin + len(harm) :]

    harmed.__name__ = f"{place}, {harm[:2].hex()}, {len(harm)}"
    return harmed


@pytest.mark.parametrize(
    "harm",
    [
        empty,
        zeros,
        noise,
        short,
        cut_within_a_mark,
        *(at(place, bytes(MARK.size * count)) for place in (0, 1, 5, -3, -1) for count in (1, 3)),
        *(at(place, random.Random(place).randbytes(MARK.size * 2)) for place in (0, 1, 5, -2, -1)),
        *(at(place, MARK.pack(5, 5, 5, 5)) for place in (0, 1, 5, -1)),
        *(at(place, b"\xff" * MARK.size) for place in (0, 1, 5, -1)),
    ],
    ids=lambda harm: harm.__name__,
)
def test_a_damaged_index_hides_no_line(path: Path, harm: Callable[[bytes], bytes]) -> None:
    """Where its segment ends, the next one tells, and in between there are the newlines."""
    index, behind = files(path, ".index")[1:3]
    first, stop = int(index.stem), int(behind.stem)
    sound = Spool(path)
    size, moments = sound.size_from(0), [Segment(path, first, stop=stop)[number].time for number in (1, 5, -1)]
    since = [sound.offset_at(moment) for moment in moments]
    index.write_bytes(harm(index.read_bytes()))
    spool = Spool(path)
    for size_of_piece in (1000, 10_000, 1 << 20):
        assert found(path, size=size_of_piece) == ([*range(3000)], [])
    for offset in (first, first + 1, first + 299, first + 300, stop - 1):
        assert lines_of(spool, offset, offset + 20) == numbered(offset, offset + 20)
    assert spool.size_from(0) == size == 300_000
    assert spool.size_from(first + 325) == 300_000 - (first + 325) * 100
    assert spool.offset_after(0, 32_500 + first * 100) == first + 325
    # Of appends that count as one, all have the time of the last.
    assert all(first <= spool.offset_at(moment) <= offset for moment, offset in zip(moments, since, strict=True))
    assert spool.lost_before(first + 300) == 0
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        assert writer.end == 3000
        assert writer.damage == [f"{index} is damaged; its lines are found without it"]
        # What is kept is counted in bytes that there are.
        assert writer.remove_old(size=300_000) == 0
        assert writer.remove_old(age=3600) == 0
    assert found(path) == ([*range(3000)], [])


def test_lines_are_told_as_damaged_that_are_so_although_the_index_is_damaged_too(path: Path) -> None:
    index, lines = files(path, ".index")[1], files(path, ".lines")[1]
    first = int(index.stem)
    hole(index, 3 * MARK.size, 3 * MARK.size)  # three marks, so four appends count as one
    hole(lines, 4 * EACH * 100, 512)
    lost = range(first + 2 * EACH, first + 6 * EACH)
    numbers, damage = found(path)
    assert numbers == [number for number in range(3000) if number not in lost]
    assert damage == [lost]


def test_zeros_in_lines_whose_marks_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with small(path) as writer:
        for number in range(200):
            writer.append(b"%d" % number + bytes(number % 5) + b"x" * 500 + b"\n")
    lines = lines_of(path)
    index = files(path, ".index")[1]
    for place in range(1, index.stat().st_size // MARK.size):
        sound = index.read_bytes()
        hole(index, place * MARK.size, MARK.size)
        assert lines_of(path) == lines
        index.write_bytes(sound)


def test_opening_costs_no_reading_of_what_is_old(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, size = os.pread, 0
    newest = str(files(path, ".lines")[-1])

    def counting(descriptor: int, length: int, at: int) -> bytes:
        nonlocal size
        data = real(descriptor, length, at)
        file = os.readlink(f"/proc/self/fd/{descriptor}")
        size += len(data) * (file.endswith(".lines") and file != newest)
        return data

    monkeypatch.setattr(os, "pread", counting)
    with SpoolWriter(path, "B_x", segment_bytes=SMALL):
        pass
    assert size == 0


def test_a_mark_that_tells_of_more_bytes_than_there_are(path: Path) -> None:
    index = files(path, ".index")[-1]
    *before, last = [*MARK.iter_unpack(index.read_bytes())]
    index.write_bytes(b"".join(MARK.pack(*mark) for mark in [*before, (last[0], last[1] | 1 << 45, *last[2:])]))
    with pytest.raises(LinesDamaged, match=f"its lines {before[-1][0]} to 2999 are lost"):
        next(Spool(path).pieces(before[-1][0], 3000)).read()
    numbers, damage = found(path)
    assert numbers == [*range(before[-1][0])]
    assert damage == [range(before[-1][0], 3000)]


@pytest.mark.parametrize("column", [0, 1, 2, 3])
@pytest.mark.parametrize("number", [(1 << 64) - 100, 1 << 63, (1 << 63) - 1, 1 << 40, 5000])
def test_marks_that_lead_beyond_their_segment_hide_nothing_behind_it(path: Path, column: int, number: int) -> None:
    """Where a segment ends, the name of the next one tells."""
    indexes = files(path, ".index")
    first, behind = int(indexes[1].stem), int(indexes[2].stem)
    with indexes[1].open("r+b") as index:
        for mark in range(6, index.seek(0, os.SEEK_END) // MARK.size):
            index.seek(mark * MARK.size + 8 * column)
            index.write((number + mark).to_bytes(8, "little"))
    numbers, damage = found(path)
    left_out = [line for each in damage for line in each]
    assert sorted(numbers + left_out) == list(range(3000))
    assert all(first <= line < behind for line in left_out)
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("column", [0, 1, 2, 3])
@pytest.mark.parametrize("place", [1, 6, 12])
def test_one_wrong_bit_hides_nothing_in_other_segments(path: Path, column: int, place: int) -> None:
    index = files(path, ".index")[1]
    first, behind = int(index.stem), int(files(path, ".index")[2].stem)
    sound = index.read_bytes()
    for bit in range(64):
        at = place * MARK.size + 8 * column + bit // 8
        index.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << bit % 8]) + sound[at + 1 :])
        numbers, damage = found(path)
        left_out = [line for each in damage for line in each]
        assert sorted(numbers + left_out) == list(range(3000)), bit
        assert all(first <= line < behind for line in left_out), bit


def test_a_segment_without_its_lines_is_damaged(path: Path) -> None:
    """Retention takes the index first. Wherever one begins, it is told which lines they are."""
    lines = files(path, ".lines")[1]
    first, behind = int(lines.stem), int(files(path, ".lines")[2].stem)
    lines.unlink()
    for begin in (0, first, first + 1, first + EACH, first + EACH + 7, behind - 1, behind):
        numbers, damage = found(path, begin)
        assert numbers == [*range(begin, first), *range(max(begin, behind), 3000)]
        left_out = {line for each in damage for line in each}
        assert left_out == set(range(max(begin, first), behind)) or begin >= behind, begin


@pytest.mark.parametrize("suffixes", [[".index"], [".index", ".lines"]])
def test_who_follows_gets_over_a_segment_that_has_gone(tmp_path: Path, suffixes: list[str]) -> None:
    """He has seen the one before it, and no other yet."""
    path = tmp_path / "spool"
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        writer.append(numbered(0, EACH))
        spool = Spool(path)
        assert spool.end == EACH
        for begin in range(EACH, 3000, EACH):
            writer.append(numbered(begin, begin + EACH))
        first, behind = (int(file.stem) for file in files(path, ".index")[1:3])
        for suffix in suffixes:
            files(path, suffix)[1].unlink()
        until(lambda: spool.end == 3000, "its end is found")
        damage: list[LinesDamaged] = []
        numbers = [int(line) for piece in spool.pieces(0, 3000, on_damage=damage.append) for line in piece.read().splitlines()]
        assert numbers == [*range(first), *range(behind, 3000)]
        assert [(each.first, each.stop) for each in damage] == [(first, behind)]


@pytest.mark.parametrize(
    "content",
    [
        '{"format": 1e999, "id": "x", "channel": "B_x"}',
        "[" * 60_000,
        '{"format": 2, "id": "x", "channel": "B_x", "least": -1}',
        '{"format": 2, "id": "x", "channel": "B_x", "lost": 9223372036854775808}',
    ],
    ids=["number", "depth", "least", "lost"],
)
def test_an_identity_that_makes_no_sense_is_damaged(path: Path, content: str) -> None:
    small(path).close()
    (path / "spool.json").write_text(content)
    with pytest.raises(NotASpool, match=r"spool.json is damaged"):
        Spool(path)


def test_pipes_in_the_place_of_files_keep_nobody_waiting(path: Path, tmp_path: Path) -> None:
    for victim in [files(path, ".index")[-1], files(path, ".lines")[-1], path / "lock", path / "spool.json"]:
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        os.chmod(copy, 0o700)
        (copy / victim.name).unlink()
        os.mkfifo(copy / victim.name)
        if victim.name != "lock":
            with pytest.raises(SpoolError, match=f"{copy / victim.name} is no file"):
                lines_of(copy)
        with pytest.raises(NotASpool, match=f"{copy / victim.name} is no file"):
            small(copy)
        shutil.rmtree(copy)


def test_the_size_of_what_is_behind_many_damaged_appends(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with SpoolWriter(path, "B_x") as writer:
        for number in range(3000):
            writer.append(numbered(number, number + 1))
    with files(path, ".lines")[0].open("r+b") as file:
        file.write(b"x" * 250_000)
    assert Spool(path).size_from(1) == 50_000 - 100, "the first of the rest does not begin where a line does"


def test_the_command_says_which_lines(path: Path) -> None:
    second = files(path, ".lines")[1]
    first = int(second.stem)
    hole(second, 0, 512)
    shown = run(*RECORD, "--print", str(path))
    assert shown.returncode == 1
    assert shown.stderr.count("\n") == 1
    assert f"{second} is damaged, as a loss of power may do: its lines {first} to {first + 49} are lost" in shown.stderr
    shown = run(*RECORD, "--print", str(path), "--from", str(first + 50))
    assert shown.returncode == 0
    assert shown.stdout == numbered(first + 50, 3000).decode()


# ---------------------------------------------------------------------------------------------- in batches for Spark


def arrow(piece: Piece, on_damage: Callable[[LinesDamaged], None] | None = None) -> Iterator[tuple[int, str, int]]:
    """The lines as Spark gets them: offset, text and time."""
    types = pytest.importorskip("pyspark.sql.types")
    from futebus.spark.source.arrow import arrow_schema, batches

    schema = arrow_schema(types.StructType().add("offset", "long").add("value", "string").add("timestamp", "timestamp"))
    for batch in batches(piece, "B_x", schema, "FAILFAST", on_damage):
        for row in batch.to_pylist():
            yield row["offset"], row["value"], row["timestamp"]


@pytest.mark.parametrize(("start", "size"), [(0, 512), (8192, 4096), (60_000, 5_536), (0, SMALL)])
def test_a_task_ends_at_a_hole(path: Path, start: int, size: int) -> None:
    second = files(path, ".lines")[1]
    hole(second, start, min(size, second.stat().st_size - start))
    damaged = 0
    for piece in Spool(path).pieces(0, 3000):
        lines: list[tuple[int, str, int]] = []
        try:
            lines += arrow(piece)
        except LinesDamaged:
            damaged += 1
            assert piece.segment == str(second)
        assert [int(text) for _, text, _ in lines] == [number for number, _, _ in lines]
    assert damaged == 1


@pytest.mark.parametrize(("start", "size"), [(0, 512), (8192, 4096), (60_000, 5_536), (0, SMALL)])
def test_a_task_goes_on_behind_a_hole(path: Path, start: int, size: int) -> None:
    whole = {row[0]: row for piece in Spool(path).pieces(0, 3000) for row in arrow(piece)}
    second = files(path, ".lines")[1]
    hole(second, start, min(size, second.stat().st_size - start))
    damage: list[LinesDamaged] = []
    rows = [row for piece in Spool(path).pieces(0, 3000) for row in arrow(piece, damage.append)]
    assert damage
    assert rows == [whole[row[0]] for row in rows]
    lost = [number for part in damage for number in range(part.first, part.stop)]
    assert sorted([row[0] for row in rows] + lost) == list(range(3000))
    assert len(lost) <= size // 100 + 2 * EACH


def test_a_task_reads_zeros_that_were_said(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    texts = [f"{number}" + "\0" * 3000 for number in range(300)]
    with SpoolWriter(path, "B_x") as writer:
        writer.append("".join(f"{text}\n" for text in texts).encode())
    (piece,) = Spool(path).pieces(0, 300)
    assert [text for _, text, _ in arrow(piece)] == texts
    assert [text for _, text, _ in arrow(piece, lambda damage: None)] == texts


def test_a_file_that_ends_too_early_ends_a_task(path: Path) -> None:
    (piece, *_) = Spool(path).pieces(0, 3000)
    os.truncate(piece.segment, 5_050)
    with pytest.raises(LinesDamaged):
        list(arrow(piece))
    assert [number for number, _, _ in arrow(piece, lambda damage: None)] == list(range(50))
    Path(piece.segment).unlink()
    with pytest.raises(LinesGone, match="have been removed"):
        list(arrow(piece))


def test_a_writer_that_comes_meanwhile_disturbs_nobody(path: Path) -> None:
    with SpoolWriter(path, "B_x", segment_bytes=SMALL) as writer:
        coming = Spool(path).follow(2990, patience=20)
        assert next(coming).read() == numbered(2990, 3000)
        writer.append(numbered(3000, 3010))
        until(lambda: Spool(path).end == 3010, "it is there")
        assert next(coming).read() == numbered(3000, 3010)


def test_what_is_old_is_removed_although_the_index_behind_it_is_damaged(path: Path) -> None:
    """Its marks did not reach the disk. A recorder that could not go on from there would fill the disk."""
    firsts = [int(file.stem) for file in files(path, ".index")]
    damaged = files(path, ".index")[2]
    hole(damaged, 0, damaged.stat().st_size)
    with SpoolWriter(path, "B_x", segment_bytes=SMALL, first_segment_bytes=SMALL) as writer:
        assert writer.remove_old(offset=firsts[2]) == firsts[2]
        writer.append(b"and on\n")
    assert [int(file.stem) for file in files(path, ".index")][:2] == firsts[2:4]
    assert Spool(path).begin == firsts[2]
