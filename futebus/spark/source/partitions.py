"""What Spark hands to its tasks: pieces of spools, and how a task reads one.

The one rule: a partition holds all that is needed to read its lines, on any host that sees the spool.
"""

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ...spool import LinesDamaged, LinesGone, OnDamage, Piece, Spool, SpoolError
from ..options import LinesRemoved, QueryError
from ..telling import say
from .arrow import arrow_schema, batches

SMALL_BYTES = 1 << 20
"""Below this, the milliseconds that a task needs to begin count more than the lines that it reads."""

LEAST_BYTES = 8 << 20
"""Below this, lines are not cut into more parts for more processors."""

PROCESSORS = len(os.sched_getaffinity(0))
"""Of this host: here the executors are, or one of them."""

FILLER_BYTES = 128 << 10
"""How much is sent along to a task for nothing. Spark writes what a task is to do in two pieces to a TCP connection. If the
second is small, Nagle's algorithm holds it back until the first is acknowledged: 40 ms. More than a packet goes at once."""


class LinesPartition(InputPartition):
    """Lines that one task reads."""

    def __init__(self, channel: str, piece: Piece) -> None:
        super().__init__(None)
        self.channel = channel
        self.piece = piece
        self.filler = bytes(FILLER_BYTES if piece.stop - piece.start < SMALL_BYTES else 0)


def cut(spool: Spool, begin: int, end: int, most: int, on_damage: OnDamage | None = None) -> Sequence[Piece]:
    """The lines from offset `begin` up to `end` in parts for tasks, each of about `most` bytes at most.

    If there are fewer parts than processors, they are cut smaller. `on_damage` is as for `Spool.pieces`.

    Raises:
        LinesGone: not all of them are there.
    """
    pieces = list(spool.pieces(begin, end, most, on_damage=on_damage))
    size = max(sum(piece.stop - piece.start for piece in pieces) // PROCESSORS, LEAST_BYTES)
    if len(pieces) >= PROCESSORS or size >= most:
        return pieces
    return list(spool.pieces(begin, end, size, on_damage=on_damage and (lambda damage: None)))


def read_lines(
    partition: InputPartition, schema: StructType, mode: str, on_damage: OnDamage | None = None
) -> Iterator[pa.RecordBatch]:
    """What a task does: the lines of a partition, as batches of the schema asked for. `on_damage` is as for `batches`."""
    if isinstance(partition, LinesPartition):
        try:
            yield from batches(partition.piece, partition.channel, arrow_schema(schema), mode, on_damage)
        except SpoolError as error:
            # What retention has removed may be told otherwise when it is planned anew. What is damaged stays so.
            is_removed = isinstance(error, LinesGone) and not isinstance(error, LinesDamaged)
            raise (LinesRemoved if is_removed else QueryError)(str(error)) from None


def say_damage(damage: LinesGone) -> None:
    """Tells the user what lines are left out."""
    say(str(damage))
