"""The view where there is no terminal: text once, or one JSON object a line.

The one rule: there is no escape sequence in it, and it needs nothing but Python.
"""

import contextlib
import json
import math
import os
import select
import sys
import time
from collections.abc import Collection, Iterator, Mapping

from ...core.stat.programs import named
from ...core.text import clipped, counted, printable, table
from ..looking import pause
from ..told import Look, rows
from ..watching import NOTHING, Course
from .columns import CHANNELS, Row, channel_rows, span, whole
from .drawn import number
from .sights import Sight, Sights, step_back

ANSWER = 5.0
"""How many seconds a bus has to answer."""

MOST_NAME = 64
"""How much of a name is shown: one that is long must not push the figures of all others away."""

_CURVES = ("IN", "OUT")
"""Columns that are no text."""

NONE = "no bus is mounted that can be entered"


class Teller:
    """Says what is wrong, once as long as it stays the same.

    Args:
        command: what it is called.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._said: dict[str, str] = {}

    def say(self, about: str, words: str) -> None:
        """Says something about a bus; nothing: it is well again."""
        if words and self._said.get(about) != words:
            with contextlib.suppress(
                OSError
            ):  # nobody reads it, or there is no place for it: that is no matter of what is printed
                print(f"{self._command}: {printable(words)}", file=sys.stderr)
        self._said[about] = words

    def forget_but(self, known: Collection[str]) -> None:
        """Forgets what was said about buses that are there no more: any user may mount one after the other."""
        self._said = {about: words for about, words in self._said.items() if not about or about in known}


def once(sights: Sights, interval: float, teller: Teller, *, is_json: bool) -> bool:
    """Prints what goes on, after two looks.

    Args:
        sights: the buses.
        interval: seconds between the two looks.
        teller: says what is wrong.
        is_json: JSON, and not text.

    Returns:
        Whether there is a bus, and everything that was asked for could be shown.

    Raises:
        BrokenPipeError: nobody wants to read it.
    """
    sights.keep_text = is_json
    for rest in (interval, 0.0):
        sights.begin()
        sights.wait(ANSWER)
        sights.settle()
        time.sleep(rest)
    shown = _answering(sights)
    for place, sight in enumerate(shown):
        write(f"{record(sight)}\n" if is_json else "\n" * bool(place) + page(sight))
    for sight in sights.shown:
        if sight not in shown:
            teller.say(sight.name, _trouble(sight))
    teller.say("", _others(sights) if sights.shown else NONE)
    return bool(shown) and (len(shown) == len(sights.shown) or not sights.are_named)


def stream(sights: Sights, interval: float, teller: Teller) -> None:
    """Prints one JSON object for each look at each bus, without end. The first look at a bus is what rates count from.

    Raises:
        BrokenPipeError: nobody wants to read any more.
    """
    step_back()
    sights.keep_text = True
    while True:
        due = time.monotonic() + pause(interval)
        _print_settled(sights)  # those that took longer than the interval
        sights.begin()
        sights.wait(min(interval, ANSWER))
        _print_settled(sights)
        for sight in sights.shown:
            # Not how long it does not answer, which is another sentence each time.
            teller.say(sight.name, f"the bus on {sight.name} does not answer" if sight.overdue else sight.words)
        teller.say("", _others(sights) if sights.shown else f"{NONE}; waiting")
        teller.forget_but({sight.name for sight in sights.shown})
        time.sleep(max(due - time.monotonic(), 0.0))


def _print_settled(sights: Sights) -> None:
    for sight in sights.settle():
        if sight.look and sight.watch.whole.past:
            write(f"{record(sight)}\n")


def _others(sights: Sights) -> str:
    left = sights.left_out
    return f"{left} more {'bus is' if left == 1 else 'buses are'} mounted and not looked at" if left else ""


def _answering(sights: Sights) -> list[Sight]:
    return [sight for sight in sights.shown if sight.look and sight.watch.whole.past and not sight.overdue]


def _trouble(sight: Sight) -> str:
    return sight.words or f"the bus on {sight.name} does not answer"


def write(text: str) -> None:
    """Writes to standard output, at once. Names are in UTF-8 there, as they are on the bus.

    Raises:
        BrokenPipeError: nobody reads it.
    """
    data = text.encode()
    while data:
        try:
            data = data[os.write(1, data) :]
        except BlockingIOError:  # whoever shares it with us has made it so
            select.select([], [1], [])


# ---------------------------------------------------------------------------------------------- text


def page(sight: Sight) -> str:
    """A bus, as people read it."""
    look = sight.look
    assert look
    lines = [*head(sight, look), ""]
    rows = channel_rows(sight)
    return "\n".join(lines) + "\n" + "".join(_channels(rows)) if rows else "\n".join(lines[:-1]) + "\n"


def head(sight: Sight, look: Look) -> list[str]:
    """What goes on on the whole bus."""
    rates = sight.watch.whole.rates
    return [
        f"{sight.name}: futebus {look.futebus}, up {span(look.uptime_seconds)}{', going down' * look.is_shutting_down}",
        f"{counted(look.clients, 'client')} of {look.limits['max_clients']}, "
        f"{counted(look.named, 'channel')} of {look.limits['max_channels']}",
        f"in {number(rates.messages_in)}/s {whole(rates.bytes_in)}B/s, "
        f"out {number(rates.messages_out)}/s {whole(rates.bytes_out)}B/s, dropped {number(rates.dropped)}/s",
    ]


def _channels(rows: list[Row]) -> Iterator[str]:
    columns = [column for column in CHANNELS if column.heads[1] not in _CURVES]
    # Two columns of bytes are told apart by where they stand, on a screen; here they have names.
    heads = [column.heads[1] for column in columns]
    for head_, place in zip(
        ("IN-BYTES/S", "OUT-BYTES/S"), [i for i, head_ in enumerate(heads) if head_ == "BYTES/S"], strict=True
    ):
        heads[place] = head_
    right = " ".join(head_ for head_, column in zip(heads, columns, strict=True) if column.falls)

    def cell(row: Row, head_: str, place: int) -> str:
        if head_ == "QUEUE":
            return f"{math.ceil(row.thing.fullest * 100)}%"
        return clipped(columns[place].cell(row.thing, columns[place].widths[1]).text, MOST_NAME)

    rows = sorted(rows, key=lambda row: CHANNELS[0].key(row.thing))
    return table(heads, (tuple(cell(row, head_, place) for place, head_ in enumerate(heads)) for row in rows), right)


# ---------------------------------------------------------------------------------------------- JSON


def record(sight: Sight) -> str:
    """A bus for programs, in one line: what `_stat.json` tells, and the rates of the bus and of each channel."""
    head, channels = rows(sight.text, _json)
    # Where it is, we know, and take nobody's word for it: it could be that of another bus.
    own = named("mountpoint", os.fsencode(sight.mountpoint)) | {"rates": _rates(sight.watch.whole)}
    told = _json({key: value for key, value in head.items() if key not in ("channels", "mountpoint", "mountpoint_hex")} | own)
    lines = (
        f"{_json({key: value for key, value in row.items() if key not in ('clients', 'rates')})[:-1]}, "
        f'"clients": [{", ".join(clients)}], "rates": {_json(_rates(sight.watch.channels.get(row["number"], NOTHING)))}}}'
        for row, clients in channels
    )
    return f'{told[:-1]}, "channels": [{", ".join(lines)}]}}'


def _json(told: Mapping[str, object]) -> str:
    return json.dumps(told, allow_nan=False)


def _rates(course: Course) -> dict[str, float]:
    return {field: round(value, 3) for field, value in course.rates._asdict().items()}
