"""Buses that begin as a copy of a process which has imported futebus already: to import it is most of what the command costs.

What a bus says and does is the same, but for what it is called: /proc/PID/cmdline is that of the process it is a copy of.
"""

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

TREE = Path(__file__).parents[2]
STDERR = 2


class Forked:
    """A process that is not our child but its. Has what tests use of a `subprocess.Popen`."""

    def __init__(self, begun_by: "Nursery", pid: int, arguments: list[str]) -> None:
        self.pid = pid
        self.args = arguments
        self.returncode: int | None = None
        self._nursery = begun_by
        self._lock = threading.Lock()
        self._handle = os.pidfd_open(pid)  # it has its number until it has been waited for

    def poll(self) -> int | None:
        """How it has ended, as `Popen.poll` says it; None: it has not."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, in so many seconds.
        """
        status = self._wait(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _wait(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._handle, select.POLLIN)
                if poll.poll(None if timeout is None else timeout * 1000):
                    self.returncode = self._nursery.status_of(self.pid)
                    os.close(self._handle)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it is there."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that others are copies of, begun when it is asked for the first time. It ends when this one does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[int, socket.socket, subprocess.Popen[bytes]] | None = None

    def begin(self, arguments: list[str], stderr: IO[bytes]) -> Forked:
        """Runs `futebus` with these arguments."""
        told = {"arguments": arguments, "environment": dict(os.environ), "directory": str(Path.cwd())}
        return Forked(self, self._ask(told, stderr.fileno()), arguments)

    def status_of(self, pid: int) -> int:
        """How a process has ended that has."""
        return self._ask({"pid": pid})

    def _ask(self, told: dict[str, Any], *descriptors: int) -> int:
        with self._lock:
            connection = self._connected()
            socket.send_fds(connection, [json.dumps(told).encode()], descriptors)
            answer = connection.recv(100)
            assert answer, "the process that begins buses has ended"
            return int(answer)

    def _connected(self) -> socket.socket:
        if self._running and self._running[0] == os.getpid():  # and not a copy of who has begun it
            return self._running[1]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=TREE)
        self._running = os.getpid(), ours, process
        atexit.register(self._end, *self._running)
        return ours

    def _end(self, owner: int, connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        if owner == os.getpid():
            connection.close()
            process.wait()


NURSERY = Nursery()


def _serve(connection: socket.socket) -> bool:
    """Begins copies until nobody is there to ask for them. Returns whether this is one."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 1)
        if not told:
            return False
        order = json.loads(told)
        if "pid" in order:
            number = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
        elif not (number := os.fork()):
            connection.detach()
            _become(order, descriptors[0])
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(b"%d" % number)


def _become(order: dict[str, Any], stderr: int) -> None:
    """Has what the command has when it is started."""
    # Two that ran the same tasks in the same order would show less than two that do not.
    trio._core._run._r.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stderr, STDERR)
    os.closerange(STDERR + 1, 1024)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    sys.argv = ["futebus", *order["arguments"]]


if __name__ == "__main__":
    import trio

    import futebus.fuse.mount
    import futebus.fuse.mountpoint  # noqa: F401
    from futebus.commands.futebus import main

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has begun this
    gc.collect()
    gc.freeze()  # what is collected would be copied
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        sys.exit(main())
