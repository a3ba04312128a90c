"""One Spark session for all tests, since starting one takes longer than most tests do."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .java import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two task slots, small and quick to start, that knows the format "futebus"."""
    from pyspark.sql import SparkSession  # here: all tests have this module loaded, and most need no Spark

    from futebus.spark import INTERPRETERS, interpreter

    directory = tmp_path_factory.mktemp("spark")
    os.environ |= dict.fromkeys(INTERPRETERS, sys.executable)
    interpreter.quicken()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("tests of futebus")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.local.dir": str(directory / "local"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def is_well(query: "StreamingQuery") -> bool:
    """Whether a query has not failed. Who waits for what it does need not wait when it has.

    Raises:
        StreamingQueryException: it has.
    """
    if error := query.exception():
        raise error
    return True
