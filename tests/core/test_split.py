"""Lines cut into what Arrow takes for a column of texts."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futebus.core.lines import split


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
