"""Consumers of a stream that limits its consumers, as those of servers from 2.10 on may: an older one that speaks like these."""

import contextlib
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConsumerLimits
from nats.js.client import JetStreamContext
from nats.js.errors import BadRequestError

from futebus.nats.consumer import Consumer
from futebus.nats.fetching import Pull
from futebus.nats.owner import Owner
from futebus.nats.stream import Refused, Stream

from ..helpers.nats import Server
from ..helpers.published import ask

USUAL = {"inactive_threshold": 0, "max_ack_pending": 1000}
"""What 2.10.0 takes of what it is not told, and compares."""


class Limited:
    """Has streams limit their consumers."""

    def __init__(self, patch: pytest.MonkeyPatch, **limits: Any) -> None:
        self.asked: list[tuple[float | None, int | None]] = []
        self._limits = StreamConsumerLimits(**limits)
        add, info = JetStreamContext.add_consumer, JetStreamContext.stream_info

        async def adding(jetstream: JetStreamContext, stream: str, config: ConsumerConfig) -> Any:
            self.asked.append((config.inactive_threshold, config.max_ack_pending))
            for name, code in (("inactive_threshold", 10153), ("max_ack_pending", 10121)):
                usual = USUAL[name] if config.ack_policy == AckPolicy.EXPLICIT else 0
                if (getattr(config, name) or usual) > (getattr(self._limits, name) or 1e9):
                    raise BadRequestError(code=400, err_code=code, description=f"consumer {name} exceeds system limit")
            return await add(jetstream, stream, config)

        async def telling(jetstream: JetStreamContext, stream: str, **how: Any) -> Any:
            told = await info(jetstream, stream, **how)
            told.config.consumer_limits = self._limits
            return told

        patch.setattr(JetStreamContext, "add_consumer", adding)
        patch.setattr(JetStreamContext, "stream_info", telling)


def test_what_a_stream_allows_is_taken(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        await stream.jetstream.publish("lines", b"one\n")
        pull = Pull(stream, 1, None, headers_only=False)
        await pull.begin()
        assert [message.data for message in await pull.some(2)] == [b"one\n"]
        assert pull._idle == 10
        consumer = Consumer(stream, "reader", Owner("me"), None)
        await consumer.begin(1)
        async with contextlib.aclosing(consumer.messages()) as messages:  # type: ignore[type-var]
            async for message, _ in messages:
                assert message.data == b"one\n"
                break

    limited = Limited(monkeypatch, inactive_threshold=10.0, max_ack_pending=100)
    ask(keeping.url, work)
    assert limited.asked == [(60, None), (10, None), (None, None), (None, 100)]


def test_what_is_refused_for_another_reason(keeping: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines"])
        with pytest.raises(Refused, match="/LINES: "):
            await Pull(stream, 1, "not..one", headers_only=False).begin()

    limited = Limited(monkeypatch, inactive_threshold=100.0)
    ask(keeping.url, work)
    assert limited.asked == [(60, None)]
