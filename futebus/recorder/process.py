"""The process that publishes, as the holder tells it, until the end of the pipe to it, which is the holder's too.

The one rule: what becomes of it, its exit status and a byte tell. publishing.py starts it.
"""

import asyncio
import contextlib
import logging
import os
import select
from pathlib import Path

from ..core.text import are, counted
from ..nats.errors import NatsError
from ..spool import SpoolError
from .channel import Say
from .children import DONE, FAILED, FINISH, REFUSED
from .publisher import Publisher
from .target import NoteKeeper, Target

FINISH_SECONDS = 1.5
"""How long, at the end, what is in the spool is published."""

ASKS, JOINED, AWAY = b"?", b"J", b"A"
"""What it tells: that it asks the stream; that this was reached; that it is away, and waited for."""

_LATER = "they go there when it is started again"

LOCK_SECONDS = 0.05
"""How often it is tried whether the publisher before has gone."""


def publish(path: Path, target: Target, control: int, told: int, say: Say, complain: Say) -> int:
    """Is the publisher, in its process.

    Args:
        path: the spool.
        target: where to publish it.
        control: a pipe from the holder: `FINISH` comes through it, and its end is the holder's.
        told: a pipe to the holder, that gets a byte when the stream is asked, and one when it was reached, or was not to be.
            While the holder reads it, who is refused ends. -1: nobody wants to know.
        say: is told what somebody should know.
        complain: the same, of errors.

    Returns:
        How it has ended, as children.py has it.
    """
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # what it says of errors, it tells us too
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("futebus-publish")  # for who looks at processes
    return asyncio.run(_live(path, target, control, told, say, complain))


def _has_reader(pipe: int) -> bool:
    """Whether somebody still reads a pipe that one writes; nobody reads -1."""
    poller = select.poll()
    if pipe >= 0:
        poller.register(pipe, 0)  # POLLERR comes unasked
    return pipe >= 0 and not poller.poll(0)


async def _live(path: Path, target: Target, control: int, told: int, say: Say, complain: Say) -> int:
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[bytes] = asyncio.Queue()

    def listen() -> None:
        words.put_nowait(os.read(control, 1))
        loop.remove_reader(control)

    loop.add_reader(control, listen)
    word = asyncio.ensure_future(words.get())

    def tell(word: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody waits for it any more
            os.write(told, word)

    while True:
        try:
            note = NoteKeeper(path, target.place, target.address.shown)
            break
        except BlockingIOError:  # the one before is about to notice that its holder has died
            await asyncio.wait([word], timeout=LOCK_SECONDS)
            if word.done():
                return DONE
        except (SpoolError, OSError) as error:
            complain(str(error))
            return FAILED
    with note:
        publisher = Publisher(path, target, note, say, complain, lambda is_there: tell(JOINED if is_there else AWAY))
        tell(ASKS)
        work = asyncio.ensure_future(publisher.run(lambda: _has_reader(told)))
        await asyncio.wait([work, word], return_when=asyncio.FIRST_COMPLETED)
        try:
            if not work.done() and word.result() == FINISH:
                publisher.is_finishing.set()
                await asyncio.wait([work], timeout=FINISH_SECONDS)
                if left := publisher.left:
                    lines = f"{counted(left, 'line')} of {path} {are(left)} not in {target.address.shown}"
                    complain(f"{lines}: {publisher.foreign}" if publisher.foreign else f"{lines} yet; {_LATER}")
            if work.done():
                work.result()
        except NatsError as error:
            complain(str(error))
            return REFUSED
        finally:
            work.cancel()
            with contextlib.suppress(OSError, SpoolError):
                note.flush()
        return DONE
