"""How the commands take their arguments, and how they complain: in one line on standard error, and with a status."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..core.text import printable

OK, FAILED, USAGE = 0, 1, 2
"""Exit statuses: ended as told; something went wrong; wrong arguments."""


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
