"""What scan.c offers."""

def lines(data: bytes | memoryview, start: int, stop: int, most: int = ..., /) -> tuple[int, int]:
    """Counts the whole, non-empty lines that begin at `data[start]`, up to the first empty one or `stop`, at most `most`.

    Returns:
        How many they are, and where the last of them ends.
    """

def end(data: bytes, start: int, count: int, /) -> int:
    """Where, in `data`, the first `count` lines end that begin at `data[start]`.

    Raises:
        ValueError: there are not so many.
    """

def split(data: bytes, /) -> tuple[int, bytes, bytes]:
    """Cuts lines at their newlines, for who wants them as one array.

    Args:
        data: whole lines, empty ones too, at most 2 GiB.

    Returns:
        How many they are; their texts without newlines, one behind the other; where in that each begins and the last one ends, as
        native 32-bit integers.

    Raises:
        ValueError: the last line has no end.
    """

def split_all(parts: list[bytes], /) -> tuple[list[int], bytes, bytes]:
    """Cuts the lines of several texts at their newlines, as `split` does, for who wants them as one array.

    Args:
        parts: whole lines each, at least one and none of them empty; at most 2 GiB in all.

    Returns:
        How many lines each part has; the texts of all of them, and their places, as by `split`.

    Raises:
        ValueError: a part is empty, its last line has no end, or a line is empty.
    """

def nul(data: bytes | memoryview, /) -> int:
    """Where the first NUL byte is; -1 if there is none. Before Python 3.12, `find` of a map takes a nanosecond a byte."""
