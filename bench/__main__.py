"""The command scripts/bench."""

import argparse
import contextlib
import importlib
import json
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from . import plot
from .figures import Row, as_json, render

DEADLINE = 120
"""Seconds that one row may take by default before it is given up; more rounds have more."""
ROUNDS = 3
GATEWAYS = ["tmb", "tmb-cost", "sbus", "sbus-trip", "sbus-index", "ubus-round-trip", "ubus-bulk"]
HOSTS = ["hosts", "hosts-trip", "hosts-stream", "hosts-spark"]
ALIASES = {
    "gateways": GATEWAYS,
    "hosts": HOSTS,
    "latency": ["round-trip"],
    "spark": ["spark", "spark-drain", "spark-latency", "spark-idle"],
}


class Bench(NamedTuple):
    """A measurement: the module whose `run` makes it, and how many times it is made in each round.

    The module is imported when it is measured: some need what --help, in a tree that has not been built, cannot have.
    """

    module: str
    times: int = 1

    def run(self, rounds: int, *sizes: tuple[int, ...]) -> tuple[Row, ...]:
        module = importlib.import_module(f".{self.module}", __package__)
        rows: Row | tuple[Row, ...] = module.run(self.times * rounds, show, *sizes)
        return (rows,) if isinstance(rows, Row) else rows


BENCHES = {
    # These two are quick, and depend much on which processor the kernel puts whom on: so more of them.
    ("round-trip",): Bench("round_trip", 3),
    ("single",): Bench("single", 2),
    ("shell",): Bench("shell"),
    ("bulk", "cost"): Bench("bulk"),
    ("collect",): Bench("collect"),
    ("grow",): Bench("grow"),
    ("readers",): Bench("readers"),
    ("client",): Bench("client"),
    ("view",): Bench("view", 2),
    ("tmb", "tmb-cost"): Bench("gateway_tmb"),
    ("sbus", "sbus-trip", "sbus-index"): Bench("gateway_sbus"),
    ("ubus-round-trip", "ubus-bulk"): Bench("gateway_ubus"),
    ("hosts", "hosts-trip"): Bench("hosts"),
    ("hosts-spark",): Bench("hosts_spark"),
    ("hosts-stream",): Bench("streams"),
    ("flood",): Bench("flood"),
    ("spark", "spark-drain", "spark-latency", "spark-idle"): Bench("spark"),
}
"""The rows that one measurement gives, and the measurement."""
ROWS = [row for rows in BENCHES for row in rows]
USUAL = [row for row in ROWS if not row.startswith("spark") and row not in ("flood", *GATEWAYS, *HOSTS)]
"""Without arguments: Spark, the floods, the gateways and the links take minutes of their own."""


def show(words: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def _late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("took too long")


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


@contextlib.contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in whatever still runs after so long; no call on a bus resists a signal."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _rows(words: str) -> list[str]:
    rows = [row for word in words.split(",") for row in ALIASES.get(word, [word])]
    for row in rows:
        if row not in ROWS:
            raise argparse.ArgumentTypeError(f"no row {row!r}; there are {', '.join(ROWS)}")
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures futebus beside what one could use instead, and what is under it.",
        epilog=f"The rows are {', '.join(ROWS)}; `latency` is another name of `round-trip`. Without any, all are measured "
        "but `flood`, those of Spark, which `spark` stands for together, those of the gateways, for which `gateways` stands, and "
        "those of links between hosts, for which `hosts` stands.",
    )
    parser.add_argument("row", nargs="*", type=_rows, help="measure this row only")
    parser.add_argument("--only", type=_rows, metavar="ROW[,ROW...]", help="measure these rows only")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"how often all is measured in turn ({ROUNDS}); what is quick and varies, twice or thrice that",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to FILE")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw bulk.svg and round-trip.svg there")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds begins at 1")
    given.rows = [row for rows in given.row for row in rows] + (given.only or []) or USUAL
    return given


def measure(wanted: list[str], rounds: int) -> list[Row]:
    """Measures the rows that are wanted and prints each when it is there. What fails is said, and the others go on."""
    done = []
    for keys, bench in BENCHES.items():
        if not set(keys) & set(wanted):
            continue
        try:
            with deadline(
                DEADLINE * max(1, rounds // ROUNDS) * (3 if keys[0] in ("spark", "hosts-spark", "flood", "tmb") else 1)
            ):
                # The cost is that of the 1-reader case, so for it alone there is no need of the others.
                sizes = [(1,)] if keys[0] == "bulk" not in wanted else []
                rows = bench.run(rounds, *sizes)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            rows = tuple(Row(key, f"{key}: not measured", notes=[f"{type(error).__name__}: {error}"]) for key in keys)
        show("")
        for row in rows:
            if row.key in wanted:
                print(render(row), end="\n\n", flush=True)
                done.append(row)
    return done


def main() -> int:
    """Runs what the command line asks for."""
    given = arguments()
    from . import targets  # as the measurements: not for --help

    signal.signal(signal.SIGTERM, _end)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begin = time.monotonic()
    rows = measure(given.rows, given.rounds)
    print(targets.render(rows))
    if given.json:
        document = {
            "machine": {"system": f"{platform.system()} {platform.release()}", "python": platform.python_version()},
            "seconds": round(time.monotonic() - begin),
            "rounds": given.rounds,
            "rows": {row.key: as_json(row) for row in rows},
            "targets": targets.as_json(rows),
        }
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    if given.plot:
        plot.draw(rows, given.plot)
    print(f"{time.monotonic() - begin:.0f} s, {given.rounds} rounds")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
