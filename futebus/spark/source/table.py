"""Spools as a table: what is in them now, once.

The one rule: it opens no channel, and locks nothing.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...host.mounted import is_bus
from ...spool import NotASpool, Piece, Spool
from ..options import OptionError, TableOptions, check_schema, plainly
from .partitions import LinesPartition, cut, read_lines


class FutebusReader(DataSourceReader):
    """Reads one spool, or a directory of them.

    Raises:
        OptionError: there is no such column.
    """

    def __init__(self, schema: StructType, options: TableOptions) -> None:
        check_schema(schema)
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The lines that there are, in parts for tasks."""
        with plainly():
            return [LinesPartition(spool.channel, piece) for spool in self._spools() for piece in self._pieces(spool)]

    def _spools(self) -> Iterator[Spool]:
        try:
            yield Spool(self._options.path)
            return
        except NotASpool:
            inner = sorted(path.parent for path in self._options.path.glob("*/spool.json"))
            if not inner:
                if is_bus(self._options.path.parent):
                    raise OptionError(
                        f"{self._options.path} is a channel, which spark.readStream reads; spark.read reads a spool"
                    ) from None
                raise
        for directory in inner:
            yield Spool(directory)

    def _pieces(self, spool: Spool) -> Sequence[Piece]:
        return cut(spool, spool.begin, spool.end, self._options.partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part."""
        return read_lines(partition, self._schema, self._options.mode)
