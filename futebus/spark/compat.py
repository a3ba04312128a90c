"""The words of Spark 4.2 for how much a batch may read, for Spark 4.1 too, which does not have them."""

HAS_LIMITS = True
"""Whether this Spark tells a Python source where a batch begins and how much it may read."""

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

    HAS_LIMITS = False

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


__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "SupportsTriggerAvailableNow"]
