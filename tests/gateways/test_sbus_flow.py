"""What becomes of messages for clients of futebus-sbus that do not read, and of everybody else meanwhile."""

import sys
import threading

import pytest

from ..helpers.waiting import is_readable, until
from .sbuses import Client, Sbus, Serving

SIZE = 4000
"""Bytes of a payload: a hundred and some fit into a socket."""
MANY = 1000


def numbered(number: int) -> bytes:
    return b"MSG a\0%d " % number + b"x" * SIZE


def number_of(packet: bytes) -> int:
    return int(packet.removeprefix(b"MSG a\0").split()[0])


def flood(sender: Client, count: int = MANY, first: int = 0) -> None:
    """Sends messages and waits until they have been taken."""
    sender.send(*(numbered(number) for number in range(first, first + count)))
    sender.whoami()


def send_what_is_taken(sender: Client, count: int, first: int = 0) -> int:
    """Sends messages until the server takes no more. Returns how many went."""
    sender.socket.setblocking(False)
    try:
        for number in range(count):
            sender.socket.send(numbered(first + number))
    except BlockingIOError:
        return number
    finally:
        sender.socket.settimeout(120)
    return count


def send_until_held(sender: Client) -> int:
    """Sends messages until none has been taken for a while. Returns how many."""
    sent = 0
    quiet = 0

    def is_held() -> bool:
        nonlocal sent, quiet
        more = send_what_is_taken(sender, 100, sent)
        sent += more
        quiet = 0 if more else quiet + 1
        return quiet > 5

    until(is_held, "the sender is held up")
    return sent


def numbers(client: Client) -> list[int]:
    """All that has come, after the server has nothing more for this client."""
    return [number_of(packet) for packet in client.rest()]


def test_who_does_not_read_delays_nobody_and_gets_what_was_queued(serving: Serving) -> None:
    sbus = serving("--max-queue", "200")
    slow, other, sender = sbus().sub(b"a"), sbus().sub(b"a"), sbus()
    for start in range(0, MANY, 50):
        flood(sender, 50, start)
        assert [number_of(packet) for packet in other.take(50)] == list(range(start, start + 50))
    got = [number_of(slow.recv()) for _ in range(200)]
    got += numbers(slow)
    assert got == list(range(len(got))), "from the first on, in order"
    assert 200 <= len(got) < MANY
    flood(sender, 1, MANY)
    assert number_of(slow.recv()) == MANY, "it is served again"
    sbus.counts(MANY - len(got), "discarded for clients")


def test_bytes_of_the_queue_are_bounded_too(serving: Serving) -> None:
    sbus = serving("--max-queue-bytes", "100K")
    slow, sender = sbus().sub(b"a"), sbus()
    flood(sender)
    assert len(numbers(slow)) < 400


def test_soft_discard(sbus: Sbus) -> None:
    slow, sender = sbus().sub(b"a").choose(b"blocking/soft/discard"), sbus()
    flood(sender)
    got = numbers(slow)
    assert got == list(range(len(got)))
    assert 20 < len(got) < 400, "what its socket has taken"


def test_who_asks_gets_an_answer_even_if_it_discards(sbus: Sbus) -> None:
    slow, sender = sbus().sub(b"a").choose(b"blocking/soft/discard"), sbus()
    flood(sender)
    slow.send(b"CMSG !/cred/whoami")
    got = numbers(slow)
    assert len(got) < 400
    assert slow._receive().startswith(b"CMSG !/cred/whoami\0")


@pytest.mark.parametrize(("choice", "words"), [("soft/error", "does not read"), ("hard/error", "not read too many messages")])
def test_error(serving: Serving, choice: str, words: str) -> None:
    sbus = serving("--max-queue", "100")
    slow, other, sender = sbus().sub(b"a"), sbus().sub(b"a"), sbus()
    slow.choose(b"blocking/" + choice.encode())
    for start in range(0, MANY, 50):
        flood(sender, 50, start)
        other.take(50)
    assert slow.is_dismissed()
    sbus.says(words)


@pytest.mark.parametrize("choice", [b"blocking/soft/block", b"blocking/hard/block"])
def test_block(serving: Serving, choice: bytes) -> None:
    sbus = serving("--max-queue", "100")
    slow, sender = sbus().sub(b"a").choose(choice), sbus()
    sent = send_until_held(sender)
    assert not is_readable(sender.socket)
    # Nobody else waits, the slow one does not either, and who sends to others is heard.
    one, two = sbus().sub(b"b"), sbus()
    assert two.msg(b"b", b"x").rest() == []
    assert one.recv() == b"MSG b\0x"
    assert slow.msg(b"b", b"y").send(b"CMSG echo/off")
    assert one.recv() == b"MSG b\0y"
    assert [number_of(slow.recv()) for _ in range(sent)] == list(range(sent)), "it gets every one"
    sender.whoami()
    sbus.close()
    assert "discarded" not in sbus.words


def test_what_a_sender_that_is_held_up_has_sent_arrives_after_its_end(sbus: Sbus) -> None:
    slow, sender = sbus().sub(b"a").choose(b"blocking/soft/block"), sbus()
    sent = send_until_held(sender)
    sender.close()
    assert [number_of(slow.recv()) for _ in range(sent)] == list(range(sent))
    assert numbers(slow) == []


@pytest.mark.parametrize("how", ["it closes", "it chooses otherwise"])
def test_held_up_no_more(sbus: Sbus, how: str) -> None:
    slow, sender, other = sbus().sub(b"a").choose(b"blocking/soft/block"), sbus(), sbus()
    send_until_held(sender)
    if how == "it closes":
        slow.close()
    else:
        slow.send(b"CMSG blocking/soft/discard")
    sender.whoami()
    assert other.whoami()


def test_who_sends_to_itself_waits_for_itself(sbus: Sbus) -> None:
    client, other = sbus().sub(b"a").choose(b"blocking/soft/block"), sbus()
    sent = send_until_held(client)
    other.whoami()
    assert [number_of(client.recv()) for _ in range(sent)] == list(range(sent))


def test_nobody_is_waited_for_for_ever(serving: Serving) -> None:
    sbus = serving("--patience", "0.1")
    slow, sender = sbus().sub(b"a").choose(b"blocking/soft/block"), sbus()

    def is_said() -> bool:
        # Again: where a server did not run meanwhile, what it was sent at first may all have a place with the slow one.
        send_what_is_taken(sender, MANY)
        return "others have waited 0.1 s for it to read" in sbus.words

    until(is_said, "it is said")
    assert slow.is_dismissed()
    sender.whoami()


def test_without_patience_nobody_is_waited_for(serving: Serving) -> None:
    sbus = serving("--patience", "0", "--max-queue", "50")
    slow, sender = sbus().sub(b"a").choose(b"blocking/soft/block", b"blocking/hard/block"), sbus()
    flood(sender)
    assert len(numbers(slow)) < MANY


def test_the_newest_first(sbus: Sbus) -> None:
    slow, sender = sbus().sub(b"a").choose(b"order/stack"), sbus()
    flood(sender, 500)
    got = [number_of(packet) for packet in slow.take(500)]
    assert sorted(got) == list(range(500))
    turn = next(at for at, number in enumerate(got) if number != at)
    assert got[turn] == 499, "what the socket had not taken comes from behind"


def test_the_longest_first(sbus: Sbus) -> None:
    slow, sender = sbus().sub(b"a"), sbus()
    flood(sender, 300)
    slow.send(b"CMSG order/random")
    sizes = [SIZE * (1 + number % 3) for number in range(300)]
    sender.send(*(b"MSG a\0%d " % (300 + number) + b"y" * size for number, size in enumerate(sizes)))
    sender.whoami()
    got = slow.take(600)
    lengths = [len(packet) for packet in got if b"y" in packet]
    assert lengths == sorted(lengths, reverse=True)
    slow.send(b"CMSG order/queue")
    flood(sender, 3)
    assert numbers(slow) == [0, 1, 2]


def test_who_is_killed_while_it_holds_others_up(sbus: Sbus) -> None:
    held = [sbus() for _ in range(3)]
    slow = sbus().sub(b"a").choose(b"blocking/soft/block")
    for sender in held:
        send_until_held(sender)
    held[0].close()
    slow.close()
    for sender in held[1:]:
        sender.whoami()
    sbus().whoami()


SHORT = """
import sys
from futebus.gateways.sbus import server
server.TURN = 0.0
from futebus.commands.sbus import main
sys.exit(main())
"""
"""A server whose turn is over with the first packet, as if each took long."""


def test_who_floods_does_not_keep_others_out(serving: Serving) -> None:
    sbus = serving(command=[sys.executable, "-c", SHORT])
    flooder, other = sbus(), sbus().sub(b"b")
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            flooder.msg(b"a", b"x")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for number in range(20):
            other.msg(b"b", b"%d" % number)
            assert other.recv() == b"MSG b\0%d" % number
        sbus().sub(b"c").msg(b"c", b"who comes, too")
    finally:
        is_over.set()
        thread.join()
