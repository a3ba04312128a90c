"""The bus as a Spark source and sink. Knows nothing of how a bus is mounted, only of files.

Importing it has Spark start its Python processes with this interpreter, unless somebody has said with which. Otherwise Spark
takes the first `python3` that it finds, which may know nothing of futebus. It must be imported before there is a session.
"""

import os
import sys

for _name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
    os.environ.setdefault(_name, sys.executable)
