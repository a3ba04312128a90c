"""What tests of clients do in another thread."""

import threading
from collections.abc import Callable, Iterator

import futebus.client as client

from ..helpers.waiting import until


def aside(work: Callable[[], object]) -> threading.Thread:
    """Does something in a thread of its own."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Reads:
    """What somebody reads in a thread, as it comes."""

    def __init__(self, source: Iterator[str] | client.Reader[str]) -> None:
        self.got: list[str] = []
        aside(lambda: self.got.extend(source))

    def __next__(self) -> str:
        until(lambda: self.got, "something is read")
        return self.got.pop(0)
