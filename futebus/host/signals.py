"""The signals that end a command in an orderly way."""

import signal
from collections.abc import Callable
from types import FrameType


class Endings:
    """The signals that end a command, from now on to the end of the process: none of them ends it by itself any more.

    So there is no moment at which one that arrives has its default action, and leaves behind what has to be cleared away.
    """

    def __init__(self) -> None:
        self.numbers = ending_signals()
        self.first: signal.Signals | None = None
        """The one that came first."""
        self._wake: Callable[[], object] | None = None
        for number in self.numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.first is None:
            self.first = signal.Signals(number)
        if self._wake:
            self._wake()
            self._wake = None  # if it has failed, the next one tries again

    def forget(self) -> None:
        """Ignores them: the command ends. Python would give them their default action again when it finishes."""
        for number in self.numbers:
            signal.signal(number, signal.SIG_IGN)

    def on_first(self, wake: Callable[[], object]) -> None:
        """Has a function called, from a signal handler, when the first one comes; at once if it has come already."""
        self._wake = wake
        if self.first is not None:
            wake()
            self._wake = None


def ending_signals() -> set[signal.Signals]:
    """The signals that end a command in an orderly way.

    SIGHUP and SIGINT, unless the command was started to ignore them, by nohup(1) or by the `&` of a script; and SIGTERM.
    """
    interrupts = (signal.SIGHUP, signal.SIGINT)
    return {signal.SIGTERM, *(number for number in interrupts if signal.getsignal(number) != signal.SIG_IGN)}
