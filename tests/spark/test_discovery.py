"""Spark finds the format wherever a program is started from, and in whichever environment."""

import os
import sys
from pathlib import Path

from futebus.spool import SpoolWriter

from ..helpers import java
from ..helpers.mounts import run
from ..helpers.waiting import SLOW

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import futebus.spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("lines:", spark.read.format("futebus").load(sys.argv[1]).count())
"""


def test_a_program_that_imports_it_needs_no_activated_environment(place: Path) -> None:
    with SpoolWriter(place / "spool", "B_x") as writer:
        writer.append(b"one\ntwo\n")
    (place / "program.py").write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "VIRTUAL_ENV"))}
    environment = {**kept, "PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", java.OPTIONS: java.options()}
    # As python3, Spark would find the system's, which knows nothing of all this.
    done = run(sys.executable, place / "program.py", place / "spool", env=environment, cwd=place, timeout=SLOW)
    assert "lines: 2" in done.stdout, done.stderr[-3000:]


def test_a_tree_that_is_not_built_says_so(place: Path) -> None:
    core = place / "futebus" / "core"
    core.mkdir(parents=True)
    (place / "futebus" / "__init__.py").touch()
    (core / "__init__.py").touch()
    source = Path(__file__).parents[2] / "futebus" / "core" / "lines.py"
    (core / "lines.py").write_text(source.read_text())
    done = run(sys.executable, "-c", "import futebus.core.lines", cwd=place)
    assert "this futebus has not been built; in its tree, scripts/install does that" in done.stderr
