"""How a program that goes on says what happens: in one line each, to people on standard error and to the service manager.

What it says goes through a log that is bounded, never waits for who reads it, and shows control characters escaped.
"""

import logging

from ..core.text import printable
from . import logs
from .service import ServiceManager

log = logging.getLogger(__name__)

GRACE = 1.5
"""Seconds from the signal that ends such a program until it has ended, whatever hangs."""

SWITCH_SECONDS = 0.0002
"""How long a thread of it may compute while another has something to do. Python's own 5 ms are longer than a round trip."""


class Voice:
    """Says what happens.

    Args:
        command: what the program is called.
        is_quiet: whether it says only what goes wrong.
    """

    def __init__(self, command: str, *, is_quiet: bool = False) -> None:
        self.command = command
        self.manager = ServiceManager()
        logs.to_stderr(None, logging.WARNING if is_quiet else logging.INFO, command=command)

    def say(self, words: str) -> None:
        """Says something."""
        logs.tell(log, logging.INFO, lambda: printable(words))

    def warn(self, words: str) -> None:
        """Says that something goes wrong, also to who wants quiet."""
        logs.tell(log, logging.WARNING, lambda: printable(words))

    def ready(self, words: str) -> None:
        """Says that all works now, to the service manager too."""
        self.say(words)
        self.manager.tell("READY=1", f"STATUS={words}")

    def stopping(self) -> None:
        """Says that it ends, to the service manager alone."""
        self.manager.tell("STOPPING=1")
