"""A Python for Spark's workers that starts in a third of the time.

pip's pyspark comes twice: as modules with bytecode, and in a zip without. Spark has its workers find the zip first, so each one
that is started compiles pyspark anew, for a second of processor; a query from a bus starts five of them. python.sh leaves the zip
out.
"""

import os
import sys
from pathlib import Path

import py4j
import pyspark

from . import INTERPRETERS

_SCRIPT = Path(__file__).with_name("python.sh")

_INTERPRETER = "FUTEBUS_PYTHON"
"""The variable of the environment that tells the script which Python it stands for."""


def quicken() -> None:
    """Has Spark's workers start with the script, if they are to run this interpreter.

    For a session that is not there yet, and whose workers are all on this host. Where pyspark is nothing but the zip, or the
    script cannot be run, all stays as it is.
    """
    if os.access(_SCRIPT, os.X_OK) and all(Path(module.__file__ or "").is_file() for module in (pyspark, py4j)):
        os.environ[_INTERPRETER] = sys.executable
        for name in INTERPRETERS:
            if os.environ.get(name) == sys.executable:
                os.environ[name] = str(_SCRIPT)
