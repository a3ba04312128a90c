"""`futebus-ubus expose` on a real bus, with sockets and socat: methods, rest buses, signals and properties."""

import contextlib
import fcntl
import os
import select
import signal
import socket
import stat
import sys
import termios
import time
from pathlib import Path

import pytest

import futebus.client as client
from futebus.client.leaving import LOOK_SECONDS

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting, bash
from ..helpers.programs import Start, leave_behind, stopped
from ..helpers.recorders import Remounting
from ..helpers.waiting import DEADLINE, until
from .sbuses import acting_as
from .ubuses import UBUS, Peer, Program, Service, expose, run, sock, writer

ANN = 64_001
"""The number of a user who is not root."""


def test_a_method(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper"):
        gateway = expose(start, place, bus / "S_upper", "app/upper.method")
        path = sock(place, "app/upper.method")
        for directory in (path.parent, path.parent.parent):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        one, two = Peer(path), Peer(path)
        assert one.say(b"one\ttab\n").line() == b"ONE\tTAB\n"
        for byte in b"slow\nnext":
            two.say(bytes([byte]))
        assert two.line() == b"SLOW\n"
        many = [b"line %d\n" % number for number in range(5000)]
        assert one.say(b"".join(many)).lines(5000) == [line.upper() for line in many]
        assert two.say(b" one\nlast\nunfinished").finish().rest() == b"NEXT ONE\nLAST\n"
        assert run("socat", "-t", "100", "-", f"UNIX:{path}", home=place, data=b"hi\nho\n").stdout == b"HI\nHO\n"
        gateway.end(signal.SIGINT)
        assert one.rest() == b""
        assert not path.exists()


def test_empty_calls_have_their_place_among_the_answers(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper"):
        path = place / "x.method"
        expose(start, place, bus / "S_upper", str(path))
        empty = b"\a22\tan empty call\n"
        assert Peer(path).say(b"a\n\n\nb\n\n").finish().rest() == b"A\n" + 2 * empty + b"B\n" + empty


def test_calls_of_every_length(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper"):
        path = place / "x.method"
        expose(start, place, bus / "S_upper", str(path))
        long = b"x" * 255_999 + b"\n"
        assert Peer(path).say(long * 3).lines(3) == [long.upper()] * 3
        # One that never ends is told so, and disconnected, while others go on.
        peer, other = Peer(path), Peer(path)
        peer.say_until_refused(b"x" * 10_000)
        assert peer.line() == b"\a75\ta call of more than 262144 bytes\n"
        assert other.say(b"x\n").line() == b"X\n"
        # One that the bus does not take, too.
        bigger = place / "bigger.method"
        expose(start, place, bus / "S_upper", str(bigger), "--max-call", "1M")
        assert Peer(bigger).say(b"x" * 300_000 + b"\n").line().startswith(b"\a75\t")


def test_a_call_that_is_too_long_is_refused_behind_the_answers_to_those_before(bus: Mount, place: Path, start: Start) -> None:
    path = place / "x.method"
    with client.serve(bus / "S_upper") as service:
        expose(start, place, bus / "S_upper", str(path), "--max-call", "1M")
        for too_long in (b"x" * (1 << 20), b"x" * 300_000 + b"\n"):  # for the gateway, and for the bus
            peer = Peer(path).say(b"a\nb\n")
            peer.say(too_long + b"c\n")
            until(lambda peer=peer: unread(peer) < 50_000, "it has been read")  # type: ignore[misc]
            for _ in range(2):
                who, text = service.read()
                service.answer(who, text.upper())
            assert peer.lines(2) == [b"A\n", b"B\n"]
            assert peer.line().startswith(b"\a75\t")


def unread(peer: Peer) -> int:
    """Bytes of memory that is taken by what the other side has not read."""
    return int.from_bytes(fcntl.ioctl(peer.socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_who_has_gone_has_no_place_though_his_calls_are_not_answered(bus: Mount, place: Path, start: Start) -> None:
    path = place / "x.method"
    with Service(bus / "S_upper") as service:
        expose(start, place, bus / "S_upper", str(path), "--max-clients", "1")
        service.hold.set()
        peer = Peer(path).say(b"x\n" * 5000)
        until(lambda: len(service.asked) >= 1024, "no more is taken of him")
        peer.close()
        service.hold.clear()

        def has_place() -> bool:
            other = Peer(path)
            try:
                return other.say(b"y\n").line() == b"Y\n"
            except ConnectionError:
                return False

        until(has_place, "there is a place again")


def test_a_user_does_not_take_all_places(bus: Mount, place: Path, start: Start) -> None:
    path = place / "x.signal"
    gateway = expose(start, place, bus.touch("B_x"), str(path), "--max-clients-per-user", "1", "--mode", "666")
    with acting_as(ANN, ANN):
        ann, refused = Peer(path), Peer(path)
    with acting_as(64_777, ANN):
        other = Peer(path)
    assert refused.rest() == b"\a87\ttoo many clients\n"
    gateway.wait_for(f"user {ANN} has 1 clients")
    roots = [Peer(path), Peer(path)]
    ann.say(b"x\n")
    for each in (ann, other, *roots):
        assert each.line() == b"x\n"


def test_who_does_not_read_his_answers_delays_nobody(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper") as service:
        path = place / "x.method"
        expose(start, place, bus / "S_upper", str(path))
        flood, other = Peer(path), Peer(path)
        flood.socket.setblocking(False)
        line = b"x" * 9_999 + b"\n"

        def is_full() -> bool:
            try:
                while True:
                    flood.socket.send(line)
            except BlockingIOError:
                return len(service.asked) > 200 and other.say(b"hi\n").line() == b"HI\n"

        until(is_full, "it takes no more")
        flood.close()
        assert other.say(b"still here\n").line() == b"STILL HERE\n"
        bus.wait_for_clients(2, "S_upper", role="slave")


def test_a_rest_bus(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper") as service:
        path = sock(place, "app/x.rest")
        expose(start, place, bus / "S_upper", "app/x.rest")
        assert Peer(path).say(b"one\ntwo").finish().rest() == b"ONE\nTWO\n"
        assert Peer(path).finish().rest() == b""
        empty = b"\a22\tan empty call\n"
        assert Peer(path).say(b"\none\n\n\ntwo\n\n").finish().rest() == empty + b"ONE\n" + 2 * empty + b"TWO\n" + empty
        many = b"".join(b"%d x\n" % number for number in range(20_000))
        assert Peer(path).say(many).finish().rest() == many.upper()
        shout = run(*UBUS, "connect", "app/x.rest", home=place, data=b"hello\n")
        assert (shout.stdout, shout.returncode) == (b"HELLO\n", 0)
        expose(start, place, bus / "S_upper", "app/get.rest", "--empty", "get")
        assert Peer(sock(place, "app/get.rest")).finish().rest() == b"GET\n"
        # Who goes away before the answer is forgotten.
        service.hold.set()
        peer = Peer(path).say(b"forever").finish()
        bus.wait_for_clients(3, "S_upper", role="slave")
        peer.close()
        bus.wait_for_clients(2, "S_upper", role="slave")


def test_a_signal_of_a_broadcast_channel(bus: Mount, place: Path, start: Start) -> None:
    path = sock(place, "log.signal")
    expose(start, place, bus.touch("B_log"), "log.signal")
    with writer(bus, "B_log") as other:
        one, two = Peer(path), Peer(path).finish()  # who has nothing to say listens all the same
        bus.wait_for_clients(1, "B_log", rw="r-")
        one.say(b"hello from one\n")
        assert one.line() == two.line() == b"hello from one\n"
        assert os.read(other, 100) == b"hello from one\n"
        data = b"".join(b"line %d\n" % number for number in range(1000))
        os.write(other, data)
        assert b"".join(one.lines(1000)) == b"".join(two.lines(1000)) == data


def test_a_signal_of_a_master(bus: Mount, place: Path, start: Start) -> None:
    with client.collect(bus / "U_news") as master:
        path = sock(place, "news.signal")
        gateway = expose(start, place, bus / "U_news", "news.signal")
        peer = Peer(path).say(b"to the master\n")
        assert master.read() == "to the master"
        master.send("news")
        assert peer.line() == b"news\n"
    gateway.ended(1)
    assert "has ended" in gateway.words
    assert peer.rest() == b""
    assert not path.exists()


def test_a_master_that_does_not_read_may_be_shouted_at(bus: Mount, place: Path, start: Start) -> None:
    master = os.open(bus / ".U_news", os.O_WRONLY | os.O_CREAT)
    expose(start, place, bus / "U_news", "news.signal")
    expose(start, place, bus / "U_news", "news.property")
    peer = Peer(sock(place, "news.signal")).say(b"x\n")
    refused = Peer(sock(place, "news.property")).say(b"x\n")
    assert refused.rest().startswith(b"\a3\t")
    os.write(master, b"news\n")
    assert peer.line() == b"news\n"
    os.close(master)


def test_a_property(bus: Mount, place: Path, start: Start) -> None:
    path = sock(place, "volume.property")
    expose(start, place, bus.touch("B_volume"), "volume.property", "--value", "50")
    one = Peer(path)
    assert one.line() == b"50\n"
    two = Peer(path)
    assert two.line() == b"50\n"
    two.say(b"60\n70\n")
    assert one.lines(2) == two.lines(2) == [b"60\n", b"70\n"]
    with writer(bus, "B_volume") as other:
        os.write(other, b"80\n")
        assert one.line() == two.line() == b"80\n"
        assert Peer(path).line() == b"80\n"


def test_who_does_not_read_a_signal_loses_lines_whole(bus: Mount, place: Path, start: Start) -> None:
    path = place / "log.signal"
    gateway = expose(start, place, bus.touch("B_log"), str(path), "--max-waiting", "64K")
    slow, quick = Peer(path), Peer(path)
    with writer(bus, "B_log") as other:
        count = 0
        while "reads too slowly" not in gateway.words:
            os.write(other, b"".join(b"line %d %s\n" % (count + number, b"x" * 1000) for number in range(20)))
            count += 20
            assert len(quick.lines(20)) == 20
        os.write(other, b"end\n")
    numbers = []
    while (line := slow.line()) != b"end\n":
        word, number, padding = line.split(b" ")
        assert (word, len(padding)) == (b"line", 1001)
        numbers.append(int(number))
    assert numbers == sorted(set(numbers))
    assert 0 < len(numbers) < count


def test_it_ends_with_its_bus(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_x"):
        gateways = [expose(start, place, bus.touch("B_x"), "x.signal"), expose(start, place, bus / "S_x", "x.method")]
        bus.was_killed = True
        bus.daemon.kill()
        bus.daemon.wait()
        for gateway in gateways:
            gateway.ended(1)
            assert gateway.words.count("\n") == 2, gateway.words
            assert "gone" in gateway.words
        assert list(sock(place, "").iterdir()) == []


def test_it_waits_for_its_bus(bus: Mount, place: Path, start: Start, remounting: Remounting) -> None:
    gateway = Program(start, place, "expose", "--wait", bus / "S_upper", "x.method").wait_for("waiting")
    with Service(bus / "S_upper") as service:
        gateway.wait_for("is exposed as")
        signals = expose(start, place, bus / "B_log", "log.signal", "--wait")
        caller, listener = Peer(sock(place, "x.method")), Peer(sock(place, "log.signal"))
        assert caller.say(b"a\n").line() == b"A\n"
        service.hold.set()
        caller.say(b"lost\n")
        until(lambda: b"lost" in service.asked, "it is asked")
    # Nobody answers that any more: there is an error in its place, and the next answer is the next request's.
    assert caller.line().startswith(b"\a")
    gone = Peer(sock(place, "x.method"))
    gone.close()
    caller.say(b"b\n")
    with Service(bus / "S_upper"):
        assert caller.line() == b"B\n"
    bus = remounting(bus)
    caller.say(b"c\n")
    with Service(bus / "S_upper"):
        assert caller.line() == b"C\n"
    bus.wait_for_clients(1, "B_log", rw="r")
    with writer(bus, "B_log") as other:
        os.write(other, b"again\n")
    assert listener.line() == b"again\n"
    listener.say(b"and back\n")
    assert listener.line() == b"and back\n"
    gateway.end()
    signals.end()


def test_a_property_rejects_what_the_bus_does_not_take(bus: Mount, place: Path, start: Start) -> None:
    expose(start, place, bus.touch("B_x"), "x.property", "--max-call", "1M")
    peer, other = Peer(sock(place, "x.property")), Peer(sock(place, "x.property"))
    assert peer.say(b"x" * 300_000 + b"\n").rest().startswith(b"\a75\t")
    assert other.say(b"fine\n").line() == b"fine\n"


def test_there_may_be_so_many_clients(bus: Mount, place: Path, start: Start) -> None:
    gateway = expose(start, place, bus.touch("B_x"), "x.signal", "--max-clients", "2")
    path = sock(place, "x.signal")
    first = [Peer(path), Peer(path)]
    for each in first:
        assert each.say(b"x\n").line() == b"x\n"
    assert Peer(path).rest() == b"\a87\ttoo many clients\n"
    gateway.wait_for("is refused")
    first[0].close()

    def has_place() -> bool:
        peer = Peer(path)
        try:
            return peer.say(b"y\n").line() == b"y\n"
        except ConnectionError:
            return False

    until(has_place, "there is a place again")


def test_signals_remove_the_socket(bus: Mount, place: Path, start: Start) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    gateways = [expose(start, place, bus.touch("B_x"), f"x{number}.signal") for number in numbers]
    for gateway, number in zip(gateways, numbers, strict=True):
        gateway.end(number)
        assert not sock(place, f"x{number}.signal").exists()


def test_a_dead_socket_is_replaced_and_nothing_else(bus: Mount, place: Path, start: Start) -> None:
    path = sock(place, "x.signal")
    dead = expose(start, place, bus.touch("B_x"), "x.signal")
    again = Program(start, place, "expose", bus / "B_other", "x.signal")
    again.ended(1)
    assert "somebody listens there already" in again.words
    assert not (bus / "B_other").exists(), "who cannot expose a channel does not make it"
    dead.process.kill()
    dead.process.wait()
    assert path.exists()
    second = expose(start, place, bus / "B_x", "x.signal")
    assert Peer(path).say(b"hi\n").line() == b"hi\n"
    # One that another has put into its place is his.
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        second.end()
        assert path.exists()
    path.unlink()
    for make in ("touch", "mkdir", "ln -s x"):
        assert bash(f"{make} {path}").returncode == 0
        third = Program(start, place, "expose", bus / "B_x", "x.signal")
        third.ended(1)
        assert "no socket" in third.words
        path.lstat()
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_a_channel_that_is_removed_is_opened_anew(bus: Mount, place: Path, start: Start, options: tuple[str, ...]) -> None:
    path = place / "x.signal"
    gateway = expose(start, place, bus.touch("B_x"), str(path), *options)
    listener, speaker = Peer(path), Peer(path)
    assert speaker.say(b"before\n").line() == b"before\n" == listener.line()
    lines = [b"%099d\n" % number for number in range(5_000)]
    leave_behind(gateway.process, bus / "B_x", b"".join(lines))
    gateway.wait_for(f"{bus / 'B_x'}: its name was removed; the next one is exposed")
    assert listener.lines(5_000) == lines
    bus.wait_for_live("B_x", "peer")
    reader = client.subscribe(bus / "B_x", bytes)
    client.publish(bus / "B_x", b"in the new one")
    assert listener.line() == b"in the new one\n"
    assert speaker.say(b"after\n").lines(5_002)[-1] == b"after\n" == listener.line()
    assert [reader.read(timeout=DEADLINE) for _ in range(2)] == [b"in the new one", b"after"]
    gateway.end()


def test_what_is_said_while_a_channel_is_removed_again_and_again_comes_back(bus: Mount, place: Path, start: Start) -> None:
    path = place / "x.signal"
    gateway = expose(start, place, bus.touch("B_x"), str(path))
    peer = Peer(path)
    sent = 0
    for times in range(1, 3):
        (bus / "B_x").unlink()
        while gateway.words.count("the next one is exposed") < times or not (bus / "B_x").exists():
            assert peer.say(b"%d\n" % sent).line() == b"%d\n" % sent
            sent += 1
        assert peer.say(b"to the next one\n").line() == b"to the next one\n"  # it is spoken to, and listened to
    gateway.end()


def test_one_with_a_master_is_left_for_another_and_not_before(bus: Mount, place: Path, start: Start, collect: Collect) -> None:
    path = place / "x.signal"
    old = collect(bus / ".U_x")
    gateway = expose(start, place, bus / "U_x", str(path))
    peer = Peer(path)
    assert peer.say(b"before\n")
    old.lines(1)
    (bus / "U_x").unlink()
    os.write(old.file, b"old\n")
    assert peer.line() == b"old\n"
    time.sleep(LOOK_SECONDS + 0.5)  # it has looked meanwhile, and stays
    assert peer.say(b"a\n")
    assert old.lines(2) == ["before", "a"]
    assert "removed" not in gateway.words
    new = collect(bus / ".U_x")
    gateway.wait_for("its name was removed; the next one is exposed")
    bus.wait_for_live("U_x", "slave")
    os.write(new.file, b"new\n")
    assert peer.line() == b"new\n"
    assert peer.say(b"b\n")
    assert new.lines(1) == ["b"]
    gateway.end()


def test_what_the_master_of_a_channel_that_is_removed_does_not_take_is_for_the_next_one(
    mounting: Mounting, place: Path, start: Start, collect: Collect
) -> None:
    """Nobody waits for the old one."""
    bus = mounting("max_queue=4")
    path = place / "x.signal"
    old = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    gateway = expose(start, place, bus / "U_x", str(path))
    one, two = Peer(path), Peer(path)
    for number in range(8):
        one.say(b"%d\n" % number)
        if number < 4:
            until(lambda: bus.clients("U_x", role="master")[0]["rlist_messages"] == number + 1, "it waits")  # noqa: B023
    (bus / "U_x").unlink()
    new = collect(bus / ".U_x")
    gateway.wait_for("the next one is exposed")
    two.say(b"other\n")
    taken = new.lines(5)
    assert sorted(taken) == ["4", "5", "6", "7", "other"]
    assert [each for each in taken if each != "other"] == ["4", "5", "6", "7"]
    assert b"".join(os.read(old, 100) for _ in range(4)) == b"0\n1\n2\n3\n"
    with pytest.raises(BlockingIOError):
        os.read(old, 100)
    os.close(old)
    gateway.end()


def test_a_service_that_hands_over_is_exposed_on(bus: Mount, place: Path, start: Start, collect: Collect) -> None:
    """Its channel ends before anybody has looked whether it was removed."""
    old = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    gateway = expose(start, place, bus / "U_x", str(place / "x.signal"))
    peer = Peer(place / "x.signal")
    (bus / "U_x").unlink()
    new = collect(bus / ".U_x")
    os.close(old)
    bus.wait_for_live("U_x", "slave")
    os.write(new.file, b"new\n")
    assert peer.line() == b"new\n"
    gateway.end()


def test_one_that_cannot_be_had_yet_is_waited_for_and_the_old_one_kept(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("max_channels=1")
    gateway = expose(start, place, bus.touch("B_x"), str(place / "x.signal"))
    peer = Peer(place / "x.signal")
    (bus / "B_x").unlink()
    bus.touch("B_y")
    gateway.wait_for(f"{bus / 'B_x'}: its name was removed, and the next one is not exposed: ")
    assert peer.say(b"old\n").line() == b"old\n"
    (bus / "B_y").unlink()
    gateway.wait_for("the next one is exposed")
    assert peer.say(b"new\n").line() == b"new\n"
    gateway.end()


HASTY = """
import sys
from futebus.gateways.ubus import serving
serving.GONE_SECONDS = 0.5
serving.SWEEP_SECONDS = 3600.0  # or who sweeps may be the first to make a place, of which nothing is said
from futebus.commands.ubus import main
sys.exit(main())
"""
"""Who has closed so long ago gives way to others."""


def test_who_has_gone_gives_way_though_the_master_does_not_take_what_he_said(
    mounting: Mounting, place: Path, start: Start
) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    path = place / "x.property"
    gateway = Program(start, place, "expose", "--max-clients", "2", bus / "U_x", path, command=[sys.executable, "-c", HASTY])
    gateway.wait_for("is exposed as")
    for line in (b"one\n", b"two\n"):
        peer = Peer(path).say(line)
        until(lambda peer=peer: not unread(peer), "it is read")  # type: ignore[misc]
        peer.close()

    def is_let_in() -> bool:
        peer = Peer(path)
        with contextlib.suppress(BrokenPipeError):
            peer.say(b"three\n")
            until(lambda: not unread(peer), "it is read, or refused")
            if not select.select([peer.socket], [], [], 0)[0]:
                return True
        assert peer.line() == b"\a87\ttoo many clients\n"
        return False

    until(is_let_in, "there is a place")
    gateway.wait_for("what clients said who have closed is given up: others want their places")
    os.close(master)


def test_who_waits_for_an_answer_when_the_master_goes_is_told(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper") as service:
        gateway = expose(start, place, bus / "S_upper", str(place / "x.method"))
        service.hold.set()
        peers = [Peer(place / "x.method").say(b"slow\n") for _ in range(20)]
        until(lambda: len(service.asked) == 20, "all are asked")
    for peer in peers:
        assert peer.rest().startswith(b"\a32\t")
    gateway.ended(1)


def test_whose_request_is_not_finished_when_the_master_goes_is_told(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper"):
        gateway = expose(start, place, bus / "S_upper", str(place / "x.rest"))
        peer = Peer(place / "x.rest").say(b"beginning\n")
        until(lambda: not unread(peer), "it is read")
    assert peer.rest().startswith(b"\a32\t")
    gateway.ended(1)


def test_who_has_asked_all_does_not_wait_for_another_master(bus: Mount, place: Path, start: Start) -> None:
    with Service(bus / "S_upper") as service:
        gateway = expose(start, place, bus / "S_upper", str(place / "x.method"), "--wait")
        service.hold.set()
        peer = Peer(place / "x.method").say(b"slow\n").finish()
        until(lambda: service.asked, "it is asked")
    assert peer.rest().startswith(b"\a32\t")
    gateway.end()


def test_what_the_bus_drops_is_said(mounting: Mounting, place: Path, start: Start) -> None:
    bus = mounting("max_queue=100")
    gateway = expose(start, place, bus.touch("B_x"), str(place / "x.signal"))
    with stopped(gateway.process):
        (bus / "B_x").write_bytes(b"x\n" * 1000)
    gateway.wait_for(f"{bus / 'B_x'}: the bus has dropped 900 lines, which came faster than they could be taken")
    gateway.end()


WRONG: list[tuple[list[str], int, str]] = [
    (["B_x", "x"], 2, "ends in .signal, .method, .property, .rest"),
    (["B_x", "x.method"], 2, "wants a channel of type S"),
    (["S_x", "x.signal"], 2, "wants a channel of type U or B"),
    (["A_x", "x.signal"], 2, "wants a channel of type U or B"),
    (["B_x", "x.signal", "--value", "1"], 2, "--value is for a property only"),
    (["B_x", "x.signal", "--empty", "1"], 2, "--empty is for a rest bus only"),
    (["B_x", "x.signal", "--max-call", "1000"], 2, "from 256000 to 1G"),
    (["B_x", "x.property", "--value", "a\nb"], 2, "a line has no newline"),
    (["B_x"], 2, "BUS"),
    (["S_x", "x.method"], 1, "S_x has no master"),
    (["U_x", "x.signal"], 1, "U_x has no master"),
    (["B_x", "/nowhere/x.signal"], 1, "No such file or directory"),
    (["B_x", f"/{'x' * 200}.signal"], 1, "107 bytes at most"),
    (["B_x", "evil\x1b[2J/x\x07.signal", "--mode", "999"], 2, "not an octal mode"),
    (["../B_x", "x.signal"], 1, "no bus is mounted"),
]


def test_what_cannot_be_done(bus: Mount, place: Path) -> None:
    for arguments, status, words in WRONG:
        done = run(*UBUS, "expose", bus / arguments[0], *arguments[1:], home=place)
        assert done.returncode == status, done
        assert words.encode() in done.stderr
        assert done.stderr.count(b"\n") == 1
        assert b"\x1b" not in done.stderr
