"""How a link runs: a loop of asyncio for the network, threads for the bus, and the main thread, which waits for signals.

The one rule: a signal ends it at once, whatever hangs. What it says goes through a log that is bounded, never waits for who reads
it, and shows control characters escaped.
"""

import asyncio
import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from ..client import ClientError
from ..core.text import reason
from ..host import logs
from ..host.signals import Endings, Inbox
from ..host.voice import GRACE, SWITCH_SECONDS, Voice
from ..nats.consumer import Copied
from ..nats.errors import NatsError

OK, FAILED, COPIED = 0, 1, 3


def soon(loop: asyncio.AbstractEventLoop | None, work: Callable[[], object]) -> None:
    """Has something called in a loop, from any thread. If there is no loop, or none any more, nobody needs it."""
    if loop:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(work)


class Living(Protocol):
    """What runs: a link, or a delivery."""

    @property
    def shown(self) -> str:
        """What it does, in a sentence."""

    async def run(self, ready: Callable[[], object]) -> None:
        """Does what is to be done with servers, for good."""

    def run_channel(self, ready: Callable[[], object]) -> None:
        """Does what is to be done with the bus, for good."""

    def farewell(self) -> None:
        """Is called in the end, when nothing of `run` runs any more."""


def live(link: Living, voice: Voice, endings: Endings) -> int:
    """Runs a link to its end.

    Args:
        link: what runs.
        voice: says what happens.
        endings: the signals that end it, caught already.

    Returns:
        0 if it has ended as it was told, 1 if it could not go on, 3 if it cannot as long as another one has a copy of its state.
    """
    for name in ("nats", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say of errors, they tell us too
    events: Inbox[BaseException | None] = Inbox()
    stops: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = queue.SimpleQueue()

    def ready() -> None:
        voice.ready(link.shown)

    async def network() -> None:
        task = asyncio.current_task()
        assert task
        stops.put((asyncio.get_running_loop(), task))
        await link.run(ready)

    def loop() -> None:
        try:
            asyncio.run(network())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            events.put(error)

    def bus() -> None:
        try:
            link.run_channel(ready)
        except BaseException as error:
            events.put(error)

    sys.setswitchinterval(SWITCH_SECONDS)
    # Daemons: a call on a bus that hangs never returns, and the process ends all the same.
    threads = [threading.Thread(target=each, name=each.__name__, daemon=True) for each in (loop, bus)]
    for thread in threads:
        thread.start()
    endings.on_first(lambda: events.put(None))
    try:
        error = events.get()
        with contextlib.suppress(queue.Empty, RuntimeError):  # it has ended by itself
            running, task = stops.get(timeout=GRACE)
            running.call_soon_threadsafe(task.cancel)
        threads[0].join(GRACE)
        if error is None:
            link.farewell()
            return OK
        if not isinstance(error, NatsError | ClientError | OSError):
            raise error
        link.farewell()
        logs.complain(reason(error) if isinstance(error, OSError) else str(error), voice.command)
        return COPIED if isinstance(error, Copied) else FAILED
    finally:
        endings.forget()
        events.close()
        voice.stopping()
