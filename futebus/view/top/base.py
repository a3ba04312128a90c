"""What all screens have, and the head of a bus.

The one rule: a screen shows what was seen last, and asks the bus nothing.
"""

import contextlib
import textwrap
import time
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from textual.css.query import NoMatches
from textual.screen import Screen

from .columns import span, whole
from .drawn import curve, number
from .sights import Sight
from .widgets import Line, Lines

if TYPE_CHECKING:
    from .app import Top

SAID_SECONDS = 8.0
"""How long a sentence is shown."""


class View(Screen[None]):
    """A screen with a head, something that is looked at, and a line of hints."""

    hints: ClassVar[str] = ""

    @property
    def top(self) -> "Top":
        """The view that this belongs to."""
        return cast("Top", self.app)

    def draw(self) -> None:
        """Shows what was seen last."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Shows what was seen last, unless the screen is being built or taken down: then it has not all of its parts."""
        with contextlib.suppress(NoMatches):
            self.draw()

    def on_mount(self) -> None:
        """Shows it for the first time."""
        self.redraw()

    def on_screen_resume(self) -> None:
        """Shows it again."""
        self.redraw()

    def on_resize(self) -> None:
        """Shows it as large as it is now."""
        self.redraw()

    said = ""
    """A sentence that is to be read before the hints are shown again."""
    _said_at = -SAID_SECONDS

    def say(self, words: str) -> None:
        """Says something for a while."""
        self.said, self._said_at = words, time.monotonic()
        self.hint()

    def hint(self, words: str = "") -> None:
        """Shows what was said, a sentence, or the keys, at the bottom."""
        if time.monotonic() - self._said_at < SAID_SECONDS:
            words = self.said
        lines = textwrap.wrap(words, max(self.size.width, 20))[: max(self.size.height // 2, 1)]
        self.query_one("#hint", Lines).show([[(line, "yellow")] for line in lines] or [[(self.hints, "dim")]])


def pieces(width: int, *ways: Line) -> Line:
    """The first of these ways to say something for which there is place, else the last."""
    return next((way for way in ways if sum(cell_len(text) for text, _ in way) <= width), ways[-1])


def bus_head(sight: Sight | None, waits_for: str, width: int) -> list[Line]:
    """Two lines about a whole bus."""
    if sight is None:
        return [[(f"{waits_for}; waiting", "yellow")]]
    words = sight.words
    name: tuple[str, str] = (sight.name, "bold")
    look = sight.look
    if look is None:
        return [[name], [(f"{words}; waiting" if words else "looking", "red" if words else "dim")]]
    rates = sight.watch.whole.rates
    clients, most = look.clients, look.limits["max_clients"]
    channels, most_channels = look.named, look.limits["max_channels"]
    up = span(look.uptime_seconds)
    going: Line = [("  going down", "bold red")] if look.is_shutting_down else []
    first = pieces(
        width,
        [name, (f"  up {up}  clients {clients} of {most}  channels {channels} of {most_channels}", ""), *going],
        [name, (f"  {up}  cli {clients}/{most}  chan {channels}/{most_channels}", ""), *going],
        [(f"{up} {clients}/{most} {channels}/{most_channels}  ", ""), *going, name],
    )
    if words:
        return [first, [(words, "bold red")]]
    dropped = ("dropped", "drop")
    told: list[Line] = [
        [
            (f"in {number(rates.messages_in)}/s {whole(rates.bytes_in)}B/s  ", "cyan"),
            (f"out {number(rates.messages_out)}/s {whole(rates.bytes_out)}B/s  ", "blue"),
            (f"{word} {number(rates.dropped)}/s  ", "bold red" if rates.dropped else ""),
        ]
        for word in dropped
    ]
    second = list(pieces(width, *told))
    left = width - sum(cell_len(text) for text, _ in second)
    past = [each.messages_in for each in sight.watch.whole.past]
    second.append((curve(past, max(min(left, 120), 0)) if left > 0 else "", "cyan"))
    return [first, second]
