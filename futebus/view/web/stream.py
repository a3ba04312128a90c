"""Server-sent events.

The one rule: what is sent waits until it is taken, and of what waits there is only so much. Nothing is kept for a page that does
not read; the server cuts it off.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...host.origins import Origin
from .answers import Room, busy
from .server import PIECE_BYTES, WHOLE_SECONDS

Push = Callable[[str, str], Awaitable[None]]
"""Sends an event: its name and a line of data. Without a name it is nothing but a sign of life."""

RETRY = b"retry: 2000\n\n"

ALIVE = b":\n\n"

FRAME = 64
"""Bytes that HTTP may add to a piece."""


NOBODY = Origin("", False)


class Stream(Response):
    """A response that goes on.

    Args:
        feed: sends events until it has no more, or is cancelled since the page has gone.
        refusal: why there is no place for it, if there is none.
        place: taken as soon as there is one, and until the end.
        room: where an event waits; one for which there is no room is left out, and something newer will follow. None: each event
            counts, and none is large.
        who: who has asked.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        feed: Callable[[Push], Awaitable[None]],
        refusal: Callable[[], str] = str,
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
        room: Room | None = None,
        who: Origin = NOBODY,
    ) -> None:
        self.status_code, self.background = 200, None
        self._feed, self._refusal, self._place = feed, refusal, place
        self._room, self._who = room, who
        self.init_headers({"x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it all."""
        # Nobody comes in between: what waits in between has been let in.
        if words := self._refusal():
            await busy(words)(scope, receive, send)
            return
        with self._place():
            await self._send(scope, send)

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            with trio.CancelScope() as whole:

                async def push(name: str, data: str) -> None:
                    event = f"event: {name}\ndata: {data}\n\n".encode() if name else ALIVE
                    if self._room and not self._room.has(self._who, len(event)):
                        event = ALIVE
                    with self._room.taken(self._who, len(event)) if self._room else nullcontext():
                        end = trio.current_time() + WHOLE_SECONDS
                        # In pieces: of each one that is sent there are copies.
                        for start in range(0, len(event), PIECE_BYTES - FRAME):
                            piece = event[start : start + PIECE_BYTES - FRAME]
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
                            if trio.current_time() > end:
                                whole.cancel()
                            await trio.lowlevel.checkpoint()

                await send({"type": "http.response.body", "body": RETRY, "more_body": True})
                await self._feed(push)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
