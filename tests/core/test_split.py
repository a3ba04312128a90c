"""Lines cut into what Arrow takes for a column of texts."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.lines import split, split_all


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=30))
def test_texts_and_where_they_end(lines: list[bytes]) -> None:
    count, texts, ends = split(b"".join(line + b"\n" for line in lines))
    marks = array("i", ends)
    assert count == len(lines) == len(marks) - 1
    assert [texts[marks[number] : marks[number + 1]] for number in range(count)] == lines


@pytest.mark.parametrize("data", [b"no end", b"one\ntwo"])
def test_a_line_without_an_end_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="does not end in a newline"):
        split(data)


def test_only_bytes_are_taken() -> None:
    with pytest.raises(TypeError):
        split("text\n")  # type: ignore[arg-type]


LINE = st.binary(min_size=1, max_size=20).map(lambda line: line.replace(b"\n", b"x") + b"\n")


@given(st.lists(st.lists(LINE, min_size=1, max_size=5), max_size=6))
def test_several_texts_are_cut_as_one(texts: list[list[bytes]]) -> None:
    parts = [b"".join(lines) for lines in texts]
    counts, *rest = split_all(parts)
    count, *whole = split(b"".join(parts))
    assert counts == [len(lines) for lines in texts]
    assert (sum(counts), rest) == (count, whole)


@pytest.mark.parametrize("part", [b"", b"no end", b"one\ntwo", b"\n", b"one\n\n", b"\none\n", b"one\n\ntwo\n"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_text_with_an_empty_line_or_without_an_end_is_refused(part: bytes, place: int) -> None:
    parts = [b"well\n", b"done\n"]
    parts.insert(place, part)
    with pytest.raises(ValueError, match=r"a part does not end in a newline|a line is empty"):
        split_all(parts)


@pytest.mark.parametrize("parts", [b"one\n", (b"one\n",), ["one\n"], [bytearray(b"one\n")]])
def test_only_lists_of_bytes_are_taken(parts: object) -> None:
    with pytest.raises(TypeError):
        split_all(parts)  # type: ignore[arg-type]
