"""The command `futebus`: arguments, exit status, foreground and background. Imports the rest late, so that --help is instant."""

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import futebus
from futebus.commands.arguments import FAILED, OK, Parser, fail, open_standard
from futebus.host.signals import ending_signals, wait_readable

if TYPE_CHECKING:
    from futebus.host.service import ServiceManager

READY = "a bus is mounted"

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
  mode=1777 uid= gid=       of the directory; the owner is who serves the bus
  user=NAME                 who serves the bus, if root mounts it
  bulk                      every client reads many messages at once
and FUSE's: allow_other, allow_root, auto_unmount, fsname=NAME ...

examples:
  futebus /mnt/bus                            mount a bus
  touch /mnt/bus/B_log; cat /mnt/bus/B_log    subscribe
  echo hello > /mnt/bus/B_log                 publish
  fusermount3 -u /mnt/bus                     end it"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = Parser(
        prog="futebus",
        usage="futebus [-f] [-d] [-o OPTION[,OPTION...]] [SOURCE] MOUNTPOINT",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    made.add_argument("paths", metavar="[SOURCE] MOUNTPOINT", nargs="*", help="the directory; SOURCE is any name, for fstab")
    made.add_argument("-f", "--foreground", action="store_true", help="stay in the foreground, log to stderr")
    made.add_argument("-d", "--debug", action="store_true", help="log what is refused and why")
    made.add_argument("-o", metavar="OPTION[,...]", dest="options", action="append", default=[], help="mount options, see below")
    made.add_argument("-V", "--version", action="version", version=f"futebus {futebus.__version__}")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 once the bus is mounted (or, in the foreground, has ended in an orderly way), 1 if it cannot be (or has failed), 2 for
        wrong arguments.
    """
    command = parser()
    given = command.parse_args(arguments)
    open_standard()  # not before: a help that nobody gets is none
    if not given.paths:
        command.error("a mount point, please")
    if len(given.paths) > 2:
        command.error(f"one mount point, please, not {' '.join(given.paths[1:])}")
    if not given.paths[-1]:
        command.error("the mount point is empty: was a variable not set?")  # which the kernel would take for this directory
    source = given.paths[0] if len(given.paths) == 2 else None

    from futebus.fuse.mountpoint import BusLost, MountError, prepare
    from futebus.fuse.options import BadOption, parse
    from futebus.host.logs import complain, to_stderr, to_syslog
    from futebus.host.service import ServiceManager

    if given.foreground:
        to_stderr(None, logging.WARNING)
    else:
        logging.basicConfig(stream=sys.stderr, format="futebus: %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who is ignored by who has started this could not be waited for
    try:
        options = parse(",".join(given.options), source)
        mountpoint = prepare(given.paths[-1])
    except (BadOption, MountError) as error:
        complain(str(error))
        return FAILED
    log = logging.getLogger(__name__)

    def serve(on_ready: Callable[[], None], manager: "ServiceManager") -> int:
        try:
            from futebus.fuse.mount import Mounted

            Mounted(mountpoint, options, on_ready, manager).serve()
        except MountError as error:
            complain(str(error))
        except BusLost as error:
            log.error("%s", error)
        except BaseException:
            log.exception("the bus has failed")
        else:
            return OK
        return FAILED

    log_from_here = partial(to_stderr if given.foreground else to_syslog, mountpoint, throttle=not given.debug)
    level = logging.DEBUG if given.debug else logging.INFO
    if given.foreground:
        log_from_here(level)
        return serve(lambda: log.info(READY), ServiceManager())
    # Who goes to the background is not what a service manager has started: the program that has is.
    return _in_background(lambda on_ready: serve(on_ready, ServiceManager({})), lambda: log_from_here(level))


def _in_background(serve: Callable[[Callable[[], None]], int], log_to_syslog: Callable[[], None]) -> int:
    """Runs `serve` in a child that goes on once it has said that it is ready. Until then its stderr and status are ours."""
    ready, say_ready = os.pipe()
    signals = ending_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if child:
        os.close(say_ready)
        return _await_child(child, ready, signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    os.close(ready)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)

    def on_ready() -> None:
        log_to_syslog()
        logging.getLogger(__name__).info(READY)
        sys.stderr.flush()
        os.dup2(null, 2)
        os.write(say_ready, b"!")
        os.close(say_ready)

    status = FAILED
    try:
        status = serve(on_ready)
    finally:
        logging.shutdown()
        os._exit(status)


def _await_child(child: int, ready: int, signals: set[signal.Signals]) -> int:
    """Waits until the child is ready, or has ended. What ends this ends that, until there is a bus."""
    come: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        come.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in signals:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    wait_readable(ready)
    is_ready = os.read(ready, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if is_ready and not come:
        return OK
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if come:
        # As a shell wants to see it of who was interrupted: a script then ends, too.
        signal.signal(come[0], signal.SIG_DFL)
        os.kill(os.getpid(), come[0])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    if status < 0:
        return fail("futebus", f"the process that was to serve the bus was killed by {signal.Signals(-status).name}")
    return status or fail("futebus", "the process that was to serve the bus was told to end before anybody could use it")


if __name__ == "__main__":
    sys.exit(main())
