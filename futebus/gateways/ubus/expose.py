"""A channel of a mounted bus as a ubus: what is said on one is said on the other, in whole lines.

The one rule: a line is what it was. Whoever speaks the RMI format, and whoever does not, is served alike.

A name is exposed: when somebody removes it, the next channel of that name is listened to and spoken to, from when that can be
opened. Until then the old one is not left: its clients go on together.
"""

import math
from pathlib import Path
from typing import NamedTuple

import trio

from ...client.errors import ClientError, Ended, NoBus, NoMaster
from ...client.leaving import Leaving
from ...client.trio import Reader, publisher, subscribe
from ...core.text import counted
from ..apart import Far, Side, apart
from ..life import GatewayError, Life
from ..rmi import MAX_CALL
from .asking import Methods, Rests
from .connection import MAX_WAITING
from .places import SOCKET_MODE, Kind, Place, kind_of
from .serving import MAX_CLIENTS, MAX_CLIENTS_PER_USER, Handle, Serving
from .telling import Telling

LETTERS = {Kind.SIGNAL: "UB", Kind.PROPERTY: "UB", Kind.METHOD: "S", Kind.REST: "S"}
"""Of which types the channel of a ubus may be: on S channels who asks gets an answer, on U and B channels all hear the same."""

Joined = Far[Reader[bytes]]


class Exposing(NamedTuple):
    """What is to be done."""

    channel: Path
    bus: str
    """The name of the ubus."""
    mode: int = SOCKET_MODE
    max_clients: int = MAX_CLIENTS
    max_clients_per_user: int = MAX_CLIENTS_PER_USER
    max_call: int = MAX_CALL
    max_waiting: int = MAX_WAITING
    waits: bool = False
    """Whether the bus and the channel's master may come later, and come back."""
    value: str | None = None
    """Of a property: its first value."""
    empty: str | None = None
    """Of a rest bus: what the service is asked by an empty request."""


def check(channel: Path, bus: str) -> Kind:
    """Checks that a channel can be such a ubus. Returns its kind.

    Raises:
        ValueError: why it cannot.
    """
    kind = kind_of(bus)
    if kind is None:
        endings = ", ".join(each.value for each in Kind)
        raise ValueError(f"the name of a ubus ends in {endings}, which says what it does: {bus}")
    letters = LETTERS[kind]
    if not channel.name.startswith(tuple(letters)):
        raise ValueError(f"a {kind.value} ubus wants a channel of type {' or '.join(letters)}, and not {channel.name or channel}")
    return kind


async def expose(life: Life, what: Exposing) -> None:
    """Exposes a channel until it is cancelled.

    Raises:
        GatewayError, OSError: the socket cannot be put there.
        ClientError: the bus or the channel's master is not there, or has gone, and is not waited for.
    """
    kind = check(what.channel, what.bus)
    wait, say = (math.inf if what.waits else 0.0), life.say
    place = Place(what.bus, what.mode, life.warn)
    try:
        if not what.waits:  # else who connects would wait for the bus, and not be told that nobody listens
            await place.open()  # before the channel, which is made by that, though nobody exposes it then
        async with apart(life, what.channel.parent) as sides, trio.open_nursery() as nursery:

            def reader(wait: float) -> Joined:
                # Of an S channel, this one is a slave that says nothing, and learns when there is no service any more.
                return Far(sides.there, subscribe(what.channel, bytes, wait=wait, say=say))

            channel = reader(wait)
            await channel.open()
            telling = None
            if kind is Kind.METHOD:
                handle: Handle = Methods(sides.there, what.channel, wait).handle
            elif kind is Kind.REST:
                handle = Rests(sides.there, what.channel, wait, what.max_call, what.empty).handle
            else:
                telling = Telling(Far(sides.there, publisher(what.channel)), keeps_value=kind is Kind.PROPERTY, value=what.value)
                await telling.renew()
                handle = telling.handle
            if what.waits:
                await place.open()
            serving = Serving(
                place,
                handle,
                nursery,
                life,
                greet=telling.greet if telling else lambda connection: None,
                max_clients=what.max_clients,
                max_clients_per_user=what.max_clients_per_user,
                max_call=what.max_call,
                max_waiting=what.max_waiting,
            )
            nursery.start_soon(serving.run)
            life.ready(f"{what.channel} is exposed as {place.path}")
            exposed = _Exposed(what.channel, sides.there, serving, telling, life)
            while True:
                following = reader(0.0)
                try:
                    await exposed.hear(channel, following)
                    say(f"{what.channel}: its name was removed; the next one is exposed")
                except (Ended, NoBus, NoMaster) as error:
                    following.close()
                    following = reader(wait)
                    try:
                        await following.open()
                    except ClientError:
                        if telling is None:
                            await serving.give_up(error)
                        raise GatewayError(str(error)) from None
                channel.close()
                channel = following
                if telling:
                    await telling.renew()
    finally:
        place.close()


class _Exposed:
    """The channel that is heard."""

    def __init__(self, path: Path, there: Side, serving: Serving, telling: Telling | None, life: Life) -> None:
        self._path = path
        self._there = there
        self._serving = serving
        self._telling = telling
        self._life = life
        self._trouble = ""
        """Why the next channel of this name cannot be opened, as it was said."""

    async def hear(self, channel: Joined, following: Joined) -> None:
        """Hears what a channel says until its name was removed, the next one is open, and what the old one had is heard.

        Raises:
            ClientError: it has ended, or gone.
        """
        leaving = Leaving()
        look = trio.current_time() + leaving.pause
        while True:
            lines = await channel.read_block(leaving.pause)
            if lines and self._telling:
                self._serving.put(lines)
                self._telling.heard(lines)
            if trio.current_time() < look:
                continue
            told = await channel.inquire()
            if dropped := leaving.dropped(told):
                words = f"the bus has dropped {counted(dropped, 'line')}, which came faster than they could be taken"
                self._life.warn(f"{self._path}: {words}")
            if told.is_removed and not leaving.has_begun and await self._is_open(following):
                if self._telling:
                    await self._telling.hold()
                    told = await channel.inquire()
                leaving.begin(told)
            if leaving.has_begun and leaving.is_over(told):
                if left := leaving.left(told):
                    words = f"{counted(left, 'line')} that waited when its name was removed were not taken in time"
                    self._life.warn(f"{self._path}: {words}")
                return
            look = trio.current_time() + leaving.pause

    async def _is_open(self, following: Joined) -> bool:
        """Opens the next channel of this name. Returns whether it is open; if it is there and cannot be, it is said why."""
        try:
            await following.open()
        except (NoMaster, NoBus):  # of which the channel that is open tells
            return False
        except ClientError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._life.warn(f"{self._path}: its name was removed, and the next one is not exposed: {error}")
            return False
        self._trouble = ""
        return True
