"""`format("futebus")`: what Spark asks a data source, and who answers.

The one rule: nothing is opened, started or locked here. Spark makes these objects in several processes, and pickles them.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from .options import SCHEMA, OptionError, is_remote, is_table, parse, parse_table, plainly


class FutebusDataSource(DataSource):
    """Channels of a bus and streams of NATS as streams and as sinks, spools as tables. docs/spark.md has the options."""

    names_left_out = True
    """Whether a stream tells which channels it leaves out; or else somebody does who uses it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "futebus"

    def schema(self) -> StructType:
        """All columns.

        Raises:
            OptionError: no stream and no table can have these options. Spark asks before it says which of them it wants.
        """
        with plainly():
            if is_remote(self.options):
                from .remote import STREAM_SCHEMA, parse_remote

                parse_remote(self.options)
                return STREAM_SCHEMA
            try:
                parse(self.options)
            except OptionError:
                if not is_table(self.options):
                    raise
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads channels, or a stream of NATS, as a stream."""
        if is_remote(self.options):
            from .source.following import RemoteStreamReader

            return RemoteStreamReader(schema, self.options)
        from .source.stream import FutebusStreamReader

        return FutebusStreamReader(schema, self.options, names_left_out=self.names_left_out)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a spool, a directory of spools, or a stream of NATS, as it is now."""
        if is_remote(self.options):
            with plainly():
                from .remote import parse_remote

                options = parse_remote(self.options, is_table=True)
                from .source.following import RemoteReader

                return RemoteReader(schema, options)
        from .source.table import FutebusReader

        with plainly():
            return FutebusReader(schema, parse_table(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Writes a stream to channels."""
        from .sink.sink import FutebusStreamWriter

        return FutebusStreamWriter(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes rows to channels."""
        from .sink.sink import FutebusWriter

        return FutebusWriter(schema, self.options, overwrite)


def named(name: str, *, tells_left_out: bool = True) -> type[FutebusDataSource]:
    """The same format under another name, to be registered for one query alone.

    Args:
        name: its.
        tells_left_out: whether it tells which channels it leaves out.

    Of each format that is registered, Spark has one object, and with it one map of environment variables, which all queries that
    use it write to without a lock. Two that do so in the same moment can leave it broken for as long as Java lives: then each
    batch ends with "Illegal size 5 of collection, expected 6".
    """

    class Named(FutebusDataSource):
        names_left_out = tells_left_out

        @classmethod
        def name(cls) -> str:
            return name

    return Named
