"""The command `futebus-archive`: arguments, exit status, signals. Imports the rest late, so that --help is instant."""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import futebus
from futebus.commands.arguments import FAILED, OK, Parser, absolute, checked, fail, missing, open_standard, path
from futebus.commands.servers import FILES, add_access
from futebus.core.quantities import count, seconds, size
from futebus.host.signals import end_by, ending_signals

if TYPE_CHECKING:
    from ..archive.order import Order

DESCRIPTION = """\
Archives what channels of a futebus say, or what a stream of NATS has of many hosts: as Parquet files, by channel, date and hour,
each line once, whatever is killed when. An A or B channel is created if it is not there. DIRECTORY is a local directory, or one
of a storage that Spark knows (s3a://..., hdfs://...). Goes on until it is ended by Ctrl-C or SIGTERM. See futebus-archive(1)."""

EPILOG = """\
TIME may end in s, m, h or d; SIZE in K, M, G or T (1024 and its powers).

examples:
  futebus-archive /mnt/bus/B_log /mnt/bus/U_jobs /srv/archive           two channels
  futebus-archive --pattern 'B_.*' /mnt/bus /srv/archive                all broadcast channels, those of later too
  futebus-archive --stats /mnt/bus/B_stats /mnt/bus/B_log /srv/archive  and figures of every ten seconds
  futebus-archive --external --spools /var/spool/futebus /srv/archive   what futebus-record has recorded there
  futebus-archive nats://nats.example/LINES /srv/archive                a stream, or nats://SERVER/STREAM/SUBJECT"""

MASTERS = r"local(-cluster)?\b.*|yarn|(spark|k8s)://.+"
"""Where Spark can run. What else is asked for, it answers with a page; what is in brackets behind `local`, in one line."""

STREAMS = ("nats://", "tls://")
"""What the address of a stream begins with."""

ERRORS = r"(?i)\berror\b|\bfail"

NEEDED = "Spark needs Java 17 or newer, and there is none: apt install openjdk-17-jre-headless, or set JAVA_HOME"


def _interval(text: str) -> float:
    span = seconds(text)
    if not span:
        raise ValueError(f"a time span, and not {text}")
    return span


def _window(text: str) -> float:
    span = seconds(text)
    if span < 1 or span != int(span):
        raise ValueError(f"whole seconds, one at least, not {text}")
    return span


def _length(text: str) -> int:
    length = size(text)
    if not length:
        raise ValueError(f"a number of bytes from 1 on, and not {text}")
    return length


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"not KEY=VALUE: {text!r}")
    return name, value


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {text!r}: {error}") from None
    return text


def _master(text: str) -> str:
    if not re.fullmatch(MASTERS, text, re.DOTALL):
        raise ValueError(f"{text}: not local, local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT")
    return text


def parser() -> Parser:
    """The command's arguments."""
    made = Parser(
        prog="futebus-archive",
        usage="futebus-archive [OPTION...] CHANNEL... DIRECTORY\n"
        "       futebus-archive [OPTION...] --pattern REGEX BUS DIRECTORY\n"
        "       futebus-archive [OPTION...] --external --spools SPOOLS [CHANNEL...] DIRECTORY\n"
        "       futebus-archive [OPTION...] nats://SERVER/STREAM[/SUBJECT] DIRECTORY",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    made.add_argument("paths", metavar="CHANNEL... DIRECTORY", nargs="+", help="channels, or a stream; where the archive is")
    made.add_argument("-V", "--version", action="version", version=f"futebus-archive {futebus.__version__}")
    made.add_argument("-q", "--quiet", action="store_true", help="say only what goes wrong")
    made.add_argument("-d", "--debug", action="store_true", help="pass on what Spark logs; tracebacks")
    what = made.add_argument_group("what to archive")
    what.add_argument("--pattern", metavar="REGEX", type=checked(_pattern), help="channels whose whole names match")
    what.add_argument("--slave", action="store_true", help="of U and S channels: be no master; archive what the master says")
    what.add_argument(
        "--spools", metavar="SPOOLS", type=checked(path), help="directory of the spools (DIRECTORY/_futebus/spools)"
    )
    what.add_argument("--external", action="store_true", help="others (futebus-record) fill the spools")
    what.add_argument("--strict", action="store_true", help="end when lines are lost, rather than say so and go on")
    how = made.add_argument_group("how")
    how.add_argument("--once", action="store_true", help="archive what there is now, and end")
    how.add_argument("--every", metavar="TIME", type=checked(_interval), default=10.0, help="from batch to batch (10s)")
    how.add_argument("--batch-bytes", metavar="SIZE", type=checked(_length), default=512 << 20, help="most of a batch (512M)")
    how.add_argument("--binary", action="store_true", help="values are bytes, rather than text with U+FFFD for what is no UTF-8")
    how.add_argument("--files", metavar="N", type=checked(count), default=4, help="compact hours with more small files (4)")
    how.add_argument(
        "--file-bytes", metavar="SIZE", type=checked(_length), default=128 << 20, help="what a file should get (128M)"
    )
    figures = made.add_argument_group("live figures")
    figures.add_argument("--stats", metavar="CHANNEL", type=checked(path), help="write figures of each channel to this B channel")
    figures.add_argument("--window", metavar="TIME", type=checked(_window), help="of so much time (10s)")
    figures.add_argument("--errors", metavar="REGEX", help=rf"lines that are errors ({ERRORS})".replace("%", "%%"))
    add_access(made)
    spark = made.add_argument_group("Spark")
    spark.add_argument("--master", metavar="URL", type=checked(_master), default="local[*]", help="where it runs (local[*])")
    spark.add_argument("--conf", metavar="KEY=VALUE", type=checked(_setting), action="append", default=[], help="a setting")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0 when it has ended as it was told, 1 if something went wrong, 2 for wrong arguments.
    """
    command = parser()
    given = command.parse_args(arguments)
    open_standard()
    for name in ("window", "errors"):
        if getattr(given, name) is not None and given.stats is None:
            command.error(f"--{name} is for --stats only")
    try:
        import py4j  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        return missing("futebus-archive", f"Spark is not installed ({error.name} is missing)", "spark", "pyspark", "pyarrow")

    from ..host.terminal import Terminal

    if given.paths[0].lower().startswith(STREAMS) and importlib.util.find_spec("nats") is None:
        return missing("futebus-archive", "the module nats is missing", "hosts", "'nats-py[nkeys]'")
    try:
        order = _order(given)
    except _Wrong as error:
        command.error(str(error))
    if not _has_java():
        return fail("futebus-archive", NEEDED)
    import pyspark

    from ..spark.compat import HAS_LIMITS  # (with which Spark is told of this interpreter)

    if not HAS_LIMITS:
        return fail("futebus-archive", f"it needs Spark 4.2 or newer, and this is {pyspark.__version__}")

    from ..archive.order import FAILURES, sentence
    from ..archive.run import Archiving

    terminal = Terminal(command.prog, is_quiet=given.quiet, is_open=given.debug)
    if order.stream is not None:
        from ..archive.streams import StreamArchiving

        archiving: Archiving = StreamArchiving(order, terminal)
    else:
        archiving = Archiving(order, terminal)

    def stop(number: int, frame: FrameType | None) -> None:
        archiving.stop(signal.Signals(number))

    for number in ending_signals():
        signal.signal(number, stop)
    with contextlib.redirect_stderr(terminal):
        try:
            archiving.run()
        except FAILURES as error:
            terminal.say(sentence(error), is_wrong=True)
            if given.debug:
                raise
            return FAILED
    if ending := archiving.cut_short_by:
        end_by(ending)
    return OK


class _Wrong(Exception):
    """What is wrong with the arguments."""


def _order(given: argparse.Namespace) -> "Order":
    """What the arguments ask for.

    Raises:
        _Wrong: they cannot be meant.
    """
    from ..archive.names import unfit
    from ..archive.order import ANY, Order
    from ..host.mounted import is_bus
    from ..recorder.channel import ChannelError, check_channel

    if "" in given.paths:
        raise _Wrong("the empty string is no path")
    *names, root = given.paths
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://?", root)
    if scheme and scheme[1] == "file":
        root, scheme = root[4:].lstrip(":"), None
        root = "/" + root.lstrip("/")
    if scheme is None:
        root = os.path.normpath(_absolute(root))  # (Path.absolute leaves `..`)
        if is_bus(Path(root).parent) or is_bus(Path(root)):
            raise _Wrong(f"{root} is on a bus; the last argument is the directory of the archive")
    bus = pattern = None
    channels: tuple[Path, ...] = ()
    stream: dict[str, Any] = {}
    if any(name.lower().startswith(STREAMS) for name in names):
        stream = _stream(given, names)
    elif told := [f"--{option}" for option in ("context", *FILES) if getattr(given, option.replace("-", "_")) is not None]:
        raise _Wrong(f"{told[0]} is for a stream only, nats://SERVER/STREAM")
    elif given.pattern is not None:
        pattern = given.pattern
        if len(names) != (0 if given.external else 1):
            raise _Wrong(
                f"--pattern goes with one bus and one directory, not {' '.join(given.paths)}"
                if not given.external
                else "--external --pattern goes with one directory"
            )
        bus = _absolute(names[0]) if names else None
    elif given.external and not names:
        pattern = ANY
    elif not names:
        raise _Wrong("channels and a directory, please, and not one name")
    else:
        channels = tuple(map(_absolute, names))
        for channel in channels:
            try:
                check_channel(channel, is_master=False)
            except ChannelError as error:
                raise _Wrong(str(error)) from None
            if why := unfit(channel.name):
                raise _Wrong(f"{channel}: {why}")
            if "," in str(channel):
                raise _Wrong(f"{channel}: a comma in a name cannot be told to Spark; --pattern can match it")
        if len({channel.name for channel in channels}) < len(channels):
            raise _Wrong("two channels of one name need two archives")
    if given.external and given.spools is None:
        raise _Wrong("--external needs --spools")
    if given.external and not given.spools.is_dir():
        raise _Wrong(f"there is no directory {given.spools}; --spools is where the recorders' spools are")
    if scheme and given.spools is None and not stream:
        raise _Wrong(f"an archive on {scheme[1]} needs --spools, a directory on this host's disk")
    stats = _absolute(given.stats) if given.stats is not None else None
    if stats is not None and (stats.name[:1] != "B" or stats in channels):
        raise _Wrong(f"{given.stats}: --stats wants a B channel" + (" of its own" if stats.name[:1] == "B" else ""))
    if stats is not None and not is_bus(stats.parent):
        raise _Wrong(f"{given.stats}: --stats wants a channel, and no bus is mounted on {stats.parent}")
    order = Order(
        channels=channels,
        bus=bus,
        pattern=pattern,
        root=root,
        spools=_absolute(given.spools) if given.spools else Path(root) / "_futebus" / "spools",
        is_external=given.external,
        is_slave=given.slave,
        every=given.every,
        batch_bytes=given.batch_bytes,
        is_once=given.once,
        is_binary=given.binary,
        fails_on_loss=given.strict,
        most_files=given.files,
        file_bytes=given.file_bytes,
        stats=stats,
        window=given.window or 10.0,
        errors=ERRORS if given.errors is None else given.errors,
        master=given.master,
        conf=tuple(given.conf),
        **stream,
    )
    for text in _told_to_spark(order):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Wrong(f"{text}: it is no UTF-8, and Spark has no other text") from None
    return order


def _told_to_spark(order: "Order") -> Iterator[str]:
    """All text of an order that Spark is to know."""
    yield from map(str, filter(None, (*order.channels, order.bus, order.pattern, order.root, order.spools, order.stats)))
    yield from (order.errors, order.master)
    for pair in (*order.conf, *order.stream_options):
        yield from pair


def _stream(given: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """What the arguments say of a stream, as `Order` has it."""
    from ..spark.options import OptionError
    from ..spark.remote import read_place

    if len(names) > 1:
        raise _Wrong("one stream and one directory, please: others, and channels, need archives of their own")
    for option in ("pattern", "slave", "spools", "external", "stats"):
        if getattr(given, option):
            raise _Wrong(f"--{option} is for channels of a bus, and not for a stream")
    options = {"path": names[0]}
    for option in ("context", *FILES):
        if (value := getattr(given, option.replace("-", "_"))) is not None:
            first, *rest = option.split("-")
            options["".join((first, *map(str.capitalize, rest)))] = value if option == "context" else str(_absolute(value))
    try:
        place = read_place({name.lower(): value for name, value in options.items()})
    except OptionError as error:
        raise _Wrong(str(error)) from None
    return {"stream": place, "stream_options": tuple(options.items())}


def _absolute(path: str | Path) -> Path:
    return absolute("futebus-archive", path)


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java") is not None


if __name__ == "__main__":
    sys.exit(main())
