"""The command `futebus-id`: which client of a channel an open file is. `futebus-id <&3`."""

import argparse
import shlex
import sys

import futebus
from futebus.commands.arguments import OK, Parser, fail, fail_to_print, is_closed

DESCRIPTION = """\
Tells which client of a channel its standard input is, as a hexadecimal number: the address under which others reach it. It is
for a shell that has a channel open. See futebus(7), "Asking the bus"."""

EPILOG = """\
examples:
  exec 3<>/mnt/bus/A_chat    open a channel
  futebus-id <&3             2
  futebus-id -v <&3          everything that the bus tells of this client"""


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog="futebus-id",
        usage="futebus-id [-v] <&DESCRIPTOR",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    # The name of a channel would open it anew, and that is another client.
    made.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    made.add_argument("-v", "--verbose", action="store_true", help="everything, one NAME=VALUE a line")
    made.add_argument("-V", "--version", action="version", version=f"futebus-id {futebus.__version__}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, 1 if standard input is no channel, 2 for wrong arguments.
    """
    command = parser()
    given = command.parse_args(arguments)
    if given.names:
        name = shlex.quote(given.names[0])
        command.error(f"it asks about what is open, and not about a name: exec 3<>{name}; futebus-id <&3")

    from futebus.client.inquire import inquire

    if is_closed(1):
        return fail_to_print("futebus-id")
    try:
        told = inquire(0)
    except OSError as error:
        return fail("futebus-id", f"standard input is no channel of a bus ({error.strerror}): futebus-id <&3")
    words = [f"{told.id:x}"]
    if given.verbose:
        access = f"{'r' * told.reads}{'w' * told.writes}{'+' * told.bulk}" or "-"
        state = "ended" if told.has_ended else "removed" if told.is_removed else "live"
        words = [
            f"id={told.id:x}",
            f"type={told.letter}",
            f"role={told.role.value}",
            f"access={access}",
            f"channel={state}",
            *(f"{name}={getattr(told, name)}" for name in ("dropped", "sent", "received", "queued", "queued_bytes")),
        ]
    try:
        print("\n".join(words), flush=True)
    except OSError as error:
        return fail("futebus-id", f"standard output: {error.strerror}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
