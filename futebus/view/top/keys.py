"""The screen of the keys."""

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from .base import View
from .widgets import Lines

KEYS = """\
Enter    the clients of a channel
t        what a B or A channel says
/        show only what has this in it
< >      sort by another column
r        sort the other way round
arrows   move; to the side, show more columns or more of long lines
PgUp PgDn Home End  move further
Space    of what a channel says: hold still, and go on again; what comes meanwhile waits, the newest 500 lines of it
[ ] 1-9  another bus; Tab too
Escape   back; takes a filter away
Ctrl-Z   stop; fg goes on
q        quit

A click on a head sorts by it, a second one the other way round. Two clicks on a row show its clients.

QUEUE is the fullest queue of a client. BLOCKED is how many writers wait, and how long the first has waited.

OUT counts the copy of each reader. futebus-top(1) tells the rest."""


class Help(View):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter", "dismiss", show=False),
        Binding("down,pagedown,space,j", "move(3)", show=False),
        Binding("up,pageup,k", "move(-3)", show=False),
    ]
    hints = "Escape back  arrows move"

    def compose(self) -> ComposeResult:
        """The parts."""
        yield Lines(id="keys", is_high=True)
        yield Lines(id="hint")

    def draw(self) -> None:
        """Shows them."""
        keys = self.query_one("#keys", Lines)
        keys.first = keys.first or 0
        width = max(self.size.width, 20)
        keys.show([[(part, "")] for line in KEYS.splitlines() for part in textwrap.wrap(line, width) or [""]])
        self.hint()

    def action_move(self, by: int) -> None:
        """Shows others, where there is no place for all of them."""
        self.query_one("#keys", Lines).move(by)
