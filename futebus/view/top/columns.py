"""What is shown of channels and of clients, as tables of columns; the same for a terminal and on paper.

The one rule: what comes from a bus is here as `looking` has escaped it, and goes on as text and a style apart from it. It is
never put into markup, so no name can be some.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.text import duration, size
from ..told import Channel, Client, Look
from ..watching import NOTHING, Course
from .drawn import bar, curve, number
from .sights import Sight

FULL, HALF = 0.8, 0.5
"""From where on a queue is shown as nearly full, and as filling."""


class Row(NamedTuple):
    """A line of a table."""

    key: Hashable
    """Of this thing, as long as it is there."""
    thing: Any
    searched: str
    """What a filter looks into, in lower case."""


class Cell(NamedTuple):
    """What stands in a column."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heads: tuple[str, str]
    """What it is called where there is little place, and where there is enough."""
    widths: tuple[int, int]
    cell: Callable[[Any, int], Cell]
    """What is shown of a thing in so many characters."""
    key: Callable[[Any], Any]
    """What is sorted by."""
    falls: bool = True
    """Whether the most comes first when it is sorted by this. So are numbers, and they stand to the right."""
    most: int = 0
    """How wide it may become where there is more than enough."""


class Seen(NamedTuple):
    """A channel, and what goes on in it."""

    look: Look
    channel: Channel
    course: Course

    @property
    def fullest(self) -> float:
        """How full the fullest queue of its clients is, from 0 to 1."""
        return max(map(self.look.fullness, self.channel.clients), default=0.0)

    @property
    def longest(self) -> float:
        """How many seconds the writer has waited that waits for the longest time."""
        return max((client.waits_seconds for client in self.channel.blocked), default=0.0)


class SeenClient(NamedTuple):
    """A client, and the bus that it is on."""

    look: Look
    client: Client

    @property
    def full(self) -> float:
        """How full its queue is."""
        return self.look.fullness(self.client)


def channel_rows(sight: Sight) -> list[Row]:
    """The channels of a bus."""
    look, courses = sight.look, sight.watch.channels
    if look is None:
        return []
    return [
        Row(channel.number, Seen(look, channel, courses.get(channel.number, NOTHING)), channel.name.lower())
        for channel in look.channels
    ]


def client_rows(look: Look, channel: Channel) -> list[Row]:
    """The clients of a channel."""
    return [
        Row(client.id, SeenClient(look, client), f"{client.id} {client.role} {client.pid} {client.command}".lower())
        for client in channel.clients
    ]


def span(seconds: float) -> str:
    """A time span, as people read it."""
    return duration(int(seconds * 1e9))


def _plain(attribute: str, form: Callable[[Any], str] = str) -> Callable[[Any, int], Cell]:
    return lambda seen, width: Cell(form(getattr(seen[1], attribute)))


def _sorted(attribute: str) -> Callable[[Any], Any]:
    return lambda seen: getattr(seen[1], attribute)


def _rate(field: str, form: Callable[[float], str], style: str = "") -> Callable[[Seen, int], Cell]:
    def cell(seen: Seen, width: int) -> Cell:
        value = getattr(seen.course.rates, field)
        return Cell(form(value), style if value else "dim")

    return cell


def _rate_key(field: str) -> Callable[[Seen], float]:
    return lambda seen: float(getattr(seen.course.rates, field))


def _curve(field: str, style: str) -> Callable[[Seen, int], Cell]:
    return lambda seen, width: Cell(curve([getattr(rates, field) for rates in seen.course.past], width), style)


def whole(value: float) -> str:
    """Bytes, of which there are no tenths."""
    return size(round(value))


def fill_style(share: float) -> str:
    """The colour of a queue that is so full."""
    return "red" if share >= FULL else "yellow" if share >= HALF else "green"


def _state(seen: Seen, width: int) -> Cell:
    state = seen.channel.state
    short = {"removed": "rm"}.get(state, state)
    return Cell(state if len(state) <= width else short, {"removed": "yellow", "dead": "red"}.get(state, "dim"))


def _blocked(seen: Seen, width: int) -> Cell:
    count = len(seen.channel.blocked)
    return Cell(f"{count} {span(seen.longest)}", "bold red") if count else Cell("0", "dim")


def _queue(seen: Any, width: int) -> Cell:
    share = seen.fullest if isinstance(seen, Seen) else seen.full
    return Cell(bar(share, width), fill_style(share))


def _waits(seen: SeenClient, width: int) -> Cell:
    client = seen.client
    if not client.waits:
        return Cell("")
    words = f"{client.waits} {span(client.waits_seconds)}"
    if len(words) > width:
        words = f"{client.waits[0]} {span(client.waits_seconds)}"
    return Cell(words, "bold red" if client.waits == "write" else "dim")


def _dropped(seen: SeenClient, width: int) -> Cell:
    dropped = seen.client.dropped
    return Cell(number(dropped), "bold red" if dropped else "dim")


CHANNELS = (
    Column(("CHANNEL", "CHANNEL"), (12, 16), _plain("name"), _sorted("file"), falls=False, most=48),
    Column(("T", "TYPE"), (1, 4), _plain("type"), _sorted("type"), falls=False),
    Column(("ST", "STATE"), (4, 7), _state, _sorted("state"), falls=False),
    Column(("CLI", "CLIENTS"), (4, 7), lambda seen, width: Cell(number(len(seen[1].clients))), lambda seen: len(seen[1].clients)),
    Column(("IN/S", "IN/S"), (4, 5), _rate("messages_in", number), _rate_key("messages_in")),
    Column(("IN", "IN"), (5, 8), _curve("messages_in", "cyan"), _rate_key("messages_in"), most=30),
    Column(("B/S", "BYTES/S"), (5, 7), _rate("bytes_in", whole), _rate_key("bytes_in")),
    Column(("OUT/S", "OUT/S"), (5, 5), _rate("messages_out", number), _rate_key("messages_out")),
    Column(("OUT", "OUT"), (4, 8), _curve("messages_out", "blue"), _rate_key("messages_out"), most=30),
    Column(("B/S", "BYTES/S"), (5, 7), _rate("bytes_out", whole), _rate_key("bytes_out")),
    Column(("QUEUE", "QUEUE"), (5, 8), _queue, lambda seen: seen.fullest, most=20),
    Column(("BLOCKED", "BLOCKED"), (7, 9), _blocked, lambda seen: (len(seen.channel.blocked), seen.longest)),
    Column(("DROP", "DROPS/S"), (5, 7), _rate("dropped", number, "bold red"), _rate_key("dropped")),
)

CLIENTS = (
    Column(("ID", "ID"), (3, 6), _plain("id"), lambda seen: int(seen.client.id, 16), falls=False),
    Column(("ROLE", "ROLE"), (6, 6), _plain("role"), _sorted("role"), falls=False),
    Column(("PID", "PID"), (7, 7), _plain("pid"), _sorted("pid"), falls=False),
    Column(("COMMAND", "COMMAND"), (8, 16), _plain("command"), _sorted("command"), falls=False, most=24),
    Column(("UID", "UID"), (5, 6), _plain("uid"), _sorted("uid"), falls=False),
    Column(("RW", "RW"), (3, 3), lambda seen, width: Cell(seen.client.access), lambda seen: seen.client.access, falls=False),
    Column(("WBUF", "WBUF"), (4, 6), _plain("wbuf_bytes", whole), _sorted("wbuf_bytes")),
    Column(("RLIST", "RLIST"), (5, 6), _plain("rlist_messages", number), _sorted("rlist_messages")),
    Column(("", "FULL"), (4, 10), _queue, lambda seen: seen.full, most=30),
    Column(("SENT", "SENT"), (4, 6), _plain("sent", number), _sorted("sent")),
    Column(("RECV", "RECEIVED"), (4, 8), _plain("received", number), _sorted("received")),
    Column(("DROP", "DROPPED"), (4, 7), _dropped, _sorted("dropped")),
    Column(("WAITS", "WAITS"), (7, 11), _waits, lambda seen: (seen.client.waits == "write", seen.client.waits_seconds)),
)
"""Of numbers that are names (IDs, processes, users) the lowest comes first."""
