"""Consumers of streams that limit theirs.

The one rule: what a stream allows is asked when a consumer was refused, and the lesser value taken. Streams have such limits
since nats-server 2.10.
"""

from dataclasses import replace
from typing import Any

from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo
from nats.js.errors import BadRequestError

from .connection import PATIENCE
from .stream import Stream


async def add_consumer(stream: Stream, config: ConsumerConfig) -> ConsumerInfo:
    """Makes a consumer, as far as the stream's limits allow what it is to be.

    Returns:
        What it is.

    Raises:
        nats.errors.Error: the server refuses it, or does not answer: see `Stream.sorted`.
    """
    try:
        return await stream.jetstream.add_consumer(stream.name, config)
    except BadRequestError:
        limits = (await stream.jetstream.stream_info(stream.name)).config.consumer_limits
        lesser: dict[str, Any] = {}
        is_confirmed = config.ack_policy != AckPolicy.NONE
        for name in ("inactive_threshold", "max_ack_pending"):
            most, wanted = getattr(limits, name, None), getattr(config, name)
            # Of what it is not told, 2.10.0 takes 1,000, and compares that.
            is_less = most and (most < wanted if wanted else is_confirmed and name == "max_ack_pending")
            if is_less:
                lesser[name] = most
        if not lesser:
            raise
        return await stream.jetstream.add_consumer(stream.name, replace(config, **lesser))


async def most_at_once(stream: Stream, consumer: str, wanted: int) -> int:
    """For how many messages a consumer may be asked at once: servers may limit that (`max_request_batch`).

    Args:
        stream: its.
        consumer: its name.
        wanted: how many it is to be at most.

    Raises:
        nats.errors.Error: as for `add_consumer`.
    """
    # nats-py leaves it out of what it tells.
    told = await stream.jetstream._api_request(f"$JS.API.CONSUMER.INFO.{stream.name}.{consumer}", b"", timeout=PATIENCE)
    return min(told["config"].get("max_batch") or wanted, wanted)
