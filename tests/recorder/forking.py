"""A recorder that tells what runs beside the thread that forks, and who says something but the main thread.

usage: python -m tests.recorder.forking [OPTION...] CHANNEL SPOOL
"""

import os
import sys
import threading

from futebus.commands import record


def _told(words: str) -> None:
    os.write(2, f"{words}\n".encode())


def main() -> int:
    """Runs the recorder."""
    fork, say = os.fork, record._say

    def forking() -> int:
        others = sorted(thread.name for thread in threading.enumerate() if thread is not threading.current_thread())
        if others:  # one that was joined may still be leaving the process, and has no lock
            _told(f"forks beside {others}")
        return fork()

    def saying(words: str) -> None:
        if (name := threading.current_thread().name) == "bus":
            _told(f"the thread {name} says: {words}")
        say(words)

    os.fork, record._say = forking, saying
    return record.main()


if __name__ == "__main__":
    sys.exit(main())
