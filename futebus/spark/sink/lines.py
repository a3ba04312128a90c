"""Arrow batches become blocks of lines: every value with its newline, the lines of a channel together and in their order.

The lines of a whole batch are joined by Arrow itself; Python looks at single values only where one of several lines has an
address to repeat.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...client.channel import BLOCK
from ...core.kinds import is_addressed
from .outlet import SinkError, check_name

MAX_HELD = 16 * 1024 * 1024
"""Bytes of lines that are held back, all channels together, for the sake of full blocks."""

# Offsets of 64 bits: a newline for each value may be what makes a batch longer than 2 GiB.
_BYTES = pa.large_binary()
_NOTHING, _NEWLINE, _OPEN, _CLOSE = (pa.scalar(text, _BYTES) for text in (b"", b"\n", b"{", b"}"))

_ADDRESS = r"^(\*|[0-9A-Fa-f]+)$"


class Columns(NamedTuple):
    """Where in a batch the columns are."""

    value: int
    channel: int | None
    address: int | None


def blocks(batches: Iterable[pa.RecordBatch], columns: Columns, channel: str | None) -> Iterator[tuple[str, bytes]]:
    r"""Joins the rows of batches to blocks of lines.

    Args:
        batches: `pyarrow.RecordBatch`es.
        columns: what is in them.
        channel: the channel of all lines, if there is no such column.

    Yields:
        A channel, and whole lines for it that end with `\n`: `BLOCK` bytes and more, less only when the input ends or too much is
        held. The lines of a channel come in the order of their rows.

    Raises:
        SinkError: a row has no channel, one that cannot be, or an address that cannot be.
    """
    held: dict[str, list[bytes]] = {}
    sizes: dict[str, int] = {}
    for batch in batches:
        for name, values, addresses in _by_channel(batch, columns, channel):
            lines = join(values, addresses, name)
            if not lines:
                continue
            held.setdefault(name, []).append(lines)
            sizes[name] = sizes.get(name, 0) + len(lines)
            if sizes[name] >= BLOCK:
                del sizes[name]
                yield name, b"".join(held.pop(name))
        if len(sizes) > 1 and sum(sizes.values()) >= MAX_HELD:
            yield from ((name, b"".join(pieces)) for name, pieces in held.items())
            held.clear()
            sizes.clear()
    yield from ((name, b"".join(pieces)) for name, pieces in held.items())


def _by_channel(batch: pa.RecordBatch, columns: Columns, channel: str | None) -> Iterator[tuple[str, pa.Array, pa.Array | None]]:
    """The values and addresses of a batch, those of each channel together."""
    values = batch.column(columns.value).cast(_BYTES)
    addresses = None if columns.address is None else batch.column(columns.address).cast(_BYTES)
    if columns.channel is None:
        assert channel is not None
        yield channel, values, addresses
        return
    channels = batch.column(columns.channel)
    if channels.null_count:
        raise SinkError("a row has no channel: its column `channel` is null")
    encoded = channels.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    for name in names:
        check_name(name)
    if len(names) == 1:
        yield names[0], values, addresses
        return
    # Sorting is stable, so the rows of a channel stay in their order.
    order = pc.sort_indices(encoded.indices)
    values = values.take(order)
    addresses = None if addresses is None else addresses.take(order)
    counts = {count["values"]: count["counts"] for count in pc.value_counts(encoded.indices).to_pylist()}
    start = 0
    for code, name in enumerate(names):
        count = counts[code]
        yield name, values.slice(start, count), None if addresses is None else addresses.slice(start, count)
        start += count


def join(values: pa.Array, addresses: pa.Array | None, channel: str) -> bytes:
    r"""Makes lines of values.

    Args:
        values: large_binary; null and empty ones are left out. One with newlines in it is several lines. An empty line in it is
            left to the bus, which discards it.
        addresses: large_binary, each to be put in front of every line of its value; null where a value brings its own.
        channel: where they go.

    Returns:
        The lines, each with its `\n`.

    Raises:
        SinkError: an address is malformed, or the channel is none that takes addresses.
    """
    if addresses is not None and addresses.null_count == len(addresses):
        addresses = None
    if addresses is not None:
        _check_addresses(addresses, channel)
    sizes = pc.binary_length(values)
    if values.null_count or pc.min(sizes).as_py() == 0:
        some = pc.greater(sizes, 0)
        values = values.filter(some)
        addresses = None if addresses is None else addresses.filter(some)
    if addresses is None:
        return _text(pc.binary_join_element_wise(values, _NOTHING, _NEWLINE))
    if pc.any(pc.match_substring(values, "\n")).as_py():
        return _join_one_by_one(values, addresses)
    prefixes = pc.fill_null(pc.binary_join_element_wise(_OPEN, addresses, _CLOSE, _NOTHING), b"")
    return _text(pc.binary_join_element_wise(pc.binary_join_element_wise(prefixes, values, _NOTHING), _NOTHING, _NEWLINE))


def _check_addresses(addresses: pa.Array, channel: str) -> None:
    if not is_addressed(channel):
        raise SinkError(f"{channel} takes no addresses: only A channels do")
    good = pc.match_substring_regex(addresses, _ADDRESS)
    if not pc.all(good).as_py():
        wrong = addresses.filter(pc.invert(good))[0].as_py().decode("utf-8", "backslashreplace")
        raise SinkError(f"{channel}: the address {wrong!r} is neither a hexadecimal number nor *")


def _join_one_by_one(values: pa.Array, addresses: pa.Array) -> bytes:
    lines: list[bytes] = []
    for value, address in zip(values.to_pylist(), addresses.to_pylist(), strict=True):
        prefix = b"" if address is None else b"{%b}" % address
        lines += [b"%b%b\n" % (prefix, line) for line in value.split(b"\n") if line]
    return b"".join(lines)


def _text(lines: pa.Array) -> bytes:
    """All values of a large_binary array, one behind the other."""
    if not len(lines):
        return b""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q")
    start, stop = ends[lines.offset], ends[lines.offset + len(lines)]
    text: bytes = data.slice(start, stop - start).to_pybytes()
    return text
