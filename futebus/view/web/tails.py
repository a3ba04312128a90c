"""What a channel says, as far as a page can show it.

The one rule: who watches takes a place only when there is something to watch, and gives it back when the page goes. What a bus
does with the thread that has gone there is the matter of `errands`.
"""

import functools
import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ..tail import GONE, RETRY_SECONDS, Line, Tail
from .asking import ANSWER_SECONDS, NOT_ANSWERING
from .stream import Push

if TYPE_CHECKING:
    from .pages import Places

WATCHED = ("A", "B")
"""The types of channels that can be watched."""

NOT_WATCHED = "a reader of a U or S channel takes part in it, so it cannot be watched from here"

MOST_LINES = 200
"""How many wait for a page, at most: a quarter of a second's worth."""

PAUSE = 0.25
"""Seconds between two pieces of news: nobody reads faster."""

SILENCE = 15.0
"""Seconds after which something is sent, so that a page which has gone is noticed."""

_PICTURES = {code: 0x2400 + code for code in range(32) if code != 9} | {127: 0x2421}

_JOINERS = "\u200c\u200d"
"""Invisible, and a part of words and of pictures that are made of several."""


MOST_KNOWN = 65_536
"""Of how many characters it is known how they are shown."""


class _Shown(dict[int, int | str]):
    """How characters are shown, for `str.translate`. What was asked for once is known then.

    Control characters are shown as the pictures that Unicode has of them. What cannot be seen, would turn the rest of the line
    around or end it is shown by its number.
    """

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        is_seen = character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
        found = code if is_seen else f"<U+{code:04X}>"
        if len(self) < MOST_KNOWN:
            self[code] = found
        return found


_SHOWN = _Shown(_PICTURES | {9: 9})


def shown(line: Line) -> str:
    """A line as a page shows it: one line of text, of what it has first."""
    text = line.text.decode("utf-8", "replace")
    if not text.isprintable():  # else nothing of it is shown in another way, and that is found out sooner
        text = text.translate(_SHOWN)
    return f"{text}… and {line.rest} more bytes" if line.rest else text


async def watch(mountpoint: Path, file: bytes, places: "Places", push: Push) -> None:
    """Shows what a channel says, until there is no more.

    Args:
        mountpoint: of the bus.
        file: the channel.
        places: one is taken while it is watched.
        push: sends it.
    """
    token = trio.lowlevel.current_trio_token()
    news = _News()
    wake = functools.partial(token.run_sync_soon, news.tell, idempotent=True)
    tail = Tail(mountpoint, file, kept=MOST_LINES, is_patient=False, on_news=wake)
    try:
        with trio.move_on_after(ANSWER_SECONDS):
            while not (tail.is_open or tail.is_over):
                await news.wait()
        if not (tail.is_open or tail.is_over):
            await push("trouble", json.dumps(NOT_ANSWERING))
        elif places.is_full:
            await push("trouble", '"too many channels are watched already"')
        else:
            with places.one():
                await _show(tail, news, push)
    finally:
        tail.stop()


async def _show(tail: Tail, news: "_News", push: Push) -> None:
    if tail.is_open:
        await push("open", "{}")
    was_removed = was_stuck = False
    while not tail.is_over:
        with trio.move_on_after(SILENCE):
            while not await news.has_come(RETRY_SECONDS) and tail.is_stuck == was_stuck and not (was_stuck and tail.is_forlorn):
                pass
        if tail.is_stuck and tail.is_forlorn:  # what it hangs in is not there any more; in its place there may be another
            await push("trouble", json.dumps(GONE))
            return
        if tail.is_stuck != was_stuck:
            was_stuck = not was_stuck
            await push("answers", json.dumps({"trouble": NOT_ANSWERING if was_stuck else ""}))
        await _push_lines(tail, push)
        if tail.is_removed != was_removed:
            was_removed = tail.is_removed
            await push("name", json.dumps({"removed": was_removed}))
        await trio.sleep(PAUSE)
    await _push_lines(tail, push)
    await push("trouble", json.dumps(tail.words))


async def _push_lines(tail: Tail, push: Push) -> None:
    lines, skipped = tail.lines.take()
    await push("lines" if lines or skipped else "", json.dumps({"lines": [shown(line) for line in lines], "skipped": skipped}))


class _News:
    """That there is something new, for one who waits for it."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def tell(self) -> None:
        """There is."""
        self._event.set()

    async def has_come(self, seconds: float) -> bool:
        """Waits for so long. Returns whether there is something new since the last time."""
        with trio.move_on_after(seconds):
            await self.wait()
            return True
        return False

    async def wait(self) -> None:
        """Waits for what is new since the last time."""
        await self._event.wait()
        self._event = trio.Event()
