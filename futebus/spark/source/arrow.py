"""Lines as Arrow record batches.

The one rule: no Python work for each line, unless a line is no UTF-8.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

from ...core.lines import split
from ...core.text import removed
from ...spool import LinesDamaged, LinesGone, OnDamage, Piece, open_to_read
from ..telling import Sentence

BATCH_BYTES = 1 << 19
"""How many bytes of lines make a batch: what fits the caches of a processor, and a few milliseconds of work for the JVM."""

_ADDRESS = r"^\{[0-9a-f]{1,16}(:[oc])?\}"
"""What the bus puts before a line: an ID is hexadecimal, in lower case; with `:o` and `:c`, somebody has come, or gone."""

_TYPES = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """A schema that `options.check_schema` has found good, in Arrow's words. What Spark has for that differs between versions."""
    return pa.schema([pa.field(field.name, _TYPES[type(field.dataType)], field.nullable) for field in schema.fields])


def batches(
    piece: Piece, channel: str, schema: pa.Schema, mode: str, on_damage: OnDamage | None = None
) -> Iterator[pa.RecordBatch]:
    """The lines of a piece.

    Args:
        piece: where they lie.
        channel: the name of the channel. On A and S channels a line begins with the address of its sender.
        schema: the columns that are wanted, any of `options.COLUMNS`.
        mode: what becomes of lines that are no UTF-8, one of `options.MODES`.
        on_damage: is told of lines that are not what they were, and are left out. Without it they are an error.

    Raises:
        LinesDamaged: lines are not what they were. They are not among those that were given until then.
        LinesGone: retention was faster.
        InvalidLine: a line is no UTF-8, and the mode is FAILFAST.
    """
    for part in (piece,) if on_damage is None else piece.sound(on_damage):
        yield from _batches(part, channel, schema, mode)


def _batches(piece: Piece, channel: str, schema: pa.Schema, mode: str) -> Iterator[pa.RecordBatch]:
    is_addressed = channel[:1] in ("A", "S")
    names = schema.names
    first = piece.first
    times = _Times(piece)
    for data in _chunks(piece):
        count, texts, ends = split(data)
        if first + count > piece.first + piece.lines:
            raise LinesDamaged(piece.segment, first, piece.first + piece.lines)
        value = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(texts)])
        address = None
        if is_addressed and {"value", "address"} & {*names}:
            value, address = split_address(value)
        chosen: dict[str, pa.Array] = {}
        if "channel" in names:
            chosen["channel"] = pa.repeat(pa.scalar(as_utf8(channel)), count)
        if "offset" in names:
            chosen["offset"] = integers(pa.int64(), array("q", range(first, first + count)))
        if "timestamp" in names:
            chosen["timestamp"] = integers(pa.timestamp("us", "UTC"), times.take(count))
        if "address" in names:
            chosen["address"] = pa.nulls(count, pa.string()) if address is None else address
        keep = None
        if "value" in names:
            wanted = schema.field("value").type
            try:
                chosen["value"] = value.cast(wanted)
            except pa.ArrowInvalid:
                chosen["value"], keep = as_text(value, mode, partial(_name, channel, first))
        batch = pa.RecordBatch.from_arrays([chosen[name] for name in names], schema=schema) if names else empty(count)
        yield batch if keep is None else batch.filter(keep)
        first += count
    if first < piece.first + piece.lines:
        raise LinesDamaged(piece.segment, first, piece.first + piece.lines)


def _name(channel: str, first: int, number: int) -> str:
    """What a line is called, in what is said of it."""
    return f"line {first + number} of {channel}"


class InvalidLine(Sentence, ValueError):
    """A line is no UTF-8."""


def as_utf8(channel: str) -> str:
    """A name that Arrow has a text for. Bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(channel).decode(errors="replace")


def empty(count: int) -> pa.RecordBatch:
    """Rows without columns, for who only counts them."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _chunks(piece: Piece) -> Iterator[bytes]:
    """The bytes of a piece, in chunks of whole lines, each looked at before it is given."""
    try:
        descriptor = open_to_read(Path(piece.segment))
    except FileNotFoundError:
        directory = Path(piece.segment).parent
        raise LinesGone(removed(piece.first, piece.first + piece.lines, str(directory))) from None
    has_looked = False
    try:
        at, size = piece.start, BATCH_BYTES
        while at < piece.stop:
            wanted = min(size, piece.stop - at)
            data = os.pread(descriptor, wanted, at)
            stop = data.rfind(b"\n") + 1
            if not has_looked and (b"\0" in data or len(data) < wanted):
                # What did not reach the disk is read as zeros, or is not there; but a line may have zeros too.
                has_looked = True
                piece.check()
            if not stop:
                if len(data) < wanted or at + wanted == piece.stop:
                    raise LinesDamaged(piece.segment, piece.first, piece.first + piece.lines)
                size *= 2
                continue
            yield data if stop == len(data) else data[:stop]
            at += stop
            size = BATCH_BYTES
    finally:
        os.close(descriptor)


class _Times:
    """Hands out the time of each line, in microseconds."""

    def __init__(self, piece: Piece) -> None:
        self._runs = iter(piece.times)
        self._left, self._time = 0, 0

    def take(self, count: int) -> "array[int]":
        taken = array("q")
        while len(taken) < count:
            if not self._left:
                self._left, nanoseconds = next(self._runs)
                self._time = nanoseconds // 1000
            some = min(self._left, count - len(taken))
            taken.extend(array("q", [self._time]) * some)
            self._left -= some
        return taken


def integers(kind: pa.DataType, numbers: "array[int]") -> pa.Array:
    """Numbers of 64 bits as a column."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def split_address(lines: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Takes `{ID}` off, as the bus writes it. A line without one keeps its text and has no address.

    Such is what a slave of an S channel hears, from which the bus has taken it. What that begins with is its own: JSON, maybe.
    """
    have_one = pc.match_substring_regex(lines, _ADDRESS)
    if pc.all(have_one).as_py():
        parts = pc.split_pattern(lines, b"}", max_splits=1)
        address = pc.list_element(parts, 0).cast(pa.string())
        return pc.list_element(parts, 1), pc.utf8_slice_codeunits(address, 1)
    if not pc.any(have_one).as_py():
        return lines, pa.nulls(len(lines), pa.string())
    values, addresses = [], []
    for line, has_one in zip(lines.to_pylist(), have_one.to_pylist(), strict=True):
        address, _, value = line.partition(b"}")
        values.append(value if has_one else line)
        addresses.append(address[1:].decode() if has_one else None)
    return pa.array(values, pa.binary()), pa.array(addresses, pa.string())


def as_text(lines: pa.Array, mode: str, name: Callable[[int], str]) -> tuple[pa.Array, pa.Array | None]:
    """The lines as text, some of which are no UTF-8, and which of them to keep (None: all). `name` says what a line is called."""
    texts: list[str | None] = []
    for number, line in enumerate(lines.to_pylist()):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as error:
            if mode == "FAILFAST":
                raise InvalidLine(f"{name(number)} is no UTF-8: {error}") from None
            texts.append(line.decode(errors="replace") if mode == "PERMISSIVE" else "")
            if mode == "DROPMALFORMED":
                texts[-1] = None
    text = pa.array(texts, pa.string())
    if mode != "DROPMALFORMED":
        return text, None
    return pc.fill_null(text, ""), pc.is_valid(text)
