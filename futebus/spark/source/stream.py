"""Channels as a stream.

The one rule: an offset is handed to Spark only for lines that are in a spool, so that the same offsets give the same lines again.

For each channel an offset holds the identity of its spool, the number of the next line, and how many lines were known to be lost
before it: `{"B_log": {"spool": "…", "line": 17, "lost": 0}}`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ..options import SourceOptions, check_schema, parse
from .partitions import read_lines, say_damage
from .query import QueryReader
from .running import Running


class FutebusStreamReader(QueryReader):
    """Channels, for one query.

    Args:
        schema: the columns.
        options: as they were given.
        names_left_out: whether it tells which channels it leaves out.
    """

    is_remote = False

    def __init__(self, schema: StructType, options: Mapping[str, str], *, names_left_out: bool = True) -> None:
        super().__init__(schema, options)
        self._names_left_out = names_left_out

    def __getstate__(self) -> dict[str, Any]:
        """As for every query, and what is of this one."""
        return super().__getstate__() | {"_names_left_out": self._names_left_out}

    def _limits(self) -> SourceOptions:
        return parse(self._given)

    def _run(self) -> Running:
        check_schema(self._schema)
        return Running(parse(self._given), names_left_out=self._names_left_out)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part."""
        options = parse(self._given)
        return read_lines(partition, self._schema, options.mode, None if options.fails_on_loss else say_damage)
