"""What a stream of JetStream tells of itself, and of a message.

The one rule: what a server does not say, since it is older, is what it was before there was a word for it.
"""

import calendar
import time
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from nats.js.api import DiscardPolicy, RawStreamMsg, StorageType, StreamInfo

MARKER = "Nats-Marker-Reason"


class Message(NamedTuple):
    """A message of a stream."""

    sequence: int
    """Its number. The first is 1."""
    subject: str
    headers: Mapping[str, str]
    data: bytes

    @property
    def is_marker(self) -> bool:
        """Whether the stream has put it there itself, as servers from 2.11 on do when the last message of a subject goes."""
        return MARKER in self.headers


class State(NamedTuple):
    """What a stream is and has."""

    created: str
    """When it was made, as the server says it. A stream of the same name that was made at another time is another stream."""
    subjects: tuple[str, ...]
    """What it listens to; with wildcards."""
    first: int
    """The number of the first message that it still has; `last` + 1 if it has none."""
    last: int
    """The number of the last message that it ever got; 0 if that has not been."""
    size: int
    """Bytes that it has, headers included."""
    is_memory: bool
    """Whether it is lost with its servers."""
    replicas: int
    retention: str = "limits"
    """When a message goes: `limits`, by age and room; `interest` or `workqueue`, when it has been read."""
    max_message: int = -1
    """Bytes that a message may have, headers included; -1: as many as its servers take."""
    is_acknowledging: bool = True
    """Whether it says that it has got a message."""
    is_sealed: bool = False
    """Whether it takes no message any more, for good."""
    mirrors: str = ""
    """The stream that it is a mirror of, and so takes messages from alone; "" if it is none."""
    max_bytes: int = -1
    """Bytes of messages that it keeps, headers included; -1: as many as there is room for."""
    is_fed: bool = False
    """Whether it takes messages from other streams, too, or alone: then it may have subjects that it does not listen to."""
    removed: int = 0
    """How many messages between the first and the last it has no more."""
    names_seconds: float = 120.0
    """How long it knows the names of messages (`duplicate_window`)."""
    is_renaming: bool = False
    """Whether it keeps messages under other subjects than they come on (`subject_transform`, of servers from 2.10 on)."""
    is_refusing: bool = False
    """Whether it refuses what it has no room for (`discard: new`), and drops nothing for it."""


def moment(text: str) -> int:
    """A time as a server says it, in UTC, in nanoseconds since the epoch."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(rest.ljust(9, "0"))


def state_of(info: StreamInfo) -> State:
    """What nats-py says of a stream."""
    config, state = info.config, info.state
    created = info.created.isoformat() if isinstance(info.created, datetime) else str(info.created)
    return State(
        created,
        tuple(config.subjects or ()),
        state.first_seq if state.messages else state.last_seq + 1,
        state.last_seq,
        state.bytes,
        config.storage != StorageType.FILE,
        config.num_replicas or 1,
        str(config.retention.value if isinstance(config.retention, Enum) else config.retention or "limits"),
        config.max_msg_size or -1,
        not config.no_ack,
        bool(config.sealed),
        config.mirror.name or "" if config.mirror else "",
        config.max_bytes or -1,
        bool(config.mirror or config.sources),
        state.num_deleted or 0,
        config.duplicate_window or 0.0,
        bool(config.subject_transform),
        config.discard in (DiscardPolicy.NEW, DiscardPolicy.NEW.value),
    )


def message_of(raw: RawStreamMsg) -> Message:
    """What nats-py says of a message."""
    # Of what is no ASCII, nats-py makes objects that are no text.
    headers = {name: value for name, value in (raw.headers or {}).items() if isinstance(value, str)}
    return Message(raw.seq or 0, raw.subject or "", headers, raw.data or b"")
