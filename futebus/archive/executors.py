"""Whether there is anybody who computes.

The one rule: nobody waits for a cluster without being told. Spark itself waits for executors for good and without a word, also
when there can be none any more: a standalone master that was started again knows no application, unless it recovers them.
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

WAIT_SECONDS = 30.0
"""How long there is none until that is said. A cluster that is busy, or about to replace one, needs a while."""


class Executors:
    """Those of a session.

    Args:
        spark: the session.
        say: is told when there have been none for a while, and when there are some again.
    """

    def __init__(self, spark: SparkSession, say: Callable[[str], object]) -> None:
        self._context: Any = spark.sparkContext
        self._say = say
        self._none_since: float | None = None
        self._has_said = False

    @property
    def _count(self) -> int:
        # One of those that hold blocks is the driver.
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def look(self) -> None:
        """Looks, and says what is to be said."""
        now = time.monotonic()
        if self._count > 0:
            self._none_since = None
            if self._has_said:
                self._has_said = False
                self._say("Spark has executors again")
        elif self._none_since is None:
            self._none_since = now
        elif not self._has_said and now - self._none_since >= WAIT_SECONDS:
            self._has_said = True
            self._say(
                f"{self._context.master} has given Spark no executor for {WAIT_SECONDS:g} s, and everything waits for one;"
                " if that master was started again, start this again, too"
            )


def watched(spark: SparkSession, say: Callable[[str], object]) -> Executors | None:
    """Those of a session that has any of its own, and none of them only while there is nothing to do."""
    conf = spark.sparkContext.getConf()
    is_elastic = conf.get("spark.dynamicAllocation.enabled") == "true"
    return None if is_elastic or str(spark.sparkContext.master).startswith("local") else Executors(spark, say)
