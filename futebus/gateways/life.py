"""The life of a gateway: a program of trio that ends by a signal, and says in one line why if it ends otherwise.

The one rule: nobody who connects can stop it, make it wait, or write on its terminal. What it says goes through a log that is
bounded, never waits for who reads it, and shows control characters escaped. Nor does a bus that hangs: see `apart`.
"""

import contextlib
import queue
import resource
import sys
import threading
from collections.abc import Awaitable, Callable

import trio

from ..client import ClientError
from ..core.text import reason
from ..host import logs
from ..host.signals import Endings, Inbox
from ..host.voice import GRACE, SWITCH_SECONDS, Voice

OK, FAILED = 0, 1


class GatewayError(Exception):
    """Why a gateway cannot go on, in one sentence."""


class Life(Voice):
    """A gateway that runs.

    Args:
        command: what it is called.
        is_quiet: whether it says only what goes wrong.
        endings: the signals that end it, if they have been caught already.
    """

    def __init__(self, command: str, *, is_quiet: bool = False, endings: Endings | None = None) -> None:
        super().__init__(command, is_quiet=is_quiet)
        self._endings = endings or Endings()

    def live(self, main: Callable[[], Awaitable[object]]) -> int:
        """Runs it to its end.

        Args:
            main: all that it does. It is cancelled when a signal comes.

        Returns:
            0 if it has ended as it was told, 1 if it could not go on.
        """
        # What signals do is done in the main thread. It waits for nothing else, so no call that hangs keeps it from that.
        events: Inbox[None] = Inbox()
        cancels: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        errors: list[BaseException] = []

        async def all_of_it() -> None:
            token = trio.lowlevel.current_trio_token()
            with trio.CancelScope() as scope:
                cancels.put(lambda: token.run_sync_soon(scope.cancel))
                await main()

        def loop() -> None:
            try:
                trio.run(all_of_it)
            except BaseException as error:
                errors.append(error)
            finally:
                events.put(None)

        sys.setswitchinterval(SWITCH_SECONDS)
        thread = threading.Thread(target=loop, name="gateway", daemon=True)
        thread.start()
        self._endings.on_first(lambda: events.put(None))
        try:
            events.get()
            with contextlib.suppress(queue.Empty, trio.RunFinishedError):
                cancels.get(timeout=GRACE)()
            thread.join(GRACE)
            if thread.is_alive():
                self.warn("something does not answer, and is left behind")
            for error in errors:
                causes = plain(error)
                if causes is None:
                    raise error
                logs.complain(causes, self.command)
                return FAILED
        finally:
            self._endings.forget()
            events.close()
            self.stopping()
        return OK


def plain(error: BaseException) -> str | None:
    """What has gone wrong, in one sentence; None if it is no error that was to be expected."""
    if isinstance(error, BaseExceptionGroup):
        told = [plain(each) for each in error.exceptions]
        return None if None in told else "; ".join(dict.fromkeys(each for each in told if each))
    if isinstance(error, GatewayError | ClientError):
        return str(error)
    if isinstance(error, OSError):
        return reason(error)
    return None


def make_place(descriptors: int) -> None:
    """Has the system let this process have so many open files, or as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        most = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
