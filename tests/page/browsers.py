"""A page in a browser, and what somebody does with it."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from ..helpers.waiting import until

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """A Chromium of its own, with nothing in it."""
    with tempfile.TemporaryDirectory(prefix="futebus-browser-", ignore_cleanup_errors=True) as directory:
        options = webdriver.ChromeOptions()
        for word in (*OPTIONS.split(), f"--user-data-dir={directory}"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver", log_output=os.devnull))
        try:
            yield driver
        finally:
            driver.quit()


class Page:
    """A page.

    Args:
        driver: of the browser.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.expected: list[str] = []
        """What the browser may complain of."""

    def go(self, url: str) -> None:
        """Goes there, and waits until it is alive."""
        self.driver.get("about:blank")  # else another # is no other page
        self.driver.get(url)
        self.wait(lambda: self.text("#state") == "live", "it is live")

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Waits until something is so. Elements may go meanwhile."""

        def holds() -> Any:
            try:
                return condition()
            except StaleElementReferenceException:
                return None

        return until(holds, what)

    def run(self, script: str, *arguments: Any) -> Any:
        """What JavaScript says."""
        return self.driver.execute_script(script, *arguments)

    def command(self, name: str, **arguments: Any) -> None:
        """Has the browser behave so."""
        self.driver.execute_cdp_cmd(name, arguments)

    def resize(self, width: int, height: int) -> None:
        """The window is so large."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str = "light", motion: str = "no-preference") -> None:
        """What somebody has told the system."""
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What stands there."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        """What stands there, of each."""
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", selector))

    def press(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    @property
    def focused(self) -> str:
        """What the focus is on: what it says, or its id."""
        return str(self.run("return document.activeElement.textContent.trim() || document.activeElement.id"))

    def tab_to(self, words: str) -> None:
        """Presses the tab key until something has the focus."""
        for _ in range(60):
            self.press("\ue004")
            if self.focused == words:
                return
        raise AssertionError(f"no tab key leads to {words!r}")

    def complaints(self) -> list[str]:
        """What the browser has complained of since the last time."""
        told = [str(entry["message"]) for entry in self.driver.get_log("browser")]
        return [each for each in told if not any(words in each for words in self.expected)]
