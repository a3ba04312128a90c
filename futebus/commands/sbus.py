"""The command `futebus-sbus`: sbusd's arguments, read as it reads them, and some more. Imports the rest late."""

import argparse
import contextlib
import errno
import logging
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import futebus
from futebus.commands.arguments import FAILED, OK, Parser, absolute, checked, fail, open_standard, path
from futebus.core.quantities import MOST_ID, count, natural, seconds, size
from futebus.core.text import reason
from futebus.host.signals import Endings, fork, wait_readable

ADDRESS = "/run/sbus.socket"
PIDFILE = "/run/sbus.pid"
"""Defaults of sbusd."""

DESCRIPTION = """\
Serves an sbus, a message bus with routing keys, to the programs that use libsbus. With --channel, a B channel of a futebus is
joined to it: what clients send are lines there (KEY, a TAB, the payload), and its lines are messages for them. See
futebus-sbus(1)."""

EPILOG = """\
ADDRESS is a path, /dev/fd/N, /dev/unix/abstract/HEX, or /dev/unix/abstract, for which one is chosen and printed. Short options
are read as sbusd reads them: -faADDRESS, -cr. SIZE may end in K, M, G or T, TIME in s, m,
h or d.

examples:
  futebus-sbus                                                in the background, on /run/sbus.socket
  futebus-sbus -fra bus.socket                                in the foreground
  futebus-sbus -fa bus.socket --channel /mnt/bus/B_sbus --wait
  echo 'door/front	open' > /mnt/bus/B_sbus               a message for who has subscribed to door/"""

FLAGS, VALUED = "cfgor", "apu"
"""The options of sbusd: alone, and with a value."""


def parser(name: str) -> Parser:
    """The command's arguments.

    Args:
        name: what it is called.
    """
    made = Parser(
        prog=name,
        usage=f"{name} [-a ADDRESS] [-f | -p PIDFILE] [-u USER]... [-cgor] [--channel CHANNEL [--wait]] [OPTION...]",
        description=DESCRIPTION,
        epilog=EPILOG,
        takes_last=True,  # as sbusd, which reads its options with getopt(3)
    )
    made.add_argument("-V", "--version", action="version", version=f"{name} {futebus.__version__}")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    old = made.add_argument_group("as sbusd")
    old.add_argument("-a", metavar="ADDRESS", dest="address", default=ADDRESS, help=f"where to listen ({ADDRESS})")
    old.add_argument("-c", dest="ends", action="store_true", help="end with the last client")
    old.add_argument("-f", dest="foreground", action="store_true", help="stay in the foreground")
    old.add_argument("-g", dest="group", action="store_true", help="let the socket's group connect")
    old.add_argument("-o", dest="others", action="store_true", help="let everybody else connect")
    old.add_argument(
        "-p", metavar="PIDFILE", dest="pidfile", default=PIDFILE, help=f"write the process ID there ({PIDFILE}; /dev/null)"
    )
    old.add_argument("-r", dest="replaces", action="store_true", help="remove whatever is at the path")
    old.add_argument(
        "-u", metavar="USER", dest="users", action="append", default=[], help="let only such users connect, and who serves"
    )
    new = made.add_argument_group("a channel")
    new.add_argument("--channel", metavar="CHANNEL", type=checked(path), help="a B channel of a mounted bus to join")
    new.add_argument("--wait", action="store_true", help="wait for the bus if it is not there, or goes")
    limits = made.add_argument_group("limits")
    limits.add_argument("--max-clients", metavar="N", type=checked(count), help="clients (4096)")
    limits.add_argument("--max-clients-per-user", metavar="N", type=checked(count), help="of one user, not root (1024)")
    limits.add_argument("--max-queue", metavar="N", type=checked(count), help="messages that wait for a client (65536)")
    limits.add_argument("--max-queue-bytes", metavar="SIZE", type=checked(size), help="and their bytes (4M)")
    limits.add_argument("--max-subscriptions", metavar="N", type=checked(count), help="patterns of a client (16384)")
    limits.add_argument(
        "--patience",
        metavar="TIME",
        type=checked(seconds),
        help="how long others wait for who asks for it and takes nothing (30s)",
    )
    return made


def plain(arguments: list[str]) -> list[str]:
    """Short options as argparse cannot mistake them: sbusd takes whatever follows `-a` for its value.

    Args:
        arguments: as they are given.

    Returns:
        The same options, each with its value by `=` and by its long name where it has one.
    """
    made: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") or not word.startswith("-") or word == "-":
            made.append(word)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            made.append(f"-{letter}")
            if letter in VALUED and (letters or rest):
                made[-1] = f"-{letter}={letters or rest.pop(0)}"
                break
    return made


def read(arguments: list[str], name: str) -> argparse.Namespace:
    """Reads the arguments. Ends the program if they are wrong.

    Args:
        arguments: without the name.
        name: what the command is called.
    """
    command = parser(name)
    given: argparse.Namespace = command.parse_args(plain(arguments))
    users = {_user(command, text) for text in given.users}
    given.users = frozenset(users | {os.getuid()} if users else users)
    if given.wait and given.channel is None:
        command.error("--wait is for the bus of a --channel")
    if given.channel is not None:
        from futebus.client.channel import way_to

        try:
            given.channel = way_to(absolute(name, given.channel), "B", "--channel")
        except ValueError as error:
            command.error(str(error))
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it has ended as it was told, or serves in the background; 1 if it could not, 2 for wrong arguments.
    """
    name = "sbusd" if Path(sys.argv[0]).name == "sbusd" else "futebus-sbus"
    given = read(sys.argv[1:] if arguments is None else arguments, name)
    open_standard()  # not before: a help that nobody gets is none
    # Whoever starts an sbusd expects to end it so, also from a script that has it in its background.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    endings = Endings()
    pidfile = None if given.foreground or given.pidfile == os.devnull else absolute(name, given.pidfile)

    from futebus.gateways.sbus.address import Address, BadAddress

    try:
        address = Address(given.address, 0o700 | 0o070 * given.group | 0o007 * given.others, replaces=given.replaces)
    except BadAddress as error:
        return fail(name, str(error))
    if address.told:
        try:
            os.write(1, os.fsencode(address.told + "\n"))  # in one piece: whoever has started this may read once
        except OSError as error:
            address.close()
            return fail(name, f"standard output: {error.strerror}")
    if given.foreground:
        if given.channel is not None and not given.wait:
            return _serve(name, given, address, endings, _close_standard)
        # They can connect from now on, and who waits for that is impatient: the original is as quick as a program in C is.
        _close_standard()
        return _serve(name, given, address, endings, lambda: None)
    return _in_background(
        name, given, address, pidfile, endings, lambda on_ready: _serve(name, given, address, endings, on_ready)
    )


def _user(command: Parser, text: str) -> int:
    """A user ID, by number or by name."""
    import pwd

    if (number := natural(text, MOST_ID)) is not None:
        return number
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        command.error(f"there is no user {text}")


def _serve(name: str, given: argparse.Namespace, address: Any, endings: Endings, on_ready: Callable[[], object]) -> int:
    from futebus.gateways.life import Life
    from futebus.gateways.sbus.limits import Limits
    from futebus.gateways.sbus.service import Settings, serve

    chosen = {field: getattr(given, field) for field in Limits._fields if getattr(given, field) is not None}
    settings = Settings(
        limits=Limits()._replace(**chosen), users=given.users, ends=given.ends, channel=given.channel, waits=given.wait
    )
    try:
        return serve(address, settings, Life(name, is_quiet=given.quiet, endings=endings), on_ready)
    finally:
        address.close()


def _close_standard() -> None:
    """Whoever has started this waits for the end of its output."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _in_background(
    name: str,
    given: argparse.Namespace,
    address: Any,
    pidfile: Path | None,
    endings: Endings,
    serve: Callable[[Callable[[], object]], int],
) -> int:
    """Runs `serve` in a child that goes on once it has said that it is ready. Until then its words and its status are ours.

    It has no stderr of its own: whoever has started this may wait for the end of that.
    """
    ready, say_ready = os.pipe()
    words, say = os.pipe()
    child = fork()
    if child:
        os.close(say_ready)
        os.close(say)
        endings.on_first(lambda: _end(child))  # what ends this ends that, until it is ready
        wait_readable(ready)
        is_ready = bool(os.read(ready, 1))
        os.set_blocking(words, not is_ready)
        with contextlib.suppress(OSError):
            while said := os.read(words, 4096):
                os.write(2, said)
        if is_ready:
            return OK
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status if status > 0 else OK if endings.first else FAILED
    os.close(ready)
    os.close(words)
    os.dup2(say, 2)
    os.close(say)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def on_ready() -> None:
        from futebus.host.logs import to_syslog

        to_syslog(f"sbus on {address.told or address.text}", logging.WARNING if given.quiet else logging.INFO)
        _close_standard()
        os.dup2(1, 2)
        os.write(say_ready, b"!")
        os.close(say_ready)

    status = FAILED
    written = False
    try:
        if pidfile is not None:
            write_pid(pidfile)
            written = True
        os.chdir("/")
        status = serve(on_ready)
    except OSError as error:
        fail(name, reason(error))
        address.close()
    finally:
        if pidfile is not None and written:
            with contextlib.suppress(OSError):
                if _pid_in(pidfile) == os.getpid():  # another one's may be there by now
                    pidfile.unlink()
    return status


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def _pid_in(path: Path) -> int | None:
    """The process ID in a file; None if it is empty.

    Raises:
        OSError: it cannot be read, or is no such file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        data = os.read(descriptor, 20).strip()
    finally:
        os.close(descriptor)
    if data and not data.isdigit():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return int(data) if data else None


def write_pid(path: Path) -> None:
    """Writes the own process ID to a file, which must not be there. One that a process which is gone has left is replaced.

    Raises:
        OSError: it cannot be written.
    """
    from futebus.host.processes import is_alive

    with contextlib.suppress(OSError):
        pid = _pid_in(path)
        if pid is None or not is_alive(pid):
            path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, b"%d\n" % os.getpid())
    except OSError as error:
        path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
