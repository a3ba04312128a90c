"""The command `futebus`: arguments, exit status, foreground and background. Imports the rest late, so that --help is instant."""

import argparse
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import futebus

OK, FAILED, USAGE = 0, 1, 2

SYSLOG = "/dev/log"

DESCRIPTION = """\
Mounts a text message bus on a directory. Every file in it is a channel, every line written to a channel a message, and the
first letter of a channel's name says who gets it: U one-to-many with a master, A addressed many-to-many, S a service with
addressed slaves, B broadcast. See futebus(7)."""

EPILOG = """\
options of a bus (-o), with their defaults:
  max_message=262144        bytes of a message, its newline included
  max_queue=65536           messages that wait for one client
  max_queue_bytes=4194304   bytes that wait for one client
  max_clients=16384         clients on the bus
  max_clients_per_user=4096 clients of one user other than root
  max_channels=4096         channels on the bus
  mode=1777 uid= gid=       of the directory; the owner is who mounts
  bulk                      every client reads many messages at once
and FUSE's: allow_other, allow_root, auto_unmount, fsname=NAME ...

examples:
  futebus /mnt/bus                            mount a bus
  touch /mnt/bus/B_log; cat /mnt/bus/B_log    subscribe
  echo hello > /mnt/bus/B_log                 publish
  fusermount3 -u /mnt/bus                     end it"""


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong with the arguments, and ends."""
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = Parser(
        prog="futebus",
        usage="futebus [-f] [-d] [-o OPTION[,OPTION...]] [SOURCE] MOUNTPOINT",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("paths", metavar="[SOURCE] MOUNTPOINT", nargs="+", help="the directory; SOURCE is any name, for fstab")
    made.add_argument("-f", "--foreground", action="store_true", help="stay in the foreground, log to stderr")
    made.add_argument("-d", "--debug", action="store_true", help="log what is refused and why")
    made.add_argument("-o", metavar="OPTION[,...]", dest="options", action="append", default=[], help="mount options, see below")
    made.add_argument("-V", "--version", action="version", version=f"futebus {futebus.__version__}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 once the bus is mounted (or, in the foreground, has ended in an orderly way), 1 if it cannot be, 2 for wrong arguments.
    """
    command = parser()
    given = command.parse_args(arguments)
    if len(given.paths) > 2:
        command.error(f"one mount point, please, not {' '.join(given.paths[1:])}")
    source = given.paths[0] if len(given.paths) == 2 else None

    from futebus.fuse.mountpoint import MountError, prepare
    from futebus.fuse.options import OptionError, parse

    logging.basicConfig(stream=sys.stderr, format="futebus: %(message)s", level=logging.WARNING)
    try:
        options = parse(",".join(given.options), source)
        mountpoint = prepare(given.paths[-1])
    except (OptionError, MountError) as error:
        return _fail(error)

    def serve(on_ready: Callable[[], None]) -> int:
        from futebus.fuse.mount import Mounted

        try:
            Mounted(mountpoint, options, on_ready).serve()
        except MountError as error:
            return _fail(error)
        return OK

    level = logging.DEBUG if given.debug else logging.INFO
    if given.foreground:
        logging.getLogger().setLevel(level)
        _quiet_libraries()
        return serve(lambda: logging.getLogger(__name__).info("a bus is mounted on %s", mountpoint))
    return _in_background(serve, mountpoint, level)


def _fail(error: Exception) -> int:
    print(f"futebus: {error}", file=sys.stderr)
    return FAILED


def _quiet_libraries() -> None:
    # pyfuse3's own debug log is one line for each worker task, not for each request.
    logging.getLogger("pyfuse3").setLevel(logging.WARNING)


def _in_background(serve: Callable[[Callable[[], None]], int], mountpoint: str, level: int) -> int:
    """Runs `serve` in a child that goes on once it has said that it is ready. Until then its stderr and status are ours."""
    ready, say_ready = os.pipe()
    child = os.fork()
    if child:
        os.close(say_ready)
        if os.read(ready, 1):
            return OK
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or FAILED
    os.close(ready)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)

    def on_ready() -> None:
        _log_to_syslog(mountpoint, level)
        sys.stderr.flush()
        os.dup2(null, 2)
        os.write(say_ready, b"!")
        os.close(say_ready)

    status = FAILED
    try:
        status = serve(on_ready)
    except BaseException:
        logging.getLogger(__name__).exception("%s: the bus has failed", mountpoint)
    finally:
        logging.shutdown()
        os._exit(status)


def _log_to_syslog(mountpoint: str, level: int) -> None:
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.setLevel(level)
    _quiet_libraries()
    # There may be no system log, or not yet: the handler tries again at each message, and complains nowhere.
    logging.raiseExceptions = False
    handler = logging.handlers.SysLogHandler(SYSLOG, facility=logging.handlers.SysLogHandler.LOG_DAEMON)
    handler.ident = f"futebus[{os.getpid()}]: "
    root.addHandler(handler)
    logging.getLogger(__name__).info("a bus is mounted on %s", mountpoint)


if __name__ == "__main__":
    sys.exit(main())
