"""Waits for a path to be there: by inotify(7), which the standard library does not have, so by ctypes.

The one rule: it is watched first, and looked for then. So nothing that happens between is missed.
"""

import contextlib
import ctypes
import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

from .places import GONE

IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_ONLYDIR = 0x1000000

MASK = IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
"""What may make a path be there."""

RETRY_SECONDS = (0.01, 1.0)
"""How soon, and later how seldom, a socket on which nobody listens is tried again: no event tells when somebody does."""

LOOK_SECONDS = 2.0
"""How often one looks for what inotify does not tell: links, other machines' doings, and all of it where it is used up."""

GATHER_SECONDS = 0.005
"""How long events are gathered, so that a directory in which much happens costs little."""

_EVENTS_BYTES = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watches for a path, for as long as a context lasts.

    Args:
        path: what shall be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._file = -1
        self._watched: dict[str, int] = {}
        self._pause = RETRY_SECONDS[0]

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._file = _called(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file >= 0:
            trio.lowlevel.notify_closing(self._file)
            os.close(self._file)
            self._file = -1

    def look(self) -> None:
        """Watches the directory that the path is to be in, or the nearest that is there. What was watched before is forgotten."""
        if self._file < 0:
            return
        for watch in self._watched.values():
            _libc.inotify_rm_watch(self._file, watch)
        self._watched.clear()
        parents = [os.fspath(parent) for parent in self._path.parents]
        for _ in parents:  # each time round, a directory has been made meanwhile
            depth = self._watch_nearest(parents)
            if not depth or not Path(parents[depth - 1]).exists():
                return

    def _watch_nearest(self, parents: list[str]) -> int:
        """Returns how many directories are missing; 0 too if there is nothing that can be watched."""
        for depth, directory in enumerate(parents):
            try:
                watch = _called(_libc.inotify_add_watch(self._file, os.fsencode(directory), MASK))
            except FileNotFoundError:
                continue
            except OSError:
                return 0
            self._watched[directory] = watch
            return depth
        return 0

    async def changed(self, error: OSError) -> None:
        """Waits until it is worth another try.

        Args:
            error: why the last one has failed. Of `GONE`.
        """
        longest = LOOK_SECONDS
        if error.errno != errno.ENOENT:
            longest, self._pause = self._pause, min(self._pause * 1.5, RETRY_SECONDS[1])
        with trio.move_on_after(longest):
            if self._file < 0:
                await trio.sleep_forever()
            await trio.lowlevel.wait_readable(self._file)
            self._pause = RETRY_SECONDS[0]
            await trio.sleep(GATHER_SECONDS)
        if self._file >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._file, _EVENTS_BYTES)


def _called(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


__all__ = ["GONE", "Watch"]
