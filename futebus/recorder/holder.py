"""Records a channel with two processes: one that holds the channel, and one that takes what it says into the spool.

The one rule: what the bus has accepted waits at the open file description of the channel, and both processes have that. So either
may die at any moment, and nothing is lost: the holder starts another drain, and a drain without a holder becomes one.
"""

import contextlib
import math
import os
import queue
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from ..client.channel import RETRY_SECONDS
from ..core.inquiry import Inquiry, left_of
from ..core.text import counted, were
from ..host.mounted import ANSWER_SECONDS
from ..host.patience import Patience
from ..host.service import ServiceManager
from ..host.signals import ending_signals, take_signal
from ..spool import Spool, SpoolError, SpoolLock
from .apart import apart
from .channel import Say, check_channel, join
from .children import DONE, FAILED, FINISH, KILL_SECONDS, PAUSE_SECONDS, ended_within, how, pause_after
from .drain import TOO_FAST
from .ending import UNTAKEN, PushedOut, asked, end, in_words, pushed_out
from .publishing import Publishing
from .recording import Held, Recording, adopted
from .worker import END_SECONDS, ENDED, FATAL, INSISTING_SECONDS, ORPHANED, Worker, note_lost, open_spool

ASK_SECONDS = END_SECONDS / 2
"""How long, at the end, the bus is waited for when it is asked something. A machine that is busy takes its time."""

HASTY_SECONDS = 1.0
"""The same when somebody has insisted that it ends."""

LOCK_SECONDS = 1.0
"""How long the spool is waited for, at the start. Who was killed a moment ago may have it, or the children that he has left."""

LIVES_SECONDS = 1.0
"""A drain that dies is started again at once if it has lived for so long, or has taken lines; otherwise, the second time, after a
pause."""


class RecordError(Exception):
    """Why it cannot go on; the drain has said it."""


class Holder:
    """Holds the channel, and sees to it that it is drained.

    Args:
        recording: what to record.
        say: is told, in one sentence, what somebody should know.
        complain: the same, of errors.
        manager: the service manager. It holds the channel too, while the service is restarted.

    Raises:
        ChannelError: no channel has that name.
    """

    def __init__(self, recording: Recording, say: Say, complain: Say, manager: ServiceManager) -> None:
        check_channel(recording.channel, recording.is_master)
        self._recording, self._say, self._complain, self._manager = recording, say, complain, manager
        self._held: Held | None = None
        self._ending: int | None = None
        """The signal that ends it."""
        self._asked = -math.inf
        """When that came."""
        self._patience: Patience | None = None
        """How long the drain is still waited for, once it is to end."""
        self._looked = 0.0
        """When it was last known that no signal waited to be taken."""
        self._came = 0.0
        """When the one that was taken last has come, at the earliest."""
        self._is_impatient = False
        """Whether somebody has insisted that it ends."""
        self._is_late = False
        """Whether the drain had to be killed at the deadline, or none could be started."""
        self._is_stuck = False
        """Whether it could not be."""
        self._before: Inquiry | None = None
        """What the bus told of the channel when the end began."""
        self._brief_lives = 0
        self._signals = ending_signals()
        self._publishing = Publishing(recording, say, complain)

    def run(self) -> None:
        """Records until a signal (SIGTERM, SIGINT, SIGHUP) ends it.

        Raises:
            ChannelError: the channel is refused for good.
            RecordError: the drain gave up, or the stream that it is published in is refused; or lines were lost at the end.
            SpoolError, OSError: the spool cannot be written.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        spool, name = self._recording.spool, self._recording.channel.name
        # A signal still ends it as any command while it waits here, so that a shell's loop ends with it: nothing has begun.
        self._lock = SpoolLock(spool, name, mode=self._recording.spool_mode, patience=LOCK_SECONDS)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*self._signals, signal.SIGCHLD})
        self._looked = time.monotonic()
        try:
            self._held = adopted(self._recording, self._manager)
            if self._recording.to:
                # What is published is there before, with the identity that it keeps.
                if self._prepare(is_continued=self._held is not None) is None:
                    self._begin_to_end()
                    if self._tell_left():
                        raise RecordError
                    return
                if not self._publishing.begin():
                    raise RecordError
            try:
                self._record()
            except RecordError:
                if not self._manager:  # or else what waits is there at the next start
                    self._begin_to_end()
                    self._tell_left()
                raise
            has_lost = self._tell_left()
            self._publishing.finish(self._wait_for_child)
            if has_lost:
                raise RecordError
        finally:
            self._publishing.end()
            self._manager.tell("STOPPING=1")
            self._lock.close()

    def _record(self) -> None:
        channel = self._recording.channel
        left: float | None = None
        while self._ending is None:
            if self._held is None:
                self._held = self._open(left)
                if self._held is None:
                    return
            if left is None:
                self._say(f"recording {channel} into {self._recording.spool}")
            self._manager.tell("READY=1", f"STATUS=Recording {channel}")
            if self._keep_drained() == ENDED:
                self._close()
            left = time.monotonic()

    # ------------------------------------------------------------------------------------------ the channel

    def _open(self, left: float | None) -> Held | None:
        """Opens the channel as soon as that is possible. None if it is to end first."""
        recording = self._recording
        lost = self._prepare(is_continued=False)
        if lost is None:
            return None

        def say(words: str) -> None:
            self._manager.tell(f"STATUS={words}")
            self._say(words)

        words: queue.SimpleQueue[str] = queue.SimpleQueue()
        """What the thread has to say."""

        def pass_on() -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    say(words.get_nowait())

        asked: float | None = None
        """Since when the bus is asked for the channel, and has not answered. Nobody waits for that but a thread."""

        began = time.monotonic()
        """Since when no thread can be started; infinite when one has been."""

        def enter(wait: Callable[[float], bool]) -> int | None:
            def pause(seconds: float) -> bool:
                nonlocal asked
                asked = None
                goes_on = wait(seconds)
                asked = time.monotonic()
                return goes_on

            nonlocal asked, began
            asked, began = time.monotonic(), math.inf
            return join(recording.channel, recording.is_master, recording.mode, say=words.put, wait=pause, left=left)

        said = None

        def meanwhile() -> None:
            nonlocal said, began
            pass_on()
            if time.monotonic() - began > ANSWER_SECONDS:
                began = math.inf
                say(f"{recording.channel}: no thread can be started; trying again")
            if asked is not None and asked != said and time.monotonic() - asked > ANSWER_SECONDS:
                said = asked
                say(f"the bus on {recording.channel.parent} does not answer; waiting")

        # Lines may have been accepted as soon as it is open: then they are taken, though it is to end.
        descriptor = apart(enter, self._wait, meanwhile, grace=ASK_SECONDS, undo=_let_go)
        pass_on()
        if descriptor is None:
            return None
        # The name carries all that a later process must know.
        held = Held(descriptor, lost, f"{self._recording.prefix}-{lost}")
        self._manager.keep(held.name, descriptor)
        return held

    def _prepare(self, *, is_continued: bool) -> int | None:
        """Sees that the spool can be written, and says what was wrong with it.

        Args:
            is_continued: as for `SpoolWriter`.

        Returns:
            How many lines it counts as lost; None if it is to end first.
        """
        spool = open_spool(self._recording, self._lock, is_continued=is_continued, say=self._say, wait=self._wait)
        if spool is None:
            return None
        spool.close()
        for words in spool.damage:
            self._say(words)
        if spool.torn:
            self._say(f"{spool.path}: {spool.torn} bytes were cut off, of a line whose end never came")
        return spool.lost

    def _close(self) -> None:
        if self._held is not None:
            self._manager.drop(self._held.name)
            os.close(self._held.descriptor)
            self._held = None

    def _tell_left(self) -> bool:
        """Closes a channel in the end, and says what is left there: if nobody keeps it, what was accepted is gone.

        Returns:
            Whether lines are lost, or may be, that had waited when the end began. What came later is their writers' affair.
        """
        if self._held is None:
            return False
        descriptor, channel = self._held.descriptor, self._recording.channel
        before, now = self._before, None
        if before:
            now = apart(lambda wait: asked(descriptor), seconds=HASTY_SECONDS if self._is_impatient else ASK_SECONDS)
        left, pushed = self._lost(before, now) if before and now else (0, PushedOut(0, 0, 0))
        left, earlier = left + pushed.waiting_unnoted, pushed.earlier_unnoted
        is_unknown = self._is_late and not (before and now)
        is_untaken = left or is_unknown or (self._is_late and now and now.queued)
        if self._is_kept:
            if is_untaken:
                self._tell_untaken()
            return False
        if earlier:
            self._say(f"{channel}: {counted(earlier, 'line')} {were(earlier)} lost: {TOO_FAST}")
        if left:
            self._complain(f"{channel}: {in_words(left)}")
        elif is_unknown:
            self._tell_untaken()
        elif is_untaken:
            self._say(f"{channel}: {UNTAKEN}")
        if left + earlier and not self._is_stuck:  # the disk may hang, and this process is not to hang in it too
            note_lost(self._recording, self._lock, left + earlier)
        if self._recording.is_master:
            if before and now and now.queued > left:
                self._say(
                    f"{channel}: at least {counted(now.queued - left, 'line')} came while it ended and will not be in the spool"
                )
            self._close()
        return left + pushed.waiting > 0 or is_unknown

    def _lost(self, before: Inquiry, now: Inquiry) -> tuple[int, PushedOut]:
        """How many lines still wait that waited when the end began, and how many the bus has dropped."""
        assert self._held is not None
        noted, is_begun = before.dropped, None
        if not self._is_stuck:
            with contextlib.suppress(SpoolError, OSError):
                spool = Spool(self._recording.spool)
                noted, is_begun = max(spool.last.lost - self._held.lost, 0), spool.has_begun_line
        pushed = PushedOut(0, 0, 0) if self._recording.is_master else pushed_out(before, now, noted)
        return left_of(before, now, is_begun=is_begun), pushed

    def _tell_untaken(self) -> None:
        """Says that something is left, which is kept, or of which it is not known how much is lost."""
        words = f"{self._recording.channel}: {UNTAKEN}"
        if self._is_kept:
            self._say(f"{words}; it waits for the next start")
        else:
            self._complain(f"{words}; how much of it is lost, the bus does not say")

    @property
    def _is_kept(self) -> bool:
        """Whether the service manager keeps the channel when this process has ended: then SIGTERM is no end."""
        return bool(self._manager) and self._ending == signal.SIGTERM

    # ------------------------------------------------------------------------------------------ the drain

    def _keep_drained(self) -> int:
        """Has the channel drained. Returns how that ended: `ENDED` with the channel, or as it was told."""
        assert self._held is not None
        while True:
            started, before = time.monotonic(), self._end_of_spool()
            forked = self._fork()
            if forked is None:
                return DONE
            child, listens, control = forked
            if not child:
                os.close(control)
                self._publishing.leave()
                self._drain(self._held, listens)
                # The holder is dead. This process is the holder now.
                os.close(listens)
                self._lock.sign()
                if self._ending is None:
                    self._say(f"the process that held {self._recording.channel} is gone; {os.getpid()} holds it now")
                else:
                    self._begin_to_end()
                continue
            os.close(listens)
            outcome = self._watch(child, control)
            os.close(control)
            if outcome == FATAL:
                raise RecordError
            if self._is_over and outcome != DONE:
                self._is_late = True  # the next one would not be in time
            if outcome == ENDED or (self._ending is not None and (outcome == DONE or self._is_late)):
                return outcome
            self._say(f"the drain (process {child}) {how(outcome)}, which loses nothing; the next one goes on")
            is_idle = time.monotonic() - started < LIVES_SECONDS and self._end_of_spool() == before
            self._brief_lives = self._brief_lives + 1 if is_idle else 0
            if self._ending is not None:
                time.sleep(PAUSE_SECONDS[0])
            elif self._brief_lives > 1 and not self._wait(pause_after(self._brief_lives)):
                self._begin_to_end()

    def _fork(self) -> tuple[int, int, int] | None:
        """Forks as soon as the system can: whatever has killed a drain for its memory may keep the next one from being born.

        Returns:
            As os.fork, and the two ends of a pipe; None if it is to end, and could not before the deadline.
        """
        channel = self._recording.channel
        pause, longest = RETRY_SECONDS
        has_said = False
        while True:
            ends: tuple[int, ...] = ()
            try:
                ends = listens, control = os.pipe2(os.O_CLOEXEC)
                return os.fork(), listens, control
            except OSError as error:
                for end in ends:
                    os.close(end)
                if not has_said:
                    has_said = True
                    why = f"no process can be started ({error.strerror})"
                    self._say(f"{channel}: {why}; what waits there is not lost; trying again")
            if self._ending is None:
                self._wait(pause)
            else:
                self._begin_to_end()
                assert self._patience
                pause = min(pause, self._patience.pause())
                if self._is_insistent(self._signal(self._signals, pause)) or self._is_over:
                    self._is_late = True
                    return None
            pause = min(pause * 1.5, longest)

    def _end_of_spool(self) -> int:
        try:
            return Spool(self._recording.spool).end
        except (SpoolError, OSError):
            return 0  # the drain will say what is wrong

    def _drain(self, held: Held, control: int) -> None:
        """Is the drain, in its process. Returns only when the holder has died."""
        outcome = FAILED
        try:
            draining = Worker(self._recording, held, self._lock, control, self._signals, self._say, self._give_up)
            outcome = draining.run()
            if outcome == ORPHANED:
                self._patience, self._is_late, self._is_impatient = None, False, False
                self._looked = time.monotonic()
                if draining.signal is not None:
                    self._end_by(draining.signal, draining.signalled)
                    self._looked = draining.signalled
                return
        except SpoolError as error:
            self._complain(str(error))
            outcome = FATAL
        except OSError as error:
            self._complain(f"{self._recording.spool}: {error.strerror}")
        except BaseException:
            for line in traceback.format_exc().splitlines():
                self._complain(line)
        finally:
            if outcome != ORPHANED:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.flush()
                os._exit(outcome)

    def _watch(self, child: int, control: int) -> int:
        """Waits for the drain's end. Returns its exit status, or the signal that killed it, negative."""
        if self._ending is not None:
            self._begin_to_end()
            _tell_to_finish(control, self._ending)
        while True:
            left = None if self._patience is None else 0.0 if self._is_impatient else self._patience.pause()
            soonest = min((each for each in (left, self._publishing.look()) if each is not None), default=None)
            number = self._signal({*self._signals, signal.SIGCHLD}, soonest)
            if number is None and not self._is_impatient and not self._is_over:
                continue  # it is time to look how much patience is left, or to start the publisher again
            if number == signal.SIGCHLD:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    return os.waitstatus_to_exitcode(status)
            elif self._ending is None and number is not None:
                self._end_by(number)
                self._begin_to_end()
                _tell_to_finish(control, number)
            elif number is None or self._is_insistent(number):
                # It is late, or somebody is impatient.
                self._is_late = True
                os.kill(child, signal.SIGKILL)
                self._is_stuck = not ended_within(child, KILL_SECONDS)
                if self._is_stuck:
                    self._say(f"the drain (process {child}) cannot be killed yet: the bus hangs, or the disk")
                return -signal.SIGKILL

    def _give_up(self, number: int) -> NoReturn:
        """Is called in the drain if that hangs, has no holder and is to end. It may hang in a call to the bus or to the disk."""
        self._ending = self._ending or number
        self._tell_untaken()
        os._exit(FAILED)

    def _end_by(self, number: int, when: float | None = None) -> None:
        """Notes the signal that ends it, if it is the first."""
        if self._ending is None:
            self._ending, self._asked = number, time.monotonic() if when is None else when

    def _is_insistent(self, number: int | None) -> bool:
        """Whether one more signal has come, this one or one before, and not as the twin of the first."""
        self._is_impatient = self._is_impatient or (number in self._signals and self._came - self._asked > INSISTING_SECONDS)
        return self._is_impatient

    @property
    def _is_over(self) -> bool:
        return self._patience is not None and not self._patience.left()

    def _begin_to_end(self) -> None:
        """Ends the channel of a master, and looks how much waits there, unless that is known. It has so long to end from now on.

        Under a service manager, SIGTERM is no end: what starts the service again finds the channel as it is.
        """
        if self._patience is None:
            self._patience = Patience(END_SECONDS)
        if self._held is None or self._before is not None or self._is_over:
            return
        held = self._held
        is_ended = self._recording.is_master and not self._is_kept

        def take(wait: Callable[[float], bool]) -> Inquiry | None:
            if is_ended:
                end(held.descriptor)
            return asked(held.descriptor)

        self._before = apart(take, lambda pause: not self._is_insistent(self._signal(self._signals, pause)), seconds=ASK_SECONDS)
        if is_ended:
            self._manager.drop(held.name)

    # ------------------------------------------------------------------------------------------ waiting

    def _wait(self, seconds: float) -> bool:
        """Waits for so long, or for a signal to end. Returns whether to go on."""
        self._publishing.look()
        number = self._signal(self._signals, seconds)
        if number is not None:
            self._end_by(number)
        return self._ending is None

    def _wait_for_child(self, seconds: float) -> bool:
        """Waits for so long, or until a child has ended. Returns False if it is to end at once."""
        return not self._is_insistent(self._signal({*self._signals, signal.SIGCHLD}, seconds))

    def _signal(self, numbers: set[signal.Signals], seconds: float | None) -> int | None:
        """Takes a signal that is there, or comes within so many seconds; None: whenever it comes."""
        found = take_signal(numbers, 0)
        if found is not None:
            self._came = self._looked  # or later: the bus, or the service manager, may have had us wait
        else:
            found = take_signal(numbers, seconds)
            self._came = time.monotonic()
        self._looked = time.monotonic()
        if self._patience is not None:
            self._patience.left()  # so each wait ends with a look
        return found


def _tell_to_finish(control: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # then it is dead, and SIGCHLD is here or near
        os.write(control, FINISH + bytes((number,)))


def _let_go(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
