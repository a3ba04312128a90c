"""What is answered to which address, and how the command begins and ends."""

import errno
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from futebus.commands import web
from futebus.view.web import server

from ...helpers.mounts import Mount, Mounting, hanging, run
from ...helpers.papers import Shell, environment, examples
from ...helpers.programs import Start
from ...helpers.waiting import DEADLINE, until
from .webs import WEB, Web

FILES = {
    "/": "text/html; charset=utf-8",
    "/app.js": "text/javascript; charset=utf-8",
    "/curves.js": "text/javascript; charset=utf-8",
    "/stream.js": "text/javascript; charset=utf-8",
    "/tables.js": "text/javascript; charset=utf-8",
    "/style.css": "text/css; charset=utf-8",
    "/icon.svg": "image/svg+xml",
}
TREE = Path(__file__).parents[3]


def test_the_page_and_its_files(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    for path, kind in FILES.items():
        answer = served.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.body
        head = served.ask(path, method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == answer.headers["content-length"]
    page = served.ask("/").text
    assert "//" not in page.replace("<!doctype", ""), "nothing is from elsewhere"
    assert " style=" not in page
    assert '<script type="module" src="app.js"></script>' in page
    assert page.count("<script") == 1
    for path in FILES:
        if path.endswith(".js"):
            text = served.ask(path).text
            assert not any(word in text for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("))
    served.end()


STRANGE = [
    "/..",
    "/../server.py",
    "/%2e%2e/server.py",
    "/..%2fserver.py",
    "//etc/passwd",
    "/server.py",
    "/app.js/",
    "/app.js%00",
    "/metrics/",
    "/tail%0A?channel=B_x",
    "/tail%0a",
    "/metrics%0A",
    "/%0A",
    "/%74ail%0A",
]


def test_no_path_leads_anywhere_else(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    for path in STRANGE:
        answer = served.ask(path)
        assert (answer.status, answer.body) == (404, b"there is nothing here\n"), path
    with served.raw(b"GET http://evil/app.js HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 404")
    with served.raw(b"GET /\xff HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % served.port) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    served.end()


def test_what_the_bus_tells_programs(mounting: Mounting, place: Path, start: Start) -> None:
    one, two = mounting(), mounting()
    one.touch("B_one")
    two.touch("B_two")
    served = Web(start, place, one.path, two.path)
    answer = served.ask(f"/stat.json?bus={two.path}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert b"B_two" in answer.body
    which = served.ask("/stat.json")
    assert (which.status, which.text) == (404, f"which bus? ?bus= may be one of these:\n{one.path}\n{two.path}\n")
    assert served.ask("/stat.json?bus=/etc").status == 404
    two.unmount()
    until(lambda: served.ask(f"/stat.json?bus={two.path}").status == 502, "what it has told is no longer recent")
    served.end()


@pytest.mark.parametrize(("path", "moment"), [("/stat.json", '"taken_at": '), ("/metrics", "futebus_uptime_seconds{")])
def test_a_bus_is_not_asked_more_often_than_once_a_second(bus: Mount, place: Path, start: Start, path: str, moment: str) -> None:
    served = Web(start, place, bus.path)

    def told() -> str:
        text = served.ask(f"{path}?bus={bus.path}" if path == "/stat.json" else path).text
        return text[text.index(moment) :][:100]

    def is_shared() -> bool:
        return told() == told()

    until(is_shared, "two who ask get the same, unless the second between them is over")
    first = told()
    until(lambda: told() != first, "it is asked again")
    served.end()


def test_all_buses_that_there_are(mounting: Mounting, place: Path, start: Start) -> None:
    served = Web(start, place)
    with served.stream("/events") as events:
        names = {each["name"] for each in events.next("buses")["buses"]}
        late = mounting()
        assert str(late.path) not in names
        until(lambda: str(late.path) in {each["name"] for each in events.next("buses")["buses"]}, "it has come")
        late.unmount()
        until(lambda: str(late.path) not in {each["name"] for each in events.next("buses")["buses"]}, "it has gone")
    served.end()


@pytest.mark.parametrize("path", ["/stat.json?bus=/nope", "/stat.json", "/metrics?bus=/nope"])
def test_who_asks_for_no_bus_is_told_which_there_are(mounting: Mounting, place: Path, start: Start, path: str) -> None:
    one, two = mounting(), mounting()
    served = Web(start, place)  # and nobody has looked yet
    which = served.ask(path)
    assert which.status == 404
    assert {"which bus? ?bus= may be one of these:", str(one.path), str(two.path)} <= set(which.text.splitlines())
    served.end()


def test_a_bus_that_does_not_answer_is_among_them(mounting: Mounting, place: Path, start: Start) -> None:
    one, two = mounting(), mounting()
    served = Web(start, place)
    with hanging(one):
        which = served.ask("/stat.json")
    assert {str(one.path), str(two.path)} <= set(which.text.splitlines())
    served.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_though_pages_look(bus: Mount, place: Path, start: Start, number: signal.Signals) -> None:
    bus.touch("B_x")
    served = Web(start, place, bus.path)
    with served.stream("/events") as events, served.tail("B_x"):
        events.next("buses")
        served.end(number)


def test_it_listens_on_both_families(bus: Mount, place: Path, start: Start) -> None:
    served = Web(start, place, bus.path)
    assert served.url == f"http://localhost:{served.port}/"
    for host in ("127.0.0.1", "::1"):
        assert served.ask("/", host=host).status == 200
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", served.port))
    again = Web(start, place, bus.path, port=served.port, is_ready=False)
    assert again.process.wait() == 1
    assert again.words == f"futebus-web: cannot listen on 127.0.0.1, port {served.port}: Address already in use\n"
    served.end()


def test_it_tells_the_service_manager_when_it_is_ready_and_not_the_token(bus: Mount, place: Path, start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place / "notify"))
        manager.settimeout(DEADLINE)
        process = start(*WEB, "--port", "0", bus.path, env={**os.environ, "NOTIFY_SOCKET": str(place / "notify")})
        told = manager.recv(1000).decode()
        assert told.startswith("READY=1\nSTATUS=the page is on http://localhost:")
        assert "token" not in told
        process.terminate()
        assert manager.recv(1000) == b"STOPPING=1"
        assert process.wait() == 0


WRONG = [
    ([""], "argument MOUNTPOINT: the empty string is no directory"),
    (["--port", "x"], "argument -p/--port: not a port: 'x'"),
    (["--port", "65536"], "argument -p/--port: not a port: '65536'"),
    (["--host", "a b"], "argument --host: not the name of a host, or NAME:PORT: 'a b'"),
    (["--listen", "http://x"], "argument -l/--listen: not an address: 'http://x'"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as end:
        web.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"futebus-web: {words} (see futebus-web --help)\n"


def test_nobody_can_listen_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert web.main(["--listen", "192.0.2.1", "--port", "8383"]) == 1
    words = "futebus-web: cannot listen on 192.0.2.1, port 8383: Cannot assign requested address\n"
    assert capsys.readouterr().err == words


def test_without_what_it_needs_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert web.main([]) == 1
    assert capsys.readouterr().err == f"futebus-web: the module hypercorn is missing: {TREE / 'scripts' / 'install'} view\n"


def test_it_is_quick_to_help() -> None:
    done = run(sys.executable, "-X", "importtime", *WEB[1:], "--help")
    assert done.returncode == 0
    assert not any(line.endswith((" trio", " starlette", " hypercorn", " ssl")) for line in done.stderr.splitlines())
    assert run(*WEB, "-V").stdout.startswith("futebus-web ")


def test_the_examples_of_the_manual_page(bus: Mount, place: Path, start: Start) -> None:
    bus.touch("B_log")
    every, one, tail = (example.replace("/mnt/bus", str(bus.path)) for example in examples("futebus-web.1"))
    serve, curl = one.splitlines()
    assert serve.startswith(f"{every.strip()} --port 8384 ")
    (place / "token").write_text("0123456789abcdef\n")
    (place / "token").chmod(0o600)
    shell = Shell(start, place, "server")
    shell.type(serve.replace("--port 8384", "--port 0 --token-file token"))
    [port] = until(lambda: re.findall(r"the page is on http://localhost:(\d+)/", shell.shown), "it is ready")
    asked = run("sh", "-c", curl.replace(":8384/", f":{port}/"), env=environment(place))
    assert asked.stdout.endswith("# EOF\n")
    watcher = Shell(start, place, "watcher", "sh", "-c", tail.replace(":8383/", f":{port}/"))
    until(lambda: "event: open" in watcher.shown, "it watches")
    (bus / "B_log").write_bytes(b"hi\n")
    until(lambda: '{"lines": ["hi"], "skipped": 0}' in watcher.shown, "it is shown")


def test_the_unit_is_in_order(place: Path) -> None:
    unit = TREE / "systemd" / "futebus-web.service"
    text = unit.read_text()
    assert "\nExecStart=futebus-web " in text
    copy = place / unit.name
    copy.write_text(text.replace("ExecStart=futebus-web", f"ExecStart={sys.executable} -m futebus.commands.web"))
    done = run("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_of_the_page_is_packed() -> None:
    packed = (TREE / "pyproject.toml").read_text().partition("[tool.setuptools.package-data]")[2]
    suffixes = {path.suffix for path in (TREE / "futebus" / "view" / "web").iterdir() if path.is_file() and path.suffix != ".py"}
    assert suffixes == {".css", ".html", ".js", ".svg"}
    assert all(f"view/web/*{suffix}" in packed for suffix in suffixes)


def test_a_port_that_is_free_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = server._listen_on

    def taken_at_first(address: str, port: int) -> list[socket.socket]:
        if address == "::1":
            tried.append(port)
            if len(tried) < 3:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return real(address, port)

    monkeypatch.setattr(server, "_listen_on", taken_at_first)
    listeners = server.listen([], 0)
    assert {each.getsockname()[1] for each in listeners} == {tried[2]}
    for each in listeners:
        each.close()
    port = tried[2]
    tried.clear()
    with pytest.raises(server.WebError, match=f"cannot listen on ::1, port {port}: Address already in use"):
        server.listen([], port)
