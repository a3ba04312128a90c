"""What tests of clients do in another thread, or in a child of this process."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import futebus.client as client

from ..helpers.processes import state_of
from ..helpers.waiting import until


def aside(work: Callable[[], object]) -> threading.Thread:
    """Does something in a thread of its own."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def sleeps(thread: int) -> bool:
    """Whether a thread of this process, by its number for the system, waits for something."""
    return state_of(f"self/task/{thread}") == "S"


def child(work: Callable[[], object]) -> int:
    """Does something in a child of this process. Returns its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    with contextlib.suppress(BaseException):
        work()
        status = 0
    os._exit(status)


def status(number: int) -> int:
    """Waits for its end. 0: nothing was raised."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


@contextlib.contextmanager
def lasting_child() -> Iterator[int]:
    """A child of this process, by its number, which is there from the beginning of this to its end, and does nothing."""
    end, begin = os.pipe()
    ready, say = os.pipe()

    def wait() -> None:
        os.close(begin)
        os.write(say, b"!")
        os.read(end, 1)

    number = child(wait)
    os.close(say)
    try:
        assert os.read(ready, 1) == b"!"
        yield number
    finally:
        for descriptor in (end, begin, ready):
            os.close(descriptor)
        assert status(number) == 0


class Reads:
    """What somebody reads in a thread, as it comes."""

    def __init__(self, source: Iterator[str] | client.Reader[str]) -> None:
        self.got: list[str] = []
        aside(lambda: self.got.extend(source))

    def __next__(self) -> str:
        until(lambda: self.got, "something is read")
        return self.got.pop(0)
