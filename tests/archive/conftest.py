"""What tests of archives get."""

import pytest
from pyspark.sql import SparkSession

from futebus.archive.archive import SETTINGS


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session with the settings of an archive."""
    made = spark.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made
