"""What futebus is meant to reach, beside what it did. A target that is missed is shown, and fails nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from . import figures
from .figures import Figure, Row
from .hosts_spark import SPOOL, STREAM


@dataclass(frozen=True)
class Target:
    """A bound for one figure, or for how many times another it is.

    Attributes:
        words: What is compared.
        of: Row and name of the figure.
        to: Row and name of the figure that it is divided by, if any.
        least: Whether the bound is the least or the most that is wanted.
        bound: The bound.
        unit: Of the bound.
    """

    words: str
    of: tuple[str, str]
    to: tuple[str, str] | None
    least: bool
    bound: float
    unit: str = "times"


ONE, FOUR = ("bulk", "futebus, 1 reader"), ("bulk", "futebus, 4 readers")
TARGETS = [
    Target("bulk, 1 reader: futebus to ncat --broker", ONE, ("bulk", "ncat --broker, 1 reader"), True, 2),
    Target("bulk, 1 reader: futebus to Mosquitto", ONE, ("bulk", "Mosquitto, 1 reader"), True, 20),
    Target("bulk, delivered in all: 4 readers to 1", FOUR, ONE, True, 1.5),
    Target("8 writers collected to bulk, 1 reader", ("collect", "futebus, U channel"), ONE, True, 0.7),
    Target("single: futebus to bare pyfuse3", ("single", "futebus"), ("single", "bare pyfuse3"), True, 0.8),
    Target("round trip: futebus to bare pyfuse3", ("round-trip", "futebus"), ("round-trip", "bare pyfuse3"), False, 1.25),
    Target("1,000 full queues", ("grow", "1,000 queues of the same 1,024 lines of 1 KiB"), None, False, 60, "MB"),
    Target("write with 5,000 idle clients", ("grow", "write, 5,000 idle clients"), None, False, 1500, "µs"),
    Target("5,000 blocked readers, resident", ("readers", "5,000 blocked readers"), None, False, 150, "MB"),
    Target("futebus-tmb to Mosquitto, 1 client", ("tmb", "bus to TCP, 1 reader"), ("tmb", "Mosquitto, 1 reader"), True, 5),
    Target(
        "futebus-sbus to a bare echo, 1 subscriber",
        ("sbus", "futebus-sbus, 1 subscriber"),
        ("sbus", "bare echo of trio"),
        True,
        0.5,
    ),
    Target(
        "a service: futebus.client to os.read",
        ("client", "service, futebus.client"),
        ("client", "service, os.read and os.write"),
        False,
        1.1,
    ),
    Target(
        "a collector: futebus.client to os.read",
        ("client", "collector, futebus.client"),
        ("client", "collector, os.read"),
        True,
        0.9,
    ),
    Target(
        "a collector of texts: futebus.client to os.read",
        ("client", "collector, futebus.client, text"),
        ("client", "collector, os.read, text"),
        True,
        0.9,
    ),
    Target(
        "a publisher: futebus.client to os.write",
        ("client", "publisher, futebus.client"),
        ("client", "publisher, os.write"),
        True,
        0.9,
    ),
    Target("a bus with ten viewers to one without", ("view", "10 viewers, median"), ("view", "unwatched, median"), False, 1.05),
    Target(
        "B channel to a reader on another bus: futebus-link to clients of NATS",
        ("hosts", "bus to bus by futebus-link"),
        ("hosts", "nats-py to nats-py, the same runs"),
        True,
        0.5,
    ),
    Target(
        "U channel, 8 writers, to an acknowledged stream: to the recorder alone",
        ("hosts-stream", "recorder --to, acknowledged by a stream"),
        ("hosts-stream", "recorder alone, in the spool"),
        True,
        0.5,
    ),
    Target("a line by echo to cat on another bus", ("hosts-trip", "bus to bus by futebus-link"), None, False, 1000, "µs"),
    Target("Spark, value only: a stream to a spool", ("hosts-spark", STREAM), ("hosts-spark", SPOOL), True, 0.8),
    Target("Spark, value only: futebus to text source", ("spark", "futebus"), ("spark", "text source"), True, 0.45),
    Target(
        "Spark, filter and projection: futebus to text source",
        ("spark", "futebus, filter and projection"),
        ("spark", "text source, filter and projection"),
        True,
        0.75,
    ),
    Target(
        "8 writers into a spool: futebus-record to cat",
        ("spark-drain", "futebus-record"),
        ("spark-drain", "cat <>+.U_bench >/dev/null"),
        True,
        0.8,
    ),
    Target(
        "line to foreachBatch: futebus to socket source",
        ("spark-latency", "futebus"),
        ("spark-latency", "socket source"),
        False,
        1.5,
    ),
    Target("idle query", ("spark-idle", "the query alone"), None, False, 3, "% of a core"),
]


def _find(rows: Sequence[Row], place: tuple[str, str]) -> Figure | None:
    return next((row.find(place[1]) for row in rows if row.key == place[0]), None)


def value(rows: Sequence[Row], target: Target) -> float | None:
    """What was reached, in the target's unit; None if it was not measured."""
    of = _find(rows, target.of)
    to = _find(rows, target.to) if target.to else None
    if not of or (target.to and not to):
        return None
    return figures.ratio(of, to) if to else of.median


def _met(target: Target, reached: float) -> bool:
    return reached >= target.bound if target.least else reached <= target.bound


def render(rows: Sequence[Row]) -> str:
    """The table of all targets that these rows can be held to."""
    cells = [["targets", "this run", "target", "unit", ""]]
    for target in TARGETS:
        reached = value(rows, target)
        if reached is not None:
            bound = f"{'≥' if target.least else '≤'} {target.bound:g}"
            met = "met" if _met(target, reached) else "MISSED"
            cells.append([f"  {target.words}", figures.number(reached), bound, target.unit, met])
    if len(cells) == 1:
        return ""
    note = "  `times` is the median of the rounds' ratios, not the ratio of the medians."
    return f"What is aimed at\n{figures.table(cells)}\n{note}\n"


def as_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The same for json.dumps, with those that were not measured."""
    reached = [(target, value(rows, target)) for target in TARGETS]
    return [
        {
            "target": target.words,
            "value": got,
            "at least" if target.least else "at most": target.bound,
            "unit": target.unit,
            "met": None if got is None else _met(target, got),
        }
        for target, got in reached
    ]
