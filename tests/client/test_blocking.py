"""`futebus.client` on a real bus: what it gives, what it refuses and in which words, and that nothing is lost or doubled."""

import doctest
import errno
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import futebus.client as client
from futebus.client import blocking

from ..helpers.mounts import Mount, Mounting, run
from ..helpers.waiting import DEADLINE
from .threads import aside


def test_what_the_docstrings_show(bus: Mount) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner()
    found = [test for test in finder.find(blocking, globs={**vars(blocking), "bus": bus.path}) if test.examples]
    assert {test.name.rpartition(".")[2] for test in found} >= {"subscribe", "publisher", "publish", "call", "collect", "join"}
    for test in found:
        said: list[str] = []
        assert runner.run(test, out=said.append).failed == 0, "".join(said)


ODD = [b"a", b"\0", b"\xff\xfe", b"{1}x", b"\r", "\N{SNOWMAN}".encode(), b"\xe2\x98", b" ", b"\x1b[2J", b"}" * 10]


def test_every_byte_comes_through(bus: Mount) -> None:
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x") as out:
        assert out.send(*ODD) == len(ODD)
        assert [master.read() for _ in ODD] == ODD
        # As a text and back, too.
        texts = [data.decode("utf-8", "surrogateescape") for data in ODD]
        out.send(*texts)
        assert [master.read() for _ in ODD] == ODD
    with client.join(bus / "A_x") as one, client.join(bus / "A_x", bytes) as two:
        one.send(two.id, *ODD, "")
        assert [two.read() for _ in range(len(ODD) + 1)] == [(1, data) for data in [*ODD, b""]]
        two.send(None, b"\xff")
        assert one.read() == (2, "\udcff")


def test_who_reads_and_writes_a_broadcast_channel_does_not_hear_himself(bus: Mount) -> None:
    with client.connect(bus / "B_x", mode=0o640) as one, client.connect(bus / "B_x") as two:
        assert os.stat(bus / "B_x").st_mode & 0o777 == 0o640
        one.send("from one")
        two.send("from two")
        assert (one.read(timeout=60), two.read(timeout=60)) == ("from two", "from one")
        assert not one.inquire().queued


def test_a_message_is_one_line(bus: Mount) -> None:
    with client.collect(bus / "U_x") as master:
        for wrong in ("one\ntwo", "\n\n", b"one\n\n"):
            with pytest.raises(ValueError, match="a message is one line"):
                client.publish(bus / "U_x", "before", wrong)
        assert client.publish(bus / "U_x", "with its end\n", "", "\n", b"without") == 2
        assert [master.read(), master.read()] == ["with its end", "without"]
        assert not master.inquire().queued


def test_a_service_hears_who_comes_and_goes(bus: Mount) -> None:
    with client.serve(bus / "S_x") as service:
        with client.connect(bus / "S_x") as slave:
            slave.send("hello", "again")
            number = slave.id
        events = list(itertools.islice(service.events(), 4))
        assert events == [
            (number, client.What.OPENED, ""),
            (number, client.What.SAID, "hello"),
            (number, client.What.SAID, "again"),
            (number, client.What.CLOSED, ""),
        ]
        assert not service.answer(number, "too late")
        with client.connect(bus / "S_x", bytes) as other, client.connect(bus / "S_x") as third:
            other.send("me")
            assert service.read() == (other.id, "me")
            assert service.answer(other.id, "you")
            service.announce("all")
            assert [other.read(), other.read(), third.read()] == [b"you", b"all", "all"]


def test_iterating_ends_with_the_channel(bus: Mount) -> None:
    with client.collect(bus / "U_x") as master, client.subscribe(bus / "U_x") as slave:
        master.send("one", "two")
        master.close()
        assert list(slave) == ["one", "two"]
        with pytest.raises(client.Ended) as ended:
            slave.read()
        assert ended.value.errno == errno.EPIPE
        assert isinstance(ended.value, EOFError)


def test_long_messages_and_many(mounting: Mounting) -> None:
    """Longer than one read, than one request of the kernel, and than what is written at once."""
    bus = mounting("max_message=8M", "max_queue_bytes=64M")
    long = [b"x" * size for size in (3 << 20, 1 << 20, 1, (1 << 20) - 1, 5 << 20)]
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x") as out:
        assert out.send(*long) == len(long)
        assert [master.read() for _ in long] == long
        many = [b"%d" % number for number in range(100_000)]
        writing = aside(lambda: out.send(*many))
        assert [master.read() for _ in many] == many
        writing.join()
        with pytest.raises(
            client.TooLong, match=r"a message of 9437185 bytes is longer than the bus takes \(max_message\): 'y+'"
        ) as refused:
            out.send("fits", b"y" * (9 << 20), "never")
        assert (refused.value.errno, refused.value.accepted) == (errno.EMSGSIZE, 1)
        out.send("next")
        assert [master.read(), master.read()] == [b"fits", b"next"]


def test_lines_do_not_overtake_each_other(bus: Mount) -> None:
    with client.subscribe(bus / "B_x") as log:
        client.publish(bus / "B_x", "one", "two")
        assert log.read() == "one"
        with pytest.raises(ValueError, match="1 messages that have come before are to be read first"):
            log.read_block()
        assert log.read() == "two"
        client.publish(bus / "B_x", "three", "four")
        assert log.read_block() == b"three\nfour\n"
        with client.publisher(bus / "B_x") as out:
            assert out.send_block(b"five\nsix\n") == out.accepted == 2
        assert log.read_block() == b"five\nsix\n"


def test_a_loop_that_closes_its_channel_ends(bus: Mount) -> None:
    with client.subscribe(bus / "B_x") as log:
        client.publish(bus / "B_x", "one")
        for text in log:
            assert text == "one"
            log.close()


def test_what_is_imported() -> None:
    code = (
        "import sys; import futebus.client; "
        "print({'trio', 'asyncio', 'pyfuse3', 'pyspark', 'futebus.core.bus'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


# ---------------------------------------------------------------------------------------------- time


def test_reads_that_time_out(bus: Mount) -> None:
    with client.subscribe(bus / "B_x") as log:
        with pytest.raises(client.TimedOut, match="B_x: nothing has come in time") as late:
            log.read(timeout=0.01)
        assert late.value.errno == errno.ETIMEDOUT
        assert isinstance(late.value, TimeoutError)
        assert os.get_blocking(log.fileno())
        client.publish(bus / "B_x", "one", "two")
        assert (log.read(timeout=0), log.read(timeout=0)) == ("one", "two")


def test_writes_that_time_out_say_how_much_was_accepted(mounting: Mounting) -> None:
    bus = mounting("max_queue=100")
    with client.collect(bus / "U_x") as master, client.publisher(bus / "U_x") as out:
        sent = 0
        for batch in itertools.count():
            try:
                sent += out.send(*(f"{batch} {number}" for number in range(30)), timeout=0.01)
            except client.TimedOut as late:
                sent += late.accepted
                break
        assert sent == 100
        with pytest.raises(client.TimedOut, match="the master has had no place for it in time"):
            out.send("more", timeout=0)
        got = [master.read() for _ in range(sent)]
        assert got == [f"{number // 30} {number % 30}" for number in range(sent)]
        assert not master.inquire().queued


def test_half_of_a_long_message_goes_on_with_its_other_half(mounting: Mounting) -> None:
    """The kernel brings a write of more than 1 MiB in pieces, and the master may have no place for what stands between."""
    bus = mounting("max_message=8M", "max_queue=2")
    long = b"x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        accepted = 0
        with pytest.raises(client.TimedOut) as late:
            out.send(long, "last", timeout=0.05)
        accepted += late.value.accepted
        rest = [long, b"last"][accepted:]
        got = [master.read(), master.read()]
        writing = aside(lambda: out.send(*rest))
        got += [master.read(), master.read()]
        writing.join(DEADLINE)
        assert got == [b"one", b"two", long, b"last"]


def test_half_of_a_long_message_is_not_forgotten_when_there_is_still_no_place(mounting: Mounting) -> None:
    """However often something else is tried behind it, which is not accepted then."""
    bus = mounting("max_message=8M", "max_queue=2")
    long = b"x" * ((3 << 20) + 7)
    with client.collect(bus / "U_x", bytes) as master, client.publisher(bus / "U_x") as out:
        out.send("one", "two")
        for text, accepted in ((long, 1), (b"never", 0), (b"never", 0)):
            with pytest.raises(client.TimedOut) as late:
                out.send(text, timeout=0.05)
            assert (late.value.accepted, out.is_begun) == (accepted, True)
        got = [master.read(), master.read()]
        writing = aside(lambda: out.send("last"))
        got += [master.read(), master.read()]
        writing.join(DEADLINE)
        assert got == [b"one", b"two", long, b"last"]
        assert not out.is_begun


def test_what_is_addressed_does_not_go_to_others_on_a_channel_that_another_thread_has_opened_again(bus: Mount) -> None:
    """Whoever has that number there."""
    with client.join(bus / "A_x", again=True) as peer:
        lines, first, opening = peer.begin_sending(b"{2}one\n{2}two\n")
        assert peer.go_on_sending(lines, first, 7, opening) == (7, opening)
        peer.open_nowait()
        with pytest.raises(client.NoClient, match="whom this is for"):
            peer.go_on_sending(lines, first, 7, opening)


def test_one_thread_may_be_in_a_hurry_and_the_other_not(bus: Mount) -> None:
    with client.serve(bus / "S_x") as service, client.connect(bus / "S_x") as slave:
        got: list[str] = []
        reading = aside(lambda: got.extend(itertools.islice(slave, 1000)))
        for number in range(1000):
            slave.send(str(number), timeout=60)
            sender, text = service.read(timeout=60)
            service.answer(sender, text, timeout=60)
        reading.join(DEADLINE)
        assert got == [str(number) for number in range(1000)]


def test_a_call_without_an_answer(bus: Mount) -> None:
    with client.serve(bus / "S_x"), pytest.raises(client.TimedOut):
        client.call(bus / "S_x", "anybody?", timeout=0.01)
    with pytest.raises(client.NoMaster):
        client.call(bus / "S_x", "anybody?", timeout=60)
    service = client.serve(bus / "S_x")

    def leave() -> None:
        service.read()
        service.close()

    aside(leave)
    with pytest.raises(client.Ended):
        client.call(bus / "S_x", "anybody?", timeout=60)


@pytest.mark.parametrize("timeout", [float("inf"), 1e9])
def test_a_timeout_can_be_as_long_as_one_likes(bus: Mount, timeout: float) -> None:
    with client.subscribe(bus / "B_x") as log:
        client.publish(bus / "B_x", "text")
        assert log.read(timeout=timeout) == "text"


def test_an_empty_answer_reaches_nobody(bus: Mount) -> None:
    with client.serve(bus / "S_x") as service, client.connect(bus / "S_x") as slave:
        slave.send("question")
        sender, _ = service.read()
        assert not service.answer(sender, "", "")
        assert service.answer(sender, "", "answer")
        assert slave.read(timeout=60) == "answer"


# ---------------------------------------------------------------------------------------------- what is refused


def test_what_is_not_on_a_bus_is_never_written_to(place: Path) -> None:
    (place / "B_x").write_text("precious\n")
    ways: list[Callable[[], object]] = [
        lambda: client.publish(place / "B_x", "text"),
        lambda: client.publisher(place / "B_x"),
        lambda: client.subscribe(place / "B_x"),
        lambda: client.join(place / "A_x"),
        lambda: client.collect(place / "U_x"),
        lambda: client.serve(place / "S_x", mode=0o666),
        lambda: client.connect(place / "S_x"),
        lambda: client.call(place / "S_x", "text"),
    ]
    for way in ways:
        with pytest.raises(client.NoBus, match=f"no bus is mounted on {place}") as absent:
            way()
        assert absent.value.errno == errno.ENOENT
    with pytest.raises(client.NoBus, match="there is no directory"):
        client.publish(place / "nowhere" / "B_x", "text")
    assert [entry.name for entry in place.iterdir()] == ["B_x"]
    assert (place / "B_x").read_text() == "precious\n"


def test_what_is_no_whole_line_is_not_sent_as_it_is(bus: Mount) -> None:
    with client.subscribe(bus / "B_x") as log, client.publisher(bus / "B_x") as out:
        with pytest.raises(ValueError, match="lines end with a newline: b'half'"):
            out.send_block(b"whole\nhalf")
        out.send("next")
        assert log.read(timeout=60) == "next"


@pytest.mark.parametrize("wait", [float("nan"), None, "1"])
def test_what_is_no_time_to_wait(bus: Mount, wait: Any) -> None:
    with pytest.raises(TypeError, match="wait is a number of seconds, and not"):
        client.subscribe(bus / "B_x", wait=wait)


def test_what_is_no_kind_of_message(bus: Mount) -> None:
    kind: Any = int
    for way in (lambda: client.subscribe(bus / "B_x", kind), lambda: client.join(bus / "A_x", kind)):
        with pytest.raises(TypeError, match="messages are str or bytes, and not <class 'int'>"):
            way()


def test_a_path_may_be_bytes(bus: Mount) -> None:
    path: Any = os.fsencode(bus / "B_x")
    with client.subscribe(path) as log:
        client.publish(path, "text")
        assert log.read(timeout=60) == "text"


@pytest.mark.parametrize(
    ("way", "name", "words"),
    [
        (client.subscribe, "log", "no channel has this name; its first letter is U, A, S or B"),
        (client.subscribe, "+B_log", "no channel has this name; .*; B_log is its name to programs that use this"),
        (client.subscribe, "B_\0", "no channel has this name"),
        (client.collect, ".U_x", "no channel has this name"),
        (client.subscribe, "A_x", r"subscribe\(\) wants a channel of type U, S, B, and this is A"),
        (client.serve, "U_x", r"serve\(\) wants a channel of type S, and this is U"),
        (client.connect, "A_x", r"connect\(\) wants a channel of type U, S, B, and this is A"),
        (client.join, "_stat", "no channel has this name"),
    ],
)
def test_names_that_cannot_be_meant(way: Callable[[Path], object], name: str, words: str, place: Path) -> None:
    with pytest.raises(ValueError, match=words):
        way(place / name)


def test_what_the_bus_refuses(bus: Mount) -> None:
    def refused(kind: type[client.ClientError], number: int, words: str, call: Callable[[], object]) -> None:
        with pytest.raises(kind, match=re.escape(words)) as error:
            call()
        assert error.value.errno == number
        assert str(bus.path) in str(error.value)

    refused(client.NoMaster, errno.ENOENT, "U_x has no master", lambda: client.publish(bus / "U_x", "text"))
    refused(client.NoMaster, errno.ENOENT, "S_x has no master", lambda: client.connect(bus / "S_x"))
    with client.collect(bus / "U_x") as master:
        refused(client.HasMaster, errno.EEXIST, "U_x has a master already", lambda: client.collect(bus / "U_x"))
        with client.publisher(bus / "U_x") as out:
            master.close()
            refused(client.NoMaster, errno.ESRCH, "U_x has no master any more", lambda: out.send("text"))
    with client.join(bus / "A_x") as peer:
        refused(client.NoClient, errno.ENODEV, "client {7f} is not on the channel: '{7f}hi'", lambda: peer.send(0x7F, "hi"))
        with client.publisher(bus / "A_x"):
            refused(client.NoClient, errno.ESRCH, "client {2} does not read: '{2}hi'", lambda: peer.send(2, "hi"))
        with pytest.raises(ValueError, match="no client has the number -1"):
            peer.send(-1, "hi")
        with pytest.raises(TypeError, match="lines are bytes, and not str"):
            peer.send_block("{*}hi\n")  # type: ignore[arg-type]
        assert peer.send(peer.id, *["me"] * 3, "") == 4
        assert [peer.read() for _ in range(4)] == [(peer.id, "me")] * 3 + [(peer.id, "")]
    for call in (lambda: peer.send(1, "text"), peer.read, peer.inquire, peer.fileno):
        with pytest.raises(ValueError, match="is not open"):
            call()


def test_what_a_caller_handles_is_not_raised_once_more(place: Path) -> None:
    """As the error that a bus is not there, which is not that of a handler of a signal."""
    with pytest.raises(client.NoBus) as first:
        client.publish(place / "B_x", "hello")
    for error in (first.value, ConnectionError("mine")):
        try:
            raise error
        except OSError:
            with pytest.raises(client.NoBus, match="no bus is mounted") as found:
                client.publish(place / "B_x", "hello", wait=0.01)
            assert found.value is not error


def test_what_another_user_may_not(bus_for_all: Mount, place: Path) -> None:
    with client.subscribe(bus_for_all / "B_mine", mode=0o600):
        assert os.stat(bus_for_all / "B_mine").st_mode & 0o777 == 0o600
        code = (
            "import os, sys, futebus.client as client; os.setgid(65534); os.setuid(65534)\n"
            "try: client.publish(sys.argv[1], 'text')\n"
            "except PermissionError as error: print(type(error).__name__, error.errno, error)"
        )
        done = run(sys.executable, "-c", code, bus_for_all / "B_mine")
        assert done.stdout == f"NotAllowed {errno.EACCES} {bus_for_all / 'B_mine'}: Permission denied\n", done


@pytest.fixture
def bus_for_all(mounting: Mounting) -> Mount:
    return mounting("allow_other")


@pytest.mark.parametrize("wrong", [5, None, ["text"]])
def test_what_is_no_message_is_not_sent(bus: Mount, wrong: Any) -> None:
    with pytest.raises(TypeError, match="a message is str or bytes, and not"):
        client.publish(bus / "B_x", wrong)


@pytest.mark.parametrize("wrong", ["99", b"1", 1.0])
def test_a_client_that_is_no_number_is_not_sent_to(bus: Mount, wrong: Any) -> None:
    words = re.escape(f"the client is a number (int) or None, not {wrong!r}")
    with client.join(bus / "A_x") as peer, pytest.raises(TypeError, match=words):
        peer.send(wrong, "hi")
    with client.serve(bus / "S_x") as service, pytest.raises(TypeError, match=words):
        service.answer(wrong, "hi")


def test_a_call_of_nothing(bus: Mount) -> None:
    with client.serve(bus / "S_x"), pytest.raises(ValueError, match="a request is a line that is not empty"):
        client.call(bus / "S_x", "")
