"""A gateway that cheats, to see that the torture notices: `crooked.py HOW MODULE ARGUMENTS...` is the command in MODULE.

Every fiftieth message to its peers goes wrong in the way that is asked for; or it leaves its socket behind.
"""

import importlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

from futebus.gateways.sbus.client import Client, Sender
from futebus.gateways.tmb.outbox import Outbox
from futebus.gateways.ubus.connection import Connection
from futebus.gateways.ubus.places import Place

from .forms import END

EVERY = 50

Way = Callable[[Any, bytes], list[bytes]]
"""Makes of a message to a peer those that it gets."""

_held: dict[Any, bytes] = {}


def loses(peer: Any, message: bytes) -> list[bytes]:
    """It is not sent."""
    return []


def doubles(peer: Any, message: bytes) -> list[bytes]:
    """It is sent twice."""
    return [message, message]


def alters(peer: Any, message: bytes) -> list[bytes]:
    """A byte of it is another one."""
    middle = len(message) // 2
    return [message[:middle] + b"?" + message[middle + 1 :]]


def overtakes(peer: Any, message: bytes) -> list[bytes]:
    """It is sent after the next one."""
    _held[peer] = message
    return []


WAYS: dict[str, Way] = {way.__name__: way for way in (loses, doubles, alters, overtakes)}


def cheat(how: Way) -> None:
    """Has every so manieth message go wrong, of those that honest peers have said."""
    number = itertools.count(1)
    put, deliver, write = Outbox.put, Client.deliver, Connection.put

    def crooked(peer: Any, message: bytes) -> list[bytes]:
        if b"honest" not in message.lower():
            return [message]
        # The end of all is not a message: who did not hear it would be waited for, and what is wrong be found by nobody.
        if END not in message and next(number) % EVERY == 0:
            return how(peer, message)
        held = _held.pop(peer, None)
        return [message] if held is None else [message, held]

    def lines_of(peer: Any, lines: bytes) -> bytes:
        return b"".join(each for line in lines.split(b"\n")[:-1] for each in crooked(peer, line + b"\n"))

    def put_crookedly(self: Outbox, messages: bytes) -> None:
        if made := lines_of(self, messages):
            put(self, made)

    def deliver_crookedly(self: Client, packet: bytes, sender: Sender, *, is_answer: bool = False) -> None:
        for each in crooked(self, packet):
            deliver(self, each, sender, is_answer=is_answer)

    def write_crookedly(self: Connection, lines: bytes, *, drops: bool = False) -> bool:
        made = lines_of(self, lines)
        return write(self, made, drops=drops) if made else True

    for owner, name, function in (
        (Outbox, "put", put_crookedly),
        (Client, "deliver", deliver_crookedly),
        (Connection, "put", write_crookedly),
    ):
        setattr(owner, name, function)


def litter() -> None:
    """Has the socket stay when it ends."""
    setattr(Place, "_remove", lambda self: None)  # noqa: B010 - or mypy thinks that it knows better


if __name__ == "__main__":
    if sys.argv[1] == "litters":
        litter()
    else:
        cheat(WAYS[sys.argv[1]])
    sys.exit(importlib.import_module(sys.argv[2]).main(sys.argv[3:]))
