"""The command `futebus-tmb`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import futebus
from futebus.commands.arguments import Parser, absolute, checked, fail, missing, open_standard, path, permissions
from futebus.core.quantities import MOST_PORT, count, natural, size
from futebus.host.signals import Endings

if TYPE_CHECKING:
    from futebus.gateways.life import Life

DESCRIPTION = """\
A Text Message Bus on a channel of a futebus: a TCP server whose clients send messages such as ":/upper/shape square", and get
those of the categories that they subscribe to. Their messages go to the B channel, and what is said there goes to them.
See futebus-tmb(1)."""

EPILOG = """\
SIZE may end in K, M, G or T (1024 and its powers). ADDRESS may be a name, an IPv4 address, an IPv6 address in brackets, or *
for all of this machine.

examples:
  futebus-tmb /mnt/bus/B_shapes                       for this machine, on the first free port from 4711 to 4720
  futebus-tmb -l '*:4711' /mnt/bus/B_shapes           for everybody who reaches this machine
  telnet localhost 4711                               be a client: s 1 r . subscribes to everything"""

COMMAND = "futebus-tmb"

LEAST_QUEUE = 4096
"""The shortest queue that is worth its name: a few lines."""


def _queue(text: str) -> int:
    length = size(text)
    if length < LEAST_QUEUE:
        raise ValueError(f"from 4K on, not {text}")
    return length


def _line(text: str) -> int:
    length = size(text)
    if not 256 <= length <= 1 << 30:
        raise ValueError(f"from 256 to 1G, not {text}")
    return length


def address(text: str) -> tuple[str | None, int | None]:
    """Reads `ADDRESS:PORT`, or either of them: where to listen, and the port. Without an address it is this machine's own.

    Returns:
        The address, None for all of them; the port, None for the first that is free.

    Raises:
        ValueError: it is none.
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not an address and a port: {text!r}")
        port = rest[1:]
        has_port = bool(rest)
    else:
        host, colon, port = text.rpartition(":")
        if ":" in host:
            raise ValueError(f"an IPv6 address goes in brackets, as in [::1]:4711: {text!r}")
        has_port = bool(colon)
        if not has_port:
            host, port = text, ""
            if text.isdecimal():
                raise ValueError(f"a port goes behind a colon, as in :4711: {text!r}")
    number = natural(port, MOST_PORT)
    if (has_port and number is None) or not (host or port):
        raise ValueError(f"not an address and a port: {text!r}")
    return (None if host == "*" else host or "127.0.0.1"), number


def _port(text: str) -> None:
    """Refuses an option that others have, and this has not: the port alone would be taken for the channel."""
    raise ValueError(f"it is --listen that takes the port: -l :{text}")


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog=COMMAND,
        usage=f"{COMMAND} [OPTION...] CHANNEL",
        description=DESCRIPTION,
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
    )
    made.add_argument("channel", metavar="CHANNEL", type=checked(path), help="a B channel of a mounted bus; it is created")
    made.add_argument(
        "-l", "--listen", metavar="ADDRESS:PORT", type=checked(address), help="where to listen (127.0.0.1, 4711 to 4720)"
    )
    made.add_argument("-p", "--port", metavar="PORT", type=checked(_port), help=argparse.SUPPRESS)
    made.add_argument("--wait", action="store_true", help="wait for a bus that is not there or has gone")
    made.add_argument("--mode", metavar="OCTAL", type=checked(permissions), help="permissions of the channel, if it is created")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    made.add_argument("-V", "--version", action="version", version=f"{COMMAND} {futebus.__version__}")
    limits = made.add_argument_group("limits")
    limits.add_argument("--max-clients", metavar="COUNT", dest="clients", type=checked(count), help="clients (256)")
    limits.add_argument(
        "--max-clients-per-address",
        metavar="COUNT",
        dest="clients_per_address",
        type=checked(count),
        help="clients of one address (64; of this machine, as many as there may be)",
    )
    limits.add_argument(
        "--max-subscriptions", metavar="COUNT", dest="subscriptions", type=checked(count), help="subscriptions of a client (64)"
    )
    limits.add_argument("--max-line", metavar="SIZE", dest="line", type=checked(_line), help="length of a client's line (64K)")
    limits.add_argument("--max-queue", metavar="SIZE", dest="queue", type=checked(_queue), help="bytes that wait for one (4M)")
    tls = made.add_argument_group("TLS")
    tls.add_argument("--tls-cert", metavar="FILE", type=checked(path), help="speak TLS only, with this certificate (PEM)")
    tls.add_argument("--tls-key", metavar="FILE", type=checked(path), help="the certificate's key, if it is not in the same file")
    tls.add_argument(
        "--tls-client-ca", metavar="FILE", type=checked(path), help="let in only whose certificate this authority has signed"
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it was ended by a signal, 1 if it could not go on, 2 for wrong arguments.
    """
    command = parser()
    given = vars(command.parse_args(arguments))
    for option in ("tls_key", "tls_client_ca"):
        if option in given and "tls_cert" not in given:
            command.error(f"--{option.replace('_', '-')} wants --tls-cert")
    name = given["channel"].name
    if name[:1] != "B":
        command.error(f"{given['channel']}: a B channel, please: its name begins with B")
    if importlib.util.find_spec("re2") is None:
        return missing(COMMAND, "the module re2 is missing", "gateways", "google-re2")
    endings = Endings()  # before what takes its time to be imported
    open_standard()

    from futebus.gateways.life import GatewayError, Life

    life = Life(COMMAND, is_quiet="quiet" in given, endings=endings)
    try:
        return _serve(given, life)
    except GatewayError as error:
        return fail(COMMAND, str(error))


def _serve(given: dict[str, Any], life: "Life") -> int:
    from futebus.gateways.tmb.server import HOST, PORTS, Limits, Server
    from futebus.gateways.tmb.tls import context

    host, port = given.get("listen", (HOST, None))
    tls = None
    if "tls_cert" in given:
        tls = context(given["tls_cert"], given.get("tls_key"), given.get("tls_client_ca"))
    named = ("clients", "clients_per_address", "subscriptions", "line", "queue")
    limits = Limits(**{name: given[name] for name in named if name in given})
    path = absolute(COMMAND, given["channel"])

    async def serve() -> None:
        server = Server(path, life, limits, mode=given.get("mode"), waits="wait" in given)
        await server.run(host, PORTS if port is None else [port], tls)

    return life.live(serve)


if __name__ == "__main__":
    sys.exit(main())
