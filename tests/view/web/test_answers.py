"""What waits to be read, and who has a place: whoever comes at the same time, and whatever goes wrong."""

import os
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest
import trio
import trio.testing
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from futebus.core.text import escape
from futebus.host.origins import Origin, origin
from futebus.view import complaints
from futebus.view.web.answers import Large, Room
from futebus.view.web.feeds import Feeds
from futebus.view.web.pages import MOST_STREAMS, RECENT_SECONDS, Pages
from futebus.view.web.security import GONE, Gate, rules_for
from futebus.view.web.server import ORIGIN, PIECE_BYTES, SEND_SECONDS, WHOLE_SECONDS
from futebus.view.web.stream import ALIVE, RETRY, Push, Stream

from ...helpers.programs import Start
from .webs import Web

STRANGE, MINE = origin("127.0.0.1", 12345), origin("127.0.0.1", os.geteuid())


class Asked:
    """Somebody who asks an application, and takes his time to read what is answered.

    Args:
        app: the application.
        who: who asks.
        path: what for.
    """

    def __init__(self, app: ASGIApp, who: Origin, path: str = "/") -> None:
        self._app = app
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
            "state": {ORIGIN: who, GONE: trio.Event()},
        }
        self.status = 0
        self.reads = trio.Event()

    async def run(self) -> None:
        await self._app(self._scope, self.nothing, self._send)

    @staticmethod
    async def nothing() -> Message:
        await trio.sleep_forever()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        await self.reads.wait()


def test_so_much_waits_to_be_read_and_no_more() -> None:
    async def main() -> None:
        room = Room(100)

        async def ask(who: Origin, size: int) -> Asked:
            asked = Asked(Large(bytes(size), {}, room, who), who)
            nursery.start_soon(asked.run)
            await trio.testing.wait_all_tasks_blocked()
            return asked

        async with trio.open_nursery() as nursery:
            first = [await ask(STRANGE, 20) for _ in range(4)]
            assert [each.status for each in first] == [200, 200, 503, 503]
            mine = [await ask(MINE, 30) for _ in range(3)]
            assert [each.status for each in mine] == [200, 200, 503]
            assert (await ask(STRANGE, 5)).status == 503
            first[0].reads.set()
            await trio.testing.wait_all_tasks_blocked()
            assert (await ask(STRANGE, 20)).status == 200
            nursery.cancel_scope.cancel()
        assert room.has(MINE, 100)

    trio.run(main)


def test_so_much_is_on_its_way_to_pages_and_no_more() -> None:
    """A page for which there is no room gets what is newer, later."""

    async def main() -> None:
        room, sent = Room(220), dict[str, list[bytes]]()
        reads = trio.Event()

        async def page(name: str) -> None:
            async def send(message: Message) -> None:
                body = message.get("body", b"")
                sent.setdefault(name, []).append(body)
                if b"event" in body:
                    await reads.wait()

            async def feed(push: Push) -> None:
                await push("buses", "x" * 60)
                await push("buses", "new")

            scope: Scope = {"type": "http", "method": "GET", "path": "/events"}
            await Stream(feed, room=room, who=STRANGE)(scope, Asked.nothing, send)

        async with trio.open_nursery() as nursery:
            for name in ("first", "second"):
                nursery.start_soon(page, name)
                await trio.testing.wait_all_tasks_blocked()
            assert b"x" * 60 in sent["first"][-1]
            assert sent["second"] == [b"", RETRY, ALIVE, b"event: buses\ndata: new\n\n"]
            reads.set()
        assert sent["first"][-2:] == [b"event: buses\ndata: new\n\n", b""]
        assert room.has(STRANGE, 110)

    trio.run(main)


def test_an_event_is_sent_in_pieces_and_does_not_take_for_ever() -> None:
    sizes = []

    async def send(message: Message) -> None:
        sizes.append(len(message.get("body", b"")))
        await trio.sleep(SEND_SECONDS - 1)

    async def feed(push: Push) -> None:
        while True:
            await push("buses", "x" * 1000 * PIECE_BYTES)

    async def main() -> None:
        await Stream(feed, room=Room(), who=MINE)({"type": "http", "method": "GET", "path": "/events"}, Asked.nothing, send)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert max(sizes) < PIECE_BYTES
    assert len(sizes) <= WHOLE_SECONDS / (SEND_SECONDS - 1) + 4


def test_who_comes_at_the_same_time_has_no_more_places() -> None:
    async def main() -> None:
        app = Pages(Feeds([])).app()
        asked = [Asked(app, STRANGE, "/events") for _ in range(MOST_STREAMS + 8)]
        async with trio.open_nursery() as nursery:
            for each in asked:
                nursery.start_soon(each.run)
            await trio.testing.wait_all_tasks_blocked()
            for each in asked:
                each.reads.set()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert Counter(each.status for each in asked) == {200: MOST_STREAMS // 2, 503: MOST_STREAMS // 2 + 8}

    trio.run(main)


def test_what_was_answered_is_not_kept_for_who_never_comes() -> None:
    async def main() -> None:
        feeds = Feeds([])
        pages = Pages(feeds)
        app = pages.app()
        async with trio.open_nursery() as nursery:
            await nursery.start(feeds.run)
            for _ in range(2):
                asked = Asked(app, MINE, "/metrics")
                asked.reads.set()
                await asked.run()
                assert asked.status == 200
                assert pages._answers
                await trio.sleep(2 * RECENT_SECONDS)
                await trio.testing.wait_all_tasks_blocked()
                assert not pages._answers
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_same_error_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complaints, "_told", {})

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        gate = Gate(fail, rules_for(80, [], [""], "t" * 16, is_private=False))
        for _ in range(20):
            asked = Asked(gate, MINE)
            asked.reads.set()
            await asked.run()
            assert asked.status == 500

    trio.run(main)
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_a_path_that_nobody_can_read_is_told_all_the_same(place: Path, start: Start) -> None:
    odd = place / os.fsdecode(b"\x1b[31m\xff\n")
    served = Web(start, place, odd)
    for path in ("/metrics", "/stat.json"):
        answer = served.ask(f"{path}?bus={quote(escape(bytes(odd)), safe='')}")
        assert answer.status == 502
        assert answer.text.removesuffix("\n").isprintable()
        assert "\\x1b[31m\\xff\\n" in answer.text
    served.end()
