"""Spark's workers import pyspark from bytecode, and whatever else they are told to find."""

import os
import sys
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from futebus.spark import INTERPRETERS, interpreter

from ..helpers.mounts import run

LIBRARIES = Path(pyspark.__file__).parent / "python" / "lib"


def test_workers_of_a_session_do_not_take_it_from_the_zip(spark: SparkSession) -> None:
    def where(_: int) -> tuple[str, str, str]:
        return sys.executable, pyspark.__file__, py4j.__file__

    [found] = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert found == (sys.executable, pyspark.__file__, py4j.__file__)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> str:
    """What workers are started with when nobody has said otherwise."""
    for name in INTERPRETERS:
        monkeypatch.setenv(name, sys.executable)
    interpreter.quicken()
    [found] = {os.environ[name] for name in INTERPRETERS}
    assert found != sys.executable
    return found


def test_all_else_of_the_path_is_kept(place: Path, script: str) -> None:
    (place / "own.py").touch()
    zips = sorted(LIBRARIES.glob("*.zip"))
    assert len(zips) == 2
    words = (
        "import os, own, pyspark, py4j, sys\n"
        "print(own.__file__, pyspark.__file__, py4j.__file__, os.environ['place'], os.environ['path'], *sys.argv[1:], sep='\\n')"
    )
    environment = {
        **os.environ,
        "place": "Berlin",
        "path": "a:b",
        "PYTHONPATH": ":".join(map(str, [*zips, "/nowhere *", place, *zips])),
    }
    done = run(script, "-c", words, "a b", "*", env=environment)
    assert done.stdout.split("\n") == [str(place / "own.py"), pyspark.__file__, py4j.__file__, "Berlin", "a:b", "a b", "*", ""]


def test_what_somebody_has_said_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["/usr/bin/python3", sys.executable]
    for name, python in zip(INTERPRETERS, said, strict=True):
        monkeypatch.setenv(name, python)
    with monkeypatch.context() as changed:
        changed.setattr(pyspark, "__file__", str(LIBRARIES / "pyspark.zip" / "pyspark" / "__init__.py"))
        interpreter.quicken()
    with monkeypatch.context() as changed:
        changed.setattr(interpreter, "_SCRIPT", Path(__file__))
        interpreter.quicken()
    assert [os.environ[name] for name in INTERPRETERS] == said
    interpreter.quicken()
    assert os.environ[INTERPRETERS[0]] == said[0]
    assert os.environ[INTERPRETERS[1]].endswith("python.sh")
