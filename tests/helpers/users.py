"""Other users than root, who runs the tests: programs that act as one, and what they need of the machine."""

from pathlib import Path
from typing import Any

import pytest

ANN = {"user": 64001, "group": 64001, "extra_groups": []}
BOB = {"user": 64002, "group": 64002, "extra_groups": []}
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}  # fusermount3 wants a user with a name

# A user may not be able to start the interpreter that runs the tests, but root can, and become that user.
BECOME = """
import os, sys
def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
"""

MOUNTER = """
import futebus.fuse.mount, futebus.fuse.mountpoint, futebus.fuse.options, futebus.commands.futebus
become(65534)
sys.exit(futebus.commands.futebus.main(sys.argv[1:]))
"""


@pytest.fixture
def fuse_for_everybody() -> Path:
    """A device that users may open, as udev makes it wherever it runs."""
    device = Path("/dev/fuse")
    if device.stat().st_mode & 0o666 != 0o666:
        device.chmod(0o666)
    return device
