"""Signals that end a command are heard, whichever of its threads the kernel interrupts."""

import subprocess
import sys

from ..helpers.waiting import DEADLINE

PROGRAM = """
import os, signal, sys, threading, time
from futebus.host.signals import Endings, Inbox

endings, events = Endings(), Inbox()
aside = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
aside.start()

def interrupt():
    # When the main thread waits: it is in poll(2), or in futex(2) if it waits with a lock.
    while open(f"/proc/{os.getpid()}/task/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "S":
        pass
    signal.pthread_kill(aside.ident, signal.SIGTERM)

threading.Thread(target=interrupt, daemon=True).start()
endings.on_first(lambda: events.put("ended"))
print(events.get())
endings.forget()
events.close()
assert signal.set_wakeup_fd(-1) == -1
"""


def test_a_signal_that_another_thread_gets_is_heard_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


TAKING = """
import os, select, signal
from futebus.host.signals import SignalFile

numbers = {signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
taken = SignalFile(numbers)
print(taken.take(), select.select([taken], [], [], 0)[0])
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGHUP)
assert select.select([taken], [], [], 0)[0] == [taken]
print(*sorted([taken.take(), taken.take()]), taken.take())
os.kill(os.getpid(), signal.SIGHUP)
taken.close()
print(signal.sigwait(numbers).value)
"""


def test_signals_are_taken_once_and_what_is_not_taken_waits() -> None:
    done = subprocess.run([sys.executable, "-c", TAKING], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None []\n1 15 None\n1\n", "")
