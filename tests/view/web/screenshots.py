"""Takes docs/web-light.png, web-dark.png and web-phone.png: `python -m tests.view.web.screenshots`, from the project's root.

It wants a browser (scripts/install page), and mounts a bus for it.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from ...helpers.mounts import Mount
from ...helpers.waiting import until
from ...page.browsers import Page, browsing

DOCS = Path(__file__).parents[3] / "docs"
SECONDS = 25
"""How long the curves are."""

TALKERS = {"B_log": 7, "B_sensors": 40, "A_chat": 2}
"""Lines a second, about."""


@contextlib.contextmanager
def talking(bus: Path) -> Iterator[None]:
    """While this lasts, there are channels on which something is said."""
    over = threading.Event()
    files = [os.open(bus / ".S_upper", os.O_RDWR | os.O_CREAT), os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)]
    files += [os.open(bus / "S_upper", os.O_RDWR) for _ in range(3)]

    def talk(name: str, often: int) -> None:
        file = os.open(bus / name, os.O_WRONLY | os.O_CREAT)
        number = 0
        while not over.wait(1 / often * (1 + 0.7 * (number % 13 < 5))):
            os.write(file, (b"{*}" if name[0] == "A" else b"") + b"%s %d: all is well\n" % (name[2:].encode(), number))
            number += 1
        os.close(file)

    def listen(name: str) -> None:
        with (bus / f"+{name}").open("rb", buffering=0) as file:
            while not over.is_set() and file.read(1 << 16):
                pass

    threads = [threading.Thread(target=talk, args=each) for each in TALKERS.items()]
    for thread in threads:
        thread.start()
    for name in TALKERS:
        until((bus / name).exists, "it is there")
    for name in (*TALKERS, "B_log"):
        threading.Thread(target=listen, args=(name,), daemon=True).start()
    for number in range(200):
        os.write(files[-1], b"a question %d\n" % number)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for file in files:
            os.close(file)


def wait_for_curve(page: Page, selector: str, points: int) -> None:
    """Waits until a curve is so long."""
    page.wait(
        lambda: any(len((each.get_attribute("points") or "").split()) > points for each in page.all(selector)), "it is drawn"
    )


def main() -> None:
    """Takes all three."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "bus").mkdir()
        bus = Mount(place / "bus", place / "bus.log")
        command = [sys.executable, "-m", "futebus.commands.web", "--port", "8389", str(bus.path)]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr
            url = server.stderr.readline().split()[-1]
            with talking(bus.path), browsing() as driver:
                page = Page(driver)
                channel = f"{url}&bus={bus.path}&channel=B_log"
                for name, width, height, scheme, address in (
                    ("light", 1100, 760, "light", url),
                    ("dark", 1100, 900, "dark", channel),
                    ("phone", 360, 720, "light", url),
                ):
                    page.resize(width, height)
                    page.prefer(scheme)
                    page.go(address)
                    if address == channel:
                        page.one("#watch").click()
                        page.wait(lambda: len(page.texts("#lines li")) > 10, "there are lines")
                    curve = ".bus polyline" if address == url else "#channel-curve polyline"
                    wait_for_curve(page, curve, SECONDS if name == "light" else SECONDS // 2)
                    driver.save_screenshot(str(DOCS / f"web-{name}.png"))
        finally:
            server.terminate()
            server.wait()
            bus.unmount()


if __name__ == "__main__":
    main()
