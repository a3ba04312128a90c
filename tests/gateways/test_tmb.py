"""The gateway of the Text Message Bus, with real sockets, a real bus and other people's programs."""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from futebus.commands import tmb

from ..helpers.collectors import Collect
from ..helpers.mounts import LINGERING, Mount, Mounting, run
from ..helpers.papers import TREE, Shell, examples
from ..helpers.ports import free_port
from ..helpers.programs import Start, leave_behind
from ..helpers.recorders import Remounting
from ..helpers.waiting import until
from .tmbs import TMB, Gateway, Peer

SHAPES = [b":/upper/shape square\n", b":/upper/colour red\n", b":/lower/shape circle\n", b":/lower/colour yellow\n"]
"""The messages of the original's example."""

TRIES = 10
"""How often a test begins anew because other processes have had a port and given it back."""


def test_the_example_of_the_original(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_shapes")
    expected = {
        b"subscribe 1 regexp .": [0, 1, 2, 3],
        b"subscribe 2 begins-with /upper": [0, 1],
        b"subscribe 3 ends-with shape": [0, 2],
        b"subscribe 4 contains colour": [1, 3],
        b"subscribe 5 is /upper/shape": [0],
    }
    peers = {words: gateway.peer(words + b"\n") for words in expected}
    with Peer(gateway.port) as sender:
        sender.send(b"".join(SHAPES))
        for words, numbers in expected.items():
            assert peers[words].lines(len(numbers)) == [SHAPES[number] for number in numbers], words
            id_ = words.split()[1]
            peers[words].is_told(b"unsubscribe %s\n" % id_, b"ok unsubscribed %s\n" % id_)
    for peer in peers.values():
        peer.close()
    gateway.end()


def test_a_message_comes_once_and_to_the_sender_too(bus: Mount, start: Start, collect: Collect) -> None:
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\ns 2 b /a\ns 3 i /a\ns 4 e a\ns 5 c a\n") as peer, gateway.peer(b"s 1 i /b\n") as other:
        peer.send(b":/a one\n:/b two\n:/a\n:/a  \x00\xff three\n")
        assert peer.lines(4) == [b":/a one\n", b":/b two\n", b":/a\n", b":/a  \x00\xff three\n"]
        other.hears_nothing_before(b":/b two\n")
    assert listener.settled() == b":/a one\n:/b two\n:/a\n:/a  \x00\xff three\n"


def test_only_a_carriage_return_before_a_newline_is_removed(bus: Mount, start: Start, collect: Collect) -> None:
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\r\n") as peer:
        peer.send(b":a b\r\n:a \rb\r\r\n\r\n\n:a\tc\n")
        assert peer.lines(3) == [b":a b\n", b":a \rb\r\n", b":a\tc\n"]
    assert listener.settled() == b":a b\n:a \rb\r\n:a\tc\n"


def test_what_the_bus_says_goes_to_peers_if_it_begins_with_a_colon(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 b\n") as peer:
        (bus / "B_x").write_bytes(
            b"no message\n:a 1\r\n: blank\n::b 2\n:" + b"c" * 256 + b" too long\n:" + b"d" * 255 + b"\nend\n:e\n"
        )
        assert peer.lines(4) == [b":a 1\r\n", b"::b 2\n", b":" + b"d" * 255 + b"\n", b":e\n"]


def test_commands_and_their_answers(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-subscriptions", "2")
    with Peer(gateway.port) as peer:
        peer.is_told(b"sub 1 reg ^/a.$\n", b"ok subscribed 1 regexp ^/a.$\n")
        peer.is_told(b"s 1 is /b\n", b"ok subscribed 1 is /b\n")
        peer.send(b":/ab no\n:/b yes\n")
        peer.hears_nothing_before(b":/b yes\n")
        peer.is_told(b"s two e\n", b"ok subscribed two ends-with\n")
        peer.is_told(b"s 3 r .\n", b"error a peer has at most 2 subscriptions\n")
        peer.is_told(b"u 1\n", b"ok unsubscribed 1\n")
        peer.is_told(b"u 1\n", b"error there is no subscription 1\n")
        peer.is_told(b"s 3 r (\n", b"error no regular expression: missing ): (\n")
        peer.is_told(b"s 3 x y\n", b"error there is no kind of match x: regexp, begins-with, ends-with, contains, is\n")
        peer.is_told(b"\x1b[2J:\n", b"error there is no command \\x1b[2J:: subscribe, unsubscribe, help\n")
        peer.is_told(b": x\n", b"error no blank may follow the colon: a message is :CATEGORY TEXT\n")
        peer.is_told(b":" + b"x" * 256 + b" y\n", b"error the category is too long\n")
        peer.is_told(b"s 3 i a b\n", b"error it goes: subscribe ID regexp|begins-with|ends-with|contains|is STRING, "
                                     b"and no STRING has a blank, since no category has\n")  # fmt: skip
        peer.send(b"h\nu two\n")
        help_ = list(iter(peer.line, b"ok unsubscribed two\n"))
        assert help_
        assert all(line.startswith(b"help ") for line in help_)


def test_what_is_said_before_a_command_comes_before_it(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with Peer(gateway.port) as peer:
        peer.send(b":a 0\ns 1 i a\n:a 1\n:b 1\nu 1\n:a 2\n:b 2\ns 1 i b\n:b 3\n:a 3\nu 1\n:b 4\nh\n")
        told = [peer.line() for _ in range(7)]
        answers = [line for line in told if not line.startswith(b":")]
        assert [line for line in told if line.startswith(b":")] == [b":a 1\n", b":b 3\n"]
        assert [line[:6] for line in answers] == [b"ok sub", b"ok uns", b"ok sub", b"ok uns", b"help A"]


def test_all_hear_the_same_order(bus: Mount, start: Start, collect: Collect) -> None:
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as one, gateway.peer(b"s 1 r ^[ab]$\n") as two:
        for number in range(200):
            one.send(b":a %d\n" % number)
            two.send(b":b %d\n" % number)
            (bus / "B_x").write_bytes(b":c %d\n" % number)
        all_of_them = b"".join(one.lines(600))
        assert b"".join(two.lines(400)) == b"".join(line for line in all_of_them.splitlines(True) if not line.startswith(b":c"))
    assert listener.settled() == all_of_them


def test_much_comes_whole(mounting: Mounting, start: Start, collect: Collect) -> None:
    bus = mounting("max_queue=1M", "max_queue_bytes=256M")
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x", "--max-queue", "256M")
    lines = [b":%d/%d %s\n" % (number % 7, number, b"x" * (number % 300)) for number in range(60_000)]
    with gateway.peer(b"s 1 r .\n") as everything, gateway.peer(b"s 1 b 3/\n") as some, Peer(gateway.port) as sender:
        sender.send(b"".join(lines))
        assert everything.lines(len(lines)) == lines
        wanted = lines[3::7]
        assert some.lines(len(wanted)) == wanted
    assert listener.settled() == b"".join(lines)


@pytest.mark.parametrize(
    "words",
    [
        ["socat", "-", "TCP:127.0.0.1:{port}"],
        ["busybox", "nc", "127.0.0.1", "{port}"],
        ["busybox", "telnet", "127.0.0.1", "{port}"],
        ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & cat >&3"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_programs_of_others(bus: Mount, start: Start, place: Path, collect: Collect, words: list[str]) -> None:
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x")
    shown = place / "shown"
    with shown.open("wb") as stream:
        program = start(*(word.replace("{port}", str(gateway.port)) for word in words), stdout=stream)
    assert program.stdin
    for typed, answer in (("s 1 r .", b"ok subscribed 1 regexp .\n"), (":/upper/colour #666", b":/upper/colour #666\n")):
        program.stdin.write(typed + "\n")
        program.stdin.flush()
        until(lambda answer=answer: answer in shown.read_bytes().replace(b"\r", b""), f"{answer!r} is shown")  # type: ignore[misc]
    assert listener.settled() == b":/upper/colour #666\n"
    os.killpg(program.pid, signal.SIGKILL)
    with gateway.peer(b"s 1 r .\n") as peer:
        peer.is_told(b":still there\n", b":still there\n")


def test_who_has_said_all_may_go_on_listening(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as listener, Peer(gateway.port) as other:
        listener.socket.shutdown(socket.SHUT_WR)
        other.send(b"h\n:a 1\nincomplete")
        other.socket.shutdown(socket.SHUT_WR)
        assert listener.line() == b":a 1\n"
        told = list(iter(other.line, b""))
        assert told[-1].startswith(b"help An ID"), "it got its answer, and then the end"


def test_it_takes_the_first_free_port_that_it_is_known_for(bus: Mount, start: Start) -> None:
    for _ in range(TRIES):
        one = Gateway(start, bus / "B_x", listen=None)
        two = Gateway(start, bus / "B_x", listen="127.0.0.1")
        assert one.port != two.port
        assert {one.port, two.port} < {*range(4711, 4721)}
        if one.port < two.port:
            break
        one.end()  # somebody else has given one back meanwhile
        two.end()
    else:
        raise AssertionError("it is never the first")
    other = Gateway(start, bus / "B_other", listen=f":{one.port}", is_ready=False)
    assert other.process.wait() == 1
    assert other.words == f"futebus-tmb: cannot listen on 127.0.0.1, port {one.port}: Address already in use\n"
    assert not (bus / "B_other").exists(), "who cannot serve a channel does not make it"
    one.end(signal.SIGINT)


def test_who_wants_quiet_hears_nothing(bus: Mount, start: Start) -> None:
    port = free_port()
    gateway = Gateway(start, bus / "B_x", "--quiet", listen=f":{port}", is_ready=False)

    def is_there() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(is_there, "it listens")
    gateway.end()
    assert gateway.words == ""


def test_it_comes_back_at_once_after_it_was_killed(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", listen=f"127.0.0.1:{free_port()}")
    with gateway.peer(b"s 1 r .\n") as peer:
        gateway.process.kill()
        gateway.process.wait()
        assert peer.line() == b""
        again = Gateway(start, bus / "B_x", listen=f"127.0.0.1:{gateway.port}")
    with again.peer(b"s 1 r .\n") as peer:
        peer.is_told(b":a b\n", b":a b\n")


def test_without_a_bus_it_ends(mounting: Mounting, place: Path, start: Start) -> None:
    (place / "none").mkdir()
    never = Gateway(start, place / "none" / "B_x", is_ready=False)
    assert never.process.wait() == 1
    assert never.words == f"futebus-tmb: no bus is mounted on {place}/none\n"
    assert not list((place / "none").iterdir())
    bus = mounting(command=LINGERING)
    gateway = Gateway(start, bus / "B_x")
    bus.unmount()
    assert gateway.process.wait() == 1
    assert gateway.words.splitlines()[1:] == [f"futebus-tmb: {bus.path}/B_x: the bus is going"]


def test_with_patience_it_waits_for_a_bus(bus: Mount, start: Start, remounting: Remounting, collect: Collect) -> None:
    gateway = Gateway(start, bus / "B_x", "--wait")
    with gateway.peer(b"s 1 r .\n") as peer, Peer(gateway.port) as sender:
        peer.is_told(b":a 1\n", b":a 1\n")
        bus.daemon.kill()
        gateway.wait_for("; waiting")
        sender.send(b":a 2\n")
        again = remounting(bus)
        peer.hears_nothing_before(b":a 2\n")
        listener = collect(again / "B_x")
        peer.is_told(b":a 3\n", b":a 3\n")
        (again / "B_x").write_bytes(b":a 4\n")
        peer.hears_nothing_before(b":a 4\n")
        assert listener.settled() == b":a 3\n:a 4\n"
    gateway.end()


def test_with_patience_it_begins_before_the_bus(place: Path, start: Start, mounting: Mounting) -> None:
    early = Gateway(start, place / "bus0" / "B_x", "--wait", is_ready=False)
    early.wait_for("waiting")
    mounting()
    early.wait_until_ready()
    with early.peer(b"s 1 r .\n") as peer:
        peer.is_told(b":a b\n", b":a b\n")


HASTY = """
import sys
from futebus.gateways.tmb import server
server.GONE_SECONDS = 0.5
from futebus.commands.tmb import main
sys.exit(main())
"""
"""Who has closed so long ago gives way to others."""


def test_who_has_gone_while_the_bus_is_away_gives_way(mounting: Mounting, start: Start, remounting: Remounting) -> None:
    """What he has sent is said when it is back."""
    bus = mounting()
    gateway = Gateway(
        start,
        bus / "B_x",
        "--wait",
        "--max-clients",
        "2",
        "--max-clients-per-address",
        "2",
        command=[sys.executable, "-c", HASTY],
    )
    bus.daemon.kill()
    bus.daemon.wait()
    gateway.wait_for("waiting")
    for line in (b":a one\n", b":a two\n"):
        peer = Peer(gateway.port)
        peer.send(line)
        peer.close()

    def is_let_in() -> bool:
        with Peer(gateway.port) as late, contextlib.suppress(ConnectionError):
            late.send(b"help\n")
            return not late.line().startswith(b"error")
        return False

    until(is_let_in, "there is a place")
    again = remounting(bus)
    until(lambda: sum(each["sent"] for each in again.clients("B_x")) == 2, "what they have sent is said")
    gateway.end()


def test_a_channel_whose_name_was_removed_is_opened_anew(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as peer:
        (bus / "B_x").unlink()
        gateway.wait_for("is open again")
        (bus / "B_x").write_bytes(b":a b\n")
        peer.hears_nothing_before(b":a b\n")


def test_what_waits_in_a_channel_that_is_removed_is_delivered(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    messages = [b":a %099d\n" % number for number in range(5_000)]
    with gateway.peer(b"s 1 r .\n") as peer:
        leave_behind(gateway.process, bus / "B_x", b"".join(messages))
        gateway.wait_for("is open again")
        peer.send(b":a end\n")
        assert peer.lines(5_001) == [*messages, b":a end\n"]
    gateway.end()


def test_what_a_peer_sends_while_a_channel_is_removed_again_and_again_comes_back(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as peer:
        sent = 0
        for times in range(1, 3):
            (bus / "B_x").unlink()
            while gateway.words.count("is open again") < times:
                peer.is_told(b":a %d\n" % sent, b":a %d\n" % sent)
                sent += 1
    gateway.end()


def test_a_channel_that_is_created_has_the_mode_that_was_asked_for(bus: Mount, start: Start) -> None:
    Gateway(start, bus / "B_x", "--mode", "640")
    assert (bus / "B_x").stat().st_mode & 0o777 == 0o640


WRONG = [
    (["U_x"], "U_x: a B channel, please: its name begins with B"),
    ([], "the following arguments are required: CHANNEL"),
    (["-l", "4711", "B_x"], "argument -l/--listen: a port goes behind a colon, as in :4711: '4711'"),
    (["-l", "::1", "B_x"], "argument -l/--listen: an IPv6 address goes in brackets, as in [::1]:4711: '::1'"),
    (["-l", "localhost:http", "B_x"], "argument -l/--listen: not an address and a port: 'localhost:http'"),
    (["-l", "localhost:65536", "B_x"], "argument -l/--listen: not an address and a port: 'localhost:65536'"),
    (["--max-clients", "0", "B_x"], "argument --max-clients: not a number from 1 on: '0'"),
    (["--max-queue", "1K", "B_x"], "argument --max-queue: from 4K on, not 1K"),
    (["--tls-key", "k", "B_x"], "--tls-key wants --tls-cert"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as end:
        tmb.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"futebus-tmb: {words} (see futebus-tmb --help)\n"


ADDRESSES = {
    "*:4712": (None, 4712),
    "*": (None, None),
    ":0": ("127.0.0.1", 0),
    "localhost": ("localhost", None),
    "[::1]:4711": ("::1", 4711),
    "[::]": ("::", None),
    "192.0.2.1:65535": ("192.0.2.1", 65535),
}


def test_addresses() -> None:
    assert {text: tmb.address(text) for text in ADDRESSES} == ADDRESSES
    for text in ("", ":", "a:", "[::1", "[::1]4711", "a:-1", "a:b:c", "a:²"):
        with pytest.raises(ValueError, match="address"):
            tmb.address(text)


def test_without_re2_it_says_what_to_install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert tmb.main(["B_x"]) == 1
    assert capsys.readouterr().err == f"futebus-tmb: the module re2 is missing: {TREE}/scripts/install gateways\n"


def test_the_examples_of_the_manual_page(bus: Mount, place: Path, start: Start) -> None:
    serve, use, say, _ = (example.replace("/mnt/bus", str(bus.path)) for example in examples("futebus-tmb.1"))
    shell = Shell(start, place, "shell")
    shell.type(f"{serve.strip()} &")
    until(lambda: "is served on" in shell.shown, "it is ready")
    telnet, *typed = use.splitlines()
    assert telnet == "$ telnet localhost 4711"
    peer = Shell(start, place, "peer", "socat", "-", f"TCP:127.0.0.1:{shell.shown.rpartition(':')[2].strip()}")
    for command, answer in (typed[:2], typed[2:4]):
        peer.type(command)
        peer.expect(answer)
    assert run("sh", "-c", say).returncode == 0
    peer.expect(typed[4])
    assert peer.rest == typed[5:] == []


def test_it_is_quick_to_help() -> None:
    done = run(sys.executable, "-X", "importtime", *TMB[1:], "--help")
    assert done.returncode == 0
    assert not any(line.endswith((" trio", " re2", " ssl")) for line in done.stderr.splitlines())


def test_it_listens_on_ipv6_too(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", listen="[::1]:0")
    assert f"[::1]:{gateway.port}" in gateway.words
    with Peer(gateway.port, "::1") as peer:
        peer.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")


def test_the_unit_is_in_order(place: Path) -> None:
    unit = Path(__file__).parents[2] / "systemd" / "futebus-tmb@.service"
    text = unit.read_text()
    assert "\nExecStart=futebus-tmb " in text
    copy = place / unit.name
    copy.write_text(text.replace("ExecStart=futebus-tmb", f"ExecStart={sys.executable} -m futebus.commands.tmb"))
    done = run("systemd-analyze", "verify", "--man=no", copy)
    assert (done.returncode, done.stderr) == (0, "")
