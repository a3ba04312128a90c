"""A recorder whose threads are long in leaving the process when they have ended, and which is told to end as it takes over.

usage: python -m tests.recorder.leaving [OPTION...] CHANNEL SPOOL
"""

import ctypes
import os
import signal
import sys
import threading

from futebus.commands import record
from futebus.spool import SpoolLock

from ..helpers.waiting import DEADLINE


def main() -> int:
    """Runs the recorder."""
    system = ctypes.CDLL(None)
    # What the system calls, in the thread itself, when Python has done with it and has told whoever joins it: it sleeps until the
    # deadline, or until a signal is delivered to it.
    key = ctypes.c_uint()
    assert system.pthread_key_create(ctypes.byref(key), system.sleep) == 0
    first = os.getpid()
    run, sign = threading.Thread.run, SpoolLock.sign

    def running(thread: threading.Thread) -> None:
        system.pthread_setspecific(key, ctypes.c_void_p(int(DEADLINE)))
        run(thread)

    def signing(lock: SpoolLock) -> None:
        sign(lock)
        if os.getpid() == first:
            return
        assert threading.active_count() == 1
        assert len(os.listdir("/proc/self/task")) >= 4, "those that listen, keep up and warm are still leaving"
        os.write(2, b"told to end\n")
        os.kill(os.getpid(), signal.SIGTERM)

    setattr(threading.Thread, "run", running)  # noqa: B010
    setattr(SpoolLock, "sign", signing)  # noqa: B010
    return record.main()


if __name__ == "__main__":
    sys.exit(main())
