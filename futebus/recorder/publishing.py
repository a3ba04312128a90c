"""The publisher of a recorder, as the holder has it: a child that is started again when it dies, and ended with the holder.

The one rule: nobody waits for it, but for a moment at the start, when it may be refused, and in the end. Whatever becomes of it
later, lines are recorded.
"""

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

from .channel import Say
from .children import FAILED, FINISH, KILL_SECONDS, REFUSED, ended_within, how, pause_after
from .recording import Recording

START_SECONDS = 3.0
"""How long it is waited for at the start, until it asks the stream: what it needs for that must be read from the disk."""

ANSWER_SECONDS = 1.0
"""How long it is waited for the stream's answer then, which takes some ways to a server and back: writers have no channel
meanwhile. What is refused later is recorded."""

END_SECONDS = 2.0
"""How long it is waited for in the end, before it is killed."""

LIVES_SECONDS = 10.0
"""How long one must have lived so that the next one is started at once."""


def _hears(told: int, seconds: float) -> bytes | None:
    """What the publisher says next; nothing if it has ended, and None if it says nothing for so long."""
    poller = select.poll()  # select(2) knows no descriptor above 1023
    poller.register(told, select.POLLIN)
    return os.read(told, 1) if poller.poll(seconds * 1000) else None


class Publishing:
    """The publisher, if there is to be one.

    Args:
        recording: what is recorded, and where it is published.
        say: is told what somebody should know.
        complain: the same, of errors.
    """

    def __init__(self, recording: Recording, say: Say, complain: Say) -> None:
        self._recording, self._say, self._complain = recording, say, complain
        self._pid = 0
        self._control = -1
        self._started = 0.0
        self._brief_lives = 0
        self._due = 0.0
        """When the next one is to be started."""
        self._is_missing = False
        """Whether it is said that it cannot be started."""
        self._is_over = recording.to is None
        self._is_asked = False
        """Whether it has been asked to end, and to say what is left."""

    def begin(self) -> bool:
        """Starts it. Returns False if the stream has refused it at once, and for good; it has said why."""
        if self._is_over:
            return True
        ends: tuple[int, ...] = ()
        try:
            ends = told, tells = os.pipe2(os.O_CLOEXEC)
            self._start(tells)
        except OSError as error:
            for end in ends:
                os.close(end)
            self._put_off(error)
            return True
        os.close(tells)
        try:
            if _hears(told, START_SECONDS) != b"" and _hears(told, ANSWER_SECONDS) != b"":
                return True
        finally:
            os.close(told)  # from now on it does not end because it is refused
        outcome = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._forget()
        self._is_over = outcome == REFUSED
        if not self._is_over:
            self._plan(outcome)
        return not self._is_over

    def look(self) -> float | None:
        """Starts the next one if the last has died, after a pause. Returns in how many seconds that is to be done, if it is."""
        if self._is_over:
            return None
        if self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if not pid:
                return None
            self._forget()
            self._plan(os.waitstatus_to_exitcode(status))
        left = self._due - time.monotonic()
        if left > 0:
            return left
        return None if self._start_again() else self._due - time.monotonic()

    def _plan(self, outcome: int) -> None:
        now = time.monotonic()
        self._brief_lives = self._brief_lives + 1 if now - self._started < LIVES_SECONDS else 0
        self._due = now + pause_after(self._brief_lives)
        if outcome != REFUSED:  # who was refused has said so
            self._say(f"the publisher {how(outcome)}, which loses nothing; the next one goes on")

    def _start_again(self) -> bool:
        """Starts the next one. Returns False if the system cannot now; lines are recorded without it."""
        try:
            self._start(-1)
        except OSError as error:
            self._put_off(error)
            return False
        self._is_missing = False
        return True

    def _put_off(self, error: OSError) -> None:
        """The system cannot start it now: that is tried again."""
        self._brief_lives += 1
        self._due = time.monotonic() + pause_after(self._brief_lives)
        if not self._is_missing:
            self._is_missing = True
            self._say(f"the publisher cannot be started ({error.strerror}), which loses nothing; trying again")

    def _start(self, tells: int) -> None:
        """Starts it. `tells`: where it says that it asks the stream, and what has become of that; -1: nobody wants to know.

        Raises:
            OSError: the system has no room for it.
        """
        listens, self._control = os.pipe2(os.O_CLOEXEC)
        self._started = time.monotonic()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(listens)
            self._forget()
            raise
        if not self._pid:
            self._be(listens, tells)
        os.close(listens)

    def _be(self, listens: int, tells: int) -> None:
        """Is the publisher, in its process. Ends it."""
        outcome = FAILED
        try:
            # The channel, above all: who has it open keeps it alive. And the spool's lock.
            for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
                if int(name) > 2 and int(name) not in (listens, tells):
                    with contextlib.suppress(OSError):
                        os.close(int(name))
            from .process import publish

            recording = self._recording
            assert recording.to
            outcome = publish(recording.spool, recording.to, listens, tells, self._say, self._complain)
        except OSError as error:
            self._complain(f"the publisher: {error.strerror or error}")
        except BaseException:
            for line in traceback.format_exc().splitlines():
                self._complain(line)
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(outcome)

    def _forget(self) -> None:
        self._pid = 0
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    def leave(self) -> None:
        """Is called in a child of the holder, whose publisher is none of its business: it ends with the holder."""
        self._forget()
        self._due = self._brief_lives = 0

    def finish(self, wait: Callable[[float], bool]) -> None:
        """Has it publish what there is, and end, for a moment.

        Args:
            wait: waits for so many seconds or until a child has ended, and tells whether to go on.
        """
        if self._is_over:
            return
        if self.look() is not None and not self._start_again():  # one that is due later says what is left
            return
        self._is_over = self._is_asked = True
        with contextlib.suppress(BrokenPipeError):
            os.write(self._control, FINISH)
        if ended_within(self._pid, END_SECONDS, wait):
            self._forget()

    def end(self) -> None:
        """Ends it, if it is still there."""
        self._is_over = True
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            ended_within(self._pid, KILL_SECONDS)
            self._forget()
            if self._is_asked:
                self._complain("the publisher has not ended in time: what is in the spool alone goes on when it is started again")
