"""Gateways on a bus that hangs: its daemon is stopped, so no call on its files returns. And signals that come very early."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, hanging
from ..helpers.programs import Start
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE, until
from . import tmbs
from .sbuses import COMMAND as SBUS
from .sbuses import Serving
from .ubuses import Peer, Program, Service, environment, expose


def test_tmb_answers_what_needs_no_bus_and_ends(bus: Mount, start: Start) -> None:
    gateway = tmbs.Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as waiting, hanging(bus):
        waiting.send(b":a 1\n")
        # One after the other: what the first has sent is on its way to the bus when the second has its answer.
        for _ in range(2):
            with gateway.peer(b"s 1 r .\n") as other:
                other.is_told(b"u 1\n", b"ok unsubscribed 1\n")
        gateway.end()


def test_tmb_goes_on_when_the_bus_does(bus: Mount, start: Start) -> None:
    gateway = tmbs.Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as peer:
        with hanging(bus):
            peer.send(b":a 1\n")
            gateway.peer(b"s 1 r .\n").close()
        peer.hears_nothing_before(b":a 1\n")
    gateway.end()


def test_tmb_waits_for_the_bus_after_one_that_hung(bus: Mount, start: Start, remounting: Remounting) -> None:
    gateway = tmbs.Gateway(start, bus / "B_x", "--wait")
    with gateway.peer(b"s 1 r .\n") as peer:
        with hanging(bus):
            peer.send(b":a 1\n")
            gateway.peer(b"s 1 r .\n").close()
            remounting(bus)
        peer.hears_nothing_before(b":a 1\n")
    gateway.end()


def test_sbus_clients_talk_among_themselves(bus: Mount, serving: Serving) -> None:
    sbus = serving("--channel", str(bus.touch("B_x")))
    one, two = sbus().sub(b"a"), sbus()
    with hanging(bus):
        for number in range(3):  # the first of them is on its way to the bus when the others come
            two.msg(b"a", b"%d" % number)
            assert one.recv() == b"MSG a\0%d" % number
        assert sbus.end() == 0
    assert not sbus.path.exists()


@pytest.mark.parametrize("option", ["--wait", "-q"])
def test_sbus_in_the_background_ends_while_it_begins(bus: Mount, place: Path, start: Start, option: str) -> None:
    socket, pidfile = place / "socket", place / "pid"
    with hanging(bus):
        server = start(*SBUS, "-a", socket, "-p", pidfile, "--channel", bus / "B_x", option)
        if option == "--wait":  # it is there without the bus
            assert server.wait(DEADLINE) == 0
            until(lambda: pidfile.exists() and pidfile.read_text(), "it runs")
            os.kill(int(pidfile.read_text()), signal.SIGTERM)
        else:
            until(lambda: pidfile.exists() and pidfile.read_text(), "it has begun")
            server.terminate()
            assert server.wait(DEADLINE) == 0
        until(lambda: not pidfile.exists() and not socket.exists(), "it has cleared up")


def test_who_waits_for_sbus_to_begin_hears_a_signal_that_interrupts_nothing(bus: Mount, place: Path, start: Start) -> None:
    """One that comes just before a call does not interrupt it. Nor does one that another thread gets, which is easier to do."""
    script = """
        import contextlib, os, pathlib, signal, sys, threading, time
        from futebus.commands.sbus import main

        aside = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
        aside.start()

        def waits_in():
            return pathlib.Path(f"/proc/self/task/{os.getpid()}/wchan").read_text()

        def has_begun():
            with contextlib.suppress(FileNotFoundError):
                return pathlib.Path(sys.argv[sys.argv.index("-p") + 1]).read_text()

        def interrupt():
            while not has_begun() or not ("poll" in waits_in() or "read" in waits_in()):
                time.sleep(0.001)
            signal.pthread_kill(aside.ident, signal.SIGTERM)

        threading.Thread(target=interrupt, daemon=True).start()
        sys.exit(main())
    """
    socket, pidfile = place / "socket", place / "pid"
    with hanging(bus):
        server = start(
            *(sys.executable, "-c", textwrap.dedent(script)), "-a", socket, "-p", pidfile, "--channel", bus / "B_x", "-q"
        )
        assert server.wait(DEADLINE) == 0
        until(lambda: not pidfile.exists() and not socket.exists(), "it has cleared up")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ubus_methods_let_others_in_and_end(bus: Mount, place: Path, start: Start, number: signal.Signals) -> None:
    path = place / "x.method"
    with Service(bus / "S_x"):
        gateway = expose(start, place, bus / "S_x", str(path))
        one, idle = Peer(path), Peer(path)
        assert one.say(b"a\n").line() == b"A\n"
        assert idle.say(b"b\n").line() == b"B\n"
        with hanging(bus):
            one.say(b"c\n")
            idle.say_until_refused(b"x" * 10_000)
            assert idle.line().startswith(b"\a75\t")  # which no bus is needed for
            gateway.end(number)
            assert not path.exists()


def test_ubus_tells_a_value_without_its_bus(bus: Mount, place: Path, start: Start) -> None:
    path = place / "x.property"
    gateway = expose(start, place, bus.touch("B_x"), str(path), "--value", "1", "--wait")
    one = Peer(path)
    assert one.line() == b"1\n"
    with hanging(bus):
        one.say(b"2\n")
        for _ in range(2):
            assert Peer(path).line() == b"1\n"
    assert one.line() == b"2\n"
    gateway.end()


def test_ubus_ends_before_it_has_begun(bus: Mount, place: Path, start: Start) -> None:
    with hanging(bus):
        gateway = Program(start, place, "expose", bus / "B_x", "x.signal")
        until(lambda: threads_of(gateway.process.pid) >= 3, "it calls the bus, in the third of its threads")
        gateway.end()


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


# ---------------------------------------------------------------------------------------------- signals


def test_what_hangs_in_the_loop_itself_is_left_behind(place: Path, start: Start) -> None:
    """As a call on a file that the gateway was started with, its standard input for one."""
    script = """
        import atexit, os, sys
        from futebus.gateways.life import Life

        life = Life("test")

        async def main():
            life.ready("begun")
            os.read(0, 1)

        atexit.register(print, "cleared up")
        sys.exit(life.live(main))
    """
    gateway = start(sys.executable, "-c", textwrap.dedent(script))
    assert gateway.stderr
    assert gateway.stdout
    assert gateway.stderr.readline() == "test: begun\n"
    gateway.terminate()
    assert gateway.stderr.read() == "test: something does not answer, and is left behind\n"
    assert gateway.stdout.read() == "cleared up\n"
    assert gateway.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("tmb", ["-l", "127.0.0.1:0", "{bus}/B_x"]),
        ("ubus", ["expose", "{bus}/B_x", "{place}/x.signal"]),
        ("sbus", ["-fa", "{place}/x.socket"]),
    ],
)
def test_a_signal_while_all_is_being_loaded(bus: Mount, place: Path, start: Start, command: str, arguments: list[str]) -> None:
    """It comes when trio is looked for, which takes the longest."""
    script = f"""
        import os, signal, sys

        class Finder:
            def find_spec(self, name, *_):
                if name == "trio":
                    os.kill(os.getpid(), signal.SIGTERM)

        sys.meta_path.insert(0, Finder())
        from futebus.commands.{command} import main
        sys.exit(main())
    """
    words = [each.format(bus=bus.path, place=place) for each in arguments]
    program = start(sys.executable, "-c", textwrap.dedent(script), *words, env=environment(place))
    assert program.wait(DEADLINE) == 0
    assert not list(place.glob("x.*"))
