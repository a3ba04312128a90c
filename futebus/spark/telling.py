"""What the format tells people: on standard error, and by its errors, which Spark shows them.

The one rule: whatever somebody has called a channel or a file, it comes to one line that a terminal can show.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from ..core.text import printable


class Sentence(Exception):
    """What is wrong, in one sentence, for people."""

    def __str__(self) -> str:
        return printable(super().__str__())


def say(words: str) -> None:
    """Tells the user a sentence: the standard error of Spark's processes is that of the driver."""
    if sys.stderr is not None:  # closed: print() would take standard output instead
        with contextlib.suppress(OSError):  # that nobody listens any more is no reason to stop
            print(f"futebus: {printable(words)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def without_traceback() -> Iterator[None]:
    """Has Spark show a sentence alone: a traceback of ours tells its user nothing.

    Spark's processes look for this variable when they write what has gone wrong, and then end.
    """
    try:
        yield
    except Sentence:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
