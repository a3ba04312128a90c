"""What a page shows of a channel's messages: where some are missing, and when the channel loses its name."""

import os
from pathlib import Path

from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start
from ..view.web.webs import Web
from .browsers import Page
from .test_page import channel_page, names


def test_lines_that_are_missing(page: Page, mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("max_queue=4")
    bus.touch("B_log")
    served = Web(start, place, bus.path)
    page.go(channel_page(served, bus, "B_log"))
    page.one("#watch").click()
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")
    (bus / "B_log").write_bytes(b"x\n" * 5000)

    def all_are_told() -> bool:
        lines = page.texts("#lines li")
        missing = [int(line.split()[1].replace(",", "")) for line in lines if line.startswith("…")]
        said = f"watching; {sum(missing):,} lines came too fast and were skipped"
        return bool(missing) and sum(missing) + lines.count("x") == 5000 and page.text("#tail-note") == said

    page.wait(all_are_told, "what is shown and what is skipped is all")


def test_a_channel_that_has_lost_its_name(page: Page, served: Web, bus: Mount) -> None:
    bus.touch("B_log")
    page.go(channel_page(served, bus, "B_log"))
    page.one("#watch").click()
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches")
    keeper = os.open(bus / "B_log", os.O_WRONLY)
    os.unlink(bus / "B_log")
    page.wait(lambda: "its name was removed" in page.text("#tail-note"), "it says so")
    bus.touch("B_log")
    page.wait(lambda: page.text("#tail-note") == "watching", "it watches the next one")
    (bus / "B_log").write_text("new\n")
    page.wait(lambda: page.texts("#lines li") == ["new"], "it is shown")
    page.one("#watch").click()
    page.one("#back").click()
    page.wait(lambda: names(page) == ["B_log", "B_log"], "both are there")
    page.wait(lambda: page.texts(".bus tbody .notes").count("removed") == 1, "one has no name")
    old = next(row for row in page.all(".bus tbody tr") if "removed" in row.text)
    old.find_element("css selector", "a").click()
    page.wait(lambda: [row.text for row in page.all("#clients tbody td:nth-child(7)")] == ["0"], "its client is there")
    assert not page.one("#watch").is_displayed()
    assert "cannot be opened" in page.text("#tail-note")
    assert page.text("#channel-trouble") == ""
    os.close(keeper)
    page.wait(lambda: "not there" in page.text("#channel-trouble"), "it has gone")
