"""How the commands take their arguments, and how they complain: in one line on standard error, and with a status."""

import argparse
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

from ..core.quantities import octal
from ..core.text import printable

REMOVED = "the working directory, where it begins, has been removed"
"""What is wrong with a path that is not absolute where there is nothing to begin from."""

EMPTY = "''"
"""How an empty argument is shown: as it is typed, for nothing at all would be seen otherwise."""

OK, FAILED, USAGE = 0, 1, 2
"""Exit statuses: ended as told; something went wrong; wrong arguments."""


class _Once(argparse.Action):
    """Keeps the value of an option, and refuses a second one: whoever gives two has forgotten one, and the last would win."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        if option is not None:
            given = parser.given if isinstance(parser, Parser) else set()
            if self.dest in given:
                raise argparse.ArgumentError(self, "given twice; once, please")
            given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Complains in one line, takes options by their whole names only, and shows descriptions as they were written.

    An option that has a value is given once, unless it is one of which several count (`append`).

    Args:
        takes_last: whether the last one wins instead, as in an older program whose place is taken.
    """

    def __init__(self, *, takes_last: bool = False, **about: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **about)
        self.given: set[str] = set()
        """What options have given a value, so far."""
        if not takes_last:
            for name in (None, "store"):  # argparse's own, which have the last one win
                self.register("action", name, _Once)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's. In some versions the other one calls it twice, the second time with what is left."""
        self.given.clear()
        return super().parse_known_args(args, namespace)

    def parse_known_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's."""
        self.given.clear()
        return super().parse_known_intermixed_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reads the arguments; options may stand anywhere between names.

        Of what is left over options are to blame, if there are any, and not what is beside them, or is missing for them.
        """
        wanted = [action for action in self._actions if not action.option_strings and action.required]
        for action in wanted:
            action.required = False  # or it would be said first that they are missing
        given, left = self.parse_known_intermixed_args(args, namespace)
        for action in wanted:
            action.required = True
        if not left:
            given, left = self.parse_known_intermixed_args(args, namespace)
        if left:
            to_blame = [word for word in left if word.startswith("-")] or left
            self.error(f"unrecognized arguments: {' '.join(word or EMPTY for word in to_blame)}")
        return given

    def error(self, message: str) -> NoReturn:
        """Says what is wrong with the arguments, and ends."""
        self.exit(USAGE, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Writes a help, a version or a complaint now. argparse would not mind if that could not be done, and end with 0."""
        stream = file or sys.stderr
        error = write_now(stream, message)
        if error and stream is sys.stdout and not isinstance(error, BrokenPipeError):
            self.exit(FAILED, f"{self.prog}: standard output: {error.strerror}\n")


def write_now(stream: TextIO | None, text: str) -> OSError | None:
    """Writes a text at once.

    Args:
        stream: standard output or standard error; None: it is closed, and nobody reads the text.
        text: what there is to say. What the stream has no characters for is escaped.

    Returns:
        Why that cannot be done.
    """
    if stream is None:
        return None
    try:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()
    except OSError as error:
        # What is left in the buffer would be written again at the end, and complained of in Python's own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None


def fail_to_print(command: str) -> int:
    """Says that standard output is closed. Returns the exit status."""
    return fail(command, f"standard output: {os.strerror(errno.EBADF)}")


def fail(command: str, words: str) -> int:
    """Says in one line why a command has failed. Returns its exit status."""
    write_now(sys.stderr, f"{command}: {printable(words)}\n")
    return FAILED


def missing(command: str, what: str, extra: str, *packages: str) -> int:
    """Says in one line what a command lacks, and how to get it.

    Args:
        command: what it is called.
        what: what is missing.
        extra: under which name scripts/install has it.
        packages: what pip calls it, for who has installed futebus without its tree.

    Returns:
        The exit status.
    """
    script = Path(__file__).parents[2] / "scripts" / "install"
    return fail(
        command,
        f"{what}: {script} {extra}" if script.exists() else f"{what}: {sys.executable} -m pip install {' '.join(packages)}",
    )


def absolute(command: str, path: str | Path) -> Path:
    """A path from the root on. Ends the program if it begins in a directory that has been removed.

    Args:
        command: what the program is called.
        path: as it was given.
    """
    try:
        return Path(path).absolute()
    except FileNotFoundError:
        sys.exit(fail(command, f"{path}: {REMOVED}"))


def place(text: str) -> Path:
    """Reads where a bus is mounted, or will be.

    Raises:
        ValueError: it is empty, as what comes of a variable that is not set. It would be taken for the working directory.
    """
    if not text:
        raise ValueError("the empty string is no directory")
    return Path(text)


def path(text: str) -> Path:
    """Reads the path of a channel, a file or a directory.

    Raises:
        ValueError: it is empty. It would be taken for the working directory.
    """
    if not text:
        raise ValueError("the empty string is no path")
    return Path(text)


def checked(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Has argparse show what a `ValueError` of `read` says."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def permissions(text: str) -> int:
    """Reads the mode of a channel or a socket.

    Raises:
        ValueError: they are none.
    """
    return octal(text, 0o777)


def is_closed(descriptor: int) -> bool:
    """Whether a descriptor is not open: asked of standard output before `open_standard`, by who has to print something."""
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def open_standard() -> None:
    """Sees to it that descriptors 0, 1 and 2 are open: else what is opened next is taken for one of them, and written to."""
    for number in range(3):
        if is_closed(number):
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one
            os.set_inheritable(number, True)
    # What a locale has no characters for is nothing to fail of, as it is not where Python opens them.
    sys.stdout = sys.stdout or open(1, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115 - for good
    sys.stderr = sys.stderr or open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
