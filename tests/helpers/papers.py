"""What the pages for people print, and shells into which it is typed."""

import os
import re
import signal
import subprocess
from pathlib import Path

from .programs import Start
from .recorders import parent_of
from .waiting import until

TREE = Path(__file__).parents[2]

VARIES = {"up 1 hour, 6 minutes": r"up \d+ \w+(, \d+ \w+)*"}
"""Lines of output that are never the same, and what they look like."""


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language in a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for language_of, block in found if language_of == language]


def examples(page: str) -> list[str]:
    """The examples of a manual page, in its order, as man(1) shows them."""
    text = (TREE / "man" / page).read_text()
    section = re.split(r"^\.Sh ", text.partition("\n.Sh EXAMPLES\n")[2], flags=re.MULTILINE)[0]
    return [
        block.replace(r"\e", "\\") for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", section, re.DOTALL | re.MULTILINE)
    ]


QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""What makes a Java start quickly."""


def environment(home: Path) -> dict[str, str]:
    """The environment of somebody who has installed futebus."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    own = {"HOME": str(home), "PATH": f"{TREE}/.venv/bin:{os.environ['PATH']}"}
    return {**kept, **own, "LC_ALL": "C", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": QUICK}


class Shell:
    """A shell that somebody types into, whose home is a directory of the test and who finds the commands of this tree.

    Args:
        start: starts it.
        place: where it is, and its home.
        name: of the file in `place` with all that it shows.
        program: what it is: bash, or another program that takes what is typed.
    """

    def __init__(self, start: Start, place: Path, name: str, *program: str | Path) -> None:
        self._shown = place / name
        with self._shown.open("w") as shown:
            self.process = start(
                *(program or ["bash"]), cwd=place, stdout=shown, stderr=subprocess.STDOUT, env=environment(place)
            )
        self._seen = 0

    def type(self, words: str) -> None:
        """A command, or Ctrl-C."""
        assert self.process.stdin
        if words == "^C":
            for pid in self._children():
                os.kill(pid, signal.SIGINT)
            return
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()

    def _children(self) -> list[int]:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        return [int(entry.name) for entry in entries if parent_of(entry) == self.process.pid]

    def expect(self, line: str) -> None:
        """The next line that it shows."""
        pattern = VARIES.get(line, re.escape(line))

        def is_there() -> bool:
            shown = self._shown.read_text().split("\n")[:-1]
            if len(shown) <= self._seen:
                return False
            assert re.fullmatch(pattern, shown[self._seen]), f"{shown[self._seen]!r} where {line!r} is promised"
            return True

        until(is_there, f"it shows {line!r}")
        self._seen += 1

    @property
    def shown(self) -> str:
        """All that it has shown."""
        return self._shown.read_text()

    @property
    def rest(self) -> list[str]:
        """What it has shown besides."""
        return self._shown.read_text().split("\n")[self._seen : -1]
