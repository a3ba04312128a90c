"""The words of Spark 4.2 for how much a batch may read, for Spark 4.1 too, which does not have them."""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # pragma: no cover
    from dataclasses import dataclass

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """So many bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Marks a source that can be read up to now."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]
