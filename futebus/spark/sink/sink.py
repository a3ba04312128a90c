"""The bus as Spark's sink: `df.writeStream.format("futebus")` and `df.write.format("futebus")`.

Every row is a line for a channel. With `delivery=direct`, tasks publish while they run. Spark runs a task again that has failed,
so each line goes out at least once. With `delivery=staged`, tasks write to files, and the driver publishes what Spark commits,
each batch of a stream once (see `publishing`).
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType
from pyspark.taskcontext import TaskContext

from ...core.kinds import has_master, is_addressed
from ..options import OptionError, is_remote
from ..telling import without_traceback
from .lines import Columns, blocks
from .outlet import Outlet, Outlets, SinkError, check_bus, check_name, is_directory
from .publishing import forget, publish
from .staging import Published, Staged, complaining, make_directory, remove_directory, stage, staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from .numbered import NumberedTarget

DIRECT, STAGED = "direct", "staged"

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Under which names Spark tells a task, and nobody else in Python, what it works for."""


@dataclass(frozen=True)
class Target:
    """Where rows go and how, as schema and options say."""

    bus: Path
    """Where the bus is mounted."""
    channel: str | None
    """The channel of all rows; None if each names its own."""
    columns: Columns
    staging: Path | None
    """The stagingLocation; None for direct delivery."""

    def write(
        self, batches: Iterable["RecordBatch"], query: str, batch: int, partition: int, *, makes_directory: bool = True
    ) -> WriterCommitMessage:
        """Does a task's work.

        Args:
            batches: its rows.
            query: the name of the query's directory in the stagingLocation.
            batch: the id of the batch.
            partition: which part of it this is.
            makes_directory: whether that directory is made if it is not there.

        Raises:
            SinkError: a row, a channel or a file is not as it should be.
        """
        lines = blocks(batches, self.columns, self.channel)
        if self.staging is not None:
            segments = stage(self.staging / query, batch, partition, lines, makes_directory=makes_directory)
            return Staged(query, partition, segments)
        with Outlets(self.bus) as outlets:
            for channel, block in lines:
                outlets[channel].put(block)
        return Published()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publishes what the tasks have staged, in the order of their partitions.

        Raises:
            SinkError: see `publish`.
        """
        if self.staging is not None and (found := staged(messages)):
            segments = [segment for message in found for segment in message.segments]
            publish(self.staging / found[0].query, self.bus, batch, segments)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Throws away what the tasks have staged."""
        if self.staging is not None and (found := staged(messages)):
            files = [segment.file for message in found for segment in message.segments]
            forget(self.staging / found[0].query, batch, files)


class FutebusStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a stream to a bus.

    Args:
        schema: the columns, see `target`.
        options: see `target`.

    Raises:
        SinkError: see `target`.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        with without_traceback():
            self._target: Target | NumberedTarget = target(schema, options)

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Publishes or stages the rows of a task. The query is known here only, from the context of the task."""
        with without_traceback():
            context = _context()
            query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
            if query is None or batch is None:
                raise SinkError("Spark does not say which query this is, so its batches cannot be told apart")
            return self._target.write(iterator, query, int(batch), context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Publishes what was staged, unless it is out. Spark calls this again, with other messages, when it cannot tell."""
        with without_traceback():
            self._target.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Throws away what was staged, unless some of it is out."""
        with without_traceback():
            self._target.abort(messages, batchId)


class FutebusWriter(DataSourceArrowWriter):
    """Writes the rows of a table to a bus.

    Args:
        schema: the columns, see `target`.
        options: see `target`.
        overwrite: whether what is there is to be replaced: a bus keeps nothing that could be.

    Raises:
        SinkError: see `target`.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        with without_traceback():
            if overwrite:
                raise SinkError('a bus keeps nothing that could be overwritten: use mode("append")')
            self._target = target(schema, options)
            # Spark makes one such object for a job, and hands copies of it to all tasks and to commit.
            self._job = f"job-{uuid.uuid4().hex}"
            if self._target.staging is not None:
                # Tasks make none: Spark gives a job up while some of them still run. What these stage, nobody would remove.
                directory = self._target.staging / self._job
                with complaining(directory):
                    make_directory(directory)

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Publishes or stages the rows of a task."""
        with without_traceback():
            return self._target.write(iterator, self._job, 0, _context().partitionId(), makes_directory=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes what was staged."""
        with without_traceback():
            self._target.commit(messages, 0)
        self._remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Throws away what was staged. Nobody will commit it again, not even if some of it is out."""
        self._remove()

    def _remove(self) -> None:
        if self._target.staging is not None:
            remove_directory(self._target.staging / self._job)


def target(schema: StructType, options: Mapping[str, str]) -> "Target | NumberedTarget":
    """Finds out where rows go.

    Args:
        schema: `value`, a string or bytes: the line. `channel`, a string, may be there: the channel's name. `address`, a string,
            may be there: to which client of an A channel, a hexadecimal number or `*`. Case does not count in names.
        options: `path` is a channel, or the directory of the bus if there is a column `channel`, or a subject of a stream of
            NATS, nats://SERVER/STREAM/SUBJECT, which takes staged lines only. `delivery` is `direct` or
            `staged`. `stagingLocation` is a directory that the driver and all executors share; it is made if it is not there.
            Other options are Spark's. Case does not count in names.

    Raises:
        SinkError: they are not like that.
    """
    columns = _columns(schema)
    given = {name.lower(): value for name, value in options.items()}
    if is_remote(given):
        return _numbered(columns, given)
    path = _path(given, "path", "it is a channel, such as /mnt/bus/B_log, or the bus if there is a column `channel`")
    channel = None
    if columns.channel is None:
        if is_directory(path):
            raise SinkError(f"{path} is a directory: without a column `channel`, the path is a channel, such as {path}/B_log")
        path, channel = path.parent, path.name
        check_name(channel)
        if columns.address is not None and not is_addressed(channel):
            raise SinkError(f"{channel} takes no addresses: a column `address` is for A channels only")
    check_bus(path)
    found = Target(path, channel, columns, _staging(given))
    if channel is not None and not has_master(channel) and not (path / channel).exists():
        Outlet(path, channel).close()  # who wants to hear what will come needs a file to open
    return found


def _numbered(columns: Columns, given: Mapping[str, str]) -> "NumberedTarget":
    """A subject of a stream."""
    from ..remote import read_place

    try:
        place = read_place(given, has_subject=True)
    except OptionError as error:
        raise SinkError(str(error)) from None
    from .numbered import NumberedTarget

    if columns.channel is not None or columns.address is not None:
        raise SinkError("a stream takes no column but `value`: its messages have no channels and addresses")
    staging = _staging({"delivery": STAGED, **given})
    if staging is None:
        raise SinkError("delivery=direct is for channels: a stream gets each line once, so delivery is staged")
    found = NumberedTarget(place, columns, staging)
    found.check()
    return found


def _staging(given: Mapping[str, str]) -> Path | None:
    delivery = given.get("delivery", DIRECT)
    if delivery.lower() not in (DIRECT, STAGED):
        raise SinkError(f"delivery is {DIRECT} or {STAGED}, not {delivery!r}")
    if delivery.lower() == DIRECT:
        return None
    location = _path(given, "stagingLocation", "delivery=staged needs one, a directory that driver and executors share")
    with complaining(location):
        make_directory(location)
    return location


def _path(given: Mapping[str, str], option: str, meaning: str) -> Path:
    path = given.get(option.lower(), "")
    if not path:
        raise SinkError(f"there is no {option}: {meaning}")
    # The driver and the workers have working directories of their own.
    if not path.startswith("/") or "\0" in path:
        raise SinkError(f"{option} is a local path that begins with a slash, not {path!r}")
    return Path(path)


_KINDS: Mapping[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "channel": (StringType,),
    "address": (StringType,),
}


def _columns(schema: StructType) -> Columns:
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in _KINDS:
            raise SinkError(f"there is a column `{field.name}`: a bus takes value, channel and address only")
        if name in places:
            raise SinkError(f"there are two columns `{name}`")
        if not isinstance(field.dataType, _KINDS[name]):
            kinds = " or ".join(kind.typeName().upper() for kind in _KINDS[name])
            raise SinkError(f"the column `{field.name}` is {field.dataType.simpleString().upper()}: it must be {kinds}")
        places[name] = place
    if "value" not in places:
        raise SinkError("there is no column `value`, which is the line to be sent")
    return Columns(places["value"], places.get("channel"), places.get("address"))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written by the tasks of Spark only")
    return context
