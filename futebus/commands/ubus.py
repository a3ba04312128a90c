"""The command `futebus-ubus`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import futebus
from futebus.commands.arguments import Parser, absolute, checked, open_standard, path, permissions
from futebus.core.quantities import count, size
from futebus.host.signals import Endings

LEAST_CALL = 256_000
"""Bytes of a call that the specification wants to be taken, at least (section 6.1)."""

NAMES = """\
A BUS is a socket. It is below ~/.ipc, unless it begins with / or ./ . Directories there are made, for their owner alone."""

DESCRIPTION = f"""\
Sockets of ubus, the Unix Stream Bus: serves them and connects to them, by commands on standard input. Each BUS that is given is
served, and called 1, 2 and so on. See futebus-ubus(1).

{NAMES}

commands (TAB between the words)     answers
  b ID BUS        serve a socket       b ID 1, b ID 0 ERRNO WORDS   it is served, or not
  u ID            and no more          c ID CLIENT                  somebody connects
  w ID CLIENT ... say something        r ID CLIENT ...              somebody says something
  d ID CLIENT     disconnect somebody  d ID CLIENT                  somebody has gone
  k ID BUS        connect to a socket  k ID 1, k ID 0 ERRNO WORDS   it is connected, or not
  i ID            and no more
CLIENT * is all who are connected. CLIENT is empty for what k has connected."""

EPILOG = """\
other uses, each with a --help of its own:
  futebus-ubus expose CHANNEL BUS   a channel of a mounted bus as a socket
  futebus-ubus signal BUS           serve one socket: what comes in goes to all, what they say comes out
  futebus-ubus connect BUS          connect to a socket, as soon as it is there
A BUS that is called like one of these is ./signal or behind --.

examples:
  futebus-ubus app/fish.signal
  ssh HOST futebus-ubus app/fish.signal"""

EXPOSE = f"""\
Exposes a channel of a mounted bus as a socket of ubus, until it is ended by Ctrl-C or SIGTERM. The end of BUS says how:
  .method    S channel: each line of a client is asked, and answered in turn
  .rest      S channel: a request up to its end, the response, the end
  .signal    U or B channel: what is said there is said to all clients
  .property  U or B channel: the same, and who connects is told the last line at once

{NAMES}"""

EXPOSE_EXAMPLES = """\
examples:
  futebus-ubus expose /mnt/bus/S_upper app/upper.method
  futebus-ubus expose --wait /mnt/bus/B_log app/log.signal
  futebus-ubus expose --value 50 /mnt/bus/B_volume app/volume.property"""

SIGNAL = f"""\
Serves one socket. What comes in on standard input goes to all who are connected; what any of them says comes out on standard
output, in whole lines. If BUS ends in .property, who connects is told the last line at once. Ends with standard input.

{NAMES}"""

CONNECT = f"""\
Connects standard input and output to a socket, as soon as it is there. Ends when the service ends the connection; at the end of
standard input it goes on to read.

{NAMES}"""


def _call_size(text: str) -> int:
    length = size(text)
    if not LEAST_CALL <= length <= 1 << 30:
        raise ValueError(f"from {LEAST_CALL} to 1G, not {text}")
    return length


def _waiting_size(text: str) -> int:
    length = size(text)
    if not 1 << 16 <= length <= 1 << 40:
        raise ValueError(f"from 64K to 1T, not {text}")
    return length


def _line(text: str) -> str:
    if "\n" in text or not text:
        raise ValueError("a line has no newline, and is not empty")
    return text


def _name(text: str) -> str:
    if not text or "\0" in text or text.endswith("/"):
        raise ValueError(f"not the name of a socket: {text!r}")
    return text


def _new(name: str, usage: str, description: str, epilog: str = "") -> Parser:
    made = Parser(
        prog=name,
        usage=usage,
        description=description,
        epilog=epilog,
        argument_default=argparse.SUPPRESS,
    )
    made.add_argument("-V", "--version", action="version", version=f"futebus-ubus {futebus.__version__}")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    made.add_argument("--max-call", metavar="SIZE", type=checked(_call_size), help="bytes of a line (256K)")
    return made


def _serves(made: Parser) -> Parser:
    made.add_argument("--mode", metavar="OCTAL", type=checked(permissions), help="permissions of the socket (600)")
    made.add_argument("--max-clients", metavar="NUMBER", type=checked(count), help="how many may be connected (1024)")
    made.add_argument("--max-clients-per-user", metavar="NUMBER", type=checked(count), help="of one user, not root or you (256)")
    made.add_argument("--max-waiting", metavar="SIZE", type=checked(_waiting_size), help="bytes that may wait for a client (4M)")
    return made


def parsers() -> dict[str, Parser]:
    """The arguments of each use; that of the empty name has no sub-command."""
    script = _serves(_new("futebus-ubus", "futebus-ubus [OPTION...] [BUS...]", DESCRIPTION, EPILOG))
    script.add_argument("names", metavar="BUS", nargs="*", type=checked(_name), help="a socket to serve")
    usage = "futebus-ubus expose [OPTION...] CHANNEL BUS"
    expose = _serves(_new("futebus-ubus expose", usage, EXPOSE, EXPOSE_EXAMPLES))
    expose.add_argument("channel", metavar="CHANNEL", type=checked(path), help="a channel of a mounted bus")
    expose.add_argument("name", metavar="BUS", type=checked(_name), help="a socket; its name ends in .method or the like")
    expose.add_argument("--wait", action="store_true", help="wait for the bus and the channel's master, and when they go too")
    expose.add_argument("--value", metavar="LINE", type=checked(_line), help="the first value of a property")
    expose.add_argument("--empty", metavar="LINE", type=checked(_line), help="what an empty request of a rest bus asks")
    signal = _serves(_new("futebus-ubus signal", "futebus-ubus signal [OPTION...] BUS", SIGNAL))
    signal.add_argument("name", metavar="BUS", type=checked(_name), help="a socket to serve")
    connect = _new("futebus-ubus connect", "futebus-ubus connect [OPTION...] BUS", CONNECT)
    connect.add_argument("name", metavar="BUS", type=checked(_name), help="a socket to connect to")
    connect.add_argument("--reconnect", action="store_true", help="connect again when the service ends, and send whole lines")
    return {"": script, "expose": expose, "signal": signal, "connect": connect}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it has ended as it was told, 1 if something went wrong, 2 for wrong arguments.
    """
    words = sys.argv[1:] if arguments is None else arguments
    known = parsers()
    use = words[0] if words and words[0] in known and words[0] else ""
    parser = known[use]
    given = vars(parser.parse_args(words[bool(use) :]))
    if "--" not in words:
        _check_first(parser, given.get("names", []), [name for name in known if name])
    if given.get("name", "").startswith("./"):
        absolute("futebus-ubus", given["name"])
    endings = Endings()
    open_standard()

    from futebus.gateways.life import Life

    run = {"": _script, "expose": _expose, "signal": _signal, "connect": _connect}[use]
    is_quiet = given.pop("quiet", False)
    start = run(parser, given)
    _have_many_files()
    life = Life("futebus-ubus", is_quiet=is_quiet, endings=endings)
    return life.live(lambda: start(life))


def _check_first(parser: Parser, names: list[str], uses: list[str]) -> None:
    """Refuses a first BUS that somebody means for a sub-command: it would be served, and all that follows with it."""
    # A directory or a kind, which names of sockets have, is more than a slip of the finger.
    if not names or not names[0].isalpha():
        return
    import difflib

    for near in difflib.get_close_matches(names[0], uses, n=1):
        parser.error(
            f"did you mean {near}? A BUS that is called {names[0]} is ./{names[0]}, or behind --"
            if near != names[0]
            else f"{near} comes first, and options behind it"
        )


Start = Callable[[Any], Awaitable[object]]


def _expose(parser: Parser, given: dict[str, Any]) -> Start:
    from futebus.gateways.ubus.expose import Exposing, check, expose
    from futebus.gateways.ubus.places import Kind

    try:
        kind = check(given["channel"], given["name"])
    except ValueError as error:
        parser.error(str(error))
    if "value" in given and kind is not Kind.PROPERTY:
        parser.error("--value is for a property only")
    if "empty" in given and kind is not Kind.REST:
        parser.error("--empty is for a rest bus only")
    channel = absolute("futebus-ubus", given.pop("channel"))
    what = Exposing(channel, given.pop("name"), waits=given.pop("wait", False), **given)
    return lambda life: expose(life, what)


def _script(parser: Parser, given: dict[str, Any]) -> Start:
    from futebus.gateways.ubus.script import Script

    names = given.pop("names", [])
    return lambda life: Script(life, **given).run(names)


def _signal(parser: Parser, given: dict[str, Any]) -> Start:
    from futebus.gateways.ubus.broadcasting import Broadcasting

    return lambda life: Broadcasting(life, **given).run()


def _connect(parser: Parser, given: dict[str, Any]) -> Start:
    from futebus.gateways.ubus.connecting import Connecting

    reconnects = given.pop("reconnect", False)
    return lambda life: Connecting(life, **given, reconnects=reconnects).run()


def _have_many_files() -> None:
    """Lets this process have as many open files as it may: each connection is one, or two."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
