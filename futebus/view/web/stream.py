"""Server-sent events.

The one rule: what is sent waits until it is taken. Nothing is kept for a page that does not read; the server cuts it off.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .answers import busy

Push = Callable[[str, str], Awaitable[None]]
"""Sends an event: its name and a line of data. Without a name it is nothing but a sign of life."""

RETRY = b"retry: 2000\n\n"


class Stream(Response):
    """A response that goes on.

    Args:
        feed: sends events until it has no more, or is cancelled since the page has gone.
        refusal: why there is no place for it, if there is none.
        place: taken as soon as there is one, and until the end.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        feed: Callable[[Push], Awaitable[None]],
        refusal: Callable[[], str] = str,
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.status_code, self.background = 200, None
        self._feed, self._refusal, self._place = feed, refusal, place
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

            async def push(name: str, data: str) -> None:
                text = f"event: {name}\ndata: {data}\n\n" if name else ":\n\n"
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

            await send({"type": "http.response.body", "body": RETRY, "more_body": True})
            await self._feed(push)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
