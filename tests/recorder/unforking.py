"""A recorder whose system refuses it a call as long as the name of that call is in a file.

usage: python -m tests.recorder.unforking FILE [OPTION...] CHANNEL SPOOL
"""

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from futebus.commands import record

CALLS = ("fork", "pipe2")

THREAD = "thread"
"""The name of what starts one."""


def main() -> int:
    """Runs the recorder."""
    obstacle = Path(sys.argv[1])

    def refused(name: str, call: Callable[..., Any], error: Exception) -> Callable[..., Any]:
        def refusing(*arguments: Any) -> Any:
            if obstacle.exists() and obstacle.read_text() == name:
                raise error
            return call(*arguments)

        return refusing

    for name in CALLS:
        setattr(os, name, refused(name, getattr(os, name), OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))))
    # Python tells that with this.
    setattr(threading.Thread, "start", refused(THREAD, threading.Thread.start, RuntimeError("can't start new thread")))  # noqa: B010
    return record.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
