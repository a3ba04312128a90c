"""One of a service: `servant.py serve PATH FORKS` or `servant.py ask PATH NAME FORKS HOW`. No signal ever ends a call of theirs.

A master reads a line and writes an answer, without end; FORKS more processes do the same on the same descriptor. A client
writes questions `NAME NUMBER` without pause until SIGTERM, FORKS more processes beside it on the same descriptor, each with a
name of its own. HOW is `reads`, and the client reads the answers meanwhile, or `deaf`.

What is seen goes to the standard output: what cannot be, as `wrong: ...`; when a master opens, `open`; of a client, how many
questions it asked and how many answers it got.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable

from . import calls

GONE = {errno.ENODEV, errno.ESRCH}
"""Whom one writes to may have been killed."""


def say(words: str) -> None:
    """One line, in one piece."""
    os.write(1, words.encode() + b"\n")


def again(call: Callable[..., bytes | int], *arguments: object) -> bytes | int:
    """Makes a call until no signal ends it: who was stopped and goes on has been interrupted."""
    while (result := call(*arguments)) == -errno.EINTR:
        pass
    return result


def serve(path: str, forks: int) -> None:
    """Is a master. On S channels the answer goes to whom the question came from, on U channels to all."""
    master = os.open(path, os.O_RDWR | os.O_CREAT)
    say("open")
    for _ in range(forks):
        if not os.fork():
            calls.die_with_parent()
            break
    is_service = os.path.basename(path).startswith(".S")
    while True:
        line = again(calls.read, master, 1000)
        if isinstance(line, int):
            say(f"wrong: read failed with errno {-line}")
            return
        if not line:
            return
        if is_service and line.endswith((b":o}\n", b":c}\n")):
            continue
        address, bracket, question = line.rpartition(b"}")
        result = again(calls.write, master, address + bracket + b"answer to " + question)
        if isinstance(result, int) and result < 0 and -result not in GONE:
            say(f"wrong: write failed with errno {-result}")
            return


class Client:
    """One client, and who shares its descriptor."""

    def __init__(self, path: str, names: list[str], reads: bool) -> None:
        self.path, self.names, self.reads = path, names, reads
        self.is_over = False
        self.asked = self.answered = 0

    def ask(self) -> None:
        """Runs until SIGTERM, or until the master has gone."""
        client = calls.open_(self.path, os.O_RDWR)
        if client < 0:
            return  # the master has just been killed
        name = self.names[0]
        for other in self.names[1:]:
            if not os.fork():
                calls.die_with_parent()
                self.reads, name = False, other
                break
        signal.signal(signal.SIGTERM, self._stop)
        if self.reads:
            threading.Thread(target=self._listen, args=(client,), daemon=True).start()
        while not self.is_over:
            question = b"%s %d\n" % (name.encode(), self.asked)
            result = calls.write(client, question)
            if result == -errno.EINTR:
                continue
            if result == -errno.ESRCH:
                break  # the master has been killed
            if result != len(question):
                say(f"wrong: a write returned {result}")
                break
            self.asked += 1
        say(f"{self.asked} {self.answered}")
        os._exit(0)

    def _stop(self, number: int, frame: object) -> None:
        self.is_over = True

    def _listen(self, client: int) -> None:
        """Reads answers: to its own questions; on a U channel to others' as well. Some may have been dropped.

        They come in the order of the questions where one process answers, which it does but on channels that are called team.
        """
        last = dict.fromkeys(self.names, -1)
        while isinstance(line := again(calls.read, client, 1000), bytes) and line:
            words, _, question = line.rpartition(b"answer to ")
            name, number = question.decode().split()
            if words or (name not in last and os.path.basename(self.path).startswith("S")):
                say(f"wrong: {line!r} for {self.names}")
            elif name in last:
                last[name], before = int(number), last[name]
                self.answered += 1
                if last[name] <= before and not self.path.endswith("team"):
                    say(f"wrong: an answer to {number} behind one to {before}")


def main() -> None:
    """See the top."""
    what, path, *words = sys.argv[1:]
    if what == "serve":
        serve(path, int(words[0]))
    else:
        name, forks, how = words
        Client(path, [f"{name}.{number}" for number in range(1 + int(forks))], how == "reads").ask()


if __name__ == "__main__":
    main()
