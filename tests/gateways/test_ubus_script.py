"""The scripting interface: the table of commands and answers, line by line, with whatever standard input and output are."""

import contextlib
import os
import pty
import signal
import socket
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from futebus.gateways.ubus.streams import shown

from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until
from .ubuses import UBUS, Peer, Program, environment, run, sock


def test_the_table_of_the_document(place: Path, start: Start) -> None:
    script = Program(start, place, "app/one.signal")
    assert script.line() == "b\t1\t1\n"
    script.type("b\t4\tapp/fish.signal\n")
    assert script.line() == "b\t4\t1\n"
    first = Peer(sock(place, "app/fish.signal"))
    assert script.line() == "c\t4\t1\n"
    second = Peer(sock(place, "app/fish.signal"))
    assert script.line() == "c\t4\t2\n"
    first.say(b"hello\tworld\nmore\n")
    assert [script.line(), script.line()] == ["r\t4\t1\thello\tworld\n", "r\t4\t1\tmore\n"]
    script.type("w\t4\t1\tto\tone\nw\t4\t*\tto all\nw\t4\t2\n")
    assert first.lines(2) == [b"to\tone\n", b"to all\n"]
    assert second.lines(2) == [b"to all\n", b"\n"]
    script.type("d\t4\t1\n")
    assert script.line() == "d\t4\t1\n"
    assert first.rest() == b""
    second.close()
    assert script.line() == "d\t4\t2\n"
    third = Peer(sock(place, "app/fish.signal"))
    assert script.line() == "c\t4\t3\n"
    script.type("w\t4\t3\tlast words\nu\t4\nb\t4\tapp/fish.signal\n")
    assert [script.line(), script.line()] == ["d\t4\t3\n", "b\t4\t1\n"]
    assert third.rest() == b"last words\n"
    script.type("x\nw\n\nw\t9\t9\tx\nu\t9\nd\t9\t9\ni\t9\nbogus\tline\nb\t4\tapp/other\n")
    assert script.line() == "b\t4\t0\t17\tFile exists\n"
    script.type("b\t5\tapp/one.signal\n")
    assert script.line() == "b\t5\t0\t98\tsomebody listens there already\n"
    assert [script.line(), script.line()] == ["c\t1\t4\n", "d\t1\t4\n"]  # it has looked whether somebody listens
    script.type("b\t6\nb\t7\t/nowhere/x\n")
    assert script.line() == "b\t6\t0\t22\tInvalid argument\n"
    assert script.line() == "b\t7\t0\t2\tNo such file or directory\n"
    script.end_input()
    script.ended(0)
    assert not list(sock(place, "app").iterdir())


def test_connections(place: Path, start: Start) -> None:
    script = Program(start, place, "a.signal")
    assert script.line() == "b\t1\t1\n"
    script.type("k\t5\ta.signal\n")
    assert script.line() == "k\t5\t1\n"
    assert script.line() == "c\t1\t1\n"
    script.type("w\t5\t\thi\nw\t1\t1\tho\n")
    assert sorted([script.line(), script.line()]) == ["r\t1\t1\thi\n", "r\t5\t\tho\n"]
    script.type("k\t5\ta.signal\nk\t6\tnone\nk\t7\t/etc/passwd\n")
    assert script.line() == "k\t5\t0\t17\tFile exists\n"
    assert script.line() == "k\t6\t0\t2\tNo such file or directory\n"
    assert script.line() == "k\t7\t0\t88\tSocket operation on non-socket\n"
    script.type("i\t5\n")
    assert sorted([script.line(), script.line()]) == ["d\t1\t1\n", "d\t5\t\n"]
    script.type("k\t5\ta.signal\n")
    assert sorted([script.line(), script.line()]) == ["c\t1\t2\n", "k\t5\t1\n"]
    script.type("d\t1\t*\n")
    assert sorted([script.line(), script.line()]) == ["d\t1\t2\n", "d\t5\t\n"]
    script.end()


def test_names_are_arguments(place: Path, start: Start) -> None:
    script = Program(start, place)
    script.type("b\tan\x1bt id\ttab\x1btin\x1beit\n")
    assert script.line() == "b\tan\x1bt id\t1\n"
    assert sock(place, "tab\tin\x1bit").is_socket()
    script.type("b\tx\t\x1bz\n")
    assert script.line() == "b\tx\t0\t22\tInvalid argument\n"
    script.end()
    assert "\x1b" not in script.words


def test_reserved_lines_are_ignored_and_errors_are_not(place: Path, start: Start) -> None:
    script = Program(start, place, "a")
    script.line()
    Peer(sock(place, "a")).say(b"\x01reserved\n\a2\terror\n\tempty\n\nunfinished")
    assert script.line() == "c\t1\t1\n"
    assert [script.line() for _ in range(3)] == ["r\t1\t1\t\a2\terror\n", "r\t1\t1\t\tempty\n", "r\t1\t1\t\n"]


def test_a_call_that_is_too_long(place: Path, start: Start) -> None:
    script = Program(start, place, "a")
    script.line()
    peer = Peer(sock(place, "a"))
    peer.say_until_refused(b"x" * 10_000)
    assert peer.line() == b"\a75\ta call of more than 262144 bytes\n"
    assert [script.line(), script.line()] == ["c\t1\t1\n", "d\t1\t1\n"]
    with contextlib.suppress(BrokenPipeError):  # it does not read on
        script.type("w" * 3_000_000)
    assert script.line() == "\a75\ta call of more than 262144 bytes\n"
    script.ended(1)


def test_who_does_not_read_is_disconnected_and_delays_nobody(place: Path, start: Start) -> None:
    script = Program(start, place, "--max-waiting", "64K", "a")
    script.line()
    slow, quick = Peer(sock(place, "a")), Peer(sock(place, "a"))
    assert sorted([script.line(), script.line()]) == ["c\t1\t1\n", "c\t1\t2\n"]
    for number in range(100):
        script.type(f"w\t1\t*\t{number} {'x' * 10_000}\n")
        assert quick.line().startswith(b"%d " % number)
    assert script.line() == "d\t1\t1\n"
    assert slow.rest().startswith(b"0 x")


def test_a_script_that_does_not_read_is_waited_for(place: Path, start: Start) -> None:
    script = Program(start, place, "a")
    script.line()
    peers = [Peer(sock(place, "a")) for _ in range(3)]
    for peer in peers:
        peer.socket.setblocking(False)
        peer.say_until_refused(b"x" * 99 + b"\n")
    script.end()  # which does not wait for who reads its output


def test_standard_input_may_be_a_file_and_output_too(place: Path) -> None:
    (place / "in").write_bytes(b"b\t1\ta\nk\t2\ta\nw\t2\t\thi\n")
    with (place / "in").open("rb") as given, (place / "out").open("wb") as out:
        done = subprocess.run(UBUS, stdin=given, stdout=out, env=environment(place), timeout=DEADLINE, check=False)
    assert done.returncode == 0
    assert (place / "out").read_bytes().startswith(b"b\t1\t1\nk\t2\t1\n")
    assert run(*UBUS, "x", home=place).stdout == b"b\t1\t1\n"
    with Path("/dev/null").open("rb") as null:
        done = subprocess.run(
            [*UBUS, "x"], stdin=null, env=environment(place), timeout=DEADLINE, check=False, capture_output=True
        )
    assert (done.returncode, done.stdout) == (0, b"b\t1\t1\n")


def test_standard_input_and_output_may_be_a_socket(place: Path, start: Start) -> None:
    here, there = socket.socketpair()
    copy = os.dup(there.fileno())
    program = Program(start, place, "a", stdin=there, stdout=there)
    there.close()
    here.settimeout(DEADLINE)
    file = here.makefile("rwb", buffering=0)
    assert file.readline() == b"b\t1\t1\n"
    file.write(b"b\t2\tb\n")
    assert file.readline() == b"b\t2\t1\n"
    here.shutdown(socket.SHUT_WR)
    program.ended(0)
    assert os.get_blocking(copy)
    os.close(copy)
    file.close()
    here.close()


def test_a_terminal_is_shown_what_would_command_it(place: Path, start: Start) -> None:
    here, there = pty.openpty()
    program = Program(start, place, "a", stdin=there, stdout=there)
    os.close(there)
    file = os.fdopen(here, "rb", buffering=0)
    assert file.readline() == b"b\t1\t1\r\n"
    Peer(sock(place, "a")).say("\x1b[2J\v\xe9\x9b\udcff\x7f\r\n".encode("utf-8", "surrogateescape"))
    assert file.readline() == b"c\t1\t1\r\n"
    assert file.readline() == "r\t1\t1\t\\e[2J\\v\xe9\\u009b\\xff\\x7f\\r\r\n".encode()
    program.end(signal.SIGHUP)
    file.close()


@given(st.text(st.characters(codec=None)))
def test_what_is_shown_commands_nothing(text: str) -> None:
    assert all(each in "\t\n" or each.isprintable() for each in shown(text))
    if text.isprintable():
        assert shown(text) == text


def test_it_ends_when_nobody_reads_it(place: Path, start: Start) -> None:
    script = Program(start, place, "a")
    script.line()
    script.end_output()
    Peer(sock(place, "a"))
    script.ended(0)
    assert not sock(place, "a").exists()


def test_it_is_quick_with_many_lines(place: Path, start: Start) -> None:
    """What a script says and hears in bulk comes whole and in order."""
    script = Program(start, place, "a")
    script.line()
    peer = Peer(sock(place, "a"))
    assert script.line() == "c\t1\t1\n"
    many = [b"line %d\n" % number for number in range(20_000)]
    peer.say(b"".join(many))
    assert [script.line() for _ in many] == [f"r\t1\t1\t{line.decode()}" for line in many]
    script.type("".join(f"w\t1\t1\t{line.decode()}" for line in many))
    assert peer.lines(len(many)) == many


def test_what_all_are_told_is_kept_once(place: Path, start: Start) -> None:
    """However many do not read it."""
    script = Program(start, place, "a")
    script.line()
    silent = [Peer(sock(place, "a")) for _ in range(200)]
    assert len([script.line() for _ in silent]) == 200
    before = script.memory
    script.type("".join(f"w\t1\t*\t{number} {'x' * 1000}\n" for number in range(3000)))
    last = Peer(sock(place, "a"))
    assert script.line() == "c\t1\t201\n"
    script.type("w\t1\t201\tdone\n")
    while last.line() != b"done\n":
        pass
    assert script.memory - before < 100 << 20, "each has its own: that would be 600 MB"
    assert silent[0].lines(3000)[-1].startswith(b"2999 ")


def test_signal(place: Path, start: Start) -> None:
    program = Program(start, place, "signal", "a.signal")
    until(sock(place, "a.signal").exists, "it serves")
    one, two = Peer(sock(place, "a.signal")), Peer(sock(place, "a.signal"))
    one.say(b"from ")
    two.say(b"from two\n")
    assert program.line() == "from two\n"
    one.say(b"one\n")
    assert program.line() == "from one\n"
    program.type("to all\nand half")
    assert one.line() == two.line() == b"to all\n"
    program.end_input()
    program.ended(0)
    assert one.rest() == b""
    assert not sock(place, "a.signal").exists()


def test_signal_as_a_property(place: Path, start: Start) -> None:
    program = Program(start, place, "signal", "a.property")
    until(sock(place, "a.property").exists, "it serves")
    first = Peer(sock(place, "a.property"))
    program.type("1\n2\n")
    assert first.lines(2) == [b"1\n", b"2\n"]
    assert Peer(sock(place, "a.property")).line() == b"2\n"
    program.end()
    again = Program(start, place, "signal", "/nowhere/a")
    again.ended(1)
    assert again.words == "futebus-ubus: /nowhere: No such file or directory\n"
