"""The examples of futebus-ubus(1), typed as they are printed."""

from pathlib import Path

from ..helpers.mounts import Mount, run
from ..helpers.papers import Shell, environment, examples
from ..helpers.programs import Start
from ..helpers.waiting import until
from .ubuses import Peer, Service, sock


def test_the_examples(bus: Mount, place: Path, start: Start) -> None:
    method, a_property, clock, echo, remote = (
        example.replace("/mnt/bus", str(bus.path)) for example in examples("futebus-ubus.1")
    )
    with Service(bus / "S_upper"):
        caller = Shell(start, place, "caller")
        caller.type(method)
        until(lambda: "HELLO\n" in caller.shown, "it is answered")

        watcher = Shell(start, place, "watcher")
        watcher.type(a_property)
        until(lambda: "50\n" in watcher.shown, "it is told the value")
        (bus / "B_volume").write_text("60\n")
        until(lambda: "60\n" in watcher.shown, "it is told the new one")

    Shell(start, place, "clock").type(clock)
    until(sock(place, "app/clock.signal").exists, "it says the time")
    assert b":" in Peer(sock(place, "app/clock.signal")).line()

    Shell(start, place, "echo").type(echo)
    until(sock(place, "app/echo.method").exists, "it serves")
    assert Peer(sock(place, "app/echo.method")).say(b"hi\tthere\n").line() == b"you said hi\tthere\n"

    # No other machine is here, so this one is it.
    (place / "ssh").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (place / "ssh").chmod(0o755)
    kept = environment(place)
    done = run("sh", "-c", remote, env={**kept, "PATH": f"{place}:{kept['PATH']}"})
    assert (done.stdout, done.returncode) == ("b\t1\t1\n", 0)
