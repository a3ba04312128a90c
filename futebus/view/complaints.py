"""Errors that nobody has thought of.

The one rule: the same is told once a minute. What leads to it may be done by whoever can ask, or mount something, and very often.
"""

import logging
import threading
import time

from ..host import logs

SAME_SECONDS = 60.0

_lock = threading.Lock()
_told: dict[tuple[object, ...], float] = {}
"""When which ones were told: there are no more of them than places in this program."""


def complain(log: logging.Logger, words: str, error: BaseException) -> None:
    """Logs an error with its traceback, unless that was done a moment ago."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    what = words, type(error), place and place.tb_frame.f_code, place and place.tb_lineno
    now = time.monotonic()
    with _lock:
        if now < _told.get(what, -SAME_SECONDS) + SAME_SECONDS:
            return
        _told[what] = now
    logs.tell_error(log, lambda: words, error)
