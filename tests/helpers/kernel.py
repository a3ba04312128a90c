"""Which Linux this is: some of what it can do depends on that."""

import os
import re

Version = tuple[int, int]


def version(release: str) -> Version:
    """The first two numbers of what `uname -r` says, to be compared as numbers: 6.9 is older than 6.18."""
    found = re.match(r"(\d+)\.(\d+)", release)
    assert found, release
    return int(found[1]), int(found[2])


def linux() -> Version:
    """The version that runs here."""
    return version(os.uname().release)
