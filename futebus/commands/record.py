"""The command `futebus-record`: arguments and exit status. Imports the rest late, so that --help is instant."""

import argparse
import contextlib
import errno
import functools
import importlib.util
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

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
    path,
    permissions,
)
from futebus.commands.servers import ACCESS, STREAM, add_access, add_stream, check_stream, gathered, wanted
from futebus.core.kinds import has_master
from futebus.core.quantities import UNITS, seconds, size
from futebus.core.text import printable

LEAST_SEGMENT_BYTES = 1 << 20
"""The shortest segment that one read of a channel is sure to fit into."""

SEGMENTS_KEPT = 8
"""Of how many segments, if they do not get too short, what --keep-bytes asks for consists: lines are removed by the segment."""

LEAST_KEPT_BYTES = 128 << 10
"""How short they get for that. A disk that has hardly room for twice what is to be kept would be full for good otherwise."""

DESCRIPTION = """\
Records a channel of a futebus: takes every line that it gets into a spool, a directory on a disk, until it is ended by Ctrl-C
or SIGTERM. It becomes the master of a U or S channel, so that nothing written there is lost; of an A or B channel it is a reader
like others. Or shows what a spool has. See futebus-record(1)."""

EPILOG = """\
SIZE may end in K, M, G or T (1024 and its powers), AGE in s, m, h or d. PLACE is the number of a line (-100: the last hundred),
an AGE, or a time such as 2026-11-21T12:00 (local time, unless Z or +01:00 follows).

examples:
  futebus-record /mnt/bus/U_jobs jobs                         record, and see that writers lose nothing
  futebus-record --keep-bytes 10G /mnt/bus/B_log log          keep the newest 10 GiB
  futebus-record --to nats://host/JOBS/jobs /mnt/bus/U_jobs jobs  and have all of it in a stream of NATS
  futebus-record --info jobs                                  a summary
  futebus-record --print jobs --from 10m                      the lines of the last ten minutes
  futebus-record --print jobs --follow | grep error           all of them, and those to come
  futebus-record --print jobs --from -1000 > /mnt/bus/B_again the last thousand, said again"""

DISK = (errno.EDQUOT, errno.EIO, errno.ENOSPC)
"""What goes wrong with a spool's disk, also when the system names no file."""

PROGRESS_SECONDS = 0.3
"""How often it is shown how far the lines have come; what is done sooner shows nothing."""

COMMAND = "futebus-record"

RECORDS = ("master", "mode", "spool_mode", "keep_bytes", "keep_age", "segment_bytes", "sync", "quiet", *ACCESS, *STREAM)
"""The options that are for recording only."""

PRINTS = ("begin", "follow")


def _segment_size(text: str) -> int:
    length = size(text)
    if not LEAST_SEGMENT_BYTES <= length <= 1 << 30:
        raise ValueError(f"from 1M to 1G, not {text}")
    return length


def _sync(text: str) -> float | None:
    if text == "none":
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, and not none") from None


def _spool_mode(text: str) -> int:
    from futebus.spool.files import check_mode

    mode = permissions(text)
    check_mode(mode)
    return mode


def _place(text: str) -> Any:
    """Reads where in a spool (a `show.Place`): a line, so long ago, or a moment, local time without a zone."""
    import datetime

    if text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal():
        with contextlib.suppress(ValueError):  # thousands of digits, which Python refuses to read
            return int(text)
    else:
        with contextlib.suppress(ValueError, OverflowError):
            if text[-1:] in UNITS:
                return datetime.timedelta(seconds=seconds(text))
        with contextlib.suppress(ValueError, OverflowError):
            return datetime.datetime.fromisoformat(text).astimezone()
    raise ValueError(f"not the number of a line (1234, -100), an age (10m) or a time (2026-11-21T12:00:00): {text!r}")


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog=COMMAND,
        usage="futebus-record [OPTION...] [--to URL] CHANNEL SPOOL\n"
        "       futebus-record --print SPOOL [--from PLACE] [--to PLACE] [--follow]\n"
        "       futebus-record --info SPOOL",
        description=DESCRIPTION,
        epilog=EPILOG,
        argument_default=argparse.SUPPRESS,
    )
    made.add_argument(
        "paths", metavar="CHANNEL SPOOL", nargs="*", type=checked(path), help="a channel of a mounted bus, and a directory"
    )
    made.add_argument("-V", "--version", action="version", version=f"futebus-record {futebus.__version__}")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong in the recorder itself")
    made.add_argument("--to", metavar="URL", dest="end", help="publish in a stream: nats://SERVER/STREAM/SUBJECT; or see below")
    what = made.add_argument_group("what to record")
    role = what.add_mutually_exclusive_group()
    role.add_argument("--master", action="store_true", dest="master", help="become the master of a U or S channel (the default)")
    role.add_argument("--slave", action="store_false", dest="master", help="listen to what the master of a U or S channel says")
    what.add_argument("--mode", metavar="OCTAL", type=checked(permissions), help="permissions of a channel that is created")
    kept = made.add_argument_group("what to keep")
    kept.add_argument("--keep-bytes", metavar="SIZE", type=checked(size), help="at least so many bytes of the newest lines")
    kept.add_argument(
        "--keep-age", metavar="AGE", type=checked(seconds), help="lines until they are so old, and up to twice as long"
    )
    kept.add_argument("--segment-bytes", metavar="SIZE", type=checked(_segment_size), help="length of the spool's files (64M)")
    kept.add_argument(
        "--spool-mode", metavar="OCTAL", type=checked(_spool_mode), help="permissions of a spool that is made (700)"
    )
    kept.add_argument("--sync", metavar="AGE", type=checked(_sync), help="how long lines may wait for the disk (1s; 0; none)")
    shown = made.add_argument_group("what to show")
    mode = shown.add_mutually_exclusive_group()
    mode.add_argument("--print", metavar="SPOOL", dest="printed", type=checked(path), help="print a spool's lines")
    mode.add_argument("--info", metavar="SPOOL", dest="described", type=checked(path), help="print a summary of a spool")
    shown.add_argument("--from", metavar="PLACE", dest="begin", type=checked(_place), help="begin there")
    shown.add_argument("-f", "--follow", action="store_true", help="go on and wait for new lines; --to PLACE: end before that")
    add_access(made)
    add_stream(made, "the subject was another spool's, which is lost: go on behind it")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it has ended as it was told, 1 if something went wrong, 2 for wrong arguments.
    """
    command = parser()
    given = vars(command.parse_args(arguments))
    shows = "printed" in given or "described" in given
    paths = given.get("paths", [])
    shown = {*PRINTS, "end"} if "described" in given else ()
    wrong = sorted(set(given) & {*(RECORDS if shows else PRINTS), *shown})
    if wrong:
        what = "does not go with --print or --info" if shows and wrong[0] in RECORDS else "is for --print only"
        if "://" in str(given.get(wrong[0], "")):
            what = "with a URL is for recording only"
        command.error(f"{_option(wrong[0])} {what}")
    if shows and paths:
        command.error(f"one spool, please, and not {' '.join(map(str, paths))} too")
    if not shows and len(paths) != 2:
        command.error(f"a channel and a spool, please, and not {len(paths)} names")
    if "end" in given and "follow" in given:
        command.error("--to and --follow exclude each other")
    if "end" in given:
        try:
            given["end"] = _place(given["end"]) if shows else _stream(given["end"])
        except ValueError as error:
            command.error(f"argument --to: {error}")
        if not shows:
            check_stream(command, given, given["end"].subject)
    elif wrong := sorted(set(given) & {*ACCESS, *STREAM}):
        command.error(f"{_option(wrong[0])} is of use with --to only")

    if not shows and "end" in given and importlib.util.find_spec("nats") is None:
        return missing(COMMAND, "the module nats is missing", "hosts", "'nats-py[nkeys]'")

    is_mute = is_closed(1)
    open_standard()
    if shows and is_mute:
        return fail_to_print(COMMAND)

    from futebus.nats.errors import NatsError
    from futebus.recorder.channel import ChannelError
    from futebus.spool import SpoolError

    try:
        return _show(given) if shows else _record(given)
    except (ChannelError, NatsError, SpoolError) as error:
        words = str(error)
    except OSError as error:
        spool = given.get("printed") or given.get("described") or paths[1]
        where = error.filename or (spool if error.errno in DISK else "")
        words = f"{where}: {error.strerror}" if where else str(error.strerror)
    if shows:
        return fail(COMMAND, words)
    _say(words)  # no signal ends a recorder any more that would wait until somebody reads it
    return FAILED


def _stream(text: str) -> Any:
    from futebus.nats.address import read_stream

    return read_stream(text, has_subject=True)


def _target(given: dict[str, Any]) -> Any:
    """Where lines are to be published (a `target.Target`).

    Raises:
        NatsError: what is told of servers and access is of no use.
    """
    from futebus.recorder.target import Target

    servers, access = gathered(given)
    address = given["end"]
    if not address.servers:
        address = address._replace(servers=servers)
    return Target(address, access, wanted(given, address.subject)._replace(is_published=True), "take_over" in given)


def _option(name: str) -> str:
    names = {"begin": "from", "end": "to", "master": "master or --slave"}
    return "--" + names.get(name, name).replace("_", "-")


def _show(given: dict[str, Any]) -> int:
    from futebus.recorder.show import replay, summary, write

    # Ended as cat(1) is by a closed pipe and by Ctrl-C: without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "described" in given:
        # Names are in UTF-8 there, as they are on the bus, whatever the locale is.
        write(sys.stdout.fileno(), memoryview(summary(given["described"]).encode()))
    else:
        follows = "follow" in given
        with _progress(is_wanted=not follows) as note:
            replay(given["printed"], given.get("begin"), given.get("end"), follows, note)
    return OK


@contextlib.contextmanager
def _progress(*, is_wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """Shows on the terminal how far the lines have come, if they go to a file. Behind a pipe there may be less(1)."""
    from futebus.core.text import progress
    from futebus.host.terminal import Terminal

    begin = shown = time.monotonic()
    is_shown = is_wanted and sys.stderr.isatty() and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    terminal = Terminal(COMMAND, is_quiet=not is_shown)

    def note(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= PROGRESS_SECONDS:
            shown = now
            terminal.status(progress(done, total, now - begin, "line"))

    try:
        yield note
    finally:
        terminal.clear()


def _record(given: dict[str, Any]) -> int:
    from futebus.host.mounted import is_bus
    from futebus.host.service import ServiceManager
    from futebus.recorder.channel import ChannelError, check_channel
    from futebus.recorder.holder import Holder, RecordError
    from futebus.recorder.recording import Recording
    from futebus.spool import OWN_MODE, SpoolError
    from futebus.spool.layout import SEGMENT_BYTES

    channel, spool = (absolute(COMMAND, path) for path in given["paths"])
    check_channel(channel, is_master=False)
    if "master" in given and not has_master(channel.name):
        raise ChannelError(f"{channel}: only U and S channels have a master, and slaves")
    if is_bus(spool) or is_bus(spool.parent):
        raise SpoolError(f"{spool} is on a bus; the last argument is the spool, a directory on a disk")
    keep_bytes = given.get("keep_bytes")
    segment_bytes = (
        SEGMENT_BYTES if keep_bytes is None else max(min(SEGMENT_BYTES, keep_bytes // SEGMENTS_KEPT), LEAST_KEPT_BYTES)
    )
    recording = Recording(
        channel=channel,
        spool=spool,
        is_master=given.get("master", has_master(channel.name)),
        mode=given.get("mode"),
        segment_bytes=given.get("segment_bytes", segment_bytes),
        keep_bytes=keep_bytes,
        keep_age=given.get("keep_age"),
        sync=given.get("sync", 1.0),
        spool_mode=given.get("spool_mode", OWN_MODE),
        to=_target(given) if "end" in given else None,
    )

    def say(words: str) -> None:
        if "quiet" not in given:
            _say(words)

    _sayer()  # there may be no descriptor to load it with when something is wrong
    try:
        Holder(recording, say, _say, ServiceManager()).run()
    except RecordError:
        return FAILED
    return OK


def _say(words: str) -> None:
    _sayer().say(COMMAND, printable(words), sys.stderr.encoding)


@functools.cache
def _sayer() -> Any:
    from futebus.recorder.saying import Sayer

    return Sayer(2)


if __name__ == "__main__":
    sys.exit(main())
