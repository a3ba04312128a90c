"""Signals that end a command are heard, whichever of its threads the kernel interrupts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


WAITING = """
import os, signal, threading, time
from futebus.host.signals import wait_readable

reads, writes = os.pipe()
aside = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
aside.start()
signal.signal(signal.SIGTERM, lambda *_: (print("heard"), os.write(writes, b"x")))

def interrupt():
    while "poll" not in open(f"/proc/self/task/{os.getpid()}/wchan").read():
        pass
    signal.pthread_kill(aside.ident, signal.SIGTERM)

threading.Thread(target=interrupt, daemon=True).start()
wait_readable(reads)
print(os.read(reads, 10))
os.close(writes)
wait_readable(reads)
print(os.read(reads, 10))
assert signal.set_wakeup_fd(-1) == -1
"""


def test_who_waits_for_a_descriptor_hears_what_another_thread_gets() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\nb'x'\nb''\n", "")


BORN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/types.h>

pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    pid_t child = real();

    if (!child)
        raise(SIGTERM);
    return child;
}
"""
"""Signals come to every child before its Python knows what it is."""

FORKING = """
import os, signal
from futebus.host.signals import fork

signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
child = fork()
if not child:
    os._exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


def test_a_child_hears_what_comes_while_it_is_born(tmp_path: Path) -> None:
    source, library = tmp_path / "born.c", tmp_path / "born.so"
    source.write_text(BORN)
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    preloading = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=DEADLINE, check=False, env=preloading
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n0 0\n", "")


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


STOPPED = """
import os, signal, sys, time
from pathlib import Path
from futebus.host.signals import take_signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
waiting, end = os.getpid(), time.monotonic() + 2.2
child = os.fork()
if not child:
    while Path(f"/proc/{waiting}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        pass
    os.kill(waiting, signal.SIGSTOP)
    while time.monotonic() < end:
        time.sleep(0.01)
    if sys.argv[1] == "asked":
        os.kill(waiting, signal.SIGTERM)
    os.kill(waiting, signal.SIGCONT)
    os._exit(0)
print(take_signal({signal.SIGTERM}, 2.0))
os.waitpid(child, 0)
print(take_signal({signal.SIGTERM, signal.SIGCHLD}, None))
"""


@pytest.mark.parametrize(("way", "said"), [("let be", "None\n17\n"), ("asked", "15\n17\n")])
def test_who_is_stopped_until_its_time_is_over_has_taken_what_has_come(way: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED, way], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
