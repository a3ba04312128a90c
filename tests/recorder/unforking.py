"""A recorder whose system has no room for another process as long as a file is there.

usage: python -m tests.recorder.unforking FILE [OPTION...] CHANNEL SPOOL
"""

import errno
import os
import sys
from pathlib import Path

from futebus.commands import record


def main() -> int:
    """Runs the recorder."""
    obstacle = Path(sys.argv[1])
    fork = os.fork

    def forking() -> int:
        if obstacle.exists():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    os.fork = forking
    return record.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
