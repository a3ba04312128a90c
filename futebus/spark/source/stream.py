"""Channels as a stream.

The one rule: an offset is handed to Spark only for lines that are in a spool, so that the same offsets give the same lines again.

For each channel an offset holds the identity of its spool, the number of the next line, and how many lines were known to be lost
before it: `{"B_log": {"spool": "…", "line": 17, "lost": 0}}`.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..options import SourceOptions, check_schema, parse
from .partitions import read_lines, say_damage
from .query import QueryReader
from .running import Running


class FutebusStreamReader(QueryReader):
    """Channels, for one query."""

    is_remote = False

    def _limits(self) -> SourceOptions:
        return parse(self._given)

    def _run(self) -> Running:
        check_schema(self._schema)
        return Running(parse(self._given))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The lines of a part."""
        options = parse(self._given)
        return read_lines(partition, self._schema, options.mode, None if options.fails_on_loss else say_damage)
