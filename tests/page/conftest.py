"""Fixtures: one browser for all tests, and a page in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..helpers.mounts import Mount
from ..helpers.programs import Start
from ..view.web.webs import Web
from .browsers import Page, browsing


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium of its own, with nothing in it."""
    with browsing() as driver:
        yield driver


@pytest.fixture
def page(browser: Any, start: Start) -> Iterator[Page]:
    """A page as wide as on a desk, in light. At the end of the test, while the server is still there, it has not complained."""
    browser.get_log("browser")
    page = Page(browser)
    page.resize(1100, 800)
    page.prefer()
    yield page
    complaints = page.complaints()
    browser.get("about:blank")
    assert complaints == [], "nothing is refused, and no error"


@pytest.fixture
def served(bus: Mount, place: Path, start: Start) -> Web:
    """A server that shows one bus."""
    return Web(start, place, bus.path)
