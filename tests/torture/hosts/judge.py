"""What everybody has heard, judged: each line as it was written, once, in the order of its writer, and there or told of."""

import re
from collections import Counter
from collections.abc import Iterable

LINE = re.compile(rb"(\d+) (\d+) (x*)")

Lines = dict[int, list[int]]
"""The numbers of lines, by writer, in the order in which they came."""


def told(words: str, what: str) -> int:
    """How many lines a log tells of in all, in sentences that go on so."""
    return sum(int(count.replace(",", "")) for count in re.findall(rf"([\d,]+) lines? {what}", words))


class Judge:
    """Judges what was heard, and counts."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def expect(self, is_so: bool, words: str) -> None:
        """Notes what is wrong."""
        if not is_so:
            self.wrong.append(words)

    def read(self, who: str, data: bytes) -> Lines:
        """What somebody has heard."""
        found: Lines = {}
        *lines, rest = data.split(b"\n")
        self.expect(not rest, f"{who} has half a line: {rest[:100]!r}")
        for line in lines:
            is_line = LINE.fullmatch(line)
            if is_line and len(is_line[3]) == int(is_line[2]) % 150:
                found.setdefault(int(is_line[1]), []).append(int(is_line[2]))
            else:
                self.expect(False, f"{who} has what nobody has written: {line[:100]!r}")
        self.counts["lines heard"] += len(lines)
        return found

    def once(self, who: str, found: Lines, announced: int = 0) -> Lines:
        """Each line once, but for as many as were announced, and the lines of a writer in their order. Returns each once."""
        doubles = 0
        once: Lines = {}
        for writer, numbers in found.items():
            once[writer] = list(dict.fromkeys(numbers))
            doubles += len(numbers) - len(once[writer])
            in_order = sorted(once[writer])
            first = next((one for one, other in zip(once[writer], in_order, strict=True) if one != other), None)
            self.expect(first is None, f"{who} has line {first} of writer {writer} out of order")
        self.expect(doubles <= announced, f"{who} has {doubles} lines twice, and {announced} were announced")
        self.counts["lines that came twice, as announced"] += doubles
        return once

    def missing(self, who: str, found: Lines, written: dict[int, int], least: Iterable[int] = ()) -> int:
        """How many lines somebody has not heard.

        Args:
            who: it is.
            found: what was heard.
            written: by writer, how many lines the bus has accepted for sure.
            least: writers that were killed, of whom nobody knows how many they have written: what is there has no gap.
        """
        for writer in least:
            numbers = found.get(writer, [])
            self.expect(
                numbers == list(range(len(numbers))), f"{who} has gaps in what writer {writer} wrote before it was killed"
            )
        return sum(len(set(range(count)) - set(found.get(writer, []))) for writer, count in written.items())

    def conclude(self) -> Counter[str]:
        """The counts.

        Raises:
            AssertionError: something is wrong.
        """
        assert not self.wrong, f"{len(self.wrong)} things are wrong:\n" + "\n".join(self.wrong[:20])
        assert self.counts["lines heard"], "something was heard"
        return self.counts
