"""Who calls and waits for a stream: how long, and for what."""

import re

import pytest

from futebus.nats import address, fetching
from futebus.nats.access import Access
from futebus.nats.errors import Away, NoStream
from futebus.nats.fetching import Pull
from futebus.nats.reader import Reader
from futebus.nats.state import moment
from futebus.nats.stream import Stream

from ..helpers.nats import Server, Serving
from ..helpers.published import ask, say_raw
from ..helpers.waiting import DEADLINE, until
from .readers import Reading, fill, numbers


def test_patience_ends(keeping: Server, reading: Reading) -> None:
    said: list[str] = []
    reader = Reader(address.read_servers(keeping.as_user("me:secret")), Access(), "LINES", "a test", say=said.append)
    with pytest.raises(NoStream, match="there is no such stream"):
        reader.state()
    reader.close()  # or the end of this connection may be all that there is time for
    keeping.kill()
    reader = Reader(address.read_servers(keeping.as_user("me:secret")), Access(), "LINES", "a test", 0.5, said.append)
    with pytest.raises(Away, match=r"^nats://127.0.0.1:\d+: Connection refused \(for 0.5 s\)$"):
        reader.state()
    reader.close()


def test_waiting_for_the_next(reading: Reading) -> None:
    reader, other = reading(), reading()
    fill(reader, 3)
    assert not reader.wait_for(4, 0.01)
    assert not reader.wait_for(4, 0.01)
    fill(other, 1)
    assert reader.wait_for(4, DEADLINE)
    assert numbers(reader, 4, 5) == [0]
    assert reader.wait_for(2, DEADLINE)


def waiting(reading: Reading) -> tuple[Reader, Reader, Pull]:
    """One who has waited for the second message in vain, another, and how the first is known to the server."""
    reader = reading()
    fill(reader, 1)
    # If there is little time, it may not have asked.
    until(lambda: not reader.wait_for(2, 0.01) and reader._pull is not None and reader._pull._asked, "it has asked")
    assert reader._pull is not None
    return reader, reading(), reader._pull


@pytest.mark.parametrize("is_idle", [True, False])
def test_one_who_waits_is_forgotten(reading: Reading, monkeypatch: pytest.MonkeyPatch, is_idle: bool) -> None:
    """He has not asked for too long; or the server that knew him has died, and nobody answers."""
    reader, other, pull = waiting(reading)
    monkeypatch.setattr(fetching, "ASKED_SECONDS", 3.0)
    reader.do(lambda stream: stream.jetstream.delete_consumer("LINES", pull._name))
    if is_idle:
        pull._asked_at -= fetching.IDLE_SECONDS
    else:
        until(lambda: reader.do(lambda stream: stream.state()) and pull._is_forgotten, "it is said")
        pull._is_forgotten = False  # a server that has died says nothing
    fill(other, 1)
    assert reader.wait_for(2, DEADLINE)
    assert numbers(reader, 2, 3, headers_only=True) == [0]
    assert reader.connections == 1


def test_one_who_waits_and_is_told_that_he_is_forgotten(reading: Reading) -> None:
    """By a server that removes him, as somebody may have told it to: he begins anew, by the connection that there is."""
    reader, other, pull = waiting(reading)
    other.do(lambda stream: stream.jetstream.delete_consumer("LINES", pull._name))
    assert not reader.wait_for(2, 0.5)
    fill(other, 1)
    assert reader.wait_for(2, DEADLINE)
    assert numbers(reader, 2, 3, headers_only=True) == [0]
    assert reader.connections == 1


def test_what_came_while_nobody_listened_is_heard(reading: Reading) -> None:
    """A reader listens when he is asked for something alone."""
    reader, other, pull = waiting(reading)
    fill(other, 1)
    pull._asked_at -= fetching.ASKED_SECONDS + 1
    assert pull.is_deaf
    until(lambda: reader.do(lambda stream: pull.is_known()), "it is heard")
    assert reader.wait_for(2, DEADLINE)
    assert reader._pull is None


def test_when_a_message_came(reading: Reading) -> None:
    """As a server says it, with all nine digits: queries compare the text, and keep it."""
    reader = reading()
    fill(reader, 4)
    reader.do(lambda stream: stream.jetstream.delete_msg("LINES", 2))
    times = {message.sequence: message.time for message in reader.messages(1, 5)}
    told = {number: reader.time_of(number) for number in range(1, 6)}
    assert [number for number, when in told.items() if when] == [1, 3, 4]
    for number, when in times.items():
        assert (found := re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{9})Z", told[number] or ""))
        assert int(found[1]) == when % 10**9
    assert [moment(found) for found in told.values() if found] == [times[number] for number in (1, 3, 4)]


@pytest.mark.parametrize("subject", [b"lines.\xff\xfe", b"lines.\x0b\x0c", b"lines.\xc3\xa9", b"lines.\x1c\x85\xa0"])
def test_a_subject_may_have_any_bytes(keeping: Server, reading: Reading, subject: bytes) -> None:
    """Whoever may publish on a wildcard may have them. No message is left out for that."""
    reader = reading()
    fill(reader, 1)
    say_raw(keeping, subject, b"NATS/1.0\r\nN: 1\r\n\r\n", b"1\n")
    say_raw(keeping, "lines.b", b"NATS/1.0\r\nN: 2\r\n\r\n", b"2\n")
    assert numbers(reader, 1, 4) == [0, 1, 2]
    assert [message.subject for message in reader.messages(2, 3)] == [subject.decode(errors="replace")]
    say_raw(keeping, subject, b"NATS/1.0\r\nN: 3\r\n\r\n", b"3\n")
    assert numbers(reader, 4, 5) == [3], "also if it is the last"


def test_who_may_not_remove_consumers_reads_all_the_same(serving: Serving) -> None:
    """Servers forget them by themselves."""
    denied = 'publish: { deny: "$JS.API.CONSUMER.DELETE.>" }'
    users = f"{{ user: all, password: pw }}, {{ user: some, password: pw, permissions: {{ {denied} }} }}"
    server = serving(f"authorization {{ users = [ {users} ] }}", jetstream=True)

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        for number in range(20):
            await stream.jetstream.publish("lines", b"%d" % number)

    ask(server.as_user("all:pw"), work)
    reader = Reader(address.read_servers(server.as_user("some:pw")), Access(), "LINES", "a test", 15)
    for first in (1, 9, 5):
        assert [message.sequence for message in reader.messages(first, first + 3)] == [*range(first, first + 3)]
    assert reader.wait_for(20, DEADLINE)
    assert [message.data for message in reader.messages(20, 21)] == [b"19"]
    assert reader.connections == 1
    reader.close()
