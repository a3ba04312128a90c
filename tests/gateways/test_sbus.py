"""futebus-sbus as clients of sbusd know it: its addresses, its life, its messages."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from futebus.commands.sbus import read, write_pid
from futebus.gateways.sbus.address import Address, BadAddress
from futebus.host.processes import is_alive

from ..helpers.mounts import run
from ..helpers.programs import Start
from ..helpers.recorders import fill
from ..helpers.waiting import DEADLINE, until
from .sbuses import BIGGEST, COMMAND, Client, Sbus, Serving, acting_as, os_read_all


@pytest.fixture(scope="module")
def libsbus_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client in C."""
    program = tmp_path_factory.mktemp("c") / "client"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", program, Path(__file__).with_name("libsbus_like.c")], check=True)
    return program


ANN = (64001, 64002)
"""A user and a group."""

# ---------------------------------------------------------------------------------------------- messages


def test_a_client_in_c(sbus: Sbus, libsbus_like: Path) -> None:
    done = run(libsbus_like, sbus.path)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_a_client_in_c_finds_an_address_that_was_chosen(start: Start, libsbus_like: Path) -> None:
    server = start(*COMMAND, "-fca/dev/unix/abstract", stderr=None, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert server.stdout
    address = os.read(server.stdout.fileno(), 1000).decode()
    assert address.endswith("\n"), "it comes in one piece"
    assert os_read_all(server) == ""
    assert address.startswith("/dev/unix/abstract/00")
    assert len(address) == len("/dev/unix/abstract/") + 216 + 1
    assert run(libsbus_like, address.strip().rpartition("/")[2]).stdout == "ok\n"
    assert server.wait(DEADLINE) == 0, "it ends with its last client"


def test_who_gets_what(sbus: Sbus) -> None:
    all_, below, one, other, sender = (sbus() for _ in range(5))
    all_.sub(b"")
    below.sub(b"a/", b"a/*/c", b"a/b/c")
    one.sub(b"a/*/c", b"x")
    other.sub(b"b")
    sender.sub(b"a/b/c").msg(b"a/b/c", b"1\0\n\xff").msg(b"a", b"2").msg(b"x", b"")
    assert sender.rest() == [b"MSG a/b/c\x001\0\n\xff"]
    assert all_.rest() == [b"MSG a/b/c\x001\0\n\xff", b"MSG a\x002", b"MSG x\0"]
    assert below.rest() == [b"MSG a/b/c\x001\0\n\xff"], "once, however many patterns match"
    assert one.rest() == [b"MSG a/b/c\x001\0\n\xff", b"MSG x\0"]
    assert other.rest() == []


def test_subscriptions_are_counted(sbus: Sbus) -> None:
    client = sbus().sub(b"a", b"a").send(b"UNSUB a\0ignored", b"UNSUB never", b"MSG a\0one", b"UNSUB a", b"MSG a\0two")
    assert client.rest() == [b"MSG a\0one"]
    client.send(b"UNSUB a", b"SUB a\0ignored", b"MSG a\0three")
    assert client.rest() == [b"MSG a\0three"]


def test_echo(sbus: Sbus) -> None:
    client, other = sbus().sub(b"a"), sbus().sub(b"a")
    client.send(b"MSG a\0one", b"CMSG echo/off\0whatever", b"MSG a\0two", b"CMSG echo/on", b"MSG a\0three")
    assert client.rest() == [b"MSG a\0one", b"MSG a\0three"]
    assert other.rest() == [b"MSG a\0one", b"MSG a\0two", b"MSG a\0three"]


def test_control_messages_are_not_forwarded(sbus: Sbus) -> None:
    client, other = sbus().sub(b""), sbus().sub(b"")
    client.send(b"CMSG hello\0you", b"CMSG hello")
    assert client.rest() == other.rest() == []


def test_who_sends_something_else_is_dismissed(sbus: Sbus) -> None:
    other = sbus().sub(b"a")
    for packet in (b"", b"MSG", b"MSG a", b"HELLO a\0b", b"msg a\0b", b"SUB", b"CMSG", b"\0", b"MSG\0a", b" "):
        client = sbus().sub(b"a")
        client.send(packet)
        assert client.is_dismissed()
    assert other.msg(b"a", b"still here").recv() == b"MSG a\0still here"


def test_the_longest_packet(sbus: Sbus) -> None:
    client = sbus().sub(b"a")
    packet = b"MSG a\0".ljust(BIGGEST, b"x")
    assert client.send(packet, packet).take(2) == [packet, packet]
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * BIGGEST)
    client.send(packet + b"y")
    assert client.is_dismissed()


def test_a_sender_that_closes_at_once_is_heard(sbus: Sbus) -> None:
    other = sbus().sub(b"")
    # It is subscribed too, and does not read: what it has not read must not take away what it has sent.
    sender = sbus().sub(b"")
    for number in range(80):
        sender.msg(b"a", b"%d" % number)
    sender.close()
    assert other.take(80) == [b"MSG a\0%d" % number for number in range(80)]


# ---------------------------------------------------------------------------------------------- secrets


def test_secrets(sbus: Sbus) -> None:
    with acting_as(*ANN), pytest.raises(PermissionError):
        sbus()
    sbus.path.chmod(0o777)
    with acting_as(*ANN):
        ann, spy = sbus(), sbus()
    root = sbus().sub(b"", b"!/", b"!/*/")
    key = b"!/cred/%d/%d/%d" % (ANN[1], ANN[0], os.getpid())
    assert ann.whoami() == key
    assert root.whoami() == b"!/cred/0/0/%d" % os.getpid()
    ann.sub(b"!/cred////private")
    root.msg(key + b"/private", b"psst")
    root.msg(b"!/other", b"said aloud")
    assert root.rest() == [b"MSG !/other\0said aloud"], "it sees no secret, whatever its patterns"
    assert ann.rest() == [b"MSG " + key + b"/private\0psst"]
    spy.send(b"SUB !/cred/0/0/%d/x" % os.getpid())
    assert spy.is_dismissed()
    ann.send(b"UNSUB !/cred////private")
    root.msg(key + b"/private", b"psst")
    root.whoami()
    assert ann.rest() == []
    ann.close()
    root.whoami()


def test_users(serving: Serving) -> None:
    sbus = serving("-o", "-u", str(ANN[0]))
    assert sbus.path.stat().st_mode & 0o777 == 0o707
    with acting_as(*ANN):
        ann = sbus()
    with acting_as(64_777, ANN[1]):
        stranger = sbus()
    assert stranger.is_dismissed()
    sbus.says("a connection of user 64777")
    assert ann.sub(b"a").msg(b"a", b"x").recv() == b"MSG a\0x"
    sbus().whoami()  # who serves


# ---------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(("options", "mode"), [("-g", 0o770), ("-qgo", 0o777)])
def test_permissions(serving: Serving, options: str, mode: int) -> None:
    assert serving(options).path.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("listens", [False, True])
def test_a_socket_that_is_passed_on(start: Start, place: Path, listens: bool) -> None:
    path = place / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        if listens:
            listener.listen(5)
        server = start(*COMMAND, "-fca", f"/dev/fd/{listener.fileno()}", pass_fds=[listener.fileno()], stderr=None)
    assert os_read_all(server) == ""
    client = Client(str(path))
    assert client.sub(b"a").msg(b"a", b"x").recv() == b"MSG a\0x"
    client.close()
    assert server.wait(DEADLINE) == 0
    assert path.exists(), "whoever made it takes it away"


@pytest.mark.parametrize("number", ["1", "999999", "99999999999999999999"])
def test_a_descriptor_that_is_no_such_socket(number: str) -> None:
    with pytest.raises(BadAddress, match=f"/dev/fd/{number}"):
        Address(f"/dev/fd/{number}")


def test_a_socket_of_another_kind() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        number = os.dup(other.fileno())
        with pytest.raises(BadAddress, match="SOCK_SEQPACKET"):
            Address(f"/dev/fd/{number}")
        os.close(number)


def test_what_is_in_the_way(serving: Serving, place: Path) -> None:
    path = place / "sbus.socket"
    path.write_text("precious")
    done = run(*COMMAND, "-fa", path)
    assert (done.returncode, done.stderr) == (1, f"futebus-sbus: {path}: something is there that is no socket\n")
    assert path.read_text() == "precious"
    sbus = serving("-r")
    done = run(*COMMAND, "-fa", path)
    assert done.returncode == 1, "somebody listens there"
    sbus().whoami()


def test_a_socket_that_was_left_over_is_replaced(serving: Serving) -> None:
    killed = serving()
    killed.process.kill()
    killed.process.wait()
    assert killed.path.exists()
    sbus = serving()
    assert sbus().sub(b"a").msg(b"a").recv() == b"MSG a\0"


def test_what_somebody_else_has_put_there_stays(serving: Serving) -> None:
    sbus = serving()
    sbus.path.unlink()
    sbus.path.write_text("precious")
    assert sbus.end() == 0
    assert sbus.path.read_text() == "precious"
    sbus.path.unlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-x"], "-x"),
        (["-a"], "-a"),
        (["extra"], "extra"),
        (["-u", "nobody-of-this-name"], "no user nobody-of-this-name"),
        (["--max-queue", "0"], "--max-queue"),
        (["--wait"], "--wait"),
        (["--channel", "/mnt/bus/U_x"], "type B"),
        (["--channel", "/mnt/bus/x"], "no channel has this name"),
    ],
)
def test_wrong_arguments(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        read(["-f", *options], "futebus-sbus")
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("address", ["x" * 200, "/nowhere/at/all", "/dev/unix/abstract/0", "/dev/unix/abstract/" + "00" * 109])
def test_impossible_addresses(address: str) -> None:
    with pytest.raises(BadAddress):
        Address(address)


def test_what_cannot_be_is_said_in_one_line() -> None:
    for options, status in ((["-fa/nowhere/at/all"], 1), (["-a/nowhere/at/all"], 1), (["-z"], 2)):
        done = run(*COMMAND, *options)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1), done.stderr


# ---------------------------------------------------------------------------------------------- its life


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_end_it(serving: Serving, number: int) -> None:
    sbus = serving()
    client = sbus().sub(b"a")
    assert sbus.end(number) == 0
    assert client.is_dismissed()
    assert not sbus.path.exists()


def test_it_ends_with_its_last_client(serving: Serving) -> None:
    sbus = serving("-c")
    one, two = sbus(), sbus()
    one.whoami()
    one.close()
    two.whoami()
    assert sbus.process.poll() is None
    two.close()
    assert sbus.process.wait(DEADLINE) == 0
    assert not sbus.path.exists()


def test_a_pid_file_for_which_there_is_no_place(small_disk: Path, place: Path) -> None:
    """Nothing is left of it: an empty one tells nobody who serves."""
    fill(small_disk / "ballast")
    done = run(*COMMAND, "-a", place / "socket", "-p", small_disk / "pid")
    words = f"futebus-sbus: {small_disk / 'pid'}: No space left on device\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
    assert not (small_disk / "pid").exists()
    assert not (place / "socket").exists()


def test_the_pid_file_of_one_that_is_a_zombie(start: Start, place: Path) -> None:
    dead = start("sleep", "600")
    path = place / "pid"
    path.write_text(f"{dead.pid}\n")
    with pytest.raises(FileExistsError):
        write_pid(path)
    dead.kill()
    until(lambda: not is_alive(dead.pid), "it has ended")  # and nobody has asked how
    os.kill(dead.pid, 0)
    write_pid(path)
    assert path.read_text() == f"{os.getpid()}\n"


def test_the_background(place: Path) -> None:
    pidfile = place / "pid"
    # From a directory that it leaves, with the name of sbusd.
    script = place / "sbusd"
    script.write_text(f"import sys; sys.argv[0] = '{script}'\nfrom futebus.commands.sbus import main\nsys.exit(main())\n")
    pidfile.write_text("999999999\n")  # of one that was killed
    command = [COMMAND[0], str(script), "-a", "socket", "-p", "pid"]
    done = run(*command, cwd=place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int(pidfile.read_text())
    again = run(*command, "-asocket2", cwd=place)
    assert (again.returncode, again.stderr) == (1, f"sbusd: {pidfile}: File exists\n")
    assert not (place / "socket2").exists()
    client = Client(str(place / "socket"))
    assert client.sub(b"a").msg(b"a", b"x").recv() == b"MSG a\0x"
    os.kill(pid, signal.SIGHUP)  # whoever has started it has logged out
    client.whoami()
    os.kill(pid, signal.SIGINT)
    assert client.is_dismissed()
    client.close()
    until(lambda: not pidfile.exists() and not (place / "socket").exists(), "it has cleared up")


def test_a_script_can_end_it_with_sigint(start: Start, place: Path) -> None:
    words = " ".join(COMMAND)
    shell = start("sh", "-c", f"{words} -fa {place}/socket & read line; kill -INT $!; wait $!; echo $?", stderr=None)
    until((place / "socket").exists, "it serves")
    assert shell.communicate("\n", timeout=DEADLINE)[0] == "0\n"


def test_help_and_version() -> None:
    assert "examples:" in run(*COMMAND, "--help").stdout
    assert run(*COMMAND, "-V").stdout.startswith("futebus-sbus ")


# ---------------------------------------------------------------------------------------------- who asks for too much


def test_too_many_clients(serving: Serving) -> None:
    sbus = serving("-o", "--max-clients", "3", "--max-clients-per-user", "1")
    with acting_as(*ANN):
        ann, second = sbus(), sbus()
    assert second.is_dismissed()
    one, two = sbus(), sbus()
    two.whoami()
    assert sbus().is_dismissed()
    ann.close()
    one.whoami()
    sbus().whoami()


def test_too_many_subscriptions(serving: Serving) -> None:
    sbus = serving("--max-subscriptions", "3")
    client = sbus().sub(b"a", b"a", b"b").send(b"UNSUB a").sub(b"c")
    assert client.send(b"SUB d").is_dismissed()
    assert sbus().send(b"SUB " + b"x/" * 50_000).is_dismissed()
    assert sbus().send(b"SUB " + b"/" * 40 + b"*").is_dismissed()
    # Deep patterns without one are as good as others.
    assert sbus().sub(b"/" * 400).msg(b"/" * 400 + b"a").recv() == b"MSG " + b"/" * 400 + b"a\0"


def test_more_clients_than_open_files(start: Start, place: Path) -> None:
    path = place / "socket"
    log = place / "log"
    with log.open("w") as stderr:
        command = " ".join([*COMMAND, "-fa", str(path)])
        server = start("sh", "-c", f"ulimit -n 40; exec {command}", stderr=stderr)
    assert os_read_all(server) == ""
    clients = [Client(str(path)) for _ in range(60)]
    until(lambda: "nobody can connect for now: Too many open files" in log.read_text(), "it says so")
    assert clients[0].sub(b"a").msg(b"a", b"x").recv() == b"MSG a\0x"
    for client in clients[:40]:
        client.close()
    clients[-1].whoami()
    for client in clients[40:]:
        client.close()
    server.terminate()
    assert server.wait(DEADLINE) == 0
