"""Consumers of a real server, and messages that are not what they should be."""

import asyncio
import contextlib
import time

import pytest
from nats.js.errors import ServerError

from futebus.nats import address
from futebus.nats.access import Access
from futebus.nats.connection import PATIENCE, Connection, Servers
from futebus.nats.consumer import BATCH, EXPIRES_SECONDS, Consumer, Copied
from futebus.nats.errors import Away, NatsError
from futebus.nats.fetching import Pull
from futebus.nats.owner import REMEMBERED, Owner
from futebus.nats.pace import Pace
from futebus.nats.state import Message
from futebus.nats.stream import Stream

from ..helpers.nats import Server, Serving, arrived
from ..helpers.published import ask, say_raw
from ..helpers.waiting import DEADLINE


async def take(stream: Stream, count: int) -> list[Message]:
    """The first messages of a stream."""
    consumer = Consumer(stream, "reader", Owner("me"), None)
    await consumer.begin(1)
    found = []
    async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
        async for message, handed in messages:
            await consumer.confirm(handed)
            found.append(message)
            if len(found) == count:
                break
    return found


def _ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has consumers ask every second. The server's heartbeats come with that, and may be late on a busy machine all the same."""
    monkeypatch.setattr("futebus.nats.consumer.EXPIRES_SECONDS", 1.0)
    monkeypatch.setattr("futebus.nats.consumer.HEARTBEAT_SECONDS", 0.4)


def test_a_message_longer_than_its_server_takes_now_comes(serving: Serving) -> None:
    """It was stored when the server took more. Those behind it come too."""
    server = serving("max_payload: 32M", jetstream=True)
    payloads = [b"x" * 10, *[letter * (20 << 20) for letter in (b"y", b"z")], b"last"]

    async def fill(stream: Stream) -> None:
        await stream.make(["lines"])
        for payload in payloads:
            await stream.jetstream.publish("lines", payload)

    ask(server.url, fill)
    server.kill()
    server.configure("32M", "1M")
    server.begin()

    async def work(stream: Stream) -> list[Message]:
        return await asyncio.wait_for(take(stream, 4), DEADLINE)

    assert [message.data for message in ask(server.url, work)] == payloads


def test_a_message_that_is_not_handed_out_at_all_is_said(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        consumer = Consumer(stream, "reader", Owner("me"), None)
        await consumer.begin(1)
        words = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n"

        async def read() -> None:
            async for _ in consumer.messages():
                pass

        async def refuse() -> None:
            while True:
                await asyncio.to_thread(say_raw, keeping, consumer._inbox, words, b"")

        refusing = asyncio.ensure_future(refuse())
        try:
            with pytest.raises(Away, match="does not hand out the next message of LINES, however long that may be"):
                await asyncio.wait_for(read(), DEADLINE)
        finally:
            refusing.cancel()

    ask(keeping.url, work)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_server_that_cannot_remove_what_it_kept_of_a_consumer(
    keeping: Server, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """It knows of that one no more, mostly, and can make another."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        consumer = Consumer(stream, "reader", Owner("me"), None)
        await consumer.begin(1)
        delete = stream.jetstream.delete_consumer

        async def fail(*which: str) -> None:
            if is_gone:
                await delete(*which)
            raise ServerError(code=500, description="unlinkat obs/reader: directory not empty")

        monkeypatch.setattr(stream.jetstream, "delete_consumer", fail)
        with contextlib.nullcontext() if is_gone else pytest.raises(NatsError, match="directory not empty"):
            await consumer.remove()
        monkeypatch.undo()
        await Consumer(stream, "reader", Owner("me"), None).begin(1)

    ask(keeping.url, work)


def test_what_a_server_allows_is_heeded(keeping: Server) -> None:
    keeping.kill()
    keeping.configure("jetstream {", "jetstream { limits { max_ack_pending: 20, max_request_batch: 7 }, ")
    keeping.begin()

    async def work(stream: Stream) -> list[Message]:
        await stream.make(["lines"])
        for number in range(50):
            await stream.jetstream.publish("lines", b"%d" % number)
        return await asyncio.wait_for(take(stream, 50), DEADLINE)

    assert [message.data for message in ask(keeping.url, work)] == [b"%d" % number for number in range(50)]


def test_who_stood_still_with_his_machine_goes_on(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has said nothing meanwhile, which is no silence of its."""
    monkeypatch.setattr("futebus.nats.consumer.HEARTBEAT_SECONDS", 1.0)
    monkeypatch.setattr("futebus.nats.consumer.SILENT_SECONDS", 2.5)

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        consumer = Consumer(stream, "reader", Owner("me"), None)
        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            waiting = asyncio.ensure_future(anext(messages))
            while not consumer._is_asked:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await arrived(stream.connection.client)
            with keeping.hanging():
                time.sleep(4)  # noqa: ASYNC251 - longer than a server may be silent
                for _ in range(10):  # whoever waits looks, before the server can say anything
                    await asyncio.sleep(0)
                assert not waiting.done()
            monkeypatch.undo()  # it may be slow now
            await stream.jetstream.publish("lines", b"one\n")
            assert (await asyncio.wait_for(waiting, DEADLINE))[0].data == b"one\n"

    ask(keeping.url, work)


def test_a_confirmation_that_is_lost_is_sent_again(keeping: Server) -> None:
    """Nothing else comes of a message that the server sends again."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", b"one\n")
        consumer = Consumer(stream, "reader", Owner("me"), None)
        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            _, handed = await anext(messages)
            await consumer.confirm(handed._replace(reply=handed.reply.replace("$JS.ACK", "lost.ACK")))
            await stream.connection.client.publish(handed.reply, b"-NAK")  # which has the server send it again
            await arrived(stream.connection.client)
            await stream.jetstream.publish("lines", b"two\n")
            assert (await asyncio.wait_for(anext(messages), DEADLINE))[0].sequence == 2

        async def floor() -> int:
            info = await stream.jetstream.consumer_info("LINES", "reader")
            return info.ack_floor.stream_seq if info.ack_floor else 0

        async with asyncio.timeout(DEADLINE):
            while await floor() < 1:  # noqa: ASYNC110 - a server tells it
                await asyncio.sleep(0.01)

    ask(keeping.url, work)


@pytest.mark.parametrize("purged", ["a", "none"])
@pytest.mark.parametrize("has_more", [False, True])
def test_what_is_left_out_when_another_subject_is_purged_is_missed(
    keeping: Server, monkeypatch: pytest.MonkeyPatch, purged: str, *, has_more: bool
) -> None:
    """Also if nothing comes any more (nats-server 2.9.10 leaves it out)."""
    _ask_often(monkeypatch)

    async def work(stream: Stream) -> None:
        await stream.make(["lines.*"])
        for subject in ("lines.a", "lines.a", "lines.b", "lines.c"):
            await stream.jetstream.publish(subject, b"line\n")
        consumer = Consumer(stream, "reader", Owner("me"), "lines.*")
        await consumer.begin(1)  # which takes the first
        await stream.jetstream.purge_stream("LINES", subject=f"lines.{purged}")
        if has_more:
            await stream.jetstream.publish("lines.a", b"line\n")
        async with asyncio.timeout(DEADLINE), contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            assert (await anext(messages))[0].sequence == 1
            with pytest.raises(Away, match="its consumer reader has left out messages that are there"):
                await anext(messages)

    ask(keeping.url, work)


def test_what_is_purged_while_it_comes_takes_nothing_else_along(keeping: Server) -> None:
    """At whatever moment."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines.*"])
        wanted, seen, has_all, owner = list[int](), list[int](), asyncio.Event(), Owner("me")

        async def read() -> None:
            first = 1
            while True:
                connection = await Servers(address.read_servers(keeping.url), Access(), "a test").connect()
                consumer = Consumer(Stream(connection, "LINES"), "reader", owner, "lines.*")
                try:
                    await consumer.begin(first)
                    async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
                        async for message, handed in messages:
                            first = message.sequence + 1
                            if message.subject == "lines.b":
                                seen.append(message.sequence)
                            await consumer.confirm(handed)
                            if message.subject == "lines.end":
                                has_all.set()
                except Away:
                    continue
                finally:
                    await connection.close()

        reading = asyncio.ensure_future(read())
        publish = stream.jetstream.publish
        for _ in range(300):
            purging = asyncio.ensure_future(stream.jetstream.purge_stream("LINES", subject="lines.a"))
            told = await asyncio.gather(*(publish(f"lines.{name}", b"x") for name in "aababb"))
            wanted += [each.seq for each, name in zip(told, "aababb", strict=True) if name == "b"]
            await purging
        await publish("lines.end", b"x")
        await asyncio.wait_for(has_all.wait(), DEADLINE)
        reading.cancel()
        assert seen == sorted(wanted)

    ask(keeping.url, work)


def test_what_is_handed_out_again_and_again_is_not_confirmed_for_that(keeping: Server) -> None:
    """When servers count all that they have handed out as confirmed, as behind a purge, its owner knows how much that may be."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", b"one\n")
        owner = Owner("me")
        consumer = Consumer(stream, "reader", owner, None)
        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            _, handed = await anext(messages)
            waiting = asyncio.ensure_future(anext(messages))
            async with asyncio.timeout(DEADLINE):
                for count in range(2, 3 * BATCH):
                    await stream.connection.client.publish(handed.reply, b"-NAK")
                    while consumer._count < count:  # noqa: ASYNC110 - a server sends it
                        await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        await stream.jetstream.purge_stream("LINES", subject="none")
        info = await stream.jetstream.consumer_info("LINES", "reader")
        assert info.ack_floor
        assert (info.ack_floor.stream_seq, info.ack_floor.consumer_seq) == (1, 3 * BATCH - 1)
        assert await Consumer(stream, "reader", owner, None).confirmed() == 0
        owner.handed.update(dict.fromkeys(owner.handed, BATCH))  # as of a copy that was made before
        assert await Consumer(stream, "reader", owner, None).confirmed() == 1

    ask(keeping.url, work)


async def not_answered(_: Consumer) -> None:
    """Fails as what is asked of a server that does not answer."""
    raise Away("it does not answer")


def test_who_cannot_take_over_goes_on_where_the_other_has_come_to_then(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that one runs with a copy of his state, and so under his name."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        for _ in range(3):
            await stream.jetstream.publish("lines", b"x")
        one, other = Owner("me"), Owner("me")
        consumer = Consumer(stream, "reader", other, None)
        await consumer.begin(1)

        with monkeypatch.context() as patched:
            patched.setattr(Consumer, "remove", not_answered)
            with pytest.raises(Away, match="it does not answer"):
                await Consumer(stream, "reader", one, None).begin(1, takes_over=True)
        assert one.name != "me"
        assert await Consumer(stream, "reader", one, None).confirmed() == 0
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            for _ in range(3):
                await consumer.confirm((await anext(messages))[1])
        async with asyncio.timeout(DEADLINE):
            while await Consumer(stream, "reader", one, None).confirmed() < 3:  # noqa: ASYNC110 - a server tells it
                await asyncio.sleep(0.01)

    ask(keeping.url, work)


@pytest.mark.parametrize("is_known", [False, True])
def test_who_cannot_remove_a_consumer_of_his_own_tries_again(
    keeping: Server, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """However often. Of a process before, it is no copy that runs."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        before, now = Owner("me"), Owner("me")
        await Consumer(stream, "reader", before, None).begin(1)
        if is_known:
            now.known[:] = before.known

        with monkeypatch.context() as patched:
            patched.setattr(Consumer, "remove", not_answered)
            for _ in range(2 * REMEMBERED):
                with pytest.raises(Away, match="it does not answer"):
                    await Consumer(stream, "reader", now, None).begin(1)
        await Consumer(stream, "reader", now, None).begin(1)
        assert now.past == (set() if is_known else {before.process})
        if not is_known:  # and is there again: so he runs
            await Consumer(stream, "reader", before, None).begin(1)
            with pytest.raises(Copied):
                await Consumer(stream, "reader", now, None).begin(1)

    ask(keeping.url, work)


def test_holes_are_no_messages_that_are_left_out(keeping: Server) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines.*"])
        for _ in range(10):
            await stream.jetstream.publish("lines.a", b"line\n")
            await stream.jetstream.publish("lines.b", b"line\n")
        for sequence in (3, 4, 5, 9, 20):
            await stream.jetstream.delete_msg("LINES", sequence)
        for subject, wanted in (("lines.a", [1, 7, 11, 13, 15, 17, 19]), (None, [1, 2, 6, 7, 8, *range(10, 20)])):
            consumer = Consumer(stream, f"reader{len(wanted)}", Owner("me"), subject)
            await consumer.begin(1)
            async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
                assert [(await anext(messages))[0].sequence for _ in wanted] == wanted

    ask(keeping.url, work)


@pytest.mark.parametrize(
    "answer",
    [
        {"config": {"durable_name": "reader", "description": 5}},
        {"config": {"durable_name": "reader", "opt_start_seq": "7"}},
        {"config": {"durable_name": "reader", "filter_subject": 7}},
        {"ack_floor": {"consumer_seq": 1, "stream_seq": "1"}},
        {"ack_floor": {"consumer_seq": 1, "stream_seq": 1 << 63}},
        {"ack_floor": {"consumer_seq": 1}},
        {"delivered": {"consumer_seq": -1, "stream_seq": 1}},
        {"delivered": [1]},
        {"num_pending": True},
        {"created": "soon"},
        {"created": None},
    ],
)
def test_what_no_server_says_of_a_consumer_is_not_believed(
    keeping: Server, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    """Whoever listens to the subject can answer."""
    told = {"config": {"durable_name": "reader"}, "name": "reader", "stream_name": "LINES", "created": "2026-01-01T00:00:00Z"}

    async def work(stream: Stream) -> None:
        async def ask_for(subject: str, *_: object, **__: object) -> dict[str, object]:
            return {**told, **answer}

        monkeypatch.setattr(stream.jetstream, "_api_request", ask_for)
        with pytest.raises(Away, match="somebody else has answered for it"):
            await Consumer(stream, "reader", Owner("me"), None).check_free()

    ask(keeping.url, work)


def test_that_all_has_come_ends_nothing(keeping: Server) -> None:
    """Servers from 2.10 on say so, with a status that others have for what is wrong."""

    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        consumer, pull = Consumer(stream, "reader", Owner("me"), None), Pull(stream, 1, None, headers_only=False)
        await consumer.begin(1)
        await pull.begin()
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            behind = 0
            for name in "abc":
                for inbox in (consumer._inbox, pull._inbox):
                    words = b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 5\r\n\r\n"
                    await asyncio.to_thread(say_raw, keeping, inbox, words, b"")
                behind = await stream.publish("lines", name.encode(), {}, behind, name)
                assert (await anext(messages))[0].data == name.encode()
                assert [message.data for message in await pull.some(behind + 1)] == [name.encode()]
            assert not stream.connection.is_closed.is_set()

    ask(keeping.url, work)


@pytest.mark.parametrize(
    "headers",
    [
        b"NATS/1.0\r\nStatus: 100\r\n\r\n",
        b"NATS/1.0\r\nStatus: 409\r\n\r\n",
        b"NATS/1.0 409 Gone\r\n\r\n",
        b"NATS/1.0 404 No Messages\r\n\r\n",
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0 100 \xff\xff\r\n\r\n",
        b"NATS/1.0\r\nfoo\r\n\xff\xfe: \x00\r\n\r\n",
    ],
)
def test_headers_of_whoever_publishes_change_nothing(keeping: Server, headers: bytes) -> None:
    """A whole batch of them, so that those behind come only if each was counted."""

    async def make(stream: Stream) -> None:
        await stream.make(["lines"])

    ask(keeping.url, make)
    for number in range(300):
        say_raw(keeping, "lines", headers, b"%d\n" % number)
    say_raw(keeping, "lines", b"NATS/1.0\r\n\r\n", b"last\n")

    async def work(stream: Stream) -> list[Message]:
        return await asyncio.wait_for(take(stream, 301), DEADLINE)

    found = ask(keeping.url, work)
    assert [message.data for message in found] == [b"%d\n" % number for number in range(300)] + [b"last\n"]


def test_a_connection_that_is_not_read_any_more_is_closed(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stream: Stream) -> None:
        connection: Connection = stream.connection
        await stream.make(["lines"])

        async def fail(count: int) -> None:
            raise ValueError(count)

        monkeypatch.setattr(connection.client._parser, "took", fail)
        with pytest.raises(Away):
            await connection.while_open(stream.state())
        assert connection.is_closed.is_set()

    async def soon(stream: Stream) -> None:
        await asyncio.wait_for(work(stream), PATIENCE - 1)  # before a server is given up that does not answer

    ask(keeping.url, soon)


@pytest.mark.parametrize("of", ["a consumer", "a pull"])
def test_a_request_of_which_all_bytes_are_used(keeping: Server, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """A server says nothing when they are (2.9.10), and goes on when it is asked again."""
    monkeypatch.setattr("futebus.nats.fetching.ASKED_SECONDS", 2 * DEADLINE)  # else that ends it, too
    name = "consumer"  # as long as the names are that a server makes
    answer = f"$JS.ACK.LINES.{name}.1.1.1.{time.time_ns()}.1"
    pace = Pace(3 * (len("lines.a") + len(answer) + 1000))

    async def work(stream: Stream) -> list[int]:
        await stream.make(["lines.>"])
        for _ in range(10):
            await stream.jetstream.publish("lines.a", b"x" * 1000)
        found: list[int] = []
        async with asyncio.timeout(DEADLINE):
            if of == "a pull":
                pull = Pull(stream, 2, None, headers_only=False, pace=pace)
                await pull.begin()
                assert len(pull._name) == len(name)
                while pull.next < 11:
                    found += [message.sequence for message in await pull.some(11)]
                return found
            consumer = Consumer(stream, name, Owner("me"), None, pace)
            await consumer.begin(1)
            async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
                while len(found) < 10:
                    message, _ = await anext(messages)
                    found.append(message.sequence)
            return found[1:]

    assert ask(keeping.url, work) == [*range(2, 11)]


@pytest.mark.parametrize("is_idle", [False, True])
@pytest.mark.parametrize("has_gone", [False, True])
def test_who_asks_late_looks_what_has_gone(keeping: Server, *, is_idle: bool, has_gone: bool) -> None:
    """On a slow line one is always late, and nothing of ours has gone, as a rule. Or the process stood still."""

    async def work(stream: Stream) -> list[int]:
        await stream.make(["lines.>"])
        await stream.jetstream.publish("lines.a", b"first")
        gone: list[int] = []
        consumer = Consumer(stream, "reader", Owner("me"), "lines.a", gone=gone.append)
        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            await anext(messages)
            if is_idle:
                consumer._asked_at = asyncio.get_running_loop().time() - EXPIRES_SECONDS - 10
                consumer._take(b"", b"", {"Status": "408"}, b"")
            else:
                consumer._ended_at -= 10  # that is long ago
            if has_gone:
                await stream.jetstream.publish("lines.a", b"second")
                await stream.jetstream.purge_stream("LINES")
            coming = asyncio.ensure_future(anext(messages))
            while not (await stream.jetstream.consumer_info("LINES", "reader")).num_waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.gather(*(stream.jetstream.publish("lines.b", b"") for _ in range(10)))
            await stream.jetstream.purge_stream("LINES")
            await stream.jetstream.publish("lines.a", b"last")
            message, _ = await asyncio.wait_for(coming, DEADLINE)
            assert message.data == b"last"
            return gone

    assert ask(keeping.url, work) == [2] * has_gone


def test_up_to_where_nothing_is_for_one_is_told(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream that gets messages of other subjects."""
    _ask_often(monkeypatch)

    async def work(stream: Stream) -> None:
        await stream.make(["lines.>"])
        settled, gone = [0], [0]
        consumer = Consumer(stream, "reader", Owner("me"), "lines.a", gone=gone.append, settled=settled.append)

        async def others_up_to(number: int) -> None:
            for _ in range(5):
                await stream.jetstream.publish("lines.b", b"")
            async with asyncio.timeout(DEADLINE):
                while settled[-1] < number:  # noqa: ASYNC110 - a server tells it
                    await asyncio.sleep(0.001)

        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            coming = asyncio.ensure_future(anext(messages))
            await others_up_to(5)
            await others_up_to(10)
            await stream.jetstream.publish("lines.a", b"")
            assert (await coming)[0].sequence == 11
            coming = asyncio.ensure_future(anext(messages))
            await others_up_to(16)
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming
        assert gone == [0]

    ask(keeping.url, work)
