"""What scan.c offers."""

def lines(data: bytes | memoryview, start: int, stop: int, /) -> tuple[int, int]:
    """Counts the whole, non-empty lines that begin at `data[start]`, up to the first empty one or `stop`.

    Returns:
        How many they are, and where the last of them ends.
    """
