"""What a long-running command says: sentences, and one line of status that is written over and over on a terminal.

The one rule: nobody's words are mixed into others'. What Java prints comes through here too.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..core.text import printable

STATUS_SECONDS = 60.0
"""How often the status is told where it cannot be written over."""

_NOISE = ("WARNING: ", "Setting default log level", "To adjust logging level")
"""How lines begin that Java and Spark print at each start, whatever is configured."""

_TRACEBACK = "Traceback (most recent call last):"
_AND_ANOTHER = ("During handling of the above exception", "The above exception was the direct cause")

_BACK, _DIM, _RED, _PLAIN = "\r\x1b[K", "\x1b[2m", "\x1b[31m", "\x1b[m"


class Terminal:
    """The standard error of a command.

    Args:
        name: of the command, in front of what it says.
        stream: where it goes.
        is_quiet: without status; who has words that are no complaint looks at it.
        is_open: what others print at each start is not held back.
    """

    def __init__(self, name: str, stream: TextIO | None = None, *, is_quiet: bool = False, is_open: bool = False) -> None:
        self._name, self.is_quiet, self.is_open = name, is_quiet, is_open
        self._stream = sys.stderr if stream is None else stream
        self._has_colours = self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._lock = threading.RLock()
        self._status = ""
        self._told = time.monotonic()
        self.is_closed = False
        """Whether what others print does not matter any more."""

    def say(self, words: str, *, is_wrong: bool = False) -> None:
        """Says a sentence."""
        red, plain = (_RED, _PLAIN) if is_wrong and self._has_colours else ("", "")
        self._write(f"{red}{self._name}: {printable(words)}{plain}\n")

    def status(self, words: str, *, is_last: bool = False) -> None:
        """Shows how things are."""
        words = printable(words)
        with self._lock:
            if self.is_quiet:
                return
            if self._has_colours and not self._is_in_front():
                self._status = ""
                if is_last:
                    self.say(words)
            elif self._has_colours:
                self._status = "" if is_last else f"{_DIM}{words[: self._width() - 1]}{_PLAIN}"
                self._write(f"{words}\n" if is_last else "")
            elif is_last or time.monotonic() - self._told >= STATUS_SECONDS:
                self._told = time.monotonic()
                self.say(words)

    def clear(self) -> None:
        """Takes the status away."""
        with self._lock:
            if self._status:
                self._status = ""
                self._write("")

    def _is_in_front(self) -> bool:
        """Whether the terminal is this command's to draw on: started with `&`, it is somebody else's."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:
            return True  # it is nobody's terminal of control

    def _width(self) -> int:
        """How many columns the terminal has."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80  # 0: nobody knows
        except OSError:
            return 80  # it has gone away, and nobody will see it

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                self._stream.write(f"{_BACK}{text}{self._status}" if self._has_colours else text)
                self._stream.flush()
            except OSError:
                pass  # that nobody listens any more is no reason to stop

    # ------------------------------------------------------------------------------------------ others

    def write(self, text: str) -> int:
        """Takes what is printed to `sys.stderr`, for which this may stand."""
        if not self.is_closed:
            self._write(_fit(text))
        return len(text)

    def flush(self) -> None:
        """Does nothing: nothing waits."""

    @contextmanager
    def adopted(self) -> Iterator[None]:
        """What programs print that are started in this context comes through here, to their end."""
        with self._lock:
            self._leave_descriptor_2()
        read, write = os.pipe2(os.O_CLOEXEC)
        threading.Thread(target=self._pass_on, args=(read,), daemon=True).start()
        kept = os.dup(2)
        os.dup2(write, 2)
        os.close(write)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)

    def _leave_descriptor_2(self) -> None:
        """Goes on by a descriptor of its own: on 2 there is going to be what others print, and what is said there comes back."""
        try:
            is_there = self._stream.fileno() == 2
        except (OSError, ValueError):
            return  # it is no file
        if is_there:
            encoding, errors = self._stream.encoding, self._stream.errors
            self._stream = os.fdopen(os.dup(2), "w", encoding=encoding, errors=errors)

    def _pass_on(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            for line in lines if self.is_open else _without_tracebacks(lines):
                if not self.is_closed and (self.is_open or not line.startswith(_NOISE)):
                    self._write(_fit(line))


def _without_tracebacks(lines: Iterable[str]) -> Iterator[str]:
    """What is printed beside the tracebacks of Python, which Spark's processes print when they are ended: idle ones, for example.

    What has failed is said by the query that fails.
    """
    is_inside = is_behind = False
    for line in lines:
        if line.startswith((_TRACEBACK, *_AND_ANOTHER)):
            is_inside, is_behind = True, False
        elif line.startswith((" ", "\n")) and (is_inside or is_behind):
            continue
        elif is_inside:  # the error itself
            is_inside, is_behind = False, True
        else:
            is_behind = False
            yield line


def _fit(text: str) -> str:
    """What others print, fit for a terminal: its lines stay lines."""
    return "\n".join(printable(line.expandtabs()) for line in text.split("\n"))
