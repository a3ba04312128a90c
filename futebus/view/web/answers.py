"""Answers that are large.

The one rule: what waits to be read is memory, and there is only so much of it, for all and for each who asks. Who does not read
has nobody wait for him, and keeps nobody from being answered.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ...host.origins import Origin, is_own

MOST_WAITING = 64 << 20
"""Bytes in all answers together."""


class Room:
    """So many bytes, and no more.

    Args:
        most: how many.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._of: Counter[Origin] = Counter()

    def has(self, who: Origin, size: int) -> bool:
        """Whether there is room for so much more of somebody: of each a half, but for root and whose process this is."""
        share = self._most if is_own(who) else self._most // 2
        return self._of[who] + size <= share and self._of.total() + size <= self._most

    @contextlib.contextmanager
    def taken(self, who: Origin, size: int) -> Iterator[None]:
        """While this lasts, there is so much less."""
        self._of[who] += size
        try:
            yield
        finally:
            self._of[who] -= size
            if not self._of[who]:
                del self._of[who]


class Large(Response):
    """An answer that waits until it has been read.

    Args:
        content: what is answered.
        headers: its headers.
        room: where it waits.
        who: who has asked.
    """

    def __init__(self, content: bytes, headers: Mapping[str, str], room: Room, who: Origin) -> None:
        super().__init__(content, headers=headers)
        self._room, self._who = room, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, or says that there is no room."""
        size = len(self.body) if scope["method"] != "HEAD" else 0
        if not self._room.has(self._who, size):
            await busy("too much waits to be read")(scope, receive, send)
            return
        with self._room.taken(self._who, size):
            await super().__call__(scope, receive, send)


def busy(words: str) -> Response:
    """Says that somebody has to come again."""
    return PlainTextResponse(f"{words}; try again later\n", 503, {"retry-after": "5"})
