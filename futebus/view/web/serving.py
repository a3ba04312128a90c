"""All of it put together: feeds, pages, rules and the server."""

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import trio
from hypercorn.typing import ASGIFramework

from ...host.mounted import NoBus, find_bus
from .asking import NotAnswering, Question
from .feeds import Feeds
from .pages import Pages
from .security import Gate, Rules
from .server import Server


async def serve(
    mountpoints: Sequence[Path],
    listeners: Sequence[socket.socket],
    rules: Rules,
    on_ready: Callable[[], object],
    warn: Callable[[str], object],
) -> None:
    """Serves the page until it is cancelled.

    Args:
        mountpoints: of the buses; none: all that there are.
        listeners: where.
        rules: for whom.
        on_ready: called when it can be asked.
        warn: is told of mountpoints without a bus at first. They are looked at again and again all the same.
    """
    feeds = Feeds(mountpoints)
    server = Server(cast(ASGIFramework, Gate(Pages(feeds).app(), rules)))
    async with trio.open_nursery() as nursery:
        await nursery.start(feeds.run)
        on_ready()
        for mountpoint in mountpoints:
            nursery.start_soon(_look, mountpoint, warn)
        await server.run(listeners)


async def _look(mountpoint: Path, warn: Callable[[str], object]) -> None:
    def find() -> bool:
        os.close(find_bus(mountpoint))
        return True

    try:
        await Question(mountpoint, find).answer()
    except NotAnswering as error:
        warn(f"{mountpoint}: {error}")
    except NoBus as error:
        warn(f"{error}; a bus there is shown as soon as there is one")
