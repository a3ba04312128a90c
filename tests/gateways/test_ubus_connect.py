"""`futebus-ubus connect`: a socket that is there, that comes, that is dead, that comes back, and that must not be touched."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import trio

from futebus.gateways.ubus.places import Kind, Place, dial, kind_of, path_of

from ..helpers import mounts
from ..helpers.programs import Start
from ..helpers.users import ANN, BECOME
from ..helpers.waiting import DEADLINE
from .ubuses import UBUS, Program, run, sock

ANN_CONNECTS = f"""{BECOME}
import resource
import futebus.commands.ubus, futebus.gateways.life, futebus.gateways.ubus.connecting
become({ANN["user"]})
sys.exit(futebus.commands.ubus.main(["connect", sys.argv[1]]))
"""


class Server:
    """A service of one connection."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(path))
        self.listening.settimeout(DEADLINE)
        self.listening.listen()
        self._accepted: list[socket.socket] = []

    def __del__(self) -> None:
        for each in (self.listening, *getattr(self, "_accepted", ())):
            each.close()

    def accept(self) -> socket.socket:
        accepted = self.listening.accept()[0]
        accepted.settimeout(DEADLINE)
        self._accepted.append(accepted)
        return accepted


def received(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := sock.recv(count - len(data))):
        data += more
    return data


def test_it_waits_until_it_is_there(place: Path, start: Start) -> None:
    path = sock(place, "app/deep/x.method")
    program = Program(start, place, "connect", "app/deep/x.method").wait_for("waiting")
    path.parent.parent.mkdir(parents=True)
    path.parent.mkdir()
    server = Server(path)
    peer = server.accept()
    program.type("hello\nhalf")
    assert received(peer, 10) == b"hello\nhalf"
    peer.sendall(b"back\nunfinished")
    assert program.line() == "back\n"
    program.end_input()
    assert peer.recv(1) == b""
    peer.sendall(b" until now")
    peer.close()
    program.ended(0)
    assert program.process.stdout
    assert program.process.stdout.read() == "unfinished until now"


def test_a_dead_socket_is_waited_for_too(place: Path, start: Start) -> None:
    path = place / "x.signal"
    Server(path).listening.close()
    program = Program(start, place, "connect", path).wait_for("nobody listens there; waiting")
    path.unlink()
    peer = Server(path).accept()
    peer.close()
    program.ended(0)


def test_it_connects_again(place: Path, start: Start) -> None:
    path = sock(place, "x.signal")
    server = Server(path)
    program = Program(start, place, "connect", "--reconnect", "x.signal")
    for number in range(3):
        peer = server.accept()
        program.type(f"line {number}\nhalf a ")
        expected = b"line 0\n" if not number else b"half a line %d\n" % number
        assert received(peer, len(expected)) == expected
        peer.sendall(b"hello %d\n" % number)
        assert program.line() == f"hello {number}\n"
        if number == 1:
            server.listening.close()
            path.unlink()
            server = Server(path)
        peer.close()
    program.end(signal.SIGINT)


def test_what_it_must_not_wait_for(place: Path) -> None:
    (place / "file").touch()
    (place / "dir").mkdir()
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(str(place / "datagrams"))
    for name, words in (
        ("file", b"Socket operation on non-socket"),
        ("dir", b"Socket operation on non-socket"),
        ("file/below", b"Not a directory"),
        ("datagrams", b"Protocol wrong type for socket"),
        ("x" * 200, b"107 bytes at most"),
    ):
        done = run(*UBUS, "connect", place / name, home=place)
        assert done.returncode == 1, done
        assert words in done.stderr
        assert done.stderr.count(b"\n") == 1
    private = Server(place / "private")
    assert private.listening.fileno() > 0
    (place / "private").chmod(0o600)
    refused = mounts.run(sys.executable, "-c", ANN_CONNECTS, place / "private")
    assert refused.returncode == 1
    assert "Permission denied" in refused.stderr
    datagrams.close()


def test_it_ends_when_nobody_reads_it(place: Path, start: Start) -> None:
    server = Server(sock(place, "x"))
    program = Program(start, place, "connect", "x")
    peer = server.accept()
    program.end_output()
    peer.sendall(b"x\n")
    program.ended(0)


def test_much_goes_through_unchanged(place: Path, start: Start) -> None:
    server = Server(sock(place, "x"))
    data = os.urandom(3_000_000)
    (place / "in").write_bytes(data)
    with (place / "in").open("rb") as given, (place / "out").open("wb") as out:
        program = Program(start, place, "connect", "x", stdin=given, stdout=out)
    peer = server.accept()
    copy = received(peer, len(data))
    peer.sendall(copy)
    peer.close()
    program.ended(0)
    assert (place / "out").read_bytes() == data


@pytest.mark.parametrize("use", ["", "expose", "signal", "connect"])
def test_help(place: Path, use: str) -> None:
    done = run(*UBUS, *([use] if use else []), "--help", home=place)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: futebus-ubus {use}".encode())
    assert max(map(len, done.stdout.splitlines())) <= 130
    assert b"-V, --version" in done.stdout


def test_the_version_and_nonsense(place: Path) -> None:
    assert run(*UBUS, "-V", home=place).stdout.startswith(b"futebus-ubus ")
    assert run(*UBUS, "connect", "--nonsense", home=place).returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["expos", "B_x", "app/x.signal"], "did you mean expose? A BUS that is called expos is ./expos, or behind --"),
        (["conect", "app/x.signal"], "did you mean connect? A BUS that is called conect is ./conect, or behind --"),
        (["-q", "signals"], "did you mean signal? A BUS that is called signals is ./signals, or behind --"),
        (["-q", "expose", "B_x", "app/x.signal"], "expose comes first, and options behind it"),
    ],
)
def test_what_is_meant_for_a_sub_command_is_no_socket(place: Path, words: list[str], said: str) -> None:
    done = run(*UBUS, *words, home=place)
    assert (done.returncode, done.stderr.decode()) == (2, f"futebus-ubus: {said} (see futebus-ubus --help)\n")
    assert not (place / ".ipc").exists()


@pytest.mark.parametrize("words", [["--", "expos"], ["./expos"], ["x", "expos"], ["expos.signal"], ["app/expos"]])
def test_a_socket_may_be_called_like_that(place: Path, words: list[str]) -> None:
    environment = {**os.environ, "HOME": str(place)}
    done = mounts.run(*UBUS, *words, env=environment, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "\t1\n" in done.stdout, "it was served, until the end of input"


def test_paths_and_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert path_of("app/x") == Path("/home/ann/.ipc/app/x")
    assert path_of("./x") == Path("x")
    assert path_of("/x") == Path("/x")
    assert kind_of("app/x.method") is Kind.METHOD
    assert kind_of("app/.method") is None
    assert kind_of("app/x") is None


def test_of_two_who_replace_a_dead_socket_one_does(place: Path) -> None:
    path = place / "x"
    outcomes: list[str] = []

    async def take(mine: Place) -> None:
        try:
            await mine.open()
        except OSError as error:
            outcomes.append(str(error.strerror))
        else:
            outcomes.append("")
            (await dial(path)).close()

    async def both() -> None:
        places = [Place(str(path)), Place(str(path))]
        async with trio.open_nursery() as nursery:
            for each in places:
                nursery.start_soon(take, each)
        for each in places:
            each.close()

    for _ in range(20):
        Server(path).listening.close()
        outcomes.clear()
        trio.run(both)
        assert sorted(outcomes) == ["", "somebody listens there already"]
        assert not path.exists()
