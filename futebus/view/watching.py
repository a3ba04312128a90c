"""What two looks at a bus say together: how much goes on, and how that has been.

The one rule: what is kept is bounded, in all buses together. Any user may mount something that calls itself a bus, with as many
channels as may be looked at, and something new on each of them each time.
"""

import threading
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.totals import Totals
from .told import NAMED, Channel, Look

KEPT = 120
"""How many rates are kept for a curve: two minutes' worth, of a look a second."""

MOST_PAST = 16_384
"""Of how many channels it is kept how they have been, of all buses together: 40 MB."""


class Rates(NamedTuple):
    """How much happens in a second."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0
    dropped: float = 0.0


_WIDTH = len(Rates._fields)


class Past:
    """The last rates, the oldest first. There is as much memory for them as there ever will be."""

    __slots__ = ("_count", "_next", "_rates")

    def __init__(self) -> None:
        self._rates = array("f", bytes(4 * KEPT * _WIDTH))
        self._next = self._count = 0

    def add(self, rates: Rates) -> None:
        """Adds the next."""
        self._rates[self._next * _WIDTH : (self._next + 1) * _WIDTH] = array("f", rates)
        self._next = (self._next + 1) % KEPT
        self._count = min(self._count + 1, KEPT)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Rates]:
        for place in range(self._next - self._count, self._next):
            at = place % KEPT * _WIDTH
            yield Rates(*self._rates[at : at + _WIDTH])

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has gone on in all that time."""
        return not any(self._rates)


@dataclass(frozen=True, slots=True)
class Course:
    """What goes on, and how that has been."""

    rates: Rates
    """Between the last two looks."""
    past: Past
    """The last ones, these included. It goes on with the bus."""


NOTHING = Course(Rates(), Past())
"""That of what has not been seen twice, or of which nothing is kept."""


class _Places:
    """How many pasts of channels there are in all."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # whoever gives places back may be collected at any time, here too
        self.taken = 0

    def take(self) -> bool:
        with self._lock:
            if self.taken >= MOST_PAST:
                return False
            self.taken += 1
            return True

    def leave(self, count: int) -> None:
        with self._lock:
            self.taken -= count


_places = _Places()


@dataclass(frozen=True, slots=True)
class Compared:
    """What a look says together with those before."""

    whole: Course = NOTHING
    """Of all channels together."""
    channels: Mapping[int, Course] = field(default_factory=dict)
    """By the channels' numbers."""


class Watch:
    """Compares one look at a bus with the one before.

    Args:
        most_past: of how many of its channels it is kept how they have been.
    """

    def __init__(self, most_past: int = NAMED.past) -> None:
        self.most_past = most_past
        self._lock = threading.Lock()
        self._last: Look | None = None
        self._counts: dict[int, Channel] = {}
        self._past: dict[int, Past] = {}
        self._all = Past()
        self._shown = Compared()

    def __del__(self) -> None:
        _places.leave(len(self._past))

    @property
    def whole(self) -> Course:
        """Of all channels together."""
        return self._shown.whole

    @property
    def channels(self) -> Mapping[int, Course]:
        """By the channels' numbers."""
        return self._shown.channels

    def add(self, look: Look) -> None:
        """Takes the next look."""
        self.show(self.compare(look))

    def show(self, compared: Compared) -> None:
        """From now on, that is what is seen."""
        self._shown = compared

    def compare(self, look: Look) -> Compared:
        """Takes the next look, in whatever thread: of a large bus that takes a while.

        Of another bus, one that was mounted since for example, it begins anew.
        """
        look.sum_up()
        with self._lock:
            before = self._last
            if before is None or not _is_same(before, look):
                self._forget(set(self._past))
                self._all = Past()
                before = None
            seconds = max(look.uptime_seconds - before.uptime_seconds, 1e-3) if before else 0.0
            channels = {
                # A channel that was not there before has counted from nothing.
                channel.number: Course(
                    *self._next(channel.number, _rates(self._counts.get(channel.number), channel, seconds) if before else Rates())
                )
                for channel in look.channels
            }
            self._forget({number for number, past in self._past.items() if number not in channels or past.is_quiet})
            whole = Rates()
            if before:
                whole = _rates(before.totals, look.totals, seconds)
                self._all.add(whole)
            self._counts = {channel.number: channel for channel in look.channels}
            self._last = look
            return Compared(Course(whole, self._all), channels)

    def _next(self, number: int, rates: Rates) -> tuple[Rates, Past]:
        """What goes on on a channel, and how that has been. It is kept from when something goes on, if there is place."""
        past = self._past.get(number)
        if past is None and any(rates) and len(self._past) < self.most_past and _places.take():
            past = self._past[number] = Past()
        if past is None:
            return rates, NOTHING.past
        past.add(rates)
        return rates, past

    def _forget(self, numbers: set[int]) -> None:
        for number in numbers:
            del self._past[number]
        _places.leave(len(numbers))


def _is_same(before: Look, after: Look) -> bool:
    # A daemon may have the number of the one before it, as in a container that was started again, and by now have been there for
    # longer than that one had when it was looked at. But a bus does not count back.
    has_gone_on = all(getattr(before.totals, field) <= getattr(after.totals, field) for field in Rates._fields)
    return before.daemon_pid == after.daemon_pid and before.uptime_seconds <= after.uptime_seconds and has_gone_on


def _rates(before: Channel | Totals | None, after: Channel | Totals, seconds: float) -> Rates:
    return Rates(*((getattr(after, field) - (getattr(before, field) if before else 0)) / seconds for field in Rates._fields))
