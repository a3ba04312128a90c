"""How much a server is asked for at once, by what its line carries.

The one rule: no more is under way than comes within a few seconds. A server closes a connection that does not take what it has
for it (within 10 s, `write_deadline`), and what was under way comes again. What is asked meanwhile is answered behind it.
"""

FIRST_BYTES = 256 << 10
"""What is asked for before anything is known."""

LEAST_BYTES = 64 << 10
"""No less is asked for, however slow a line is."""

SECONDS = 2.0
"""How long it is to take until what was asked for has come."""

LATE_SECONDS = 4.0
"""When it takes so long, less is asked for."""


class Pace:
    """How much that is.

    Args:
        most: bytes that are asked for at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes = min(FIRST_BYTES, most)
        """What is to be asked for next."""

    def took(self, size: int, seconds: float, waited: float) -> None:
        """Is told how long so many bytes took to come, which the server had when it was asked for them.

        Args:
            size: how many.
            seconds: since it was asked. Who has had something else to do meanwhile does not know when they came.
            waited: for how many of these it was waited for them.
        """
        carried = round(min(size * SECONDS / max(seconds, 1e-6), self._most))
        if carried > self.bytes or waited > LATE_SECONDS:
            self.bytes = max(carried, min(LEAST_BYTES, self._most))
