"""Who is let in: hosts, origins, tokens, and nothing but questions."""

from pathlib import Path

import pytest

from futebus.view.web import server
from futebus.view.web.feeds import Feeds
from futebus.view.web.pages import Pages
from futebus.view.web.security import HEADERS, PATHS, is_own_name, rules_for

from ...helpers.mounts import Mount
from ...helpers.programs import Start
from ...helpers.waiting import until
from .test_limits import is_over
from .webs import Web

ADDRESSES = ("/", "/app.js", "/events", "/metrics", "/stat.json", "/nothing")


def test_every_answer_has_the_headers(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    for path in ADDRESSES:
        for method, host in (("HEAD", "localhost"), ("POST", "localhost"), ("GET", "evil.example")):
            answer = served.ask(path, {"Host": f"{host}:{served.port}"}, method=method)
            for name, value in HEADERS:
                assert answer.headers[name.decode()] == value.decode(), (path, method)
            assert not [name for name in answer.headers if name.startswith("access-control") or name in ("server", "set-cookie")]
    policy = served.ask("/").headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= {*policy}
    assert "unsafe" not in "".join(policy)
    served.end()


def test_it_answers_to_its_own_names_only(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path, "--host", "bus.example", "--host", "other.example:80")
    port = served.port
    own = [f"localhost:{port}", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"]
    for host in [*own, "bus.example", "bus.example:1", f"Bus.Example:{port}", "other.example:80"]:
        assert served.ask("/metrics", {"Host": host} | served.bearer).status == 200, host
    rebound = [
        "evil.example",
        f"evil.example:{port}",
        "localhost",
        "localhost:1",
        f"localhost.evil.example:{port}",
        "other.example",
    ]
    for host in [*rebound, f"localhost:{port}:{port}", f"x@localhost:{port}", f"192.0.2.1:{port}", "[::1]", ":", ""]:
        for path in ADDRESSES:
            answer = served.ask(path, {"Host": host})
            assert answer.status == 421, (host, path)
            assert str(bus.path) not in answer.text
    with served.raw(b"GET / HTTP/1.0\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 421")
    with served.raw(b"GET / HTTP/1.1\r\nHost: localhost:%d\r\nHost: evil\r\n\r\n" % port) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    served.end()


def test_other_sites_pages_get_nothing(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    own = {"Host": f"localhost:{served.port}"}
    good: list[dict[str, str]] = [
        {},
        {"Origin": f"http://localhost:{served.port}"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "none"},
    ]
    bad: list[dict[str, str]] = [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{served.port}"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ]
    for path in ("/", "/app.js", "/stat.json"):
        for headers in good:
            assert served.ask(path, own | headers).status == 200, (path, headers)
        for headers in bad:
            assert served.ask(path, own | headers).status == 403, (path, headers)
    for headers in bad:
        assert served.ask("/events", own | headers).status == 403, headers
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert served.ask("/", own | followed).status == 200
    assert served.ask("/metrics", own | followed).status == 403
    served.end()


def test_it_only_shows(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        for path in ADDRESSES:
            answer = served.ask(path, method=method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    body = b"GET / HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 1000000\r\n\r\n" % served.port
    with served.raw(body) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    upgrade = b"GET /events HTTP/1.1\r\nHost: evil\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    with served.raw(upgrade + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 421")
    with served.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as connection:
        assert is_over(connection)
    assert served.ask("/metrics").status == 200
    served.end()


def test_messages_want_the_token(bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_x")
    served = Web(start, place, bus.path)
    for headers in (
        {},
        {"Authorization": served.token},
        {"Authorization": "Bearer x"},
        {"Authorization": f"Bearer {served.token}x"},
    ):
        answer = served.ask("/tail?channel=B_x", headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="futebus"'
    assert served.ask(f"/tail?channel=B_x&token={served.token}").status == 401
    for path in ("/tail%0A", "/tail%0D", "/tail/", "//tail", "/tail;x", "/./tail", "/TAIL", "/tail%00"):
        assert served.ask(f"{path}?channel=B_x").status == 404, path
    assert served.ask("/%74ail?channel=B_x").status == 401
    served.tail("B_x").close()
    assert served.ask("/stat.json").status == 200
    assert served.words.count(served.token) == 1
    served.end()


@pytest.mark.parametrize("options", [["--private"], ["--listen", "*"], ["--listen", "0.0.0.0"], ["--host", "x.org"]])
def test_where_everything_wants_the_token(bus: Mount, place: Path, start: Start, options: list[str]) -> None:
    served = Web(start, place, bus.path, *options)
    own = {"Host": f"127.0.0.1:{served.port}"}
    assert served.ask("/", own).status == 200
    for path in ("/events", "/metrics", "/stat.json", "/tail?channel=B_x", "/nothing"):
        answer = served.ask(path, own)
        assert answer.status == 401, path
        assert str(bus.path) not in answer.text
    assert served.ask("/metrics", own | served.bearer).status == 200
    served.end()


def test_the_address_that_was_reached_is_a_name(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path, "--listen", "*")
    assert served.url == f"http://localhost:{served.port}/"
    assert "on every address of this machine" in served.words
    reached = f"127.0.0.2:{served.port}"
    assert served.ask("/metrics", {"Host": reached} | served.bearer, host="127.0.0.2").status == 200
    assert served.ask("/metrics", {"Host": reached}, host="127.0.0.2").status == 401
    for host in (f"127.0.0.3:{served.port}", "127.0.0.2", "127.0.0.2:1", f"evil:{served.port}"):
        assert served.ask("/metrics", {"Host": host} | served.bearer, host="127.0.0.2").status == 421, host
    served.end()


@pytest.mark.parametrize(
    ("listens", "name"),
    [
        ([], "localhost"),
        (["*"], "localhost"),
        (["127.0.0.1", "::1"], "localhost"),
        (["127.0.0.1"], "127.0.0.1"),
        (["0.0.0.0"], "127.0.0.1"),
        (["::1"], "[::1]"),
        (["::"], "[::1]"),
        (["127.0.0.2"], "127.0.0.2"),
    ],
)
def test_the_address_with_the_token_leads_to_nobody_else(
    bus: Mount, place: Path, start: Start, listens: list[str], name: str
) -> None:
    """Who has ::1 where this server has 127.0.0.1 is who browsers go to for `localhost`."""
    served = Web(start, place, bus.path, *(word for address in listens for word in ("-l", address)))
    assert served.url == f"http://{name}:{served.port}/"
    assert f"http://{name}:{served.port}/#token=" in served.words
    host = name.strip("[]") if name != "localhost" else "127.0.0.1"
    assert served.ask("/", {"Host": f"{name}:{served.port}"}, host=host).status == 200
    answer = served.ask("/", {"Host": f"localhost:{served.port}"}, host=host)
    assert answer.status == (200 if name == "localhost" else 421)
    served.end()


def test_a_machine_without_one_of_them_has_localhost_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = server.listen(["127.0.0.1"], 0)
    with one:
        assert not server.has_localhost([one])
        monkeypatch.setattr(server, "OWN_ADDRESSES", ("127.0.0.1", "2001:db8::1"))
        assert server.has_localhost([one])


def test_a_token_of_ones_own(bus: Mount, place: Path, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    served = Web(start, place, bus.path, "--token-file", file)
    assert "0123456789abcdef" not in served.words
    assert served.ask("/tail?channel=U_x", {"Authorization": "bearer 0123456789abcdef"}).status == 409
    served.end()

    def refused(text: str, mode: int = 0o600) -> str:
        file.write_text(text)
        file.chmod(mode)
        never = Web(start, place, bus.path, "--token-file", file, is_ready=False)
        assert never.process.wait() == 1
        return never.words

    wanted = "a token is one line of 16 or more letters, digits, and any of ._~+/=-"
    for text in ("", "short", "0123456789abcdef 0123", "0123456789abcdef\n0123", "0123456789abcdé0123"):
        assert refused(text) == f"futebus-web: {file}: {wanted}\n"
    assert refused("0123456789abcdef", 0o644) == f"futebus-web: {file}: everybody may read it, or write it; chmod 600 keeps it\n"
    file.unlink()
    never = Web(start, place, bus.path, "--token-file", file, is_ready=False)
    until(lambda: never.words == f"futebus-web: {file}: No such file or directory\n", "it says so")


def test_who_has_shown_the_token_knows_the_server_again(bus: Mount, place: Path, start: Start) -> None:
    first, other = (Web(start, place, bus.path, "--private") for _ in range(2))
    with first.stream("/events", first.bearer) as page:
        name, pledge = page.next_of_all()
    assert name == "pledge"
    answers = [served.ask(f"/same?ask={pledge['ask']}").text for served in (first, first, other)]
    assert [answer == pledge["answer"] for answer in answers] == [True, True, False]
    with first.stream("/events", first.bearer) as page:
        assert page.next("pledge") != pledge
    assert first.ask("/same?ask=%ff%fe%ed%a0%80").status == first.ask("/same").status == 200
    assert first.ask("/same", {"Sec-Fetch-Site": "cross-site"}).status == 403
    public = Web(start, place, bus.path)
    with public.stream("/events", {"Authorization": "Bearer 0123456789abcdef"}) as page:
        assert page.next_of_all()[0] == "past"
    for served in (first, other, public):
        served.end()


def test_names_of_hosts() -> None:
    rules = rules_for(80, ["[2001:db8::1]"], ["Name"], "t" * 16, is_private=False)
    assert all(map(rules.knows, ("localhost", "localhost:80", "[::1]", "[2001:DB8::1]", "[2001:db8::1]:80", "name", "name:1")))
    assert not any(map(rules.knows, ("localhost:81", "[2001:db8::2]", "2001:db8::1", "name:1:2", "")))
    assert rules.has_token("BEARER " + "t" * 16)
    assert not any(map(rules.has_token, ("", "Bearer", "Bearer ", "Basic " + "t" * 16, "Bearer é" + "t" * 16)))


def test_all_that_there_is_has_its_rule() -> None:
    assert {getattr(route, "path", "") for route in Pages(Feeds([])).app().routes} == PATHS


OWN = ("localhost", "LocalHost:80", "127.0.0.1:1", "127.0.0.1", "[::1]", "[::1]:8383", "bus.localhost:1")
OTHERS = ("bus.example", "bus.example:80", "localhost.example", "[2001:db8::1]", "[2001:db8::1]:80", "::1")


def test_which_names_are_this_machines() -> None:
    assert all(map(is_own_name, OWN))
    assert not any(map(is_own_name, OTHERS))
