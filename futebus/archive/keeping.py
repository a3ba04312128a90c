"""Queries that go on: one that has ended by something that may pass is started again, from its checkpoint.

The one rule: it is given up when it fails again and again without getting on, and at once when no start can mend what is wrong.
What it reads may be gone for a while, and another thing of the same name come instead: that is waited for.
"""

import time
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from ..recorder.channel import Say
from .order import FAILURES, sentence
from .storage import ArchiveError, StorageError

MOST_FAILURES = 7
"""How often a query may end between two batches that it finishes."""

PAUSE_SECONDS = (1.0, 30.0)
"""How long it is left alone before it is started again, at first and at most: twice as long each time. A minute in all."""

MISSING_SECONDS = 600.0
"""How long what a query reads may be gone. Who makes a stream anew, or gets it back from a copy, needs minutes for it."""

LOOK_SECONDS = 1.0
"""How often it is looked for meanwhile."""

_GONE = ("StreamGone", "NoStream")
"""What a query says whose stream is gone, or another one now. Which one there is, is found out when it is started again."""

_LASTING = ("OptionError", "QueryError", "ForeignSpool", "NotASpool", "ArchiveError")
"""What is wrong with options, schemas, spools and archives is so after a start, too. These are names in Python's tracebacks."""


class Missing(ArchiveError):
    """What a query is to read is not there, in one sentence. It is raised by what starts the query."""


def is_lasting(failure: BaseException) -> bool:
    """Whether no start mends what has ended a query, or kept it from being started."""
    if isinstance(failure, StorageError | OSError):
        return isinstance(failure, ConnectionError)  # Java is gone
    if isinstance(failure, AnalysisException) or not isinstance(failure, PySparkException | Py4JJavaError):
        return True  # a wrong query; or Java is gone
    return _is_one_of(failure, _LASTING)


def is_gone(failure: BaseException) -> bool:
    """Whether a query has ended because its stream is not there, or is another one now."""
    return _is_one_of(failure, _GONE)


def _is_one_of(failure: BaseException, names: tuple[str, ...]) -> bool:
    words = str(failure)
    return any(f"{name}: " in words for name in names)


class KeptQuery:
    """One query.

    Args:
        name: which one, for people.
        start: starts it, from its checkpoint if there is one. After the first time, it may raise `Missing`.
        say: is told when it has failed and will be started again.
    """

    def __init__(self, name: str, start: Callable[[], StreamingQuery], say: Say) -> None:
        self._name, self._start, self._say = name, start, say
        self._batch = -1
        """The last one that it has finished."""
        self._failures = 0
        self._due = 0.0
        """When it is started again."""
        self._missing_until: float | None = None
        """Until when what it reads is waited for; None if that is there, as far as is known."""
        self.query: StreamingQuery | None = start()
        """None while it pauses."""

    def look(self) -> bool:
        """Starts it again if it has failed. Returns whether it goes on: it has not come to its end, or will be started again.

        Raises:
            One of order.FAILURES: what has ended it for good.
        """
        if self.query is None:
            if time.monotonic() >= self._due:
                self._start_again()
            return True
        is_active = self.query.isActive  # first: it may fail meanwhile, and who has ended without a failure is at its end
        failed = self.query.exception()
        progress = self.query.lastProgress
        if progress is not None and progress["batchId"] > self._batch:
            self._batch, self._failures = progress["batchId"], 0
        if failed is not None:
            self._note(failed)
            return True
        return is_active

    def _start_again(self) -> None:
        try:
            self.query = self._start()
        except Missing as missing:
            self._await(missing)
        except FAILURES as failure:
            self._note(failure)
        else:
            if self._missing_until is not None:
                self._missing_until = None
                self._say(f"the query {self._name} is started again")

    def _await(self, missing: Missing) -> None:
        now = time.monotonic()
        if self._missing_until is None:
            self._missing_until = now + MISSING_SECONDS
            self._say(f"{missing}; waiting")
        elif now > self._missing_until:
            raise ArchiveError(f"{missing} (for {MISSING_SECONDS:g} s)")
        self._due = now + LOOK_SECONDS

    def _note(self, failure: Exception) -> None:
        self._failures += 1
        if is_lasting(failure) or self._failures >= MOST_FAILURES:
            raise failure
        if self._failures == 1 and is_gone(failure):
            self.query, self._due = None, time.monotonic() + LOOK_SECONDS
            return
        least, most = PAUSE_SECONDS
        pause = min(least * 2.0 ** (self._failures - 1), most)
        self._say(f"the query {self._name} has failed, and is started again in {pause:g} s: {sentence(failure)}")
        self.query, self._due = None, time.monotonic() + pause

    def stop(self) -> None:
        """Ends it."""
        if self.query is not None:
            self.query.stop()
