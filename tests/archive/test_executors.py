"""Whether somebody computes, as a real session tells; that of the tests has no executors of its own."""

import pytest
from pyspark.sql import SparkSession

from futebus.archive import executors
from futebus.archive.executors import Executors, watched


def test_nobody_to_compute_is_said_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    found = Executors(spark, said.append)
    found.look()
    found.look()
    assert not said, "a cluster needs a while"
    monkeypatch.setattr(executors, "WAIT_SECONDS", 0.0)
    found.look()
    found.look()
    assert len(said) == 1
    assert said[0].startswith("local[2] has given Spark no executor for 0 s, and everything waits for one; ")


def test_a_session_that_computes_itself_needs_nobody(spark: SparkSession) -> None:
    assert watched(spark, print) is None
