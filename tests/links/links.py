"""Links that really run."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

LINK = [sys.executable, "-m", "futebus.commands.link"]

PATIENT = f"""
import sys
from futebus.commands.link import main
from futebus.links import link, running
link.FAREWELL_SECONDS = link.END_SECONDS = running.GRACE = {DEADLINE}
sys.exit(main())
"""
"""One that sends all that waits before it ends, though its machine stands still for a moment."""

UNHURRIED = f"""
import sys
from futebus.commands.link import main
from futebus.links import channel, delivery, link, running
link.END_SECONDS = channel.SOON_SECONDS = delivery.END_SECONDS = running.GRACE = {DEADLINE}
sys.exit(main())
"""
"""One that waits in the end for its bus, though that stands still for a moment, and not for its server."""


class Link:
    """A `futebus-link`. What it says goes to a file.

    Args:
        start: starts it.
        log: the file.
        words: its arguments.
        script: a program in Python that is started in its place.
        popen: as for `start`.
    """

    def __init__(self, start: Start, log: Path, *words: str | Path, script: str = "", **popen: Any) -> None:
        self._log = log
        command = [sys.executable, "-c", script] if script else LINK
        with log.open("w") as stream:
            self.process: subprocess.Popen[str] = start(*command, *words, stderr=stream, stdin=subprocess.DEVNULL, **popen)

    @property
    def words(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def wait_for(self, words: str) -> None:
        """Waits until it says something."""
        until(lambda: words in self.words or self.process.poll() is not None, f"it says {words!r}, and not {self.words!r}")
        assert words in self.words, self.words

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and sees that it ends as it should."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == 0, self.words
        assert "Traceback" not in self.words, self.words

    def fails(self, status: int = 1) -> str:
        """Waits for its end, as one that cannot go on. Returns what it has said."""
        assert self.process.wait(DEADLINE) == status, self.words
        assert "Traceback" not in self.words, self.words
        return self.words


Linking = Callable[..., Link]


@pytest.fixture
def linking(start: Start, place: Path) -> Iterator[Linking]:
    """Starts links: `linking(channel, url, "--wait")`. They are ready when they are returned, but with `is_ready=False`.

    At the end of the test none may have met what it did not expect.
    """
    links: list[Link] = []

    def link(*words: str | Path, is_ready: bool = True, **popen: Any) -> Link:
        made = Link(start, place / f"link{len(links)}.log", *words, **popen)
        links.append(made)
        if is_ready:
            made.wait_for(" is delivered to " if "--deliver" in words else " is linked to ")
        return made

    yield link
    for made in links:
        print(f"a link said:\n{made.words}")  # pytest shows it when the test has failed
        assert "Traceback" not in made.words


def linked(linking: Linking, *words: Sequence[str | Path]) -> list[Link]:
    """Starts links, each with words of its own, at the same time, and waits until they are ready."""
    links = [linking(*each, is_ready=False) for each in words]
    for link in links:
        link.wait_for(" is linked to ")
    return links
