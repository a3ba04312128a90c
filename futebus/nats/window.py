"""Messages of one subject on their way to a stream, each behind the one before: several at once, as long as that is safe.

The one rule: a message is sent before the one before it is confirmed only where the server stores it directly behind that one or
not at all. So the stream has what was given here, from the beginning, without a gap. `Stream.is_alone` says where this is so.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from .stream import Overtaken, Removed, Stream
from .transport import Payload

T = TypeVar("T")

MOST = 2
"""How many are on their way at once: one that the server stores, and one that is being sent. More are no quicker."""


class _Sent(NamedTuple, Generic[T]):
    payload: Payload
    headers: Mapping[str, str]
    name: str
    first_behind: int | None
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
        sending: is told, before a message is sent, the number that it is called behind, and what it was said to be.
        confirmed: is told, in order, the number that a message has got, and what it was said to be.
    """

    def __init__(
        self,
        stream: Stream,
        subject: str,
        behind: int,
        sending: Callable[[int, T], object],
        confirmed: Callable[[int, T], object],
    ) -> None:
        self._stream, self._subject, self._behind = stream, subject, behind
        self._sending, self._confirmed = sending, confirmed
        self._sent: deque[_Sent[T]] = deque()
        self.first: T | None = None
        """What is, or was, waited for: an error is of this message."""

    async def put(
        self, payload: Payload, headers: Mapping[str, str], name: str, what: T, *, first_behind: int | None = None
    ) -> None:
        """Sends a message, when there is room for it.

        Args:
            payload: as for `Stream.publish`.
            headers: the same.
            name: the same.
            what: it is for `sending` and `confirmed`.
            first_behind: as for `Stream.publish`.

        Raises:
            NatsError: as `Stream.publish`, of this message or one before. Then the window is of no use any more.
        """
        while self._sent and (len(self._sent) == MOST or self._sent[0].doing.done() or not self._stream.is_alone):
            await self._confirm()
        self._send(payload, headers, name, what, first_behind)
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

    def _send(self, payload: Payload, headers: Mapping[str, str], name: str, what: T, first_behind: int | None) -> None:
        behind, follows = self._behind + len(self._sent), bool(self._sent)
        self._sending(behind if first_behind is None else first_behind, what)
        work = self._stream.publish(self._subject, payload, headers, behind, name, first_behind=first_behind, follows=follows)
        self._sent.append(_Sent(payload, headers, name, first_behind, what, asyncio.ensure_future(work), follows))

    async def _confirm(self) -> None:
        """Waits for the first."""
        first = self._sent.popleft()
        try:
            await self._known(first.doing, first.what)
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
            if not isinstance(outcome, Overtaken | Removed):  # which are to be known when what is before them is
                raise outcome if isinstance(outcome, BaseException) else Overtaken(f"{self._stream.shown} has lost a message")
        for payload, headers, name, first_behind, what, *_ in refused:
            self._sending(self._behind if first_behind is None else first_behind, what)
            work = self._stream.publish(self._subject, payload, headers, self._behind, name, first_behind=first_behind)
            await self._known(work, what)

    async def _known(self, doing: Awaitable[int], what: T) -> None:
        self.first = what
        self._behind = await self._stream.connection.while_open(doing)
        self._confirmed(self._behind, what)
