"""An sbus as a program: the server, the channel beside it, and when both are ready.

The one rule: whoever has started it is told once that it is ready, and then it is. What it has made it takes away.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio

from ..apart import apart
from ..life import OK, Life, make_place
from .address import Address
from .limits import Limits
from .link import Link
from .server import Server

SPARE_DESCRIPTORS = 64
"""Open files beside the clients."""


class Settings(NamedTuple):
    """What it is told to do."""

    limits: Limits = Limits()
    users: frozenset[int] = frozenset()
    """Who may connect; if empty, all may whom the socket's permissions let."""
    ends: bool = False
    """Whether it ends with the last client."""
    channel: Path | None = None
    """A B channel to join."""
    waits: bool = False
    """Whether its bus is waited for."""


def serve(address: Address, settings: Settings, life: Life, on_ready: Callable[[], object]) -> int:
    """Serves until it is ended.

    Args:
        address: where.
        settings: how.
        life: its signals, and its log.
        on_ready: called when clients can connect and the channel, if it is not to be waited for, is joined.

    Returns:
        The exit status.
    """
    make_place(settings.limits.max_clients + SPARE_DESCRIPTORS)
    server = Server(address.socket, life, settings.limits, settings.users, ends=settings.ends)

    async def serve_clients(beside: str) -> None:
        on_ready()
        life.ready(f"serving on {address.told or address.text}{beside}")
        await server.serve()

    async def main() -> None:
        if settings.channel is None:
            await serve_clients("")
            return
        joined = trio.Event()
        async with apart(life, settings.channel.parent) as sides, trio.open_nursery() as nursery:
            link = Link(settings.channel, sides.there, server, life, waits=settings.waits)
            nursery.start_soon(link.run, joined.set)
            if not settings.waits:
                await joined.wait()
            await serve_clients(f", joined to {settings.channel}")
            nursery.cancel_scope.cancel()

    status = life.live(main)
    if status == OK:  # else it has been said why
        life.say("ended")
    return status
