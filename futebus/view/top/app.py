"""The view in a terminal.

The one rule: it looks once an interval, in threads, and draws what they have seen. Nothing here touches a bus. What is typed is
done in the order in which it was typed, however fast that comes.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import App, ScreenStackError
from textual.binding import Binding, BindingType
from textual.events import Event, Key
from textual.message import Message
from textual.widgets import Input

from ...host.signals import Endings
from ..looking import pause
from .base import View
from .driver import Driver, leave_at_once
from .keys import Help
from .plain import NONE
from .said import TailView
from .screens import Overview
from .sights import Sight, Sights

GRACE = 3.0
"""How many seconds it may take to end when a signal says so. A terminal that takes nothing more must not keep us."""


class Looked(Message):
    """A look has come to its end."""


class Top(App[None]):
    """The view.

    Args:
        sights: the buses.
        interval: seconds from look to look.
        on_start: is called when it runs.
    """

    CSS = """
    Screen { layout: vertical; }
    Lines { height: auto; }
    #table, #said, #keys { height: 1fr; }
    #filter { height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True, system=True),
        Binding("ctrl+z", "stop", show=False, priority=True, system=True),
        Binding("question_mark", "help", show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, sights: Sights, interval: float, on_start: Callable[["Top"], object] = lambda top: None) -> None:
        super().__init__(driver_class=Driver, ansi_color=True)
        self.theme = "ansi-dark"  # the terminal's own colours
        self.sights = sights
        sights.on_done = self._tell
        self.sight: Sight | None = None
        """The bus that is shown."""
        self.waits_for = NONE
        """Why no bus is shown, if none is."""
        self._seconds, self._on_start = interval, on_start
        self._named: list[tuple[Sight, bool]] = []
        """Of which buses something was drawn last."""

    def _tell(self) -> None:
        """A look has come to its end, in another thread."""
        with contextlib.suppress(RuntimeError):  # the view has ended
            self.post_message(Looked())

    async def on_event(self, event: Event) -> None:
        """Does what a key means before the next one is looked at.

        Textual would send it to what has the focus, from where it comes back: by then, the next one has gone to the same place.
        """
        try:
            is_ours = isinstance(event, Key) and not event.is_forwarded and self.screen.is_mounted
        except ScreenStackError:
            is_ours = False
        if isinstance(event, Key) and self._exit:
            return  # it was told to end: what is typed behind that would meet screens that are not built any more
        if isinstance(event, Key) and is_ours:
            await self._do(event)
        else:
            await super().on_event(event)

    async def _do(self, key: Key) -> None:
        if isinstance(self.focused, Input) and key.is_printable and key.character:
            self.focused.replace(key.character, *self.focused.selection)
        elif (bound := self.screen.active_bindings.get(key.key)) and bound.enabled:
            await self.run_action(bound.binding.action, bound.node)

    def get_default_screen(self) -> Overview:
        """The first screen."""
        return Overview()

    def on_mount(self) -> None:
        """Begins."""
        self._on_start(self)
        self.look()

    def look(self) -> None:
        """Looks at the buses, and again an interval later."""
        self.set_timer(pause(self._seconds), self.look)
        if not self.is_headless and not os.isatty(0):
            self.exit()  # the terminal has gone away
            return
        self.sights.settle()
        self.sights.begin(self.sight)
        if self.sight is None or any(sight.words for sight in self.sights.shown):
            self._draw()

    def on_looked(self) -> None:
        """Shows what was seen, if it is of what is shown: thousands of channels take a while, and there may be many buses."""
        settled = self.sights.settle()
        if settled and (self.sight in settled or self._names() != self._named):
            self._draw()

    def _names(self) -> list[tuple[Sight, bool]]:
        """What is to be seen of all buses, whichever is shown: which there are, and with which something is wrong."""
        return [(sight, bool(sight.words)) for sight in self.sights.shown]

    def _draw(self) -> None:
        self._named = self._names()
        shown = self.sights.shown
        if self.sight not in shown:
            self.sight = shown[0] if shown and (self.sight is None or not self.sight.look) else self.sight
        try:
            screen = self.screen
        except ScreenStackError:
            return
        if isinstance(screen, View):
            screen.redraw()

    def choose(self, sight: Sight) -> None:
        """Shows another bus."""
        self.sight = sight
        self._draw()

    async def action_help(self) -> None:
        """Shows the keys."""
        if not isinstance(self.screen, Help):
            await self.push_screen(Help())

    def action_stop(self) -> None:
        """Stops, as Ctrl-Z does: who is stopped listens to no channel, and keeps no queue full."""
        tails = [screen for screen in self.screen_stack if isinstance(screen, TailView)]
        for screen in tails:
            screen.end()
        driver = self._driver
        assert isinstance(driver, Driver)
        driver.is_ready_to_stop = True
        self.action_suspend_process()
        driver.is_ready_to_stop = False
        for screen in tails:
            screen.begin()
            screen.redraw()  # what it says of the tail that has ended would be shown for a moment


def run(sights: Sights, interval: float) -> bool:
    """Shows the view on the terminal, until it is left or a signal ends it. Returns whether it has ended like that."""
    endings = Endings()

    def leave(top: Top, loop: Any) -> None:
        timer = threading.Timer(GRACE, leave_at_once)
        timer.daemon = True
        timer.start()
        loop.call_soon_threadsafe(top.exit)

    def on_start(top: Top) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        endings.on_first(lambda: leave(top, loop))

    top = Top(sights, interval, on_start)
    top.run()
    endings.forget()
    return not top.return_code
