"""Messages of one subject on their way to a stream, each behind the one before: several at once, as long as that is safe.

The one rule: a message is sent before the one before it is confirmed only where the server stores it directly behind that one or
not at all. So the stream has what was given here, from the beginning, without a gap. `Stream.is_alone` says where this is so.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from .stream import Overtaken, Stream
from .transport import Payload

T = TypeVar("T")

MOST = 2
"""How many are on their way at once: one that the server stores, and one that is being sent. More are no quicker."""


class _Sent(NamedTuple, Generic[T]):
    payload: Payload
    headers: Mapping[str, str]
    name: str
    what: T
    doing: "asyncio.Task[int]"
    follows: bool
    """Whether it was sent before the one before it was confirmed."""


class Window(Generic[T]):
    """What is on its way.

    Args:
        stream: where to.
        subject: the subject.
        behind: the number of the message that the first is to come behind; 0 for none.
        confirmed: is told, in order, the number that a message has got, and what it was said to be.
        removed: is told what a message was said to be that was sent again: see `Stream.publish`.
    """

    def __init__(
        self,
        stream: Stream,
        subject: str,
        behind: int,
        confirmed: Callable[[int, T], object],
        removed: Callable[[T], object],
    ) -> None:
        self._stream, self._subject, self._behind = stream, subject, behind
        self._confirmed, self._removed = confirmed, removed
        self._sent: deque[_Sent[T]] = deque()

    async def put(self, payload: Payload, headers: Mapping[str, str], name: str, what: T) -> None:
        """Sends a message, when there is room for it.

        Args:
            payload: as for `Stream.publish`.
            headers: the same.
            name: the same.
            what: it is for `confirmed` and `removed`.

        Raises:
            NatsError: as `Stream.publish`, of this message or one before. Then the window is of no use any more.
        """
        while self._sent and (len(self._sent) == MOST or self._sent[0].doing.done() or not self._stream.is_alone):
            await self._confirm()
        self._send(payload, headers, name, what)
        await asyncio.sleep(0)  # what is sent, and what it is expected to get, is known when it has begun

    async def finish(self) -> None:
        """Waits until all is confirmed.

        Raises:
            NatsError: as `put`.
        """
        while self._sent:
            await self._confirm()

    async def close(self) -> None:
        """Gives up what is not confirmed."""
        doing = [sent.doing for sent in self._sent]
        self._sent.clear()
        for each in doing:
            each.cancel()
        await asyncio.gather(*doing, return_exceptions=True)

    def _send(self, payload: Payload, headers: Mapping[str, str], name: str, what: T) -> None:
        behind, follows = self._behind + len(self._sent), bool(self._sent)
        removed = functools.partial(self._removed, what)
        work = self._stream.publish(self._subject, payload, headers, behind, name, removed, follows=follows)
        self._sent.append(_Sent(payload, headers, name, what, asyncio.ensure_future(work), follows))

    async def _confirm(self) -> None:
        """Waits for the first."""
        first = self._sent.popleft()
        try:
            self._known(await self._stream.connection.while_open(first.doing), first.what)
        except Overtaken:
            if not first.follows:
                raise
            await self._again(first)

    async def _again(self, first: _Sent[T]) -> None:
        """Sends what was refused since somebody else has added a message, one after the other."""
        refused = [first, *self._sent]
        self._sent.clear()
        # The server has looked at all of them, in turn, before it looks at one of them again.
        others = asyncio.gather(*(sent.doing for sent in refused[1:]), return_exceptions=True)
        for outcome in await self._stream.connection.while_open(others):
            if not isinstance(outcome, Overtaken):
                raise outcome if isinstance(outcome, BaseException) else Overtaken(f"{self._stream.shown} has lost a message")
        for payload, headers, name, what, *_ in refused:
            removed = functools.partial(self._removed, what)
            work = self._stream.publish(self._subject, payload, headers, self._behind, name, removed)
            self._known(await self._stream.connection.while_open(work), what)

    def _known(self, sequence: int, what: T) -> None:
        self._behind = sequence
        self._confirmed(sequence, what)
