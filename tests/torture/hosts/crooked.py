"""A link or a recorder that cheats, to see that this is noticed: `crooked.py HOW MODULE ARGUMENTS...` is the command in MODULE.

Every so often a run of lines goes wrong in the way that is asked for; or nothing is said of what was lost.
"""

import importlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from futebus.links.channel import Channel
from futebus.links.delivery import Delivery
from futebus.links.link import Link
from futebus.recorder import outgoing, publisher

EVERY = 50

Run = tuple[int, bytes]
"""Lines, and how many they are."""

Way = Callable[[Run], list[Run]]
"""Makes of lines those that go on."""

_held: list[Run] = []


def loses(run: Run) -> list[Run]:
    """They do not."""
    return []


def doubles(run: Run) -> list[Run]:
    """They come twice."""
    return [run, run]


def alters(run: Run) -> list[Run]:
    """A byte of them is another one."""
    count, lines = run
    return [(count, lines[:-2] + b"?" + lines[-1:])]


def overtakes(run: Run) -> list[Run]:
    """They come after the next ones."""
    _held.append(run)
    return []


WAYS: dict[str, Way] = {way.__name__: way for way in (loses, doubles, alters, overtakes)}


def cheat(how: Way) -> None:
    """Has links, deliveries and publishers cheat."""
    put, write, runs = Channel.put, Delivery._write, outgoing.following
    number = itertools.count(1)

    def crooked(run: Run) -> list[Run]:
        if next(number) % EVERY == 0:
            return how(run)
        held = _held[:]
        _held.clear()
        return [run, *held]

    def put_crookedly(self: Channel, count: int, lines: bytes) -> None:
        for run in crooked((count, lines)):
            put(self, *run)

    def write_crookedly(self: Delivery, found: Any, start: int) -> int:
        for _, data in crooked((1, found.data)):
            write(self, found._replace(data=data), start)
        return len(found.data)

    setattr(Channel, "put", put_crookedly)  # noqa: B010 - or mypy thinks that it knows better
    setattr(Delivery, "_write", write_crookedly)  # noqa: B010

    def follow_crookedly(*words: Any) -> Iterator[Any]:
        for some in runs(*words):
            if how is not loses or not isinstance(some, list):
                yield some
            elif kept := [run for run in some if next(number) % EVERY]:
                yield kept

    setattr(publisher, "following", follow_crookedly)  # noqa: B010


def hide() -> None:
    """Has links say nothing of what was lost."""
    setattr(Link, "_losses", lambda self: Counter())  # noqa: B010


if __name__ == "__main__":
    if sys.argv[1] == "hides":
        hide()
    else:
        cheat(WAYS[sys.argv[1]])
    sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
