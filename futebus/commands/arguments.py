"""How the commands take their arguments, and how they complain: in one line on standard error, and with a status."""

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..core.text import printable

OK, FAILED, USAGE = 0, 1, 2
"""Exit statuses: ended as told; something went wrong; wrong arguments."""

MOST_SECONDS = 100 * 366 * 86400
"""The longest time span that is taken: a century. What waits, counts nanoseconds or knows a calendar cannot take any number."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Of time spans, in seconds."""


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong with the arguments, and ends."""
        self.exit(USAGE, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")


def fail(command: str, words: str) -> int:
    """Says in one line why a command has failed. Returns its exit status."""
    print(f"{command}: {printable(words)}", file=sys.stderr)
    return FAILED


def checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Has argparse show what a `ValueError` of `read` says."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def count(text: str) -> int:
    """Reads a number from 1 on.

    Raises:
        ValueError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"not a number from 1 on: {text!r}")
    return int(text)


def size(text: str) -> int:
    """Reads a number of bytes, `64M`: K, M and G are 1024 and its powers.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9]+)([KMG]?)", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"not a number of bytes (K, M and G may follow): {text!r}")
    return int(found[1]) << (10 * " KMG".index(found[2].upper() or " "))


def seconds(text: str) -> float:
    """Reads a time span, `90`, `1.5m`, `30d`. Returns seconds, from 0 to `MOST_SECONDS`.

    Raises:
        ValueError: it is none.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        span = float(number) * UNITS[unit]
    except ValueError:
        span = math.nan
    if not 0 <= span < math.inf:
        raise ValueError(f"not a time span (s, m, h and d may follow): {text!r}")
    if span > MOST_SECONDS:
        raise ValueError(f"longer than a century: {text!r}")
    return span


def open_standard() -> None:
    """Sees to it that descriptors 0, 1 and 2 are open: else what is opened next is taken for one of them, and written to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
            os.set_inheritable(number, True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - for good
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
