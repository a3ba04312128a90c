"""The command scripts/bench."""

import argparse
import json
import resource
import sys
from pathlib import Path

from . import latency, readers


def show(words: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures futebus beside what is under it.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    round_trip = kinds.add_parser("latency", help="the round trip of a line, beside bare pyfuse3, bare libfuse and FIFOs")
    round_trip.add_argument("--rounds", type=int, default=7, help="how often all are measured in turn (7)")
    round_trip.add_argument("--count", type=int, default=3000, help="round trips in each (3000)")
    round_trip.add_argument("--json", type=Path, metavar="FILE", help="write the medians of all rounds to FILE, in microseconds")
    blocked = kinds.add_parser("readers", help="memory of many blocked readers")
    blocked.add_argument("--count", type=int, default=5000, help="how many (5000)")
    given = parser.parse_args()
    if given.count < 1 or getattr(given, "rounds", 1) < 1:
        parser.error("counts begin at 1")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.kind == "latency":
        results = latency.run(given.rounds, given.count, show)
        show("")
        print(latency.report(results))
        if given.json:
            given.json.write_text(json.dumps(results, indent=2) + "\n")
    else:
        print(readers.run(given.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
