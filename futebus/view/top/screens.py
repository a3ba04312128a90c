"""Screens of tables: the channels of a bus, and the clients of a channel."""

from typing import ClassVar, cast

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ..tail import refusal
from ..told import Channel
from .base import View, bus_head
from .columns import CHANNELS, CLIENTS, Column, Seen, channel_rows, client_rows, span, whole
from .drawn import number
from .said import TailView
from .sights import Sight
from .widgets import Line, Lines, Table


class Filter(Input):
    """What rows must have in them to be shown."""

    async def action_submit(self) -> None:
        """That is all of it."""
        cast("TableView", self.screen).leave_filter()


class TableView(View):
    """A screen with a table that can be filtered and sorted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", show=False),
        Binding("escape", "back", show=False),
        Binding("t", "tail", show=False),
    ]
    columns: ClassVar[tuple[Column, ...]]

    def compose(self) -> ComposeResult:
        """The parts."""
        yield Lines(id="head")
        yield Lines(id="tabs")
        yield Table(self.columns, id="table")
        yield Filter(id="filter", placeholder="show only what has this in it", select_on_focus=False, compact=True)
        yield Lines(id="hint")

    def on_mount(self) -> None:
        """Begins without a filter."""
        asked = self.query_one(Input)
        asked.display = False
        # At once, and not by a message: the next key may be about what is shown.
        self.watch(asked, "value", self._want, init=False)
        self.set_focus(self.table)
        super().on_mount()

    @property
    def table(self) -> Table:
        """The table."""
        return self.query_one(Table)

    def draw(self) -> None:
        """Shows the head and the line of hints."""
        table = self.table
        if table.wanted and not self.query_one(Input).display:
            self.hint(f"{table.place}  only with “{table.wanted}”: Escape shows all")
        else:
            self.hint()

    def action_filter(self) -> None:
        """Asks what to show."""
        asked = self.query_one(Input)
        asked.display = True
        self.set_focus(asked)
        asked.select_all()  # at once: what is typed now takes the place of what was asked before, and not some letters later

    def _want(self, words: str) -> None:
        self.table.wanted = words

    def leave_filter(self) -> None:
        """Goes back to the table, filtered."""
        self.query_one(Input).display = False
        self.set_focus(self.table)
        self.redraw()

    def action_back(self) -> None:
        """Takes the filter away; without one, goes back."""
        asked = self.query_one(Input)
        if asked.display or self.table.wanted:
            asked.value = ""
            self.leave_filter()
        elif len(self.app.screen_stack) > 1:
            self.dismiss()

    def channel(self) -> Channel | None:
        """The channel that is meant."""
        raise NotImplementedError

    async def action_tail(self) -> None:
        """Shows what the channel says, if it can be heard."""
        channel, sight = self.channel(), self.top.sight
        if channel is None or sight is None:
            return
        if words := refusal(channel):
            self.say(words)
        else:
            await self.app.push_screen(TailView(sight, channel))


class Overview(TableView):
    """The channels of a bus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "bus(1)", show=False, priority=True),
        Binding("shift+tab", "bus(-1)", show=False, priority=True),
        Binding("right_square_bracket", "bus(1)", show=False),
        Binding("left_square_bracket", "bus(-1)", show=False),
        Binding("enter", "choose", show=False),
        *(Binding(str(place), f"to({place})", show=False) for place in range(1, 10)),
    ]
    hints = "Enter clients  t tail  / filter  < > r sort  ? help  q quit"
    columns = CHANNELS

    def draw(self) -> None:
        """Shows the bus."""
        sight = self.top.sight
        self.query_one("#head", Lines).show(bus_head(sight, self.top.waits_for, self.size.width))
        left = self.top.sights.left_out
        tabs = [*self._tabs(), *([(f" {left} more are not looked at", "yellow")] if left else [])]
        self.query_one("#tabs", Lines).show([tabs] if len(tabs) > 1 else [])
        self.table.show(channel_rows(sight) if sight else [])
        super().draw()

    def _labels(self) -> list[tuple[str, Sight]]:
        return [(f" {place} {sight.name} ", sight) for place, sight in enumerate(self.top.sights.shown, 1)]

    def _tabs(self) -> Line:
        labels = self._labels()
        at = next((place for place, (_, sight) in enumerate(labels) if sight is self.top.sight), 0)
        # From the first on, if the chosen one is seen then.
        while len(labels) > 1 and at > 0 and sum(cell_len(label) for label, _ in labels[: at + 1]) > self.size.width:
            del labels[0]
            at -= 1
        return [(label, "reverse" if sight is self.top.sight else "red" if sight.words else "") for label, sight in labels]

    def on_lines_clicked(self, event: Lines.Clicked) -> None:
        """Goes to the bus that was clicked on."""
        if event.lines.id != "tabs":
            return
        at = 0
        for label, _ in self._tabs():
            at += cell_len(label)
            if event.x < at:
                self.action_to(int(label.split()[0]))
                return

    def action_bus(self, by: int) -> None:
        """Goes to the next bus."""
        if self.query_one(Input).display:
            return
        shown = self.top.sights.shown
        if self.top.sight in shown:
            self.top.choose(shown[(shown.index(self.top.sight) + by) % len(shown)])

    def action_to(self, place: int) -> None:
        """Goes to a bus by its number."""
        shown = self.top.sights.shown
        if place <= len(shown):
            self.top.choose(shown[place - 1])

    def channel(self) -> Channel | None:
        """The one with the cursor."""
        chosen = self.table.chosen
        return cast(Seen, chosen.thing).channel if chosen else None

    async def action_choose(self) -> None:
        """Shows its clients."""
        channel, sight = self.channel(), self.top.sight
        if channel and sight:
            await self.app.push_screen(Clients(sight, channel))

    async def on_table_chosen(self) -> None:
        """Shows its clients."""
        await self.action_choose()


class Clients(TableView):
    """The clients of a channel."""

    hints = "Escape back  t tail  / filter  < > r sort  ? help  q quit"
    columns = CLIENTS

    def __init__(self, sight: Sight, channel: Channel) -> None:
        super().__init__()
        self._sight, self._channel = sight, channel

    def channel(self) -> Channel | None:
        """The channel."""
        return self._channel

    def draw(self) -> None:
        """Shows the clients."""
        look = self._sight.look
        now = next((each for each in look.channels if each.number == self._channel.number), None) if look else None
        self._channel = channel = now or self._channel
        course = self._sight.watch.channels.get(channel.number)
        second: Line = [(self._sight.words or "the channel has gone", "bold red")]
        if now and course and not self._sight.words:
            rates = course.rates
            second = [
                (f"in {number(rates.messages_in)}/s {whole(rates.bytes_in)}B/s  ", "cyan"),
                (f"out {number(rates.messages_out)}/s {whole(rates.bytes_out)}B/s  ", "blue"),
                (f"dropped {channel.dropped}  lost {channel.lost}", "bold red" if rates.dropped else ""),
            ]
        rest = (
            f"  {channel.state}  {channel.mode} {channel.uid}:{channel.gid}  {span(channel.age_seconds)}  on {self._sight.name}"
        )
        self.query_one("#head", Lines).show([[(channel.name, "bold"), (rest, "")], second])
        self.table.show(client_rows(look, now) if look and now else [])
        super().draw()
