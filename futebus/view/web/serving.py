"""All of it put together: feeds, pages, rules and the server."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import trio
from hypercorn.typing import ASGIFramework

from .feeds import Feeds
from .pages import Pages
from .security import Gate, Rules
from .server import Server


async def serve(
    mountpoints: Sequence[Path], listeners: Sequence[socket.socket], rules: Rules, on_ready: Callable[[], object]
) -> None:
    """Serves the page until it is cancelled.

    Args:
        mountpoints: of the buses; none: all that there are.
        listeners: where.
        rules: for whom.
        on_ready: called when it can be asked.
    """
    feeds = Feeds(mountpoints)
    server = Server(cast(ASGIFramework, Gate(Pages(feeds).app(), rules)))
    async with trio.open_nursery() as nursery:
        await nursery.start(feeds.run)
        on_ready()
        await server.run(listeners)
