"""What a channel says, on a page: read and nothing else, bounded, and never turned into anything but text."""

import os
from pathlib import Path

import pytest
import trio

from futebus.view.tail import Line, Tail
from futebus.view.web import tails
from futebus.view.web.pages import MOST_TAILS
from futebus.view.web.tails import MOST_LINES, _push_lines, shown

from ...helpers.mounts import LINGERING, Mount, Mounting
from ...helpers.programs import Start
from ...helpers.waiting import until
from .webs import Web


def test_lines_of_a_channel(bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    bus.touch("A_chat")
    served = Web(start, place, bus.path)
    with served.tail("B_log") as tail:
        assert tail.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        [client] = bus.clients("B_log")
        assert (client["reads"], client["writes"], client["bulk"]) == (True, False, True)
        (bus / "B_log").write_bytes(b"one\ntwo\n")
        assert tail.next("lines") == {"lines": ["one", "two"], "skipped": 0}
    until(lambda: not bus.clients("B_log"), "it is closed when the page has gone")
    with served.tail("A_chat") as tail:
        (bus / "A_chat").write_bytes(b"{*}hi\n")
        assert tail.next("lines")["lines"] == ["{3}hi"]
    served.end()


def test_what_cannot_be_watched(bus: Mount, place: Path, start: Start) -> None:
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    served = Web(start, place, bus.path)
    for channel, words in (
        ("U_jobs", "takes part"),
        ("S_none", "takes part"),
        ("_stat", "which A or B channel?"),
        ("", "which A or B"),
    ):
        answer = served.ask(f"/tail?channel={channel}", served.bearer)
        assert answer.status == 409
        assert words in answer.text
    assert len(bus.clients("U_jobs")) == 1
    for channel in ("B_none", "B_no/../B_x", "B/../../etc/passwd"):
        with served.stream("/tail", served.bearer, channel=channel) as tail:
            assert tail.next("trouble") == "there is no such channel"
    assert served.ask("/tail?bus=/etc&channel=B_x", served.bearer).status == 404
    assert {each["name"] for each in bus.told()["channels"]} == {"U_jobs"}, "nothing is created"
    os.close(master)
    served.end()


def test_what_is_too_fast_is_counted(bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    with served.tail("B_log") as tail:
        (bus / "B_log").write_bytes(b"".join(b"%d\n" % number for number in range(50_000)))
        shown_, skipped = 0, 0

        def all_there() -> bool:
            nonlocal shown_, skipped
            told = tail.next("lines")
            assert len(told["lines"]) <= MOST_LINES
            shown_ += len(told["lines"])
            skipped += told["skipped"]
            return bool(told["lines"][-1] == "49999")

        until(all_there, "the last one has come")
        assert shown_ + skipped == 50_000
        assert skipped
    served.end()


def test_the_end_of_a_bus(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting(command=LINGERING)
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    with served.tail("B_log") as tail:
        bus.unmount()
        assert tail.next("trouble") == "the bus has gone"
    served.end()


def test_so_many_and_no_more(bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    watching = [served.tail("B_log") for _ in range(MOST_TAILS)]
    answer = served.ask("/tail?channel=B_log", served.bearer)
    assert (answer.status, answer.text) == (503, f"{MOST_TAILS} channels are watched already; try again later\n")
    watching.pop().close()
    until(lambda: len(bus.clients("B_log")) < MOST_TAILS, "one has gone")

    def has_place() -> bool:
        with served.stream("/tail", served.bearer, channel="B_log") as again:
            return again.status == 200 and again.next_of_all()[0] == "open"

    until(has_place, "there is a place")
    for tail in watching:
        tail.close()
    served.end()


SHOWN = {
    b"plain \\ <b>&amp;</b>\t": "plain \\ <b>&amp;</b>\t",
    b"\0\x1b[31m\x07\x7f": "␀␛[31m␇␡",
    "é€\U0001f600".encode(): "é€\U0001f600",
    "a\u202eb\u0085".encode(): "a<U+202E>b<U+0085>",
    "\u061c\u200b\u2028\u2029\ufeff\u2066".encode(): "<U+061C><U+200B><U+2028><U+2029><U+FEFF><U+2066>",
    "a\u00a0b \U0001f469\u200d\U0001f680 \u05e9".encode(): "a\u00a0b \U0001f469\u200d\U0001f680 \u05e9",
    b"\xff\xc3": "\ufffd\ufffd",
    b"": "",
}


@pytest.mark.parametrize("line", SHOWN)
def test_how_lines_are_shown(line: bytes) -> None:
    assert shown(Line(line, 0)) == SHOWN[line]
    assert shown(Line(line, 7)) == SHOWN[line] + "… and 7 more bytes"


def test_a_name_of_any_length_can_be_watched(bus: Mount, place: Path, start: Start) -> None:
    name = "B" + "x" * 254
    bus.touch(name)
    served = Web(start, place, bus.path)
    with served.tail(name) as tail:
        (bus / name).write_bytes(b"a\nb\n")
        assert until(lambda: tail.next("lines")["lines"][-1] == "b", "it comes")
    served.end()


def test_what_the_bus_has_dropped_is_counted(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("max_queue=4")
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    with served.tail("B_log") as tail:
        (bus / "B_log").write_bytes(b"x\n" * 20_000)
        count = skipped = 0

        def all_there() -> bool:
            nonlocal count, skipped
            told = tail.next("lines")
            count, skipped = count + len(told["lines"]), skipped + told["skipped"]
            return bool(count + skipped == 20_000)

        until(all_there, "all are shown or counted")
        assert skipped
    served.end()


def test_lines_that_are_missing_are_told_without_others(bus: Mount) -> None:
    async def show() -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []

        async def push(name: str, data: str) -> None:
            told.append((name, data))

        tail = Tail(bus.path, b"B_none", kept=10, is_patient=False)
        tail.lines.skip(7)
        await _push_lines(tail, push)
        await _push_lines(tail, push)
        tail.stop()
        return told

    assert trio.run(show) == [("lines", '{"lines": [], "skipped": 7}'), ("", '{"lines": [], "skipped": 0}')]


def test_a_channel_that_has_lost_its_name(bus: Mount, place: Path, start: Start) -> None:
    """Who watches is told, and hears the next one of this name. The clients of the old one can still be looked at."""
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    with served.tail("B_log") as tail:
        keeper = os.open(bus / "B_log", os.O_WRONLY)
        os.unlink(bus / "B_log")
        assert tail.next("name") == {"removed": True}
        bus.touch("B_log")
        assert tail.next("name") == {"removed": False}
        (bus / "B_log").write_bytes(b"new\n")
        assert tail.next("lines")["lines"] == ["new"]
        removed = next(each for each in bus.told()["channels"] if each["state"] == "removed")
        with served.stream("/events", bus=str(bus.path), channel="B_log", number=str(removed["number"])) as old:
            told = old.clients()
            assert (told["number"], [each["access"] for each in told["clients"]]) == (removed["number"], ["-w"])
        with served.stream("/events", bus=str(bus.path), channel="B_log") as new:
            assert [each["access"] for each in new.clients()["clients"]] == ["r-+"]
        for nonsense in ("x", "-1", "9" * 20, "9" * 5000):
            with served.stream("/events", bus=str(bus.path), channel="B_log", number=nonsense) as none:
                assert none.next("clients")["clients"] == []
        os.close(keeper)
    served.end()


def test_how_a_character_is_shown_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who floods a channel with letters that are no ASCII keeps nobody busy."""
    asked = []
    find_out = tails._Shown.__missing__

    def ask(known: tails._Shown, code: int) -> int | str:
        asked.append(code)
        return find_out(known, code)

    monkeypatch.setattr(tails._Shown, "__missing__", ask)
    monkeypatch.setattr(tails, "_SHOWN", tails._Shown(tails._SHOWN))
    for _ in range(3):
        assert shown(Line("ѣѫѧ".encode(), 0)) == "ѣѫѧ"
        assert shown(Line("ѣ\x01ѫ\u202e".encode(), 0)) == "ѣ␁ѫ<U+202E>"
    assert len(asked) == len(set(asked))
    monkeypatch.setattr(tails, "MOST_KNOWN", len(tails._SHOWN))
    assert shown(Line("\u202dѧ".encode(), 0)) == "<U+202D>ѧ"
    assert len(tails._SHOWN) == tails.MOST_KNOWN
