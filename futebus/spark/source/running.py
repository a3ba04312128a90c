"""The channels of a query and their spools, in the process that Spark runs for it."""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from ...core.text import counted, removed
from ...spool import LinesGone, NotASpool, Spool, SpoolError
from ..options import QueryError, SourceOptions
from ..telling import say
from .channels import Found, LeftOut, unfit
from .drains import DrainThread, empty, remove, remove_rest, stop_all, wait_until_free
from .partitions import LinesPartition, cut, say_damage
from .query import Offset

LOOK_SECONDS = 1.0
"""How often is looked for channels that a pattern matches."""

LOOK_SHARE = 30.0
"""How much longer than the look at spools that others fill the pause is that follows it."""


class Running:
    """The channels of a query and their spools, in the process that Spark runs for it.

    Args:
        options: of the query.
        names_left_out: whether it is said which channels are left out.
    """

    def __init__(self, options: SourceOptions, *, names_left_out: bool = True) -> None:
        self._options = options
        self._news = threading.Condition()
        self._spools: dict[str, Spool] = {}
        self._drained: dict[str, DrainThread] = {}
        self._empty: set[str] = set()
        """Channels that have gone, and whose lines have been dealt with."""
        self._left_out = LeftOut(say if names_left_out else lambda words: None)
        self._found = (
            Found(
                options.bus,
                options.pattern,
                self._drained,
                spool_of=options.spool_of,
                take=self._take,
                say=say,
                beside=self._left_out,
            )
            if options.bus is not None and options.pattern is not None and options.drains
            else None
        )
        self._frozen: Offset | None = None
        self._next: Offset = {}
        """Where the next batch begins, for a Spark that does not tell; nothing until that is known."""
        self._looked = 0.0
        self._initial = options.spool / f"initial-{options.key}.json"
        self._is_ending = False
        self._stopping = threading.Lock()
        """Held by who ends the drains. Who comes second must not end the process before that is done."""
        self._ended_by: int | None = None
        """The signal that has come."""
        self._has_stopped = False
        """Whether nobody waits for a signal any more."""
        self._word: queue.SimpleQueue[None] = queue.SimpleQueue()
        """What the thread that ends the process waits for: that signal, or the end without one."""
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._end, name="end", daemon=True).start()
            signal.signal(signal.SIGTERM, self._note)
        try:
            if options.drains:
                wait_until_free((channel.name for channel in options.channels), options.spool_of)
            for channel in options.channels:
                self._add(channel)
            self._look_for_channels()
            if options.drains:
                # Before the first line is taken: a process that comes after this one must begin with it too.
                self._note_initial()
            self._start_drains()
        except BaseException:
            self.stop()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._has_stopped:
            os._exit(128 + number)
        # No more here: the main thread may hold what the drains wait for. Spark sends the signal once or twice.
        self._ended_by = number
        self._word.put(None)

    def _end(self) -> None:
        self._word.get()
        if self._ended_by is not None:
            self.stop()

    def _add(self, channel: Path) -> None:
        directory = self._options.spool_of(channel.name)
        if self._options.drains:
            self._drained[channel.name] = DrainThread(channel, directory, self._options.is_master, self._news)
        elif not directory.exists():
            raise QueryError(f"{directory} is no spool yet: with drain=external, futebus-record {channel} {directory} fills it")
        self._take_up(channel.name)

    def _take(self, name: str) -> DrainThread:
        """Opens the spool of a name that a pattern has matched."""
        assert self._options.bus is not None
        return DrainThread(self._options.bus / name, self._options.spool_of(name), False, self._news, is_found=True)

    def _take_up(self, name: str) -> None:
        spool = Spool(self._options.spool_of(name))
        if spool.channel != name:
            raise QueryError(f"{spool.path} is the spool of {spool.channel}, not of {name}")
        self._spools.setdefault(name, spool)
        self._empty.discard(name)

    def _look_for_channels(self) -> None:
        """Takes up channels that a pattern matches, and what the spools of this query still have of others that it matched."""
        options = self._options
        if options.pattern is None or options.bus is None or time.monotonic() - self._looked < LOOK_SECONDS:
            return
        if self._found is not None:
            if not self._looked:
                remove_rest(options.spool)
            # Where it begins is to be noted before the first line is taken: the first time, that is later.
            self._found.look(starts=self._looked > 0)
            for name in self._drained.keys() - self._spools.keys():
                self._take_up(name)
        self._looked = time.monotonic()
        names = [
            entry.parent.name for entry in options.spool.glob("*/spool.json") if options.pattern.fullmatch(entry.parent.name)
        ]
        names = sorted(name for name in names if name not in self._spools and name not in self._empty)
        self._left_out.keep(names)
        for name in filter(self._left_out.is_due, names):
            directory = options.spool_of(name)
            if why := unfit(name):
                self._left_out.note(name, f"{directory}: {why}")
                continue
            try:
                if Spool(directory).end >= 0:  # it may just be begun
                    self._take_up(name)
            except OSError as error:
                self._left_out.note(name, f"{directory}: {error.strerror}")
            except QueryError as error:
                self._left_out.note(name, str(error))
            except SpoolError as error:
                self._left_out.note(name, str(error), may_pass=True)

    def _start_drains(self) -> None:
        """Begins to take lines, when it is noted where the query begins. Channels that are found later are taken up at once."""
        for drained in self._drained.values():
            if not drained.is_found and not drained.is_started and not self._is_ending:
                drained.start()
        if self._found is not None and not self._is_ending:
            self._found.start()
            for name in self._spools.keys() - self._drained.keys():
                if not self._options.spool_of(name).exists():  # it was made for one that could not be had then
                    del self._spools[name]

    # ------------------------------------------------------------------------------------------ offsets

    def _at(self, name: str, line: int) -> Offset:
        spool = self._spools[name]
        return {"spool": spool.id, "line": line, "lost": spool.lost_before(line)}

    def _begin(self, name: str) -> Offset:
        """Where a channel begins that was not there when the query began: with what it said since."""
        return self._at(name, self._spools[name].begin)

    def ends(self) -> Offset:
        """How far there are lines."""
        return {name: self._at(name, spool.end) for name, spool in self._spools.items()}

    def initial(self) -> Offset:
        """Where a new query begins."""
        self._next = self._note_initial()
        return self._next

    def _note_initial(self) -> Offset:
        """Notes where a new query begins. Spark asks again until the first batch is done, and must be told the same."""
        known: Offset = {}
        has_begun = False
        with contextlib.suppress(OSError, ValueError):
            known, has_begun = dict(json.loads(self._initial.read_text())), True
        for name, spool in self._spools.items():
            if known.get(name, {}).get("spool") != spool.id or not spool.begin <= known[name]["line"] <= spool.end:
                # What a query that has begun did not know then came later, and begins with what its drain has heard since.
                is_late = has_begun and self._options.drains and name not in known
                begin = spool.begin if is_late or self._options.starts_at == "earliest" else self._latest(name)
                known[name] = self._at(name, begin)
        try:
            if self._options.drains:
                self._initial.parent.mkdir(parents=True, exist_ok=True)
            new = self._initial.with_suffix(".new")
            new.write_text(json.dumps(known))
            new.replace(self._initial)
        except OSError as error:  # a recorder's spool that may only be read
            say(f"{self._initial}: {error.strerror}; started again after a failure in its first batch, the query may miss lines")
        return {name: known[name] for name in self._spools}  # others may only be away

    def _latest(self, name: str) -> int:
        """Where a query begins that wants what comes from now on: with the first line that its own drain has heard."""
        drained = self._drained.get(name)
        return self._spools[name].end if drained is None else drained.begin

    def latest(self, start: Offset | None, is_limited: bool) -> Offset:
        """How far the next batch goes.

        Args:
            start: where it begins; None if Spark does not tell.
            is_limited: whether the options `maxRowsPerTrigger` and `maxBytesPerTrigger` hold for it.
        """
        start = self._next if start is None else start
        rows = self._options.max_rows if is_limited else None
        size = self._options.max_bytes if is_limited else None
        deadline = time.monotonic() + self._options.poll_seconds
        for name in start.keys() & self._spools.keys():
            # Another spool, with fewer lines, would otherwise look as if nothing were new.
            self._spools[name].check(start[name]["spool"], start[name]["line"])
        while True:
            began = time.monotonic()
            self._look_for_channels()
            for drained in self._drained.values():
                drained.check()
            begins = {name: start.get(name) or self._begin(name) for name in self._spools}
            behind = {name: self._last(name) - begin["line"] for name, begin in begins.items()}
            left = deadline - time.monotonic()
            if any(count > 0 for count in behind.values()) or self._frozen is not None or left <= 0:
                break
            with self._news:
                # Another process's recorder cannot notify: then it is looked every 10 ms, which costs a thousandth of a core.
                # Many spools are looked at less often.
                cost = time.monotonic() - began
                self._news.wait(left if self._options.drains else min(left, max(0.01, LOOK_SHARE * cost)))
        end: Offset = {name: given for name, given in start.items() if name not in self._spools}
        # Who has least to say comes first: what it leaves of the limit is for the others. Bytes are shared alike.
        talking = sorted((name for name in behind if behind[name] > 0), key=lambda name: behind[name])
        if talking:
            # A spool without lines begins where it ends, so nothing need be remembered of it. See `commit`.
            end = {name: given for name, given in end.items() if name not in self._empty}
        for number, name in enumerate(talking):
            begin = begins[name]["line"]
            share = None if rows is None else -(-rows // (len(talking) - number))
            stop = self._bounded(name, begin, share, None if size is None else -(-size // len(talking)))
            if rows is not None:
                rows -= stop - begin
            end[name] = self._at(name, stop)
            if self._options.syncs:
                self._spools[name].sync(begin, stop)
        self._next = begins | end
        return self._next

    def _last(self, name: str) -> int:
        """Behind which line of a channel nothing is taken notice of."""
        if self._frozen is not None:
            return int(self._frozen[name]["line"]) if name in self._frozen else self._spools[name].begin
        return self._spools[name].end

    def _bounded(self, name: str, line: int, rows: int | None, size: int | None) -> int:
        stop = self._last(name)
        if rows is not None:
            stop = min(stop, line + rows)
        if size is not None:
            with contextlib.suppress(LinesGone):  # `partitions` says what is missing
                stop = min(stop, self._spools[name].offset_after(line, size))
        return stop

    def _check_loss(self, name: str, start: Offset, end: Offset) -> None:
        lost = end["lost"] - start["lost"]
        if lost > 0 and start["spool"] == end["spool"]:
            words = f"the bus has dropped {counted(lost, 'line')} of {name} before line {end['line']}, which came too fast"
            if self._options.fails_on_loss:
                raise QueryError(f"{words}; with failOnDataLoss=false the query goes on")
            say(words)

    def freeze(self) -> None:
        """Takes what there is now for all that there will be."""
        for drained in self._drained.values():
            drained.wait_until_idle(LOOK_SECONDS)
        self._frozen = self.ends()

    # ------------------------------------------------------------------------------------------ lines

    def partitions(self, start: Offset, end: Offset) -> Iterator[LinesPartition]:
        """The lines between two offsets."""
        self._next = end
        for name, last in end.items():
            spool = self._spools.get(name)
            if spool is None:
                if last == start.get(name):
                    continue
                spool = self._spool_of_old(name)
            first = start.get(name) or {"spool": spool.id, "line": spool.begin, "lost": spool.lost_before(spool.begin)}
            if last["line"] <= first["line"] and last["spool"] == first["spool"]:
                continue
            for offset in (first, last):
                spool.check(offset["spool"], offset["line"])
            self._check_loss(name, first, last)
            begin = first["line"]
            if begin < spool.begin:
                gone = min(spool.begin, last["line"])  # what else has, the next batch tells
                words = f"{removed(begin, gone, name)} from {spool.path} before being read"
                if self._options.fails_on_loss:
                    raise QueryError(f"{words}; with failOnDataLoss=false the query goes on")
                say(words)
                begin = spool.begin
            on_damage = None if self._options.fails_on_loss else say_damage
            for piece in cut(spool, begin, last["line"], self._options.partition_bytes, on_damage):
                yield LinesPartition(name, piece)

    def _spool_of_old(self, name: str) -> Spool:
        """The spool of a channel that the query had, and that has not come back."""
        try:
            return Spool(self._options.spool_of(name))
        except NotASpool as error:
            raise QueryError(f"the query had lines of {name}, and {error}") from None

    def commit(self, end: Offset) -> None:
        """Lines before `end` are no longer needed by this query."""
        with contextlib.suppress(OSError):
            self._initial.unlink(missing_ok=True)
        for name, drained in self._drained.items():
            if name in end:
                with contextlib.suppress(OSError):  # nothing is lost by that, and it is tried again
                    drained.forget(end[name]["line"])
        if self._found is not None:
            self._give_back(end)

    def _give_back(self, end: Offset) -> None:
        """Gives back what the channels that have gone still take.

        First their spools lose their last lines; then the offsets do not speak of them any more; and when the batch is done that
        ended with such an offset, they are removed. Whenever the query is killed, and whenever such a channel comes again, its
        next line is the next one that the query gets.
        """
        for name in self._empty - end.keys():
            remove(self._options.spool_of(name), name)
            self._empty.discard(name)
        for name in [name for name in self._spools if name not in self._drained]:
            spool = self._spools[name]
            given = end.get(name) or {"spool": spool.id, "line": spool.begin}
            if empty(spool.path, name, given["line"], given["spool"]):
                del self._spools[name]
                self._empty.add(name)

    def stop(self) -> None:
        """Ends the drains, and the process if a signal is to end it. Any thread may call it, and again, and waits for that."""
        self._is_ending = True
        if self._found is not None:
            self._found.stop()
        with self._stopping:
            stop_all(self._drained.values())
            self._drained = {}
            self._has_stopped = True
            self._word.put(None)
            if self._ended_by is not None:
                # Whatever the main thread would say now is of a Spark that does not listen any more.
                sys.stderr.flush()
                os._exit(128 + self._ended_by)
