"""What is answered to which address.

The one rule: an address shows; none does anything. What may hang is asked with a deadline; what lasts has so many places.
"""

import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...core.text import printable
from ...host.mounted import NoBus
from ...host.origins import Origin, Peers
from .answers import Large, Room, busy
from .asking import NOT_ANSWERING, NotAnswering, Question
from .feeds import Bus, Feeds
from .metrics import OPEN_METRICS, PLAIN, Told, alone, as_plain, merged, wants_plain
from .pledges import SHOWN, Pledges
from .server import ORIGIN
from .shown import find
from .stream import Push, Stream
from .tails import NOT_WATCHED, WATCHED, watch

HERE = Path(__file__).parent

T = TypeVar("T")

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/curves.js": ("curves.js", "text/javascript; charset=utf-8"),
    "/stream.js": ("stream.js", "text/javascript; charset=utf-8"),
    "/tables.js": ("tables.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The page. These are all the files that there are: no path leads anywhere else."""

NONE = "no bus is mounted that can be entered"

MOST_STREAMS = 32
"""How many pages may look at once. Each costs some 200 kB a second if a bus has many channels."""

RECENT_SECONDS = 1.0
"""How old an answer to `/stat.json` and `/metrics` may be."""

MOST_TAILS = 16
"""How many channels may be watched at once. Each is a client of a bus, and a thread."""


_NUMBER = re.compile("[0-9]{1,20}")
"""How a channel's number may be written."""


class Places:
    """So many at once, and no more.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._free = most

    @property
    def is_full(self) -> bool:
        """Whether there is none left."""
        return self._free <= 0

    def take(self) -> None:
        """Somebody comes."""
        self._free -= 1

    def leave(self) -> None:
        """Somebody goes."""
        self._free += 1

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """While this lasts, somebody is there."""
        self.take()
        try:
            yield
        finally:
            self.leave()


class Pages:
    """The addresses.

    Args:
        feeds: what they show.
    """

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._streams = Peers(MOST_STREAMS)
        self._tails = Places(MOST_TAILS)
        self._room = Room()
        self._streamed = Room()
        """Where what is on its way to pages waits."""
        self._writing = trio.Lock()
        self._pledges = Pledges()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}
        """What buses have answered, until when that is recent."""
        self._is_forgetting = False

    def app(self) -> Starlette:
        """The application."""
        shown: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/events": self.events,
            "/tail": self.tail,
            "/metrics": self.metrics,
            "/stat.json": self.stat,
            "/same": self.same,
        }
        shown |= {path: partial(_file, (HERE / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
        app = Starlette(routes=[Route(path, answer) for path, answer in shown.items()])
        app.router.redirect_slashes = False
        return app

    async def events(self, request: Request) -> Response:
        """All buses, once a second; and the clients of one channel."""
        who = _who(request)

        def refusal() -> str:
            if self._streams.are_all():
                return f"{MOST_STREAMS} pages look at this already"
            if self._streams.are_all_of(who):
                return f"{self._streams.share(who)} pages of yours look at this already"
            return ""

        number = _asked(request, "number")
        # What is no number is that of no channel.
        which = None if not number else int(number) if _NUMBER.fullmatch(number) else -1
        pledge = json.dumps(self._pledges.one()) if getattr(request.state, SHOWN, False) else ""
        feed = partial(self._show, _asked(request, "bus"), _asked(request, "channel"), which, pledge)
        return Stream(feed, refusal, partial(self._streams.place, who), self._streamed, who)

    async def _show(self, bus: str, channel: str, which: int | None, pledge: str, push: Push) -> None:
        if pledge:
            await push("pledge", pledge)
        with self._feeds.looking():
            number = 0
            while True:
                is_first = not number
                number = await self._feeds.newer(number)
                if is_first:
                    await push("past", self._feeds.past(bus, channel, which))
                await push("buses", self._feeds.text)
                if channel and (found := self._feeds.find(bus)):
                    await push("clients", found.shows(channel, which))

    async def same(self, request: Request) -> Response:
        """The answer to what `/events` has given a page to ask."""
        return PlainTextResponse(self._pledges.answer(_asked(request, "ask")))

    async def tail(self, request: Request) -> Response:
        """What a channel says."""
        bus = self._feeds.find(_asked(request, "bus"))
        if bus is None:
            return await self._unknown()
        name = _asked(request, "channel")
        if name[:1] not in WATCHED:
            return PlainTextResponse(f"{NOT_WATCHED if name[:1] in ('U', 'S') else 'which A or B channel?'}\n", 409)
        if self._tails.is_full:
            return busy(f"{MOST_TAILS} channels are watched already")
        return Stream(partial(self._watch, bus, name))

    async def _watch(self, bus: Bus, name: str, push: Push) -> None:
        with self._feeds.looking():
            number = 0
            while bus.look is None or not (found := find(bus.look, name)):
                if number:
                    await push("trouble", json.dumps(_not_found(bus)))
                    return
                number = await self._feeds.newer(number)
                await bus.settled.wait()  # one that is slow is there, too
        await watch(bus.mountpoint, found.file, self._tails, push)

    async def stat(self, request: Request) -> Response:
        """`_stat.json`, as it is."""
        bus = self._feeds.find(_asked(request, "bus"))
        if bus is None:
            return await self._unknown()
        try:
            text = await self._recent(bus.name, "stat", bus.stat)
        except NoBus as error:
            return _no_bus(error)
        return Large(text, {"content-type": "application/json"}, self._room, _who(request))

    async def metrics(self, request: Request) -> Response:
        """`_metrics`: of one bus alone, of all of them with a label."""
        name, is_plain = _asked(request, "bus"), wants_plain(request.headers.get("accept", ""))
        write: Callable[[], str]
        if name:
            bus = self._feeds.find(name)
            if bus is None:
                return await self._unknown()
            try:
                write = partial(alone, bus.name, await self._recent(bus.name, "metrics", bus.metrics))
            except NoBus as error:
                return _no_bus(error)
        else:
            write = partial(merged, await self._all_metrics())
        text = await self._written(name, write, is_plain=is_plain)
        return Large(text, {"content-type": PLAIN if is_plain else OPEN_METRICS}, self._room, _who(request))

    async def _written(self, bus: str, write: Callable[[], str], *, is_plain: bool) -> bytes:
        """A text of metrics. All who ask in the same second have the same one: of many buses it is long, and takes a while."""
        key = bus, "plain" if is_plain else "open"
        async with self._writing:
            if told := self._known(key):
                text: bytes = told[1]
            else:
                text = await trio.to_thread.run_sync(lambda: (as_plain(write()) if is_plain else write()).encode())
                self._note(key, text)
            return text

    def _note(self, key: tuple[str, str], answer: object) -> None:
        self._answers[key] = trio.current_time() + RECENT_SECONDS, answer
        if not self._is_forgetting:
            self._is_forgetting = True
            self._feeds.nursery.start_soon(self._forget)

    async def _forget(self) -> None:
        """Lets go of what is no longer recent, though nobody asks again: these may be many megabytes."""
        while self._answers:
            await trio.sleep(RECENT_SECONDS)
            self._leave_recent()
        self._is_forgetting = False

    def _leave_recent(self) -> None:
        now = trio.current_time()
        self._answers = {each: told for each, told in self._answers.items() if told[0] > now}

    def _known(self, key: tuple[str, str]) -> tuple[float, Any] | None:
        self._leave_recent()
        return self._answers.get(key)

    async def _unknown(self) -> Response:
        names = "".join(f"{name}\n" for name in await self._feeds.names())
        return PlainTextResponse(f"which bus? ?bus= may be one of these:\n{names}" if names else f"{NONE}\n", 404)

    async def _all_metrics(self) -> dict[str, Told | None]:
        found: dict[str, Told | None] = {}

        async def ask(bus: Bus) -> None:
            try:
                told: Told = await self._recent(bus.name, "metrics", bus.metrics)
                found[bus.name] = told
            except NoBus as error:
                if not bus.is_left_out(error):
                    found[bus.name] = None

        async with trio.open_nursery() as nursery:
            for bus in self._feeds.buses:
                nursery.start_soon(ask, bus)
        return dict(sorted(found.items()))

    async def _recent(self, bus: str, what: str, question: Question[T]) -> T:
        """What a bus has answered less than a second ago, or answers now: it is not asked more often, whoever wants to know.

        Raises:
            NoBus: there is none, or it does not answer.
        """
        if told := self._known((bus, what)):
            found: T = told[1]
            return found
        answer = await question.answer()
        self._note((bus, what), answer)
        return answer


async def _file(content: bytes, kind: str, request: Request) -> Response:
    return Response(content, headers={"content-type": kind})


def _asked(request: Request, name: str) -> str:
    return QueryParams(request.url.query).get(name, "")


def _who(request: Request) -> Origin:
    who: Origin = getattr(request.state, ORIGIN)
    return who


def _no_bus(error: NoBus) -> Response:
    return PlainTextResponse(f"{printable(str(error))}\n", 504 if isinstance(error, NotAnswering) else 502)


def _not_found(bus: Bus) -> str:
    """Why a channel is not among those that a bus was seen to have."""
    if bus.look:
        return "there is no such channel"
    return NOT_ANSWERING if bus.trouble == NOT_ANSWERING else "the bus cannot be seen"
