"""The terminal: Textual's way to it, with some things mended that a view needs which may be left alone for days.

It writes to standard output, and not to standard error, which may go to a file. A terminal that has gone away ends nothing in a
traceback, and a key that is no character in UTF-8 is no key. A process that was stopped by SIGSTOP, and not by Ctrl-Z, had not
left the terminal's special modes, so it must not enter them a second time: it would take them for those that it has to restore.
But a shell may have taken some of them away. And who is stopped by a signal has something to do first, as by Ctrl-Z.
"""

import contextlib
import io
import os
import signal
import sys
import termios
from codecs import getincrementaldecoder
from functools import partial
from types import FrameType
from typing import Any, ClassVar

from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

# It would end in a traceback at the first byte that is no UTF-8, which a terminal of another encoding sends.
linux_driver.getincrementaldecoder = lambda encoding: partial(getincrementaldecoder(encoding), "ignore")  # type: ignore[attr-defined]


class _Output(io.TextIOBase):
    """Standard output; when nobody has the terminal any more, nothing. What its encoding has no character for is `?`."""

    def __init__(self) -> None:
        # It would end the thread that writes, and nothing more would be drawn, nor the terminal be left as it was.
        sys.__stdout__.reconfigure(errors="replace")  # type: ignore[union-attr]

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.__stdout__.write(text)  # type: ignore[union-attr]
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.__stdout__.flush()  # type: ignore[union-attr]

    def fileno(self) -> int:
        return 1


class Driver(LinuxDriver):
    """The terminal of this process."""

    attributes: ClassVar[list[Any] | None] = None
    """How the terminal was before, for who must end in a hurry."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._file = _Output()  # type: ignore[assignment]
        self._special: list[Any] | None = None
        """How the terminal is in its special modes."""
        self.is_ready_to_stop = False
        """Whether the view has done what it does before it is stopped."""

    def start_application_mode(self) -> None:
        """Enters the special modes."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        type(self).attributes = self.attrs_before
        with contextlib.suppress(termios.error):
            self._special = termios.tcgetattr(self.fileno)

    def _sigtstp_application(self, *_: int | FrameType | None) -> None:
        if self.is_ready_to_stop:
            super()._sigtstp_application()
        else:
            self._loop.call_soon_threadsafe(self._app.call_later, self._app.run_action, "stop")

    def _sigcont_application(self, *_: int | FrameType | None) -> None:
        if self._must_signal_resume:
            super()._sigcont_application()
        else:
            # Not here: a handler comes in the middle of anything, and what writes to the terminal has locks.
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        # Somebody may have used the terminal meanwhile. Who goes on in the background is stopped here, as he should be.
        with contextlib.suppress(termios.error):
            if self._special:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self._special)
        self._enable_bracketed_paste()
        self._app.refresh(layout=True)


LEAVE = b"\x1b[<u\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1049l\x1b[?25h\x1b[?1004l"
"""What takes a terminal out of all special modes."""


def leave_at_once() -> None:
    """Leaves the terminal as it was and ends the process, whatever else it waits for."""
    with contextlib.suppress(OSError, termios.error):
        if Driver.attributes is not None:
            termios.tcsetattr(0, termios.TCSANOW, Driver.attributes)
    with contextlib.suppress(OSError):
        os.set_blocking(1, False)
        os.write(1, LEAVE)
        os.set_blocking(1, True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os._exit(0)
