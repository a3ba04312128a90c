"""The screen of what a channel says.

The one rule: who shows what a channel says is a client of it, and says so. Where lines are missing, it says how many.
"""

import math
import textwrap
import time
from collections import deque
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ...core.text import counted, escape
from ..tail import RETRY_SECONDS, Tail
from ..tail import Line as Said
from ..told import Channel
from .base import View
from .sights import Sight
from .widgets import Line, Lines

TAIL_SECONDS = 0.25
"""How often a tail is drawn."""

WAITING = 500
"""Lines that wait to be shown: more than a screen has."""

KEPT = 2000
"""Lines that were shown and can be gone back to."""

SIDEWAYS = 20
"""Columns that a key moves to the side."""


class TailView(View):
    """What a channel says."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,t", "dismiss", show=False),
        Binding("space", "hold", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("left,h", "shift(-1)", show=False),
        Binding("right,l", "shift(1)", show=False),
    ]
    hints = "Escape back  Space hold  ? help  q quit"

    def __init__(self, sight: Sight, channel: Channel) -> None:
        super().__init__()
        self._sight, self._channel = sight, channel
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self.shown = 0
        """Messages that were shown."""
        self.skipped = 0
        """Messages that came and were not shown: too fast for this view, or for the bus."""
        self.tail: Tail | None = None
        self._looked = -math.inf
        """When it was looked whether a tail that is stuck waits in vain."""

    def compose(self) -> ComposeResult:
        """The parts."""
        yield Lines(id="head")
        yield Lines(id="said", is_high=True)
        yield Lines(id="hint")

    def on_mount(self) -> None:
        """Begins to listen."""
        self.begin()
        self.set_interval(TAIL_SECONDS, self.redraw)
        super().on_mount()

    def begin(self) -> None:
        """Listens."""
        self.tail = self.tail or Tail(self._sight.mountpoint, self._channel.file, kept=WAITING, is_patient=True)

    def end(self) -> None:
        """Listens no more."""
        if self.tail:
            self.tail.stop()
            self._take(self.tail)
            self.tail = None

    def on_unmount(self) -> None:
        """Ends with the screen."""
        self.end()

    @property
    def _said(self) -> Lines:
        return self.query_one("#said", Lines)

    @property
    def _is_held(self) -> bool:
        return self._said.first is not None

    def action_hold(self) -> None:
        """Holds still, or goes on."""
        if self._is_held:
            self._said.first = None
        else:
            self._said.move(0)
        self.redraw()

    def action_move(self, by: int) -> None:
        """Shows other lines that are kept, and holds still."""
        self._said.move(by)
        self.redraw()

    def action_turn(self, pages: int) -> None:
        """Moves by pages."""
        self.action_move(pages * max(self._said.size.height - 1, 1))

    def action_shift(self, by: int) -> None:
        """Shows another part of lines that are longer than the screen is wide."""
        self._said.shift(by * SIDEWAYS)

    def _take(self, tail: Tail) -> None:
        """Takes what has come. A mark stands where lines are missing."""
        taken = tail.lines.take()
        self.shown += len(taken.lines)
        if taken.skipped:
            self.skipped += taken.skipped
            self._lines.append([(f"… {counted(taken.skipped, 'line', ',')} skipped", "yellow")])
        self._lines.extend([(_shown(line), "")] for line in taken.lines)

    def draw(self) -> None:
        """Shows what has come."""
        if self.tail and self.tail.is_stuck and time.monotonic() > self._looked + RETRY_SECONDS:
            self._looked = time.monotonic()
            if self.tail.is_forlorn:  # it hangs in a bus that is not there any more; in its place there may be another
                self.end()
                self.begin()
        tail = self.tail
        if tail is None:
            return
        # While it is held still, what comes waits where the newest of it stays.
        if not self._is_held:
            self._take(tail)
        waiting, missed = tail.lines.waiting
        skipped = self.skipped + missed
        state = "the bus does not answer" if tail.is_stuck else tail.words
        how: Line = [
            (f"{state}  ", "green" if tail.is_open and not tail.is_stuck else "yellow"),
            (f"came {self.shown + waiting + skipped:,}  ", ""),
            (f"skipped {skipped:,}", "yellow" if skipped else "dim"),
        ]
        words = ["only what is addressed to all, or to this view, is heard here"] * (self._channel.type == "A")
        words += ["this view is a client of it, and counted as one"] * tail.is_open
        notes: list[Line] = [[(line, "dim")] for line in textwrap.wrap("; ".join(words), max(self.size.width, 20))]
        self.query_one("#head", Lines).show([[(self._channel.name, "bold"), (f"  on {self._sight.name}", "")], how, *notes])
        self._said.show(list(self._lines))
        wait = f", {counted(waiting, 'line', ',')} {'waits' if waiting == 1 else 'wait'}" if waiting else ""
        self.hint(f"held{wait}: Space goes on" if self._is_held else "")


def _shown(line: Said) -> str:
    text = escape(line.text)
    return f"{text} … and {line.rest} bytes" if line.rest else text
