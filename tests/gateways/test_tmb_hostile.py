"""Peers of the gateway of the Text Message Bus who do not read, flood, cheat or are not let in. Others must not notice."""

import contextlib
import os
import socket
import struct
from pathlib import Path

from ..helpers.collectors import Collect
from ..helpers.mounts import Mount, Mounting
from ..helpers.programs import Start, stopped
from ..helpers.waiting import until
from .tmbs import Gateway, Peer


def reset(peer: Peer) -> None:
    """Goes without a word, as who is killed with unread data."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def memory(gateway: Gateway) -> int:
    """Resident memory, in bytes."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def test_who_does_not_read_loses_the_oldest_and_nobody_else_does(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-queue", "64K")
    with Peer(gateway.port, buffer=64 << 10) as stopped, gateway.peer(b"s 1 r .\n") as reader, Peer(gateway.port) as sender:
        stopped.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
        count = 0
        while "is too slow" not in gateway.words:
            lines = [b":a %d %s\n" % (number, b"x" * 1000) for number in range(count, count + 30)]
            sender.send(b"".join(lines))
            assert reader.lines(30) == lines
            count += 30
        said = [b":a %d %s\n" % (number, b"x" * 1000) for number in range(count)]
        sender.send(b":end\n")
        heard = list(iter(stopped.line, b":end\n"))
        lost = [line for line in heard if line.startswith(b"lost ")]
        assert len(lost) == 1
        assert lost[0].endswith(b"you read too slowly\n")
        messages = [line for line in heard if line.startswith(b":")]
        assert len(messages) + int(lost[0].split()[1]) == count
        gap = heard.index(lost[0])
        assert messages == said[:gap] + said[count - len(messages) + gap :]
        assert reader.line() == b":end\n"
        stopped.close()

        def is_noticed() -> bool:  # by what it is sent
            sender.send(b":end\n")
            return "has left; " in gateway.words

        until(is_noticed, "it is noticed that it has left")


def test_a_flood_of_commands_that_nobody_reads_grows_nothing(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as other, Peer(gateway.port) as flooder:
        flooder.socket.setblocking(False)
        before = memory(gateway)
        sent = 0

        def is_stopped() -> bool:
            nonlocal sent
            try:
                while True:
                    sent += flooder.socket.send(b"help\n" * 10_000)
            except BlockingIOError:
                pass
            other.is_told(b":a b\n", b":a b\n")
            more, last[:] = sent > last[0], [sent]
            return not more

        last = [0]
        until(is_stopped, "it is not listened to any more")
        until(is_stopped, "and stays so")
        assert memory(gateway) - before < 64 << 20
        reset(flooder)
        other.is_told(b":a b\n", b":a b\n")


def test_a_line_without_an_end_is_skipped_and_the_next_is_not(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-line", "1K")
    with gateway.peer(b"s 1 r .\n") as peer:
        before = memory(gateway)
        for _ in range(500):
            peer.send(b":" + b"x" * 100_000)
        peer.send(b"\n:a b\n:b " + b"x" * 1020 + b"\n:c " + b"x" * 1021 + b"\n")
        assert peer.line() == b"error 1 line skipped: longer than 1024 bytes\n"
        told = [peer.line() for _ in range(3)]
        assert sorted(told) == [b":a b\n", b":b " + b"x" * 1020 + b"\n", b"error 1 line skipped: longer than 1024 bytes\n"]
        assert memory(gateway) - before < 32 << 20


def test_what_is_skipped_is_told_behind_the_answers_to_what_was_sent_before(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-line", "1K")
    with Peer(gateway.port) as peer:
        peer.send(b"s 1 b a\nnope\n" + b"x" * 2000 + b"\n" + b"y" * 3000 + b"\nu 1\n")
        told = peer.lines(4)
        assert told[0] == b"ok subscribed 1 begins-with a\n"
        assert told[1].startswith(b"error there is no command nope")
        assert told[2] == b"error 2 lines skipped: longer than 1024 bytes\n"
        assert told[3] == b"ok unsubscribed 1\n"
    gateway.end()


def test_a_line_that_is_too_long_for_the_bus_is_its_senders_alone(mounting, start: Start) -> None:  # type: ignore[no-untyped-def]
    gateway = Gateway(start, mounting("max_message=100") / "B_x")
    with gateway.peer(b"s 1 r .\n") as peer, Peer(gateway.port) as other:
        other.send(b":a 1\n")
        assert peer.line() == b":a 1\n"
        peer.send(b":b 1\n:b " + b"x" * 100 + b"\n:b " + b"y" * 100 + b"\n:b 2\n")
        told = [peer.line() for _ in range(3)]
        assert told == [b":b 1\n", b":b 2\n", b"error 2 lines skipped: longer than the bus takes\n"]
        other.is_told(b"s 1 i a\n", b"ok subscribed 1 is a\n")


def test_there_are_so_many_clients_and_no_more(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-clients", "3")
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(gateway.peer(b"s 1 r .\n")) for _ in range(3)]
        with Peer(gateway.port) as late:
            assert late.line() == b"error there are too many clients: try again later\n"
            assert late.line() == b""
        gateway.wait_for("there are 3 clients already")
        reset(peers[0])

        def is_let_in() -> bool:
            with Peer(gateway.port) as late, contextlib.suppress(ConnectionError):
                late.send(b"s 1 r .\n")
                return late.line().startswith(b"ok")
            return False

        until(is_let_in, "there is a place again")
        peers[1].is_told(b":a b\n", b":a b\n")


def test_one_user_does_not_take_all_places(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-clients-per-address", "2")
    with gateway.peer(b"s 1 r .\n") as one, gateway.peer(b"s 1 r .\n") as two:
        with Peer(gateway.port) as late:
            assert late.line() == b"error there are too many clients: try again later\n"
        gateway.wait_for("there are 2 clients of its address already")
        with Peer(gateway.port, source="127.0.0.2") as other:  # the same user, by another address
            assert other.line() == b"error there are too many clients: try again later\n"
        two.socket.shutdown(socket.SHUT_WR)  # who only listens gives way to others of his

        def is_let_in() -> bool:
            with Peer(gateway.port) as late, contextlib.suppress(ConnectionError):
                late.send(b"s 1 r .\n")
                return late.line().startswith(b"ok")
            return False

        until(is_let_in, "there is a place again")
        one.is_told(b":a b\n", b":a b\n")


def test_what_the_bus_drops_is_told_to_all_who_have_subscribed(mounting: Mounting, start: Start) -> None:
    bus = mounting("max_queue=8")
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 r .\n") as all_of_it, gateway.peer(b"s 1 is b\n") as some, Peer(gateway.port) as none:
        with stopped(gateway.process):
            (bus / "B_x").write_bytes(b"".join(b":a %d\n" % number for number in range(100)))
        told = b"lost at most 92 messages: more was said than the gateway could take\n"
        assert sorted(all_of_it.lines(9)) == sorted([told, *(b":a %d\n" % number for number in range(92, 100))])
        assert some.line() == told
        none.is_told(b"s 1 is c\n", b"ok subscribed 1 is c\n")


def test_who_comes_and_goes_leaves_nothing(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x", "--max-clients", "20")
    descriptors = Path(f"/proc/{gateway.process.pid}/fd")
    with gateway.peer(b"s 1 r .\n") as other:
        before = len(list(descriptors.iterdir()))
        for number in range(100):
            peer = Peer(gateway.port)
            with contextlib.suppress(ConnectionError):  # as one of too many, for a moment
                peer.send([b"", b"s 1 r .\n", b":half", b"s 1 r x\n:x y\n"][number % 4])
            (reset if number % 3 else Peer.close)(peer)
        other.send(b":end\n")
        while other.line() != b":end\n":
            pass

        def are_gone() -> bool:
            other.send(b":x 1\n")  # one that has subscribed and closed is found out by what it is sent
            return len(list(descriptors.iterdir())) == before

        until(are_gone, "all are gone")


def test_a_costly_regular_expression_costs_its_owner(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    costly = b"".join(b"s %d r (x+x+)+y\n" % number for number in range(40))
    with gateway.peer(costly) as owner, gateway.peer(b"s 1 r ^/o\n") as other, Peer(gateway.port) as sender:
        sender.send(b"".join(b":%s%d\n" % (b"x" * 240, number) for number in range(5_000)))
        for number in range(5):
            other.is_told(b":/o %d\n" % number, b":/o %d\n" % number)
        owner.send(b"s 99 r \\pL{50}\n")
        while not (answer := owner.line()).startswith(b"error "):
            assert answer.startswith(b"lost at most ")


def test_killed_clients_of_a_flood(bus: Mount, start: Start, collect: Collect) -> None:
    listener = collect(bus / "B_x")
    gateway = Gateway(start, bus / "B_x")
    flood = f"exec 3<>/dev/tcp/127.0.0.1/{gateway.port}; echo 's 1 r .' >&3; yes :flood >&3"
    with gateway.peer(b"s 1 i mine\n") as peer:
        for _ in range(3):
            floods = [start("bash", "-c", flood) for _ in range(2)]
            seen = listener.size
            until(lambda seen=seen: listener.size > seen + 100_000, "they flood")  # type: ignore[misc]
            peer.is_told(b":mine\n", b":mine\n")
            for each in floods:
                os.killpg(each.pid, 9)
    gateway.end()
    assert set(listener.settled().split(b"\n")) == {b":flood", b":mine", b""}


def test_what_a_stranger_says_is_not_obeyed_by_a_terminal(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with Peer(gateway.port) as peer:
        for line in (
            b"\x1b]0;owned\x07",
            b"s \x1b[2J i .",
            b"u \x9b",
            b"s 1 r \x1b[31m(",
            b":\xff\xfe",
            b"s 1 \xff\xff x",
            b"\x00",
        ):
            peer.send(line + b"\n")
            if not line.startswith(b":"):
                answer = peer.line().decode()
                assert answer[:-1].isprintable()
                assert not answer.startswith(":")
    gateway.end()
    assert gateway.words.replace("\n", "").isprintable()


def test_a_line_that_is_almost_a_message_does_no_harm(bus: Mount, start: Start) -> None:
    gateway = Gateway(start, bus / "B_x")
    with gateway.peer(b"s 1 is a\n") as reader, Peer(gateway.port) as sender:
        sender.send(b":b x\n:\x0bfoo\n:a y\n")
        assert reader.line() == b":a y\n"
        (bus / "B_x").write_bytes(b":b x\n:\x0bfoo\n:a z\n")
        assert reader.line() == b":a z\n"
    gateway.end()


def test_who_has_closed_gives_his_place_to_others(bus: Mount, start: Start) -> None:
    """That he is gone, and does not just listen, is only known when something is sent to him."""
    gateway = Gateway(start, bus / "B_x", "--max-clients", "3")
    for _ in range(10):
        with gateway.peer(b"s 1 is a\n"):
            pass
    with gateway.peer(b"s 1 is a\n") as one, gateway.peer(b"s 1 is a\n") as two, gateway.peer(b"s 1 is a\n") as three:
        (bus / "B_x").write_bytes(b":a x\n")
        assert [peer.line() for peer in (one, two, three)] == [b":a x\n"] * 3
    gateway.end()
