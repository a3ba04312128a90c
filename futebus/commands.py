"""What the commands share: how they take their arguments, complain, and are told to end."""

import argparse
import math
import re
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .core.text import printable

OK, FAILED, USAGE = 0, 1, 2
"""Exit statuses: ended as told; something went wrong; wrong arguments."""

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
    """Reads a time span, `90`, `1.5m`, `30d`. Returns seconds, 0 or more.

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
    return span


def ending_signals() -> set[signal.Signals]:
    """The signals that end a command in an orderly way.

    SIGHUP and SIGINT, unless the command was started to ignore them, by nohup(1) or by the `&` of a script; and SIGTERM.
    """
    interrupts = (signal.SIGHUP, signal.SIGINT)
    return {signal.SIGTERM, *(number for number in interrupts if signal.getsignal(number) != signal.SIG_IGN)}
