"""A link: one channel of a bus, and the subjects that it is linked to.

The one rule: each line is said once on each bus, and handed on once to each subject but the one it came from, whatever ways it
comes on. By their numbers (see `origin`) lines are known again. An outsider's have none: they are said on the channel and handed
on to no other subject, since nobody there could tell that they have come on another way too.

Nobody waits for a subject whose server is slow or away while another takes lines. If there is none that does, the channel is not
read: lines wait in the bus then, which drops the oldest when there are too many, as for any slow reader.
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..core.lines import lines
from ..core.text import counted
from ..host.voice import Voice
from ..nats.connection import Servers
from ..nats.runs import outside
from . import origin
from .channel import Channel
from .outbox import Outbox
from .running import soon
from .subject import Subject

FORMER = 1000
"""How many names that it has had a link knows for its own."""

TELL_SECONDS = (1.0, 10.0)
"""How often it is looked whether anything was lost, and how long nothing is said of it when something has been."""

LOOK_SECONDS = 0.5
"""How often who waits for place looks whether there is still a channel."""

STALL_SECONDS, PAUSE_SECONDS = 1.0, 0.002
"""How long servers wait for a bus that is slower than they are, and how often it is looked whether it has caught up."""

FAREWELL_SECONDS = 0.3
"""How long what was said before the end has to reach a server, or the channel."""

END_SECONDS = 1.0
"""How long the bus has to tell what it still has for us in the end."""


class Link:
    """A channel with its subjects.

    Args:
        channel: the path of a B channel.
        subjects: the servers of each subject, and its name.
        voice: says what happens.
        reads: whether what is said on the channel goes to the subjects.
        writes: whether what is said on the subjects goes to the channel.
        mode: permissions of a channel that is created; None: what the umask leaves of 666.
        waits: whether it waits for a bus that is not there or has gone, and for servers that are not there at first.
    """

    def __init__(
        self,
        channel: Path,
        subjects: Sequence[tuple[Servers, str]],
        voice: Voice,
        *,
        reads: bool = True,
        writes: bool = True,
        mode: int | None = None,
        waits: bool = False,
    ) -> None:
        self.origin = origin.new_origin()
        self._voice = voice
        self._waits = waits
        self._next = 1
        self._numbering = threading.Lock()
        self._former: dict[str, int] = {}
        """Names that this link has had, and the number of the next line then. What it has said under them may still come back."""
        self._forged = 0
        """Lines of others that came under this link's name."""
        self._seen = origin.Seen()
        self._unsent: Counter[Subject] = Counter()
        """Lines that were dropped for a subject."""
        self._late: Counter[Subject] = Counter()
        """Lines that came too late to be sent in the end."""
        self._missed = 0
        """Lines that others have said, and that have not come."""
        self._strange = 0
        """Lines of so many others that they would not be known again."""
        self._said: Counter[str] = Counter()
        self._is_stalled = False
        """Whether the channel was waited for in vain, and has had no place since: the bus hangs."""
        self._is_ending = False
        """Whether nothing is taken from the subjects any more."""
        self._place = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channel = Channel(
            channel, voice, self._heard, self._until_place, reads=reads, writes=writes, mode=mode, waits=waits
        )
        self._counting = threading.Lock()
        self._subjects = [self._subject(servers, name, reads=reads, writes=writes) for servers, name in subjects]
        self._missing = len(subjects) + 1
        """How many of the channel and the subjects are not joined yet."""
        self._have_joined = threading.Event()
        """Whether all subjects have."""

    def _subject(self, servers: Servers, name: str, *, reads: bool, writes: bool) -> Subject:
        def wake() -> None:
            soon(self._loop, subject.wake)

        def lost(count: int) -> None:
            with self._counting:
                self._unsent[subject] += count

        outbox = Outbox(wake, self._freed, lost) if reads else None
        subject = Subject(name, servers, outbox, self._take if writes else None, self._until_written, self.origin, self._voice)
        return subject

    def _freed(self) -> None:
        with self._place:
            self._place.notify_all()

    @property
    def shown(self) -> str:
        """What is linked to what."""
        return f"{self._channel.path} is linked to {' and '.join(subject.shown for subject in self._subjects)}"

    # ------------------------------------------------------------------------------------------ its life

    def run_channel(self, ready: Callable[[], object]) -> None:
        """Keeps the channel open. To be called in a thread; see `Channel.run`.

        If servers are not waited for, it is not opened, which would make it, before they have been reached.

        Args:
            ready: is called when channel and subjects are joined for the first time.
        """
        if not self._waits:
            self._have_joined.wait()
        self._channel.run(lambda: self._joined(ready))

    async def run(self, ready: Callable[[], object]) -> None:
        """Keeps the subjects joined, for good. When it is cancelled, what waits still has a moment to be sent.

        Args:
            ready: as for `run_channel`.

        Raises:
            NatsError: a server is not there at first, or does not let us do what is wanted.
        """
        self._loop = asyncio.get_running_loop()
        works = [
            self._tell(),
            *(each.run(lambda: self._joined(ready, is_subject=True), waits=self._waits) for each in self._subjects),
        ]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            self._is_ending = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_sent(), FAREWELL_SECONDS)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop = None

    async def _all_sent(self) -> None:
        """Waits until all that has been said so far, on the channel and on the subjects, is known to be where it is to go."""
        while self._channel.is_reading:  # noqa: ASYNC110 - in a thread, for a moment
            await asyncio.sleep(0.001)
        await asyncio.gather(*(each.done() for each in self._subjects))
        while self._channel.waiting:  # noqa: ASYNC110 - a thread writes them
            await asyncio.sleep(PAUSE_SECONDS)

    def _joined(self, ready: Callable[[], object], *, is_subject: bool = False) -> None:
        with self._counting:
            self._missing -= 1
            missing = self._missing
        if not missing:
            ready()
        elif missing == 1 and is_subject:
            self._have_joined.set()

    # ------------------------------------------------------------------------------------------ from the channel

    def _until_place(self, is_of_use: Callable[[], bool]) -> None:
        """Waits until lines of the channel can be taken."""
        with self._place:
            while not self._has_place and is_of_use():
                self._place.wait(LOOK_SECONDS)

    @property
    def _has_place(self) -> bool:
        return any(subject.outbox and subject.outbox.has_place for subject in self._subjects)

    def _heard(self, block: bytes) -> None:
        """Numbers what was said on the channel, and has it sent."""
        count, _ = lines(block, 0, len(block))
        with self._numbering:
            run = origin.Run(self.origin, self._next, count, block)
            self._next = run.next
        for subject in self._subjects:
            if subject.outbox:
                subject.outbox.put(run)

    # ------------------------------------------------------------------------------------------ from the subjects

    async def _until_written(self) -> None:
        """Waits until the channel has place for what comes, so that lines wait at the server. Not for long: it would go away."""
        if self._channel.has_place:
            self._is_stalled = False
        elif not self._is_stalled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALL_SECONDS):
                    while not self._channel.has_place:  # noqa: ASYNC110 - a thread makes it
                        await asyncio.sleep(PAUSE_SECONDS)
            self._is_stalled = not self._channel.has_place

    def _said_under(self, name: str) -> int | None:
        """Up to which number, exclusive, this link has said lines under a name; None: it is none of its own."""
        with self._numbering:
            return self._next if name == self.origin else self._former.get(name)

    def _take_forged(self, run: origin.Run) -> None:
        """Somebody has said lines under this link's name. Others would take its next ones for known: it takes another name."""
        if run.origin == self.origin:
            with self._numbering:
                self._former[self.origin] = self._next
                self.origin, self._next = origin.new_origin(), 1
            if len(self._former) > FORMER:
                del self._former[next(iter(self._former))]
        self._forged += run.count
        self._channel.put(run.count, run.data)

    def _take(self, subject: Subject, told: Mapping[str, str] | None, payload: bytes) -> None:
        """Has what was said on a subject said on the channel, and handed on."""
        if self._is_ending:
            return
        run = origin.read(told, payload)
        if run is None:
            if not origin.is_probe(told, payload):
                self._channel.put(*outside(payload))
            return
        said = self._said_under(run.origin)
        if said is not None:
            if run.count and run.next > said:
                self._take_forged(run)
            return
        new, missed, is_known = self._seen.take(run)
        self._missed += missed
        if new:
            self._channel.put(new.count, new.data)
            if not is_known:
                self._strange += new.count * (len(self._subjects) > 1)
                return
            for other in self._subjects:
                if other is not subject and other.outbox:
                    other.outbox.put(new)

    # ------------------------------------------------------------------------------------------ what was lost

    async def _tell(self) -> None:
        """Says what is lost, for good."""
        soon, seldom = TELL_SECONDS
        while True:
            is_new = self._say_losses()
            await asyncio.sleep(seldom if is_new else soon)

    def _losses(self) -> Counter[str]:
        """All that was lost so far: how many lines, by the sentence that tells it."""
        path = self._channel.path
        found: Counter[str] = Counter()
        for subject in self._subjects:
            found[f"not sent to {subject.shown}: it is away, or too slow"] = self._unsent[subject]
            found[f"not sent to {subject.shown}: the link has ended"] = self._late[subject]
            found[f"not sent to {subject.shown}: longer than it takes (max_payload)"] = subject.too_long
        for why, count in self._channel.unwritten.copy().items():
            found[f"not said on {path}: {why}"] = count
        found[f"of {path} not sent: the bus has dropped them, which came too fast, or waited too long"] = self._channel.dropped
        found[f"of {path} not sent: they waited there when its name was removed"] = self._channel.untaken
        found["came under this link's name, and were not its own: it goes on under another one"] = self._forged
        found[f"of others have not come to {path}"] = self._missed
        found[f"not handed on: more than {origin.ORIGINS} links were heard of lately"] = self._strange
        return found

    def _say_losses(self) -> bool:
        """Says what was lost and has not been said. Returns whether that was anything."""
        losses = self._losses()
        new = losses - self._said
        for words, count in new.items():
            self._voice.warn(f"{counted(count, 'line')} {words}")
        self._said = losses
        return bool(new)

    def farewell(self) -> None:
        """Says what was lost, in the end, when nothing is sent any more."""
        self._channel.finish(END_SECONDS)
        for subject in self._subjects:
            left = subject.left() + (self._channel.left if subject.outbox else 0)
            (self._late if subject.is_well else self._unsent)[subject] += left
        self._say_losses()
