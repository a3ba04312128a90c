"""The bus as a Spark source and sink. Knows nothing of how a bus is mounted, only of files.

Importing it has Spark start its Python processes with this interpreter, unless somebody has said with which. Otherwise Spark
takes the first `python3` that it finds, which may know nothing of futebus. It must be imported before there is a session.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

for _name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
    os.environ.setdefault(_name, sys.executable)


def joined(query: "StreamingQuery", timeout: float = 120.0) -> None:
    """Waits until a query that reads channels has joined them: what is said on them from now on, it gets.

    Args:
        query: what `start()` has returned.
        timeout: how long to wait, in seconds.

    Raises:
        StreamingQueryException: the query has failed.
        TimeoutError: it has not joined in time.
    """
    end = time.monotonic() + timeout
    while query.lastProgress is None:
        # It joins when it is first asked how far there are lines. Then it waits, for a moment, or runs a batch.
        if query.status["message"].startswith(("Waiting for", "Processing new data")):
            return
        if not query.isActive:
            if error := query.exception():
                raise error
            return  # it has ended, and had everything that there was
        if time.monotonic() > end:
            raise TimeoutError(f"the query has not joined its channels within {timeout:g} seconds: {query.status['message']}")
        time.sleep(0.002)
