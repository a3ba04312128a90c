"""What the view is drawn with: lines of text, and a table of which only what is seen is drawn, so thousands of rows cost nothing.

The one rule: text is drawn as text. There is no markup here.
"""

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from .columns import Cell, Column, Row

Line = Sequence[tuple[str, str]]
"""Pieces of text, each with a style of rich."""

CURSOR = Style(reverse=True)
HEAD = Style(bold=True)
SORTED = Style(bold=True, underline=True)


def fit(text: str, width: int, *, to_right: bool = False) -> str:
    """A text in exactly so many columns of the terminal; `…` stands for what is left out."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, max(width - 1, 0)) + "…" * (width > 0)
    return " " * (width - length) + text if to_right else text + " " * (width - length)


def strip(line: Line, width: int, base: Style | None = None) -> Strip:
    """A line as Textual draws it."""
    made = [Segment(text, Style.parse(style) + base if base else Style.parse(style)) for text, style in line]
    return Strip(made).adjust_cell_length(width, base)


class Lines(Widget):
    """Lines of text.

    Args:
        id: its name.
        is_high: takes all the place that there is; it shows the last lines if they are more. Else it is as high as they are.
    """

    class Clicked(Message):
        """A place was clicked on."""

        def __init__(self, lines: "Lines", x: int, y: int) -> None:
            super().__init__()
            self.lines, self.x, self.y = lines, x, y

    def __init__(self, *, id: str | None = None, is_high: bool = False) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.lines: list[Line] = []
        self._is_high = is_high
        self.first: int | None = None
        """The line that is on top; None if the last is to be seen."""
        self._left = 0
        """How many columns to the left are not shown."""

    def show(self, lines: list[Line]) -> None:
        """Shows these."""
        if not self._is_high:
            self.styles.height = len(lines)
            self.display = bool(lines)
        self.lines = lines
        self.refresh()

    def move(self, by: int) -> None:
        """Shows lines further up or down, and stays there."""
        last = self._last
        self.first = max(min((last if self.first is None else self.first) + by, last), 0)
        self.refresh()

    def shift(self, by: int) -> None:
        """Shows columns further to the left or right, as far as what is seen is wide."""
        seen = self.lines[self._first : self._first + self.size.height]
        most = max((sum(cell_len(text) for text, _ in line) for line in seen), default=0) - self.size.width
        self._left = max(min(self._left + by, most), 0)
        self.refresh()

    def on_resize(self) -> None:
        """Shows no more of what is to the right than there is."""
        self.shift(0)

    @property
    def _last(self) -> int:
        """The line that is on top if the last is to be seen."""
        return max(len(self.lines) - self.size.height, 0)

    @property
    def _first(self) -> int:
        return self._last if self.first is None else min(self.first, self._last)

    @property
    def text(self) -> str:
        """What it shows, as text."""
        return "\n".join("".join(text for text, _ in line) for line in self.lines)

    def render_line(self, y: int) -> Strip:
        """Draws a line."""
        first = self._first
        if first + y >= len(self.lines):
            return Strip.blank(self.size.width)
        line = self.lines[first + y]
        width, left = self.size.width, self._left
        length = sum(cell_len(text) for text, _ in line)
        # What is left out at the side is marked there.
        begins, ends = bool(left and length), length > left + width
        drawn = strip(line, max(length, left + width)).crop(left + begins, left + width - ends)
        return Strip.join([Strip([Segment("…" * begins)]), drawn, Strip([Segment("…" * ends)])])

    def on_click(self, event: events.Click) -> None:
        """Tells of it."""
        self.post_message(self.Clicked(self, event.x, event.y))


class Table(Widget, can_focus=True):
    """Rows, sorted; a cursor that stays on its row when others change places.

    Args:
        columns: what is shown. The first one is always seen, and gets what is left of the width.
        id: its name.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "turn(-1)", show=False),
        Binding("pagedown", "turn(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("left,h", "shift(-1)", show=False),
        Binding("right,l", "shift(1)", show=False),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("greater_than_sign", "sort(1)", show=False),
        Binding("r", "turn_round", show=False),
    ]

    class Chosen(Message):
        """A row was clicked on twice."""

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.columns = columns
        self.rows: list[Row] = []
        """What is shown, in this order."""
        self.sorted_by, self.is_turned = 0, False
        self._all: list[Row] = []
        self._wanted = ""
        self._cursor = self._first = self._shift = 0
        self._key: Hashable = None

    # ------------------------------------------------------------------------------------------ what is shown

    def show(self, rows: list[Row]) -> None:
        """Shows these rows."""
        self._all = rows
        self._arrange()

    @property
    def wanted(self) -> str:
        """What a row must have in it to be shown."""
        return self._wanted

    @wanted.setter
    def wanted(self, text: str) -> None:
        self._wanted = text
        self._arrange()

    @property
    def chosen(self) -> Row | None:
        """The row with the cursor."""
        return self.rows[self._cursor] if self.rows else None

    @property
    def place(self) -> str:
        """Where the cursor is, and of how many."""
        hidden = f" of {len(self._all)}" if len(self.rows) < len(self._all) else ""
        return f"{self._cursor + bool(self.rows)}/{len(self.rows)}{hidden}"

    def _arrange(self) -> None:
        column = self.columns[self.sorted_by]
        wanted = self._wanted.lower()
        self.rows = sorted((row for row in self._all if wanted in row.searched), key=lambda row: self.columns[0].key(row.thing))
        self.rows.sort(key=lambda row: column.key(row.thing), reverse=column.falls != self.is_turned)
        at = next((place for place, row in enumerate(self.rows) if row.key == self._key), None)
        self._put(self._cursor if at is None else at)

    def _put(self, place: int) -> None:
        """Puts the cursor on a row, and has it seen."""
        self._cursor = max(min(place, len(self.rows) - 1), 0)
        if self.rows:
            self._key = self.rows[self._cursor].key
        high = max(self.size.height - 1, 1)
        least, most = self._cursor - high + 1, self._cursor
        self._first = max(min(max(self._first, least), most, max(len(self.rows) - high, 0)), 0)
        self.refresh()

    def on_resize(self) -> None:
        """Keeps the cursor in sight, and brings columns back for which there is place now."""
        while self._shift and self._shift - 1 + len(self._layout(self._shift - 1)) >= len(self.columns):
            self._shift -= 1
        self._put(self._cursor)

    # ------------------------------------------------------------------------------------------ keys

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self._put(self._cursor + by)

    def action_turn(self, pages: int) -> None:
        """Moves the cursor by pages."""
        self._put(self._cursor + pages * max(self.size.height - 2, 1))

    def action_shift(self, by: int) -> None:
        """Shows other columns, where there is no place for all of them."""
        if by < 0 or self._has_more:
            self._shift = max(self._shift + by, 0)
        self.refresh()

    @property
    def _has_more(self) -> bool:
        """Whether there are columns to the right that are not seen."""
        return self._shift + len(self._layout(self._shift)) < len(self.columns)

    def action_sort(self, by: int) -> None:
        """Sorts by the next column, or the one before."""
        self.sort_by((self.sorted_by + by) % len(self.columns))

    def sort_by(self, place: int) -> None:
        """Sorts by a column; by the same again, the other way round."""
        self.is_turned = not self.is_turned if place == self.sorted_by else False
        self.sorted_by = place
        while place not in (seen := [number for number, _ in self._layout(self._shift)]) and self.size.width:
            after = self._shift + (1 if place > max(seen) else -1)
            if not 0 <= after < len(self.columns):
                break
            self._shift = after
        self._arrange()

    def action_turn_round(self) -> None:
        """Sorts the other way round."""
        self.sort_by(self.sorted_by)

    def on_click(self, event: events.Click) -> None:
        """Sorts by the head that was clicked on, or goes to the row; the second click chooses it."""
        if event.y == 0:
            at = 0
            for number, width in self._layout(self._shift):
                at += width + 1
                if event.x < at:
                    self.sort_by(number)
                    return
        elif self._first + event.y - 1 < len(self.rows):
            self._put(self._first + event.y - 1)
            if event.chain == 2:
                self.post_message(self.Chosen())

    def on_mouse_scroll_down(self) -> None:
        """The wheel."""
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        """The wheel."""
        self.action_move(-3)

    # ------------------------------------------------------------------------------------------ drawing

    def _layout(self, shift: int) -> list[tuple[int, int]]:
        """Which columns are seen, and how wide they are."""
        width = self.size.width
        wide = sum(column.widths[1] + 1 for column in self.columns) - 1 <= width
        widths = [column.widths[wide] for column in self.columns]
        seen, used = [0], widths[0]
        for number in range(1 + shift, len(widths)):
            if used + 1 + widths[number] > width:
                break
            seen.append(number)
            used += 1 + widths[number]
        # Two are for the marks that tell of columns which are not seen.
        spare = max(width - used - 2 * (shift > 0 or len(seen) < len(widths)), 0)
        growing = [number for number in seen if self.columns[number].most > widths[number]]
        for place, number in enumerate(growing):
            # Half of it to the first, which has the names, and of the rest the same to each.
            share = spare // 2 if number == 0 and len(growing) > 1 else spare // (len(growing) - place)
            more = min(share, self.columns[number].most - widths[number])
            widths[number] += more
            spare -= more
        return [(number, min(widths[number], width)) for number in seen]

    def render_line(self, y: int) -> Strip:
        """Draws a row, or the heads."""
        layout = self._layout(self._shift)
        if y == 0:
            return self._heads(layout)
        place = self._first + y - 1
        if place >= len(self.rows):
            return Strip.blank(self.size.width)
        base = CURSOR if place == self._cursor else None
        line: list[tuple[str, str]] = []
        for number, width in layout:
            column = self.columns[number]
            cell: Cell = column.cell(self.rows[place].thing, width)
            line += [(" " * bool(line), ""), (fit(cell.text, width, to_right=column.falls), cell.style)]
        return strip(line, self.size.width, base)

    def _heads(self, layout: list[tuple[int, int]]) -> Strip:
        made: list[Any] = []
        for number, width in layout:
            column = self.columns[number]
            head = next((head for head in reversed(column.heads) if len(head) <= width), column.heads[0])
            if number == self.sorted_by:
                arrow = "↓" if column.falls != self.is_turned else "↑"
                head += arrow * (len(head) < width)
            made += [Segment(" " * bool(made), HEAD)]
            made += [Segment(fit(head, width, to_right=column.falls), SORTED if number == self.sorted_by else HEAD)]
        whole = Strip(made)
        more = "«" * bool(self._shift) + "»" * self._has_more
        if more and whole.cell_length + len(more) <= self.size.width:
            whole = Strip([*made, Segment(more.rjust(self.size.width - whole.cell_length), HEAD)])
        return whole.adjust_cell_length(self.size.width)
