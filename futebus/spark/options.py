"""What somebody has asked of the source: `.option(...)` checked and given types.

The one rule: what cannot be meant is refused here, in one sentence that names the option.
"""

import contextlib
import difflib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..core.kinds import LETTERS
from ..core.quantities import size
from ..nats.address import SCHEMES
from ..nats.errors import Away, NatsError, NoStream
from ..recorder.channel import ChannelError, check_channel
from ..spool import LinesGone, SpoolError
from .compat import HAS_LIMITS
from .telling import Sentence, without_traceback


class OptionError(Sentence, ValueError):
    """What is wrong with an option or a schema."""


class QueryError(Sentence, RuntimeError):
    """Why a query cannot go on."""


class ServersAway(Sentence, RuntimeError):
    """No server of a stream has answered for too long. A query that is started again may find one."""


class FilesAway(QueryError):
    """A spool's file cannot be had now. A query that is started again may get it."""


class StreamGone(QueryError):
    """A stream is not there, or is another than the one that is wanted. Who starts the query may want that one, too."""


class LinesRemoved(QueryError):
    """Lines have been removed between being looked up and being read. A query that is started again sees that they have."""


PASSING = frozenset(
    getattr(errno, name)
    for name in "EIO ESTALE ETIMEDOUT EHOSTDOWN EHOSTUNREACH EMFILE ENFILE ENOMEM EAGAIN ENOSPC EDQUOT EBUSY".split()
)
"""What the system says of a disk, or of itself, that may be otherwise in a moment. What is missing or forbidden stays so."""


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """What is wrong with options, spools and channels is told as one sentence.

    For the processes on the driver that live for one call or one query.
    """
    with without_traceback():
        try:
            yield
        except (SpoolError, ChannelError) as error:
            raise (LinesRemoved if isinstance(error, LinesGone) else QueryError)(str(error)) from None
        except NatsError as error:
            raise as_ours(error) from None
        except OSError as error:
            if error.filename is None:
                raise
            kind = FilesAway if error.errno in PASSING else QueryError
            raise kind(f"{os.fsdecode(error.filename)}: {error.strerror}") from None


def as_ours(error: NatsError) -> Sentence:
    """What is wrong with a stream or its servers, as the format says it."""
    if isinstance(error, NoStream):
        return StreamGone(str(error))
    return (ServersAway if isinstance(error, Away) else QueryError)(str(error))


COLUMNS: Mapping[str, tuple[type[AtomicType], ...]] = {
    "value": (StringType, BinaryType),
    "channel": (StringType,),
    "offset": (LongType,),
    "timestamp": (TimestampType,),
    "address": (StringType,),
}
"""What there is to read, and as what. The first type is the usual one."""

SCHEMA = StructType([StructField(name, types[0](), name == "address") for name, types in COLUMNS.items()])

PARTITION_BYTES = 64 << 20
"""How much one task reads at most: a whole segment. Half of it costs a tenth of the rows per second, a quarter a fifth."""

MOST_POLL_SECONDS = 3600.0
"""How long a query waits at most before it asks again."""

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
"""What becomes of a line that is no UTF-8, in the words of Spark's other text formats: the wrong bytes are replaced by U+FFFD;
the line is left out; the query fails."""

NAMES = (
    "path subscribe subscribePattern spoolLocation master startingOffsets maxRowsPerTrigger maxBytesPerTrigger "
    "failOnDataLoss partitionBytes pollTimeoutMs spoolSync drain mode"
).split()


def check_schema(schema: StructType, columns: Mapping[str, tuple[type[AtomicType], ...]] = COLUMNS) -> None:
    """Checks that a schema asks for what there is, `columns`.

    Raises:
        OptionError: it does not.
    """
    for field in schema.fields:
        types = columns.get(field.name)
        if types is None:
            raise OptionError(f"there is no column '{field.name}': there are {', '.join(columns)}")
        if not isinstance(field.dataType, types):
            names = " or ".join(kind().simpleString().upper() for kind in types)
            raise OptionError(f"the column '{field.name}' is {names}, not {field.dataType.simpleString().upper()}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a streaming read; see docs/spark.md."""

    channels: tuple[Path, ...]
    """The channels that are named, in the order given."""
    bus: Path | None
    pattern: re.Pattern[str] | None
    """With `subscribePattern`: the channels of the bus that it matches, those of later too."""
    spool: Path
    has_own_directories: bool
    """Whether each channel has a spool of its name in the directory, rather than the directory being the spool."""
    is_master: bool
    starts_at: str
    max_rows: int | None
    max_bytes: int | None
    fails_on_loss: bool
    partition_bytes: int
    poll_seconds: float
    syncs: bool
    drains: bool
    mode: str
    key: str
    """Tells two queries with different options apart."""

    def spool_of(self, name: str) -> Path:
        """The directory of the spool of a channel."""
        return self.spool / name if self.has_own_directories else self.spool


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Checks options.

    Raises:
        OptionError: they cannot be meant.
    """
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise OptionError(f"there is no option '{name}'" + (f"; is {known[near[0]]} meant?" if near else ""))
    path, subscribe, pattern = (given.get(name) for name in ("path", "subscribe", "subscribepattern"))
    if subscribe is not None and pattern is not None:
        raise OptionError("subscribe and subscribePattern exclude each other")
    bus = Path(path) if path is not None else None
    channels: tuple[Path, ...] = ()
    compiled = None
    if pattern is not None:
        if bus is None:
            raise OptionError("subscribePattern needs the path of the bus: load('/mnt/bus')")
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise OptionError(f"subscribePattern is no regular expression: {error}") from None
    elif subscribe is not None:
        names = [name.strip() for name in subscribe.split(",") if name.strip()]
        if not names:
            raise OptionError("subscribe names no channel")
        if bus is None and not all(name.startswith("/") for name in names):
            raise OptionError("subscribe needs whole paths, or the path of the bus: load('/mnt/bus')")
        channels = tuple(bus / name if bus else Path(name) for name in names)
        if len({channel.name for channel in channels}) < len(channels):
            raise OptionError("subscribe names two channels of the same name; they need queries of their own")
    elif bus is not None:
        channels, bus = (bus,), None
    else:
        raise OptionError(
            "no channel is named: load('/mnt/bus/B_log'), or one of the options subscribe and subscribePattern;"
            " spark.read reads a spool"
        )
    location = given.get("spoollocation")
    if not location:
        raise OptionError("the option spoolLocation is needed: a directory on this host's disk, for this query alone")
    is_master = read_flag(given, "master", False)
    if is_master and compiled is not None:
        raise OptionError("with master, the channels must be named: a channel that has no master does not exist")
    drain = given.get("drain", "auto").lower()
    if drain not in ("auto", "external"):
        raise OptionError(f"drain is auto or external, not '{given['drain']}'")
    for channel in channels:
        try:
            check_channel(channel, is_master)
        except ChannelError as error:
            is_named = subscribe is not None or channel.name[:1] in LETTERS
            hint = "" if is_named else "; if it is the directory of a bus, subscribe or subscribePattern says which channels"
            raise OptionError(f"{error}{hint}") from None
    starts_at = given.get("startingoffsets", "latest").lower()
    if starts_at not in ("earliest", "latest"):
        raise OptionError(f"startingOffsets is earliest or latest, not '{given['startingoffsets']}'")
    for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
        if name.lower() in given and not HAS_LIMITS:
            raise OptionError(f"{name} needs Spark 4.2 or newer")
    return SourceOptions(
        channels=channels,
        bus=bus,
        pattern=compiled,
        spool=Path(location.removeprefix("file://")),
        has_own_directories=subscribe is not None or compiled is not None,
        is_master=is_master,
        starts_at=starts_at,
        max_rows=read_count(given, "maxRowsPerTrigger", None),
        max_bytes=read_count(given, "maxBytesPerTrigger", None),
        fails_on_loss=read_flag(given, "failOnDataLoss", True),
        partition_bytes=read_count(given, "partitionBytes", PARTITION_BYTES) or 1,
        poll_seconds=poll_seconds(given),
        syncs=read_flag(given, "spoolSync", True),
        drains=drain == "auto",
        mode=read_mode(given),
        key=hashlib.sha256(json.dumps(sorted(given.items())).encode()).hexdigest()[:16],
    )


def poll_seconds(given: Mapping[str, str]) -> float:
    """The option `pollTimeoutMs`. A query that has nothing to do asks again and again; it waits, and does not ask so often."""
    return min((read_count(given, "pollTimeoutMs", 500, least=0) or 0) / 1000, MOST_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a batch read."""

    path: Path
    """A spool, or a directory of spools."""
    partition_bytes: int
    mode: str


def parse_table(options: Mapping[str, str]) -> TableOptions:
    """Checks the options of a batch read.

    Raises:
        OptionError: they cannot be meant.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in ("path", "spoollocation", "partitionbytes", "mode"):
            raise OptionError(f"there is no option '{name}' for reading a spool: there are path, partitionBytes and mode")
    path = given.get("path", given.get("spoollocation"))
    if not path:
        raise OptionError("no spool is named: load('/var/lib/futebus/B_log')")
    return TableOptions(
        path=Path(path.removeprefix("file://")),
        partition_bytes=read_count(given, "partitionBytes", PARTITION_BYTES) or 1,
        mode=read_mode(given),
    )


def is_remote(options: Mapping[str, str]) -> bool:
    """Whether the path is that of a stream of NATS."""
    path = next((value for name, value in options.items() if name.lower() == "path"), "")
    return path.lower().startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def is_table(options: Mapping[str, str]) -> bool:
    """Whether a batch read could have these options."""
    try:
        parse_table(options)
    except OptionError:
        return False
    return True


def read_mode(given: Mapping[str, str]) -> str:
    """The option `mode`, one of MODES."""
    mode = given.get("mode", MODES[0]).upper()
    if mode not in MODES:
        raise OptionError(f"mode is one of {', '.join(MODES)}, not '{given['mode']}'")
    return mode


def read_flag(given: Mapping[str, str], name: str, otherwise: bool) -> bool:
    """An option that is true or false."""
    value = given.get(name.lower(), str(otherwise)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not '{value}'")
    return value == "true"


_TOO_MUCH = 1 << 63
"""What Java has no number for."""


def read_count(given: Mapping[str, str], name: str, otherwise: int | None, least: int = 1) -> int | None:
    """A number, `otherwise` if none is given, with the units that Spark knows for bytes: `64m`, `1gb`."""
    value = given.get(name.lower())
    if value is None:
        return otherwise
    with contextlib.suppress(ValueError):
        if least <= (count := size(value.strip())) < _TOO_MUCH:
            return count
    raise OptionError(f"{name} is a number from {least} on, not '{value}'")
