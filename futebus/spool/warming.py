"""Pages of a segment, before they are written to.

A page of a file that is written to for the first time must be found, zeroed and mapped. In the middle of a read of a channel that
costs more than the read itself, and all that time the channel is not drained. A thread does it for what is written next.
"""

import contextlib
import ctypes
import mmap
import threading

AHEAD_BYTES = 16 << 20
"""How far the pages should be ready before what is written now."""

STEP_BYTES = 2 << 20
"""How much is made ready in one go. Who wants the map back waits for the end of one."""

_MADV_POPULATE_WRITE = 23  # of Linux, since 5.14; before, it is refused, and the pages come one by one

_madvise = ctypes.CDLL(None).madvise  # mmap.madvise would stop all other threads meanwhile
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Warmer:
    """Makes pages of a map ready, in a thread that begins when there is something to do."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._map: mmap.mmap | None = None
        self._begin = self._end = 0
        self._is_busy = self._is_ended = False
        self._thread: threading.Thread | None = None

    def want(self, mapped: mmap.mmap, begin: int, end: int) -> None:
        """Has the bytes from `begin`, the first of a page, up to `end` made ready, but for those that are."""
        with self._news:
            self._begin = max(self._begin, begin) if mapped is self._map else begin
            self._map, self._end = mapped, end
            if self._thread is None and not self._is_ended:
                thread = threading.Thread(target=self._work, name="warmer", daemon=True)
                with contextlib.suppress(RuntimeError):  # there may be no more threads to be had; pages then come one by one
                    thread.start()
                    self._thread = thread
            self._news.notify_all()

    def leave(self) -> None:
        """When this returns, the map is not touched any more."""
        with self._news:
            self._map = None
            self._news.wait_for(lambda: not self._is_busy)

    def close(self) -> None:
        """Ends the thread."""
        with self._news:
            self._is_ended = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._news:
                self._is_busy = False
                self._news.notify_all()
                self._news.wait_for(lambda: self._is_ended or (self._map is not None and self._begin < self._end))
                if self._is_ended or self._map is None:
                    return
                mapped, begin = self._map, self._begin
                self._begin = min(begin + STEP_BYTES, self._end)
                size = self._begin - begin
                self._is_busy = True
            start = ctypes.c_char.from_buffer(mapped, begin)
            _madvise(ctypes.addressof(start), size, _MADV_POPULATE_WRITE)
            del start, mapped  # or else the map could not be closed
