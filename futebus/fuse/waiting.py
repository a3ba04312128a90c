"""Reads and writes: from the kernel's requests to the core and back. The only place where a call of a client waits.

A call that must wait is parked: its request is kept (by the core, as the token of the call) and answered when some later call
says so in its effects, or when a signal comes. Nothing here ever blocks.
"""

import errno
import logging
import os
import time
from collections.abc import Callable

import pyfuse3

from futebus.core.bus import Bus
from futebus.core.client import Client, Effects
from futebus.core.errors import BusError
from futebus.core.kinds import Role
from futebus.core.text import escape

from ._hooks import Request

log = logging.getLogger(__name__)

_SPLIT_PIECE = 512 * 1024
"""The kernel splits long writes; all pieces but the last are nearly `max_write` (1 MiB) long."""


class OpenChannel:
    """One open file description of a channel, as the kernel sees it."""

    __slots__ = ("client", "expected_offset", "node", "poll_handle", "swallowed")

    def __init__(self, client: Client, node: int) -> None:
        self.client = client
        self.node = node
        self.poll_handle: pyfuse3.PollHandle | None = None
        self.expected_offset = 0
        """Where the next piece of a split write would begin."""
        self.swallowed: BusError | None = None
        """What was wrong with a later piece of a split write: the kernel made a short count of it."""

    def continues_write(self, offset: int, size: int, flags: int) -> bool:
        """Whether a WRITE request is a further piece of the write(2) that the one before it belonged to.

        A stream has no file position, so a write(2) begins at offset 0, or at the end of what the kernel takes for the file's
        size if it appends; then only the length of the piece before tells.
        """
        continues = 0 < offset == self.expected_offset
        self.expected_offset = offset + size if size >= _SPLIT_PIECE or not flags & os.O_APPEND else 0
        return continues


class OpenStat:
    """One open `_stat`: its text comes a moment after the snapshot was taken."""

    __slots__ = ("_text", "_waiting")

    def __init__(self) -> None:
        self._text: bytes | None = None
        self._waiting: dict[Request, tuple[int, int]] = {}

    def read(self, request: Request, size: int, offset: int) -> bytes | None:
        """The bytes from `offset`; None while there is no text yet."""
        if self._text is None:
            self._waiting[request] = offset, size
            return None
        return self._text[offset : offset + size]

    def interrupt(self, request: Request) -> None:
        """A signal for a reader."""
        if self._waiting.pop(request, None):
            request.error(errno.EINTR)

    def finish(self, text: bytes) -> None:
        """Here is the text: answers those who wait for it."""
        self._text = text
        for request, (offset, size) in self._waiting.items():
            request.data(text[offset : offset + size])
        self._waiting.clear()


class Calls:
    """The open files of a mount, and the calls on them."""

    def __init__(self, bus: Bus, clock: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._clock = clock
        self._open: dict[int, OpenChannel | OpenStat] = {}
        self._channels: dict[Client, OpenChannel] = {}
        self._continued: dict[Request, OpenChannel] = {}
        """Parked writes that are further pieces of a split one."""
        self._next_handle = 1
        self.on_last_close: Callable[[], None] | None = None
        """Called when no client is left."""

    # ------------------------------------------------------------------------------------------ open files

    def add(self, file: OpenChannel | OpenStat) -> int:
        """Keeps an open file. Returns its handle."""
        handle = self._next_handle
        self._next_handle += 1
        self._open[handle] = file
        if isinstance(file, OpenChannel):
            self._channels[file.client] = file
        return handle

    def __getitem__(self, handle: int) -> OpenChannel | OpenStat:
        return self._open[handle]

    def remove(self, handle: int) -> OpenChannel | OpenStat:
        """The last close of an open file."""
        file = self._open.pop(handle)
        if isinstance(file, OpenChannel):
            file.poll_handle = None
            del self._channels[file.client]
            self.settle(self._bus.close(file.client, self._clock()))
            self._tell_loss(file.client)
            if not self._channels and self.on_last_close:
                self.on_last_close()
        return file

    def _tell_loss(self, client: Client) -> None:
        """Who wrote to a master was told that its lines are accepted. If they end unread, somebody should know."""
        if client.role is Role.MASTER and (lost := client.mailbox.messages):
            who, name = client.owner, escape(client.channel.name)
            log.warning("%s: its master (process %d of user %d) has closed with %d messages unread", name, who.pid, who.uid, lost)

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._open)

    # ------------------------------------------------------------------------------------------ requests

    def read(self, request: Request, handle: int, size: int, offset: int, flags: int) -> bytes | int | None:
        """Serves a READ request: see `_hooks.install`."""
        file = self._open[handle]
        if isinstance(file, OpenStat):
            return file.read(request, size, offset)
        try:
            data, effects = self._bus.read(file.client, size, self._clock(), None if flags & os.O_NONBLOCK else request)
        except BusError as error:
            return -error.errno
        except Exception:
            return self._internal_error("read", file.client)
        if effects:
            self.settle(effects)
        return data

    def write(self, request: Request, handle: int, data: bytes, offset: int, flags: int) -> int | None:
        """Serves a WRITE request: see `_hooks.install`."""
        file = self._open[handle]
        assert isinstance(file, OpenChannel)
        continues = file.continues_write(offset, len(data), flags)
        if file.swallowed and not continues:
            error, file.swallowed = file.swallowed, None
            return -error.errno
        try:
            count, effects = self._bus.write(file.client, data, self._clock(), None if flags & os.O_NONBLOCK else request)
        except BusError as error:
            if continues and error.errno != errno.EAGAIN:
                file.swallowed = error
            return -error.errno
        except Exception:
            return self._internal_error("write", file.client)
        if count is None and continues:
            self._continued[request] = file
        if effects:
            self.settle(effects)
        return count

    def interrupt(self, request: Request) -> None:
        """A signal for the caller of a parked call: see `_hooks.install`."""
        effects = self._bus.cancel(request, self._clock())
        if effects is not None:
            self._continued.pop(request, None)
            request.error(errno.EINTR)
            self.settle(effects)
            return
        for file in self._open.values():
            if isinstance(file, OpenStat):
                file.interrupt(request)

    def settle(self, effects: Effects) -> None:
        """Answers the parked calls that have ended, and wakes pollers.

        What goes wrong with one of them is not the concern of the others, nor of whoever's call had these effects.
        """
        for token, answer in effects.finished:
            assert isinstance(token, Request)
            try:
                self._answer(token, answer)
            except Exception:
                log.exception("internal error in the answer to a parked call")
        for client in effects.ready:
            file = self._channels.get(client)
            if file and file.poll_handle:
                handle, file.poll_handle = file.poll_handle, None
                try:
                    handle.notify()
                except OSError as error:  # nobody polls any more
                    log.debug("poll notification: %s", error)

    def _answer(self, request: Request, answer: bytes | int | BusError) -> None:
        if isinstance(answer, bytes):
            request.data(answer)
            return
        file = self._continued.pop(request, None)
        if isinstance(answer, int):
            request.written(answer)
        else:
            if file:
                file.swallowed = answer
            request.error(answer.errno)

    def _internal_error(self, call: str, client: Client) -> int:
        log.exception(
            "internal error in %s of %s by client {%x}, process %d of user %d",
            call,
            escape(client.channel.name),
            client.id,
            client.owner.pid,
            client.owner.uid,
        )
        return -errno.EIO
