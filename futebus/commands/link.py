"""The command `futebus-link`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import importlib.util
import os
import re
import socket
import sys
import zlib
from pathlib import Path
from typing import Any

import futebus
from futebus.commands.arguments import OK, Parser, absolute, checked, fail, missing, open_standard, path, permissions
from futebus.commands.servers import STREAM, add_access, add_stream, check_stream, gathered, wanted
from futebus.host.signals import Endings

DESCRIPTION = """\
Links a B channel of a futebus to a subject of NATS, and so to the same channel of other hosts: what is said on one is heard on
all, each line once. Any client of NATS can listen and speak too: a message is lines, newlines included. See futebus-link(1)."""

EPILOG = """\
URL is nats://SERVER[:PORT][,SERVER...]/SUBJECT, or tls:// for servers that must speak TLS. Without a SERVER, as in
nats:///SUBJECT, NATS_URL tells, or the context; else it is this machine.

examples:
  futebus-link /mnt/bus/B_log nats://nats.example/log      the same on each host: a B_log that all of them share
  futebus-link --read-only /mnt/bus/B_log nats:///log      only tell others what is said here
  nats sub log                                             hear it without a bus"""

COMMAND = "futebus-link"

LONGEST_CONSUMER = 128
"""Characters in the name of a consumer."""

OTHERS = {
    "A": "an A channel has addresses, which mean nothing on another host",
    "S": "an S channel has one master, who answers by addresses, which mean nothing on another host",
    "U": "a U channel has one master, who collects its lines: record it there (futebus-record), so that none is lost",
}
"""Why other channels are not linked."""


def _address(text: str) -> Any:
    from futebus.nats import address

    return address.read(text)


def _stream(text: str) -> Any:
    from futebus.nats import address

    return address.read_stream(text, is_filter=True)


def _consumer(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z_-]+", text):
        raise ValueError(f"letters, digits, - and _, and not {text!r}")
    if len(text) > LONGEST_CONSUMER:
        raise ValueError(f"a name of at most {LONGEST_CONSUMER} characters, and this one has {len(text)}")
    return text


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog=COMMAND,
        usage=f"{COMMAND} [OPTION...] CHANNEL URL...\n       {COMMAND} [OPTION...] --deliver URL CHANNEL",
        description=DESCRIPTION,
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
    )
    made.add_argument(
        "channel",
        metavar="CHANNEL",
        nargs="?",
        default=None,
        type=checked(path),
        help="a B channel of a mounted bus; it is created",
    )
    made.add_argument("urls", metavar="URL", nargs="*", help="the subject, or several")
    ways = made.add_mutually_exclusive_group()
    ways.add_argument("--read-only", action="store_true", help="only read the channel: what is said there goes to the subject")
    ways.add_argument("--write-only", action="store_true", help="only write the channel: what comes from the subject goes there")
    ways.add_argument(
        "--deliver",
        metavar="URL",
        type=checked(_stream),
        help="write what the stream nats://SERVER/STREAM[/SUBJECT] has to a U or B channel, each line once",
    )
    made.add_argument("--wait", action="store_true", help="wait for a bus or a server that is not there, or a bus that has gone")
    made.add_argument("--mode", metavar="OCTAL", type=checked(permissions), help="permissions of the channel, if it is created")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    made.add_argument("-V", "--version", action="version", version=f"{COMMAND} {futebus.__version__}")
    add_access(made)
    delivered = made.add_argument_group("what is delivered")
    delivered.add_argument("--state", metavar="DIRECTORY", type=checked(path), help="where it is kept how far it has come")
    delivered.add_argument("--consumer", metavar="NAME", type=checked(_consumer), help="name of the stream's consumer")
    add_stream(made, "the consumer was another delivery's, whose state is lost: go on behind it")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it was ended by a signal, 1 if it could not go on, 2 for wrong arguments, 3 if another has a copy of its state.
    """
    command = parser()
    given = vars(command.parse_args(arguments))
    _check(command, given)
    if importlib.util.find_spec("nats") is None:
        return missing(COMMAND, "the module nats is missing", "hosts", "'nats-py[nkeys]'")
    endings = Endings()  # before what takes its time to be imported
    open_standard()
    path = absolute(COMMAND, given["channel"])

    from futebus.nats.errors import NatsError

    try:
        servers, access = gathered(given)
    except NatsError as error:
        return fail(COMMAND, str(error))
    if endings.first:
        return OK

    from futebus.host.voice import Voice

    voice = Voice(COMMAND, is_quiet="quiet" in given)
    if "deliver" in given:
        return _deliver(given, path, servers, access, voice, endings)
    return _link(given, path, servers, access, voice, endings)


def _check(command: Parser, given: dict[str, Any]) -> None:
    """Sees that arguments go together. Ends the program if they do not."""
    if given["channel"] is None:
        command.error(f"the following arguments are required: CHANNEL{'' if 'deliver' in given else ', URL'}")
    channel, letter = given["channel"], given["channel"].name[:1]
    given.setdefault("urls", [])
    if "deliver" in given:
        if given["urls"]:
            command.error(f"--deliver has a channel alone, and not {given['urls'][0]!r} too")
        if letter not in ("U", "B"):
            command.error(f"{channel}: a U or B channel, please: {OTHERS.get(letter, 'its name begins with U or B')}")
        check_stream(command, given, given["deliver"].subject)
        return
    if wrong := sorted(set(given) & {"state", "consumer", *STREAM}):
        command.error(f"--{wrong[0].replace('_', '-')} is for --deliver only")
    if re.match("(nats|tls):/", str(channel)):
        command.error("first the channel, and then the URLs")
    if letter != "B":
        command.error(f"{channel}: a B channel, please: {OTHERS.get(letter, 'its name begins with B')}")
    if not given["urls"]:
        command.error("the following arguments are required: URL")
    try:
        given["urls"] = [_address(url) for url in given["urls"]]
    except ValueError as error:
        command.error(f"argument URL: {error}")
    if len(set(given["urls"])) < len(given["urls"]):
        command.error("each subject once, please")


def _link(given: dict[str, Any], path: Path, servers: Any, access: Any, voice: Any, endings: Endings) -> int:
    from futebus.links.link import Link
    from futebus.links.running import live
    from futebus.nats.connection import Servers

    name = f"{COMMAND} {socket.gethostname()}:{path}"
    link = Link(
        path,
        [(Servers(url.servers or servers, access, name), url.subject) for url in given["urls"]],
        voice,
        reads="write_only" not in given,
        writes="read_only" not in given,
        mode=given.get("mode"),
        waits="wait" in given,
    )
    return live(link, voice, endings)


def _deliver(given: dict[str, Any], path: Path, servers: Any, access: Any, voice: Any, endings: Endings) -> int:
    from futebus.links.delivery import Delivery
    from futebus.links.progress import Progress
    from futebus.links.running import live
    from futebus.nats.connection import Servers
    from futebus.nats.errors import NatsError

    address = given["deliver"]
    if not address.servers:
        address = address._replace(servers=servers)
    host = socket.gethostname()
    consumer = given.get("consumer", _consumer_name(host, path))
    place = absolute(COMMAND, given.get("state") or _state()) / f"{address.stream}.{consumer}"
    try:
        progress = Progress(place, address.subject)
    except NatsError as error:
        return fail(COMMAND, str(error))
    except OSError as error:
        return fail(COMMAND, f"{error.filename or place}: {error.strerror}")
    delivery = Delivery(
        path,
        address,
        Servers(address.servers, access, f"{COMMAND} {host}:{path}"),
        wanted(given, address.subject),
        consumer,
        progress,
        voice,
        mode=given.get("mode"),
        waits="wait" in given,
        takes_over="take_over" in given,
    )
    return live(delivery, voice, endings)


def _consumer_name(host: str, path: Path) -> str:
    """What a stream's consumer is called: by host and channel, so that each delivery has its own."""
    words = re.sub(r"[^0-9A-Za-z_-]", "-", f"futebus-{host}-{path.name}")
    return f"{words[:100]}-{zlib.crc32(os.fsencode(f'{host}:{path}')):08x}"


def _state() -> Path:
    """Where programs keep what they must not forget: a service's own directory, root's, or the user's.

    Ends the program if nobody knows where the user's is.
    """
    from futebus.host.home import home

    if directory := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(directory)
    if os.geteuid() == 0:
        return Path("/var/lib/futebus")
    if given := os.environ.get("XDG_STATE_HOME"):
        return Path(given, "futebus")
    try:
        return home() / ".local" / "state" / "futebus"
    except OSError as error:
        sys.exit(fail(COMMAND, f"{error.strerror}: --state says where it is kept how far it has come"))


if __name__ == "__main__":
    sys.exit(main())
