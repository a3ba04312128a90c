"""An sbus as a program: the server, the channel beside it, and when both are ready.

The one rule: whoever has started it is told once that it is ready, and then it is. What it has made it takes away.
"""

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import trio

from ..life import Life
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

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            if settings.channel is not None:
                joined = trio.Event()
                link = Link(settings.channel, server, life, waits=settings.waits)
                nursery.start_soon(link.run, joined.set)
                if not settings.waits:
                    await joined.wait()
            on_ready()
            beside = f", joined to {settings.channel}" if settings.channel else ""
            life.ready(f"serving on {address.told or address.text}{beside}")
            await server.serve()
            nursery.cancel_scope.cancel()

    status = life.live(main)
    life.say("ended")
    return status


def make_place(descriptors: int) -> None:
    """Has the system let this process have so many open files, or as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        most = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
