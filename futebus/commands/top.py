"""The command `futebus-top`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import importlib.util
import os
import signal
import sys
from pathlib import Path

import futebus
from futebus.commands.arguments import (
    FAILED,
    OK,
    Parser,
    absolute,
    checked,
    fail,
    fail_to_print,
    is_closed,
    missing,
    open_standard,
    place,
)
from futebus.core.quantities import seconds
from futebus.host.signals import ending_signals

DESCRIPTION = """\
Shows what goes on on buses: channels, clients, rates, queues, who waits and what is lost. Without MOUNTPOINT, all buses that are
mounted and can be entered. Where there is no terminal, it prints that once. See futebus-top(1)."""

EPILOG = """\
keys:
  Enter clients of a channel, Escape back      t what a B or A channel says      / show only what has this in it
  < > sort by another column, r the other way  [ ] 1-9 another bus               ? all keys, q quit

examples:
  futebus-top                                         all buses, live
  futebus-top --once /mnt/bus                         one bus, as text
  futebus-top --json /mnt/bus | jq .rates.messages_in a number a second"""

COMMAND = "futebus-top"

LEAST_INTERVAL, MOST_INTERVAL = 0.1, 86400.0
"""Seconds. A bus shows itself at a cost, and what is looked at less than once a day is not watched."""


def _interval(text: str) -> float:
    try:
        span = seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, from 0.1s to 1d") from None
    if not LEAST_INTERVAL <= span <= MOST_INTERVAL:
        raise ValueError(f"from 0.1s to 1d, not {text}")
    return span


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog=COMMAND,
        usage=f"{COMMAND} [OPTION...] [MOUNTPOINT...]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    made.add_argument(
        "mountpoints", metavar="MOUNTPOINT", nargs="*", type=checked(place), help="where a bus is mounted, or will be"
    )
    made.add_argument(
        "-i", "--interval", metavar="TIME", type=checked(_interval), default=1.0, help="from look to look, from 0.1s to 1d (1s)"
    )
    made.add_argument("--once", action="store_true", help="print it once as text, after two looks, and end")
    made.add_argument("--json", action="store_true", help="print a JSON object a line for each look at each bus")
    made.add_argument("-V", "--version", action="version", version=f"{COMMAND} {futebus.__version__}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it has shown something, or was ended; 1 if there was no bus to be shown once, or nowhere to print, 2 for wrong
        arguments.
    """
    given = parser().parse_args(arguments)
    is_mute = is_closed(1)
    open_standard()
    mountpoints = list(dict.fromkeys(absolute(COMMAND, path) for path in given.mountpoints))
    if given.once or given.json or not _has_terminal():
        if is_mute:
            return fail_to_print(COMMAND)
        return _print(mountpoints, given)
    if importlib.util.find_spec("textual") is None:
        return missing(COMMAND, "the module textual is missing (--once and --json work without)", "view", "textual")

    from futebus.view.top.app import run
    from futebus.view.top.sights import Sights

    return OK if run(Sights(mountpoints), given.interval) else FAILED


def _has_terminal() -> bool:
    return os.isatty(0) and os.isatty(1) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _print(mountpoints: list[Path], given: argparse.Namespace) -> int:
    def stop(number: int, frame: object) -> None:
        # What waits for a bus, or for who reads this, waits no more.
        os._exit(OK)

    for number in ending_signals():
        signal.signal(number, stop)

    from futebus.view.top.plain import Teller, once, stream
    from futebus.view.top.sights import Sights

    sights, teller = Sights(mountpoints), Teller(COMMAND)
    try:
        if given.json and not given.once:
            stream(sights, given.interval, teller)
        return OK if once(sights, given.interval, teller, is_json=given.json) else FAILED
    except BrokenPipeError:
        return OK
    except OSError as error:
        return fail(COMMAND, f"standard output: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
