"""The processes of a round: starts them, signals them, and tells what becomes of them.

`crowd.py` reads commands from standard input, JSON in lines: what `orders.Orders` has, or `{"signal": NUMBER, "who": WHO}`. It
prints `started WHO`, `ended WHO STATUS`, and what they tell themselves. It ends with its input.
"""

import json
import os
import select
import signal
import traceback
from io import FileIO
from typing import Protocol

from .. import calls
from .callers import Answerer, Caller, Dozer
from .orders import Orders
from .strangers import Fuzzer, Rude, Sitter
from .talkers import Half, Sleeper, Talker


class Role(Protocol):
    """What can be run."""

    def __init__(self, orders: Orders) -> None: ...
    def run(self) -> None:
        """Lives."""


ROLES: dict[str, type[Role]] = {
    each.__name__.lower(): each for each in (Talker, Sleeper, Half, Caller, Dozer, Answerer, Fuzzer, Sitter, Rude)
}
"""By their names."""


TOLD = (signal.SIGTERM, signal.SIGUSR1)
"""What a process may be sent as soon as it is there: it waits until there are handlers for that."""


def start(orders: Orders) -> int:
    """Starts a process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    if pid := os.fork():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
        os.write(1, f"started {orders.who}\n".encode())
        return pid
    status = 1
    try:
        calls.die_with_parent()
        os.close(0)
        role = ROLES[orders.role](orders)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
        role.run()
        status = 0
    except BaseException:
        os.write(2, f"{orders.who}: {traceback.format_exc()}".encode())
    os._exit(status)


def reap(running: dict[int, str]) -> None:
    """Tells who has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        os.write(1, f"ended {running.pop(pid)} {os.waitstatus_to_exitcode(status)}\n".encode())


def main() -> None:
    """See the top."""
    running: dict[int, str] = {}
    commands = FileIO(0)
    while True:
        if select.select([0], [], [], 0.02)[0]:
            line = commands.readline()
            if not line:
                return
            command = json.loads(line)
            if "signal" in command:
                # Who has ended and was not reaped is a zombie: the number is nobody else's.
                for pid in [pid for pid, who in running.items() if who == command["who"]]:
                    os.kill(pid, command["signal"])
            else:
                orders = Orders(**command)
                running[start(orders)] = orders.who
        reap(running)


if __name__ == "__main__":
    main()
