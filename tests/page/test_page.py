"""What somebody sees and does: live figures, sorting, one channel, its messages; by keyboard, in the dark, and on a phone."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.programs import Start
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE
from ..view.web.webs import Web
from .browsers import Page

ENTER, ESCAPE = "\ue007", "\ue00c"


class Chatter:
    """Somebody who says something again and again."""

    def __init__(self, channel: Path) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(os.open(channel, os.O_WRONLY),))
        self._thread.start()

    def _run(self, file: int) -> None:
        number = 0
        while not self._stop.wait(0.05):
            os.write(file, b"line %d\n" % number)
            number += 1
        os.close(file)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def chatter(bus: Mount) -> Iterator[Chatter]:
    """Somebody who says something on B_log, all the time."""
    made = Chatter(bus.touch("B_log"))
    yield made
    made.stop()


def with_token(served: Web) -> str:
    return f"{served.url}#token={served.token}"


def channel_page(served: Web, bus: Mount, channel: str) -> str:
    return f"{with_token(served)}&bus={bus.path}&channel={channel}"


def names(page: Page) -> list[str]:
    """The channels, in their order."""
    return page.texts(".bus tbody th a")


def rate_of(page: Page, channel: str) -> str:
    rows = page.run(
        "return [...document.querySelectorAll('.bus tbody tr')].map((r) => [...r.children].map((c) => c.textContent))"
    )
    return next((row[2] for row in rows if row[0] == channel), "")


def test_channels_and_live_rates(page: Page, served: Web, bus: Mount, chatter: Chatter) -> None:
    bus.touch("A_quiet")
    page.go(served.url)
    page.wait(lambda: names(page) == ["A_quiet", "B_log"], "both are there")
    assert page.text(".bus h2") == str(bus.path)
    page.wait(lambda: rate_of(page, "B_log") not in ("", "0"), "it is counted")
    assert rate_of(page, "A_quiet") == "0"
    page.wait(lambda: len(page.one(".bus polyline.in").get_attribute("points").split()) > 2, "there is a curve")
    curve = page.one(".bus svg")
    assert curve.get_attribute("role") == "img"
    assert "messages a second" in curve.get_attribute("aria-label")
    chatter.stop()
    page.wait(lambda: rate_of(page, "B_log") == "0", "it is over")


def test_sorting_by_keyboard(page: Page, served: Web, bus: Mount) -> None:
    files = [os.open(bus.touch("B_two"), os.O_RDONLY) for _ in range(2)]
    files.append(os.open(bus.touch("B_one"), os.O_RDONLY))
    bus.touch("B_zero")
    page.go(served.url)
    page.wait(lambda: names(page) == ["B_one", "B_two", "B_zero"], "by name")
    assert page.one(".bus th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.tab_to("Clients")
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    page.press(ENTER)
    assert names(page) == ["B_two", "B_one", "B_zero"]
    assert [(each.text, each.get_attribute("aria-sort")) for each in page.all(".bus th[aria-sort]")] == [
        ("Clients", "descending")
    ]
    page.press(ENTER)
    assert names(page) == ["B_zero", "B_one", "B_two"]
    assert page.focused == "Clients"
    for file in files:
        os.close(file)


def test_the_focus_stays_when_rows_move(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_one")
    bus.touch("B_two")
    page.go(served.url)
    page.wait(lambda: names(page) == ["B_one", "B_two"], "both are there")
    page.tab_to("Clients")
    page.press(ENTER)
    page.tab_to("B_two")
    file = os.open(bus / "B_two", os.O_RDONLY)
    page.wait(lambda: names(page) == ["B_two", "B_one"], "they have moved")
    assert page.focused == "B_two"
    os.close(file)


def test_the_filter(page: Page, served: Web, bus: Mount) -> None:
    for name in ("B_log", "B_jobs", "A_chat"):
        bus.touch(name)
    page.go(served.url)
    page.wait(lambda: len(names(page)) == 3, "all are there")
    page.press("/")
    page.press("JO")
    page.wait(lambda: names(page) == ["B_jobs"], "the others are hidden")
    assert page.text(".more") == "2 more do not match the filter"
    page.press(ESCAPE)
    page.wait(lambda: len(names(page)) == 3, "all are there")


def test_one_channel_and_back_by_keyboard(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_other")
    reader = os.open(bus.touch("B_log"), os.O_RDONLY)
    page.go(served.url)
    page.wait(lambda: names(page) == ["B_log", "B_other"], "they are there")
    page.tab_to("B_log")
    page.press(ENTER)
    page.wait(lambda: page.texts("#clients tbody tr td.wide")[:1] == [str(os.getpid())], "its client is there")
    assert page.focused == "B_log"
    assert page.run("return document.activeElement.id") == "channel-name"
    assert not page.one("#buses").is_displayed()
    assert page.text("#clients caption") == "Clients"
    page.press(ESCAPE)
    page.wait(lambda: page.one("#buses").is_displayed(), "all are shown again")
    assert page.run("return document.activeElement.tagName + document.activeElement.textContent") == "AB_log"
    os.close(reader)


def test_messages_that_echo_writes(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_log")
    page.go(channel_page(served, bus, "B_log"))
    assert "token" not in page.driver.current_url, "it does not stay in the address"
    page.one("#watch").click()
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")
    assert run("sh", "-c", f"echo 'hello <b>world</b>' > {bus}/B_log".replace(str(bus), str(bus.path))).returncode == 0
    page.wait(lambda: page.texts("#lines li") == ["hello <b>world</b>"], "it is shown")
    assert not page.all("#lines b")
    assert page.one("#watch").text == "Stop"
    page.one("#watch").click()
    page.wait(lambda: not bus.clients("B_log"), "nobody watches any more")
    page.one("#clear").click()
    assert page.texts("#lines li") == []


def test_messages_want_the_token(page: Page, served: Web, bus: Mount) -> None:
    page.expected = ["status of 401"]
    bus.touch("B_log")
    page.go(f"{served.url}#bus={bus.path}&channel=B_log")
    page.one("#watch").click()
    page.wait(lambda: page.focused == "token", "it is asked for")
    page.press(served.token, ENTER)
    page.wait(lambda: page.focused == "Watch", "it is taken")
    page.press(ENTER)
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")


def test_a_channel_that_cannot_be_watched(page: Page, served: Web, bus: Mount) -> None:
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    page.go(channel_page(served, bus, "U_jobs"))
    page.wait(lambda: "takes part" in page.text("#tail-note"), "it says why not")
    assert not page.one("#watch").is_displayed()
    os.close(master)
    page.wait(lambda: "not there" in page.text("#channel-trouble"), "it has gone")


HOSTILE = [
    "B<img src=x onerror=hit=1>",
    "B<script>hit=1<!--",
    'B" onclick="hit=1',
    "B&lt;b&gt;",
    "Bjavascript:hit=1",
    "B\x1b[31m\u202egnp",
]


def test_hostile_names_and_messages_are_text(page: Page, served: Web, bus: Mount) -> None:
    for name in HOSTILE:
        bus.touch(name)
    page.go(with_token(served))
    shown = sorted([*HOSTILE[:5], "B\\x1b[31m\\u202egnp"])
    page.wait(lambda: sorted(names(page)) == shown, "all are there, as they are called")
    for link in page.all(".bus tbody th a"):
        assert link.get_attribute("href").startswith(served.url + "#bus=")
    page.go(channel_page(served, bus, "B%3Cimg+src%3Dx+onerror%3Dhit%3D1%3E"))
    page.one("#watch").click()
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")
    (bus / HOSTILE[0]).write_text("<script>hit=1</script>\n<img src=x onerror=hit=1>\n")
    page.wait(lambda: page.texts("#lines li") == ["<script>hit=1</script>", "<img src=x onerror=hit=1>"], "they are text")
    assert page.run("return [typeof hit, document.scripts.length, document.images.length]") == ["undefined", 1, 0]


def test_nothing_inline_is_run(page: Page, served: Web) -> None:
    page.expected = ["Content Security Policy", "TrustedHTML", "ERR_BLOCKED_BY_CSP"]
    page.go(served.url)
    script = "const s = document.createElement('script'); s.append('window.hit = 1'); document.head.append(s); return typeof hit"
    assert "undefined" in _outcome(page, script)
    assert "TrustedHTML" in _outcome(page, "document.body.innerHTML = '<p>'")
    page.run("window.got = 0; fetch('http://127.0.0.2:1/').catch(() => (window.got = 1))")
    page.wait(lambda: page.run("return window.got"), "it is refused")
    assert any("Content Security Policy" in str(entry["message"]) for entry in page.driver.get_log("browser"))


def _outcome(page: Page, script: str) -> str:
    return str(
        page.run(f"try {{ return String((() => {{ {script} }})()) }} catch (error) {{ return typeof hit + String(error) }}")
    )


CONTRAST = """
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((each) => {
    const part = each / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (!color.endsWith(", 0)")) return color;
  }
};
const parts = ["h1", "#state", ".bus h2", ".bus dt", ".bus dd", ".bus a", "footer", "figcaption", "#filter", "thead button"];
return parts.map((selector) => {
  const node = document.querySelector(selector);
  const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort();
  return [selector, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
});
"""


def test_in_light_and_in_the_dark(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_log")
    grounds = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.go(served.url)
        page.wait(lambda: names(page), "it is there")
        grounds.append(page.run("return getComputedStyle(document.body).backgroundColor"))
        for selector, contrast in page.run(CONTRAST):
            assert contrast >= 4.5, (scheme, selector)
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize("width", [320, 768])
def test_on_a_phone_nothing_is_wider_than_it(page: Page, served: Web, bus: Mount, chatter: Chatter, width: int) -> None:
    long = "B" + "x" * 240
    reader = os.open(bus.touch(long), os.O_RDONLY)
    page.resize(width, 700)
    page.go(with_token(served))
    page.wait(lambda: len(names(page)) == 2, "both are there")
    assert _overflow(page) == 0
    assert page.run("return [...document.querySelectorAll('.frame')].every((each) => each.scrollWidth <= each.clientWidth)")
    page.go(channel_page(served, bus, long))
    page.wait(lambda: page.texts("#clients tbody th"), "its client is there")
    page.one("#watch").click()
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")
    (bus / long).write_bytes(b"y" * 3000 + b"\n")
    page.wait(lambda: page.texts("#lines li"), "it is shown")
    assert _overflow(page) == 0
    os.close(reader)


def _overflow(page: Page) -> Any:
    return page.run("return Math.max(0, document.documentElement.scrollWidth - innerWidth)")


def test_who_wants_little_to_move_and_who_wants_it_to_stop(page: Page, served: Web, bus: Mount, chatter: Chatter) -> None:
    page.prefer(motion="reduce")
    page.go(served.url)
    assert page.run("return matchMedia('(prefers-reduced-motion: reduce)').matches")
    assert page.run("return document.getAnimations().length") == 0
    page.wait(lambda: rate_of(page, "B_log") not in ("", "0"), "it is counted")
    page.one("#pause").click()
    assert page.text("#state") == "paused"
    assert page.one("#pause").get_attribute("aria-pressed") == "true"
    bus.touch("B_later")
    page.one("#pause").click()
    page.wait(lambda: "B_later" in names(page), "it goes on")


def test_a_bus_that_goes_and_comes_back(
    page: Page, place: Path, start: Start, mounting: Mounting, remounting: Remounting
) -> None:
    bus = mounting()
    served = Web(start, place, bus.path)
    page.go(served.url)
    page.wait(lambda: "There are no channels yet" in page.text(".more"), "it is there")
    bus.daemon.kill()
    page.wait(lambda: page.text(".trouble"), "it says what is wrong")
    again = remounting(bus)
    again.touch("B_new")
    page.wait(lambda: names(page) == ["B_new"] and not page.text(".trouble"), "it is back")


def test_where_everything_wants_the_token(page: Page, bus: Mount, place: Path, start: Start) -> None:
    page.expected = ["status of 401"]
    bus.touch("B_log")
    served = Web(start, place, bus.path, "--private")
    page.driver.get(served.url)
    page.wait(lambda: page.focused == "token", "it is asked for")
    assert "token" in page.text("#ask-why")
    page.press(served.token, ENTER)
    page.wait(lambda: names(page) == ["B_log"], "it is taken")
    first = page.driver.current_window_handle
    page.one(".bus .metrics").click()
    page.wait(lambda: len(page.driver.window_handles) == 2, "it is shown beside")
    page.driver.switch_to.window(next(each for each in page.driver.window_handles if each != first))
    page.wait(lambda: "futebus_uptime_seconds" in page.text("body"), "they are there")
    page.driver.close()
    page.driver.switch_to.window(first)


HIDE = """
Object.defineProperty(document, "hidden", { value: arguments[0], configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
"""


def test_a_page_that_nobody_sees_does_not_look(page: Page, served: Web, bus: Mount) -> None:
    page.go(served.url)
    page.wait(lambda: page.text(".bus h2"), "it is there")
    page.run(HIDE, True)
    assert page.text("#state") == "waiting"
    bus.touch("B_meanwhile")
    page.run(HIDE, False)
    page.wait(lambda: page.text("#state") == "live" and names(page) == ["B_meanwhile"], "it looks again")


def test_the_parts_have_names(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_log")
    page.go(served.url)
    page.wait(lambda: names(page), "it is there")
    assert page.run("return ['header', 'main', 'footer', '[role=search]'].every((each) => document.querySelector(each))")
    assert page.texts(".bus caption") == [f"Channels of {bus.path}"]
    assert page.run("return [...document.querySelectorAll('input')].every((each) => each.labels.length)")
    assert page.run("return [...document.querySelectorAll('thead th')].every((each) => each.scope === 'col')")
    assert page.run("return [...document.querySelectorAll('tbody th')].every((each) => each.scope === 'row')")
    assert page.run("return document.documentElement.lang") == "en"


def test_who_listens_later_is_not_shown_the_token(page: Page, bus: Mount, place: Path, start: Start) -> None:
    """The page tries again by itself, and anybody may have the port by then."""
    page.expected = ["net::ERR_", "status of 401"]
    bus.touch("B_log")
    served = Web(start, place, bus.path, "--private")
    page.go(with_token(served))
    page.wait(lambda: names(page) == ["B_log"], "it is shown")
    port = served.port
    served.end()
    with socket.create_server(("127.0.0.1", port)) as other:
        other.settimeout(DEADLINE)
        asked = b""
        while b"GET /events" not in asked:
            connection, _ = other.accept()
            with connection:
                connection.settimeout(DEADLINE)
                asked = connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
        assert b"authorization" not in asked.lower()
    page.wait(lambda: page.focused == "token", "it is asked for")
    assert "another one may be in its place" in page.text("#ask-why")
    assert page.run("return sessionStorage.length") == 0, "nor does a page that is loaded from there find it"
