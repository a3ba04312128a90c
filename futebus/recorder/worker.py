"""The process of a recorder that takes what its channel says into the spool.

The one rule: it may be killed at any moment, and the next one goes on where it was. See holder.py for who starts it.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from ..client.channel import RETRY_SECONDS
from ..core.inquiry import left_of
from ..host.patience import Patience
from ..host.signals import SignalFile
from ..spool import SpoolError, SpoolLock, SpoolStopped, SpoolWriter, append_lost
from ..spool.files import FULL
from .apart import begin
from .channel import Say
from .children import DONE, FAILED, FINISH
from .drain import Drain, while_full
from .ending import asked
from .recording import Held, Recording
from .upkeep import Upkeep, make_room

HEARD_SECONDS = 1.5
"""How long, at the end, those are heard who go on writing."""

FINISH_SECONDS = 4.0
"""How long, at the end, what waited when that began is taken. A machine that is busy takes its time."""

END_SECONDS = 5.0
"""How long, at the end, the drain is waited for before it is killed, or ends itself if there is no holder."""

INSISTING_SECONDS = 0.5
"""How long after the first signal to end the next one means it: timeout(1) sends each twice, to the process and to its group."""

ENDED, FATAL, ORPHANED = 3, 4, 5
"""How it ends, beside `DONE` and `FAILED`: with its channel; by an error that will not pass; without a holder."""


def _writer(
    recording: Recording, lock: SpoolLock, *, is_continued: bool, goes_on: Callable[[], bool] = lambda: True
) -> SpoolWriter:
    name, size = recording.channel.name, recording.segment_bytes
    return SpoolWriter(recording.spool, name, is_continued=is_continued, segment_bytes=size, lock=lock, goes_on=goes_on)


def open_spool(
    recording: Recording,
    lock: SpoolLock,
    *,
    is_continued: bool,
    say: Say,
    wait: Callable[[float], bool],
    meanwhile: str = "waiting",
) -> SpoolWriter | None:
    """Opens the spool as soon as the disk has room for it.

    Args:
        recording: which one.
        lock: the right to write it.
        is_continued: as for `SpoolWriter`.
        say: is told that the disk is full.
        wait: waits for so many seconds, and tells whether to go on.
        meanwhile: what happens until there is room, in words.

    Returns:
        The spool; None if `wait` gave up.

    Raises:
        SpoolError, OSError: it cannot be opened, for another reason than a full disk.
    """
    pause, longest = RETRY_SECONDS
    has_said = False
    while True:
        try:
            return _writer(recording, lock, is_continued=is_continued, goes_on=lambda: wait(0))
        except SpoolStopped:
            return None
        except OSError as error:
            if error.errno not in FULL:
                raise
            with contextlib.suppress(OSError, SpoolError):  # what is wrong with it is told when it is open
                make_room(recording, lock)
            if not has_said:
                has_said = True
                say(f"{recording.spool}: {error.strerror}; {meanwhile} until there is room")
        if not wait(pause):
            return None
        pause = min(pause * 1.5, longest)


def note_lost(recording: Recording, lock: SpoolLock, count: int) -> None:
    """Notes in a spool that nobody writes now how many lines were lost behind those that are there, if the disk lets it."""
    with contextlib.suppress(SpoolError, OSError):
        if append_lost(recording.spool, lock, count):
            return
    with contextlib.suppress(SpoolError, OSError), _writer(recording, lock, is_continued=True) as spool:
        spool.note_lost(count)


def _stop_after(drain: Drain, seconds: float, over: threading.Event) -> None:
    """Stops a drain after so many seconds, if it is not over before."""
    patience = Patience(seconds)
    while not over.wait(pause := patience.pause()):
        if not pause:
            drain.stop()
            return


class Worker:
    """Drains a channel that is held, until the holder says so, dies, or the channel ends.

    Args:
        recording: what to record.
        held: the channel.
        lock: the right to write the spool.
        control: a pipe from the holder: `FINISH` comes through it, and its end is the holder's.
        signals: those that end a recorder. The caller has them blocked, and they stay so.
        say: is told, in one sentence, what somebody should know.
        give_up: is called in another thread when the holder is gone, `run` hangs and a signal says that it is to end. It is given
            that signal, and ends the process.

    Raises:
        OSError: the system has no room for it.
    """

    def __init__(
        self,
        recording: Recording,
        held: Held,
        lock: SpoolLock,
        control: int,
        signals: set[signal.Signals],
        say: Say,
        give_up: Callable[[int], NoReturn],
    ) -> None:
        self.signal: int | None = None
        """A signal to end that has come meanwhile, here or to the holder. It is the holder who acts on it, if there is one."""
        self.signalled = 0.0
        """When that came."""
        self._give_up = give_up
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        """Can be read when the drain has ended, and this process is to be the holder."""
        self._signals = SignalFile(signals)
        self._recording, self._held, self._lock, self._control, self._say = recording, held, lock, control, say
        self._word: bytes | None = None
        self._is_orphan = False
        """Whether the holder is gone."""
        self._told = threading.Event()
        self._drain: Drain | None = None
        self._patience: Patience | None = None
        """How long it is still tried to open the spool, once it is to end."""

    def run(self) -> int:
        """Drains. Returns how it ended, as above and as children.py has it.

        Raises:
            SpoolError, OSError: the spool cannot be written, for another reason than a full disk.
        """
        listener = begin(threading.Thread(target=self._listen, daemon=True))
        try:
            outcome = self._run()
        except OSError as error:
            if not self._is_orphan:
                raise
            # Nobody is left to start another one. It will be tried again as if there were.
            self._say(f"{self._recording.spool}: {error.strerror}")
            outcome = FAILED
        if self._is_orphan:
            os.eventfd_write(self._over, 1)
            listener.join()
            self._signals.close()  # what comes from now on waits for who holds the channel next
            os.close(self._over)
            if self._drain is not None:
                self._drain.close()
            outcome = ORPHANED
        return outcome

    def _listen(self) -> None:
        poller = select.poll()  # select(2) knows no descriptor above 1023
        for file in (self._over, self._signals, self._control):
            poller.register(file, select.POLLIN)
        patience: Patience | None = None
        """How long the end is waited for, when nobody else ends it if the bus hangs, or the disk."""
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(None if patience is None else patience.pause() * 1000)}
            if self._over in ready:
                return
            while number := self._signals.take():
                now = time.monotonic()
                if self._is_orphan and self.signal is not None and now - self.signalled > INSISTING_SECONDS:
                    patience = Patience(0)
                elif self.signal is None or not self._is_orphan:
                    self.signal, self.signalled = number, now
            if self._control in ready:
                self._hear(poller)
            if self._is_orphan and self.signal is not None:
                patience = patience or Patience(END_SECONDS)
                if not patience.left():
                    self._give_up(self.signal)

    def _hear(self, poller: select.poll) -> None:
        """Hears what the holder says, or that it is gone."""
        word, number = (data := os.read(self._control, 2))[:1], data[1:]
        now = time.monotonic()
        if number and self.signal is None:
            self.signal, self.signalled = number[0], now
        if not word:
            if self._word is None and now - self.signalled > END_SECONDS:
                self.signal = None  # it was for this process alone: the holder has not ended by it
            self._is_orphan = True
            poller.unregister(self._control)
        if self._word is None:
            self._word = word
            self._told.set()
            if self._drain is not None:
                self._drain.stop()

    def _run(self) -> int:
        spool = open_spool(
            self._recording,
            self._lock,
            is_continued=True,
            say=self._say,
            wait=self._wait,
            meanwhile=while_full(self._recording.is_master),
        )
        if spool is None:
            return DONE
        for words in spool.changed:  # since the holder has looked
            self._say(words)
        upkeep = Upkeep(spool, self._lock, self._recording, self._say)
        try:
            self._drain = self._new_drain(spool, upkeep)
            if self._told.is_set():
                self._drain.stop()
            if not self._drain.run():
                return ENDED
            if self._word == FINISH:
                self._finish(spool, upkeep)
            return DONE
        finally:
            try:
                upkeep.stop()
            finally:
                spool.close()

    def _wait(self, seconds: float) -> bool:
        """Waits for room for so long, or until it is to end. Returns whether to go on: there may be room in the end."""
        if not self._told.wait(seconds):
            return True
        if self._word != FINISH:
            return False
        self._patience = self._patience or Patience(FINISH_SECONDS)
        time.sleep(min(seconds, RETRY_SECONDS[0]))
        return self._patience.left() > 0

    def _new_drain(self, spool: SpoolWriter, upkeep: Upkeep) -> Drain:
        return Drain(
            self._recording.channel,
            spool,
            is_master=self._recording.is_master,
            say=self._say,
            on_lines=upkeep.look,
            on_full=upkeep.make_room,
            descriptor=self._held.descriptor,
            noted=max(spool.lost - self._held.lost, 0),  # it may be another spool by now
        )

    def _finish(self, spool: SpoolWriter, upkeep: Upkeep) -> None:
        """Takes what is still queued."""
        before = asked(self._held.descriptor)
        if before and not before.queued_bytes:
            return
        has_said_full = self._drain is not None and self._drain.has_said_full
        for seconds in (HEARD_SECONDS, FINISH_SECONDS - HEARD_SECONDS):
            last = self._new_drain(spool, upkeep)
            last.has_said_full = has_said_full
            over = threading.Event()
            timer = begin(threading.Thread(target=_stop_after, args=(last, seconds, over), daemon=True))
            last.run(only_until_idle=True)
            over.set()
            timer.join()
            last.close()
            has_said_full = last.has_said_full
            now = asked(self._held.descriptor)
            if last.is_idle or not before or not now:
                return
            if not left_of(before, now):
                if now.queued:
                    self._say(f"{self._recording.channel}: lines still come; what is queued now is not in the spool")
                return
        # The holder says what is left.
