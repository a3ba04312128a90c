"""Messages of a stream as Arrow record batches.

The one rule: as for the lines of spools, no Python work for each line, only for each message.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from ...core.lines import lines as lines_of
from ...core.lines import split_all
from ...nats import runs
from ...nats.fetching import Fetched
from .arrow import BATCH_BYTES, as_text, as_utf8, empty, integers, split_address

MOST_AHEAD = 86_400 * 10**9
"""How much later than the server got a message its lines may say that they were taken, in nanoseconds. Clocks differ, and some
are wrong by the hours of a zone; beyond that it is no time but a slip, or a lie, and the server's is taken."""


class Run(NamedTuple):
    """The lines of a message."""

    text: bytes
    lines: int
    first: int
    """The number of the first of them: in its spool, or of an outsider's, which has none, in the message."""
    time: int
    """In nanoseconds since the epoch."""
    channel: str | None
    host: str | None
    message: Fetched

    @property
    def is_addressed(self) -> bool:
        """Whether a line begins with an address."""
        return self.channel is not None and self.channel[:1] in ("A", "S")


class _NotAsTold(Exception):
    """A message does not have the lines that its headers tell of."""


def run_of(message: Fetched) -> Run:
    """The lines of a message. One that is not what its headers say is taken for an outsider's."""
    run = _told(message)
    if run is not None and lines_of(run.text, 0, len(run.text)) == (run.lines, len(run.text)):
        return run
    return _outside(message)


def _told(message: Fetched) -> Run | None:
    """The lines of a message as its headers tell of them; None if they do not."""
    where = runs.read(message.headers)
    if where is None or not where.lines or not message.data:
        return None
    time = where.time if where.time <= message.time + MOST_AHEAD else message.time
    return Run(message.data, where.lines, where.line, time, as_utf8(where.channel), as_utf8(where.host), message)


def _outside(message: Fetched) -> Run:
    count, text = runs.outside(message.data)
    return Run(text, count, 0, message.time, None, None, message)


def rows(messages: Iterable[Fetched], schema: pa.Schema, mode: str) -> Iterator[pa.RecordBatch]:
    """The lines of messages.

    Args:
        messages: in their order.
        schema: the columns that are wanted, any of `remote.STREAM_COLUMNS`.
        mode: what becomes of lines that are no UTF-8, one of `options.MODES`.

    Raises:
        InvalidLine: a line is no UTF-8, and the mode is FAILFAST.
    """
    for held in _together(_told(message) or _outside(message) for message in messages):
        try:
            yield _batch(held, schema, mode)
        except _NotAsTold:
            for some in _together(run_of(run.message) for run in held):
                yield _batch(some, schema, mode)


def _together(found: Iterable[Run]) -> Iterator[list[Run]]:
    """Those that make a batch."""
    held: list[Run] = []
    size = 0
    for run in found:
        if held and (size + len(run.text) > BATCH_BYTES or run.is_addressed != held[0].is_addressed):
            yield held
            held, size = [], 0
        if run.lines:
            held.append(run)
            size += len(run.text)
    if held:
        yield held


def _batch(held: list[Run], schema: pa.Schema, mode: str) -> pa.RecordBatch:
    names = schema.names
    try:
        counts, texts, ends = split_all([run.text for run in held])
    except ValueError:
        raise _NotAsTold from None
    if counts != [run.lines for run in held]:
        raise _NotAsTold
    count = sum(counts)
    if not names:
        return empty(count)
    value = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(texts)])
    address = pa.nulls(count, pa.string())
    if held[0].is_addressed and {"value", "address"} & {*names}:
        value, address = split_address(value)
    chosen: dict[str, pa.Array] = {"address": address}
    for name in {"channel", "host"} & {*names}:
        chosen[name] = _repeated([getattr(run, name) for run in held], held, count)
    if "subject" in names:
        chosen["subject"] = _repeated([run.message.subject for run in held], held, count)
    if "offset" in names:
        numbers = array("q")
        for run in held:
            numbers.extend(range(run.first, run.first + run.lines))
        chosen["offset"] = integers(pa.int64(), numbers)
    if "timestamp" in names:
        chosen["timestamp"] = _integers(pa.timestamp("us", "UTC"), [run.time // 1000 for run in held], held)
    if "sequence" in names:
        chosen["sequence"] = _integers(pa.int64(), [run.message.sequence for run in held], held)
    keep = None
    if "value" in names:
        try:
            chosen["value"] = value.cast(schema.field("value").type)
        except pa.ArrowInvalid:
            chosen["value"], keep = as_text(value, mode, lambda number: _name(held, number))
    batch = pa.RecordBatch.from_arrays([chosen[name] for name in names], schema=schema)
    return batch if keep is None else batch.filter(keep)


def _repeated(texts: list[Any], held: list[Run], count: int) -> pa.Array:
    """A text of each run, for each of its lines."""
    if len(set(texts)) == 1:
        return pa.repeat(pa.scalar(texts[0], pa.string()), count)
    places = array("i")
    for place, run in enumerate(held):
        places.extend(array("i", [place]) * run.lines)
    return pa.array(texts, pa.string()).take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(places)]))


def _integers(kind: pa.DataType, numbers: list[int], held: list[Run]) -> pa.Array:
    """A number of each run, for each of its lines."""
    repeated = array("q")
    for number, run in zip(numbers, held, strict=True):
        repeated.extend(array("q", [number]) * run.lines)
    return integers(kind, repeated)


def _name(held: list[Run], number: int) -> str:
    """What a line is called, in what is said of it."""
    for run in held:
        if number < run.lines:
            break
        number -= run.lines
    return f"line {run.first + number} of message {run.message.sequence}"
