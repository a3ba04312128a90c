"""What is left behind by tests that ran before, in cycles of references, and goes when the garbage collector looks."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Has all that go at another time: what is raised in a `__del__` is heard by nobody, and was meant for another place."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
