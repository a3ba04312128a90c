"""The command `futebus-web`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import importlib.util
import os
import re
import secrets
import stat
import sys
from pathlib import Path
from typing import Any

import futebus
from futebus.commands.arguments import Parser, absolute, checked, fail, missing, open_standard, path, place
from futebus.core.quantities import MOST_PORT, natural

DESCRIPTION = """\
Shows message buses as a web page: what goes on in which channel, who its clients are, what is said on it. It only shows.
See futebus-web(1)."""

EPILOG = """\
Without a MOUNTPOINT it shows all buses that are mounted and can be entered, also those that come later.

examples:
  futebus-web                                  all buses, for browsers of this machine
  futebus-web --port 9000 /mnt/bus             one bus
  curl http://localhost:8383/metrics           for Prometheus"""

COMMAND = "futebus-web"

LEAST_TOKEN = 16
"""Characters. 16 random ones cannot be guessed."""

TOKEN_BYTES = 24


_REACHED = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Where one reaches who listens on all addresses."""

EVERYWHERE = " and on every address of this machine; by a name, if --host NAME says so"


class _NoToken(Exception):
    """Why a file has no token, in one sentence."""


def _port(text: str) -> int:
    if (port := natural(text, MOST_PORT)) is None:
        raise ValueError(f"not a port: {text!r}")
    return port


def _host(text: str) -> str:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", text):
        raise ValueError(f"not the name of a host, or NAME:PORT: {text!r}")
    return text


def _address(text: str) -> str:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not bare or "/" in bare or "[" in bare:
        raise ValueError(f"not an address: {text!r}")
    return bare


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
    made.add_argument("-p", "--port", metavar="N", type=checked(_port), default=8383, help="where to listen (8383)")
    made.add_argument(
        "-l", "--listen", metavar="ADDRESS", type=checked(_address), action="append", default=[], help="where (127.0.0.1 and ::1)"
    )
    made.add_argument(
        "--host", metavar="NAME", type=checked(_host), action="append", default=[], help="another name that browsers have for it"
    )
    made.add_argument("--private", action="store_true", help="ask for the token for everything, not for messages only")
    made.add_argument("--token-file", metavar="FILE", type=checked(path), help="where the token is; else one is made and printed")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    made.add_argument("-V", "--version", action="version", version=f"{COMMAND} {futebus.__version__}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it was ended by a signal, 1 if it could not go on, 2 for wrong arguments.
    """
    given = parser().parse_args(arguments)
    for name in ("hypercorn", "starlette"):
        if importlib.util.find_spec(name) is None:
            return missing(COMMAND, f"the module {name} is missing", "view", "hypercorn[trio]", "starlette")
    open_standard()
    try:
        token = _read_token(given.token_file) if given.token_file else secrets.token_urlsafe(TOKEN_BYTES)
    except _NoToken as error:
        return fail(COMMAND, f"{given.token_file}: {error}")

    from futebus.view.web.server import WebError, listen

    try:
        listeners = listen(given.listen, given.port)
    except WebError as error:
        return fail(COMMAND, str(error))
    return _serve(given, listeners, token)


def _serve(given: argparse.Namespace, listeners: list[Any], token: str) -> int:
    from functools import partial

    from futebus.gateways.life import Life
    from futebus.view.web.security import LOCALHOST, is_own_name, rules_for
    from futebus.view.web.server import address_of, has_localhost, is_own, is_unspecified
    from futebus.view.web.serving import serve

    life = Life(COMMAND, is_quiet=given.quiet)
    port = listeners[0].getsockname()[1]
    addresses = [address_of(listener) for listener in listeners]
    is_for_all = not all(map(is_own, listeners))
    is_everywhere = any(map(is_unspecified, listeners))
    is_localhost = has_localhost(listeners)
    # A name that leads to somebody else too would tell him the token.
    reached = [_REACHED.get(address, address) for address in addresses]
    name = LOCALHOST if is_localhost and (is_everywhere or not is_for_all) else reached[0]
    if is_for_all:
        name = next((host for host in given.host if is_localhost or not is_own_name(host)), name)
    page = f"http://{name}/" if name in given.host and ":" in name.rpartition("]")[2] else f"http://{name}:{port}/"
    # Who gives it a name that is not this machine's own has a proxy before it, through which others come.
    is_private = given.private or is_for_all or not all(map(is_own_name, given.host))

    def ready() -> None:
        if not given.token_file:
            # Not in what is told the service manager: everybody can ask that.
            what = "everything" if is_private else "messages too"
            life.say(f"the page with its token, which shows {what}: {page}#token={token}")
        life.ready(f"the page is on {page}{EVERYWHERE if is_everywhere else ''}")

    rules = rules_for(port, addresses, given.host, token, is_private=is_private, has_localhost=is_localhost)
    mountpoints = [absolute(COMMAND, path) for path in given.mountpoints]
    return life.live(partial(serve, mountpoints, listeners, rules, ready, life.warn))


def _read_token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(4097)
    except OSError as error:
        raise _NoToken(error.strerror or str(error)) from None
    if stat.S_ISREG(mode) and mode & 0o007:
        raise _NoToken("everybody may read it, or write it; chmod 600 keeps it")
    token = text.strip().decode("ascii", "replace")
    if not LEAST_TOKEN <= len(token) <= 4096 or not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise _NoToken(f"a token is one line of {LEAST_TOKEN} or more letters, digits, and any of ._~+/=-")
    return token


if __name__ == "__main__":
    sys.exit(main())
