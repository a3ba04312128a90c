"""Makes `format("futebus")` known to Spark, which imports each module `pyspark_*` and registers its `DefaultSource`."""

from futebus.spark.format import FutebusDataSource as DefaultSource

__all__ = ["DefaultSource"]
