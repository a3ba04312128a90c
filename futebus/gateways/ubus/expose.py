"""A channel of a mounted bus as a ubus: what is said on one is said on the other, in whole lines.

The one rule: a line is what it was. Whoever speaks the RMI format, and whoever does not, is served alike.

A name is exposed: when somebody removes it, the next channel of that name is listened to and spoken to. A channel with a master
is not left before there is another one, since its clients go on together.
"""

import math
import os
from pathlib import Path
from typing import NamedTuple

import trio

from ...client.errors import Ended, NoBus, NoMaster
from ...client.leaving import Leaving
from ...client.trio import Reader, publisher, subscribe
from ...core.kinds import has_master
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
        async with (
            apart(life, what.channel.parent) as sides,
            # Of an S channel, this one is a slave that says nothing, and learns when there is no service any more.
            Far(sides.there, subscribe(what.channel, bytes, wait=wait, say=say)) as channel,
            trio.open_nursery() as nursery,
        ):
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

            while True:
                try:
                    await _hear(what.channel, sides.there, channel, serving, telling, life)
                    say(f"{what.channel}: its name was removed; it is opened anew")
                except (Ended, NoBus, NoMaster) as error:
                    if not what.waits:
                        raise GatewayError(str(error)) from None
                channel.close()
                await channel.open()
                if telling:
                    await telling.renew()
    finally:
        place.close()


async def _hear(
    path: Path, there: Side, channel: Far[Reader[bytes]], serving: Serving, telling: Telling | None, life: Life
) -> None:
    """Hears what a channel says until its name is removed, what it had then is heard, and there is or may be another.

    Raises:
        ClientError: it has ended, or gone.
    """
    leaving = Leaving()
    look = trio.current_time() + leaving.pause
    while True:
        lines = await channel.read_block(leaving.pause)
        if lines and telling:
            serving.put(lines)
            telling.heard(lines)
        if trio.current_time() < look:
            continue
        told = await channel.inquire()
        if dropped := leaving.dropped(told):
            life.warn(f"{path}: the bus has dropped {counted(dropped, 'line')}, which came faster than they could be taken")
        if told.is_removed and not leaving.has_begun and await there.run(_has_another, path):
            if telling:
                await telling.hold(has_master=has_master(path.name))
                told = await channel.inquire()
            leaving.begin(told)
        if leaving.has_begun and leaving.is_over(told):
            if left := leaving.left(told):
                life.warn(f"{path}: {counted(left, 'line')} that waited when its name was removed were not taken in time")
            return
        look = trio.current_time() + leaving.pause


async def _has_another(path: Path) -> bool:
    """Whether there is, or can be made, another channel of that name. To be asked in the loop of the bus."""
    await trio.lowlevel.checkpoint()
    return not has_master(path.name) or _is_there(path)


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)
