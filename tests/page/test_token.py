"""Whom a page shows its token after nobody has looked at it: the server that it has shown it to before, and no other one."""

import socket
from pathlib import Path

from ..helpers.mounts import Mount
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE
from ..view.web.webs import Web
from .browsers import Page
from .test_page import HIDE, names, with_token


def has_token(page: Page) -> bool:
    """Whether a page that is loaded in this tab finds it."""
    return bool(page.run("return sessionStorage.length"))


def test_who_listens_while_nobody_looks_is_not_shown_the_token(page: Page, bus: Mount, place: Path, start: Start) -> None:
    """He may have the port for a while, and the next server has the same token from its file."""
    page.expected = ["net::ERR_", "status of 401"]
    bus.touch("B_log")
    served = Web(start, place, bus.path, "--private")
    page.go(with_token(served))
    page.wait(lambda: names(page) == ["B_log"], "it is shown")
    page.run(HIDE, True)
    assert not has_token(page)
    port = served.port
    served.end()
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", port)) as other:
        other.settimeout(DEADLINE)
        page.run(HIDE, False)
        while not any(b"GET /events" in asked for asked in heard):
            connection, _ = other.accept()
            with connection:
                connection.settimeout(DEADLINE)
                heard.append(connection.recv(1 << 16))
                status = b"200 OK" if b"GET /same" in heard[-1] else b"401 No"
                connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
    assert b"authorization" not in b"".join(heard).lower()
    page.wait(lambda: page.focused == "token", "it is asked for")
    assert "another one may be in its place" in page.text("#ask-why")
    assert not has_token(page)


def test_who_comes_back_need_not_give_the_token_again(page: Page, bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    served = Web(start, place, bus.path, "--private")
    page.go(with_token(served))
    page.wait(lambda: names(page) == ["B_log"], "it is shown")
    for hidden in (True, False, True, False):
        page.run(HIDE, hidden)
    page.wait(lambda: page.text("#state") == "live" and has_token(page), "it is the same server")
    bus.touch("B_new")
    page.wait(lambda: names(page) == ["B_log", "B_new"], "it looks again")


def test_a_page_that_is_loaded_again_has_its_token(page: Page, bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    served = Web(start, place, bus.path, "--private")
    page.go(with_token(served))
    for _ in range(2):
        page.wait(lambda: names(page) == ["B_log"], "it is shown")
        page.driver.refresh()
    page.wait(lambda: names(page) == ["B_log"] and has_token(page), "it is shown again")
