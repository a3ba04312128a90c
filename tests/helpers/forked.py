"""Commands that begin as a copy of a process which has imported them already: to import them is most of what a start costs.

What such a command says and does is the same, but for what it is called: its /proc/PID/cmdline is that of the process of which it
is a copy. So that process is the copy's parent, and not this one; the rest of what `subprocess.Popen` does is here, too.
"""

import ast
import atexit
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which something must be broken."""

PACKAGE = "futebus.commands."
COMMANDS = {PACKAGE + name for name in ("futebus", "link", "record", "sbus", "tmb", "ubus", "web")}
"""Those that begin so. The others are seldom started, or look at what they are called."""

KNOWN = {"stdin", "stdout", "stderr", "env", "text", "start_new_session"}
"""What such a start can be asked for."""


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python takes from an environment when it starts."""
    names = ("LANG", "LANGUAGE", "PYTHON", "LC_", "TRIO")
    return {name: value for name, value in environment.items() if name.startswith(names)}


_FOR_PYTHON = {**_of_python(os.environ), "LC_ALL": "C"}


def environment() -> dict[str, str]:
    """Ours, as those have it that begin so."""
    return {**os.environ, **_FOR_PYTHON}


def is_about_starts(test: Path) -> bool:
    """Whether the tests of a file are about how commands start and end, or what a process of the bus is: no copy will do."""
    return test.parent.name in ("commands", "fuse")


def begin(command: Sequence[str], **popen: Any) -> "subprocess.Popen[Any]":
    """Starts a program as `subprocess.Popen` does: as a copy if it is one of ours, and a copy can have what is asked for.

    Args:
        command: its words.
        popen: as for `Popen`.
    """
    is_ours = list(command[:2]) == [sys.executable, "-m"] and len(command) > 2 and command[2] in COMMANDS
    if is_ours and popen.keys() <= KNOWN and _of_python(popen.get("env") or {}) == _FOR_PYTHON:
        return Copy(command, **popen)
    return subprocess.Popen(command, **popen)


class Nursery:
    """The process of which those of one command are copies. It ends when this one does."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, module, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=TREE, env=environment()
            )
        ours.settimeout(PATIENCE)
        self._connection = ours
        self._owner = os.getpid()
        self._asked = 0
        atexit.register(self._end)

    @classmethod
    def of(cls, module: str) -> "Nursery":
        """The one of a command."""
        with _lock:
            found = _nurseries.get(module)
            if not found or found._owner != os.getpid():  # this is a copy of who has begun it
                found = _nurseries[module] = cls(module)
            return found

    def ask(self, order: Mapping[str, object], descriptors: Sequence[int] = ()) -> int:
        """Has it do something. Returns its answer, a number."""
        with self._lock:
            self._asked += 1
            socket.send_fds(self._connection, [json.dumps({**order, "serial": self._asked}).encode()], descriptors)
            while True:
                answer = self._connection.recv(100).split()
                assert answer, "the process that begins commands has ended"
                if int(answer[0]) == self._asked:  # and not one that an interrupted test has waited for
                    return int(answer[1])

    def _end(self) -> None:
        if self._owner == os.getpid():
            self._connection.close()
            self._process.wait()


_lock = threading.Lock()
_nurseries: dict[str, Nursery] = {}


class Copy(subprocess.Popen[Any]):
    """A process that is not our child. These are the places where Popen would start its own, and wait for it."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        pipes = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [number if pipe < 0 else pipe for number, pipe in enumerate(pipes)]
        self._nursery = Nursery.of(asked["args"][2])
        order = {
            "arguments": [os.fsdecode(word) for word in asked["args"][3:]],
            "environment": {name: os.fsdecode(value) for name, value in asked["env"].items()},
            "directory": str(Path.cwd()),
            "is in a session of its own": asked["start_new_session"],
        }
        self.pid = self._nursery.ask(order, descriptors)
        self._handle = os.pidfd_open(self.pid)  # it has its number until it has been waited for
        self._waiting = threading.Lock()
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        status = self._ended(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        """How it has ended; None: it has not, in so many seconds."""
        poll = select.poll()
        with self._waiting:
            if self.returncode is not None:
                return self.returncode
            poll.register(handle := os.dup(self._handle), select.POLLIN)
        try:  # others may send it a signal meanwhile, or ask
            has_ended = poll.poll(None if timeout is None else max(timeout, 0) * 1000)
        finally:
            os.close(handle)
        with self._waiting:
            if has_ended and self.returncode is None:
                self.returncode = self._nursery.ask({"pid": self.pid})
                os.close(self._handle)
            return self.returncode


# ---------------------------------------------------------------------------------------------- the other process


def _lazily_imported(module: str) -> Iterator[tuple[str, list[str]]]:
    """What a command imports when it knows what is asked of it: modules, and names in them."""
    source = Path(str(importlib.import_module(module).__file__)).read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]


def _serve(connection: socket.socket) -> bool:
    """Begins copies until nobody is there to ask for them. Returns whether this is one."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not told:
            return False
        order = json.loads(told)
        if "pid" in order:
            status = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
            connection.send(b"%d %d" % (order["serial"], status))
        elif not os.fork():
            _become(order, descriptors)
            connection.send(b"%d %d" % (order["serial"], os.getpid()))  # not before it has what it is to have
            connection.detach()
            os.closerange(len(descriptors), 1024)
            return True
        for descriptor in descriptors:
            os.close(descriptor)


def _become(order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Has what the command has when it is started."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # see the package of the commands
    if order["is in a session of its own"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    time.tzset()
    sys.argv[1:] = order["arguments"]
    for stream in (sys.stdin, sys.stdout):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=stream.isatty())
    if trio := sys.modules.get("trio"):
        # Two that ran the same tasks in the same order would show less than two that do not.
        trio._core._run._r.seed()


def _main(module: str, connection: int) -> int:
    main = importlib.import_module(module).main
    for name, what in _lazily_imported(module):
        with contextlib.suppress(ImportError):
            __import__(name, fromlist=what)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has begun this
    gc.collect()
    gc.freeze()  # what is collected would be copied
    if not _serve(socket.socket(fileno=connection)):
        return 0
    sys.argv[0] = str(sys.modules[module].__file__)
    status: int = main()
    return status


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2])))
