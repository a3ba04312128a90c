"""Who descends from a process is found out whatever others are called."""

import os
import subprocess
import sys

from ..helpers.recorders import is_alive
from .family import family

ODD = """
import sys
with open("/proc/self/comm", "wb") as name:
    name.write(b"x) R 1 \\x9b(\\n")
print("there", flush=True)
sys.stdin.read()
"""


def test_a_process_with_an_odd_name_hides_nobody() -> None:
    with subprocess.Popen([sys.executable, "-c", ODD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        assert odd.stdout
        assert odd.stdout.readline() == b"there\n"
        assert odd.pid in {pid for pid, _ in family(os.getpid())}
        assert is_alive(odd.pid)
        assert odd.stdin
        odd.stdin.close()
