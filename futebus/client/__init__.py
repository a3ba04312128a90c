"""A channel of a mounted bus, as a program sees it. See docs/client.md.

Here calls wait. `futebus.client.trio` and `futebus.client.aio` have the same for programs of trio and asyncio.

The one rule: what is opened is a channel of a bus, or nothing is. Nothing is ever written to a file in the directory below.
"""

from .blocking import (
    Collector,
    Peer,
    Publisher,
    Reader,
    Service,
    Slave,
    call,
    collect,
    connect,
    join,
    publish,
    publisher,
    serve,
    subscribe,
)
from .errors import (
    ClientError,
    Ended,
    HasMaster,
    NoAddress,
    NoBus,
    NoChannel,
    NoClient,
    NoMaster,
    NotAllowed,
    Refused,
    TimedOut,
    TooLong,
)
from .messages import Event, What

__all__ = [
    "ClientError",
    "Collector",
    "Ended",
    "Event",
    "HasMaster",
    "NoAddress",
    "NoBus",
    "NoChannel",
    "NoClient",
    "NoMaster",
    "NotAllowed",
    "Peer",
    "Publisher",
    "Reader",
    "Refused",
    "Service",
    "Slave",
    "TimedOut",
    "TooLong",
    "What",
    "call",
    "collect",
    "connect",
    "join",
    "publish",
    "publisher",
    "serve",
    "subscribe",
]
