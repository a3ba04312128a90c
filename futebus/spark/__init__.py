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

INTERPRETERS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""The variables of the environment that tell with what Spark starts Python."""

for _name in INTERPRETERS:
    os.environ.setdefault(_name, sys.executable)


_ASKING = "Getting offsets from"
_ENDING = ("Stopped", "Terminated")
"""What a query's status begins with: while it asks its sources, and when it has ended or failed but is active a moment longer."""


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
    is_asking = False
    while True:
        progress, message = query.lastProgress, query.status["message"]
        if not query.isActive:
            if error := query.exception():
                raise error
            return  # it has ended, and had everything that there was
        # It joins when it first asks its sources how far there are lines. A query that goes on with a batch that it had begun
        # before has run that one by then, and may have told of it.
        if message.startswith(_ENDING):  # of what, is known a moment later
            is_asking = False
        elif is_asking and not message.startswith(_ASKING):
            return
        else:
            is_asking = message.startswith(_ASKING)
        if progress is None:
            if message.startswith("Waiting for"):
                return
        elif message.startswith("Waiting for data") or any(source["latestOffset"] for source in progress["sources"]):
            return
        if time.monotonic() > end:
            raise TimeoutError(f"the query has not joined its channels within {timeout:g} seconds: {message}")
        time.sleep(0.002)
