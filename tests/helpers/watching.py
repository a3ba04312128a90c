"""Nobody may be stuck inside FUSE: a thread looks at every process that descends from this one, and tells of state D that lasts.

Who waits for a message is in state S: a signal gets it out. State D inside FUSE outlives `kill -9`, and should be short: a lock
of the kernel that another has for a moment, or a daemon that is about to answer. A task is *stuck* when it has been in one and
the same wait for half a second, and the daemons have had nothing to do meanwhile. Time in which a daemon was stopped, or was not
given the processor, does not count: then everybody waits for the machine. The same holds of whoever was answered inside FUSE, and
may have the lock that others wait for. A queue for a lock is not stuck while it moves, however long that takes: who waits is
stuck only if one of those who may have the lock is in one and the same wait, too. And who waits in a file system of somebody
else's is none of ours: a page shows all buses that there are, also one that another test has stopped.

Nothing in here touches a mount, or a file of /proc that waits for the process that it is about (`cmdline`, `maps`, `mem`).
"""

import contextlib
import ctypes
import os
import re
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .processes import (
    Stat,
    connection_of,
    connections_of,
    fuse_mounts,
    inside_fuse,
    links_of,
    read,
    stack_of,
    stat_of,
    switches_of,
    tasks_of,
    waits_for_disk,
)

PATIENCE = 0.5
"""Seconds of one and the same wait."""
DOUBT_PATIENCE = 5.0
"""The same where it may be a slow disk: for waits for a page of some file, or if nothing can be seen of where it is."""
PAUSE = 0.05
"""Seconds between two looks."""
SHARE = 16
"""A look costs at most one of so many parts of a processor: where there are thousands of processes, the looks become fewer."""
CROWD = 16
"""A process with more threads than so many, a Java, is most of what a look costs."""
SELDOM = 8
"""So it is only each of so many looks that sees its threads, unless one of them is suspected."""
FORGET_STRANGERS = 1.0
"""Seconds until a process that does not descend from this one is looked at again: its number may be another's."""
IDLE_LOOKS = 4
"""How often a daemon must have been seen asleep. It sleeps when there is nothing for it to read from the kernel."""
BUSY_SECONDS = 5.0
"""Or so much of the processor it must have had: a daemon that never sleeps has answered everybody in that time."""

CONNECTIONS = Path("/sys/fs/fuse/connections")
TICK = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None, use_errno=True)

LOCKS = re.compile(
    r"(vfs_(unlink|rmdir|rename|create|mkdir|link|setxattr|removexattr|fallocate)|do_(unlinkat|rmdir|truncate|dentry_open|sys_ftruncate)|"
    r"filename_(create|unlinkat)|open_last_lookups|path_openat|lookup_\w+|walk_component|path_lookupat|link_path_walk|"
    r"iterate_dir|ch(mod|own)_common|vfs_utimes|f?dget_pos|fdget_pos|notify_change|rwsem_\w+|__mutex_lock\w*)$"
)
"""Where the kernel takes the lock of an inode, or of a file's position, before it knows whose file system it is."""
PAGES = re.compile(r"(__)?(folio|filemap|wait_on_page|do_read_cache)\w*$")
"""Where it waits for a page of a file."""


def relatives(seen: Mapping[int, Stat], before: Mapping[int, Stat], root: int, sessions: Iterable[int]) -> dict[int, Stat]:
    """Those that descend from a process, also when their parents have died: as far as they are of a session that is known, or
    that one of them leads, or were seen before.

    A process that is just being reaped has session 0 and parent 0, as process 1 and the kernel's threads may have. So nothing
    follows from that.

    Args:
        seen: processes by their numbers.
        before: what this function has returned the last time.
        root: the process that they descend from, whose own session tells nothing.
        sessions: those that are known.
    """
    family = {pid: stat for pid, stat in seen.items() if pid == root or (pid in before and before[pid].started == stat.started)}
    known = {*sessions}
    own = seen[root].session if root in seen else 0
    news: Iterable[int] = [*family]
    while news:
        known.update(pid for pid in news if family[pid].session == pid)
        known -= {0, own}
        news = [pid for pid, stat in seen.items() if pid not in family and (stat.parent in family or stat.session in known)]
        family.update((pid, seen[pid]) for pid in news)
    return family


def connection_file(number: str, what: str) -> Path:
    """The file of a mount's connection by which the kernel tells something of it, or is told. Not every machine shows them.

    Args:
        number: the minor one of the mount's device.
        what: "waiting" or "abort".
    """
    if not any(CONNECTIONS.iterdir()):
        subprocess.run(["mount", "-t", "fusectl", "none", str(CONNECTIONS)], check=False, stderr=subprocess.DEVNULL)
    return CONNECTIONS / number / what


def abort_connection(number: str, is_still_there: Callable[[], bool]) -> None:
    """Has every call fail that waits for a daemon.

    Args:
        number: the minor one of the mount's device.
        is_still_there: tells whether the mount is there that the number was read of. When it has gone, the next has its number,
            maybe another test's. So it is asked when the file is open: that is of one connection for ever.
    """
    with contextlib.suppress(OSError), connection_file(number, "abort").open("wb", buffering=0) as file:
        if is_still_there():
            file.write(b"1")


_PIDFD_GETFD = 438


def is_connected(pid: int, descriptor: str) -> bool:
    """Whether a process's /dev/fuse is that of a mount that is there."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            own = _libc.syscall(_PIDFD_GETFD, process, int(descriptor), 0)
        finally:
            os.close(process)
        if own < 0:
            return False
        poller = select.poll()
        poller.register(own, 0)
        try:
            return not poller.poll(0)  # POLLERR when the mount has gone
        finally:
            os.close(own)
    return False


@dataclass
class Suspect:
    """A task that was seen in state D inside FUSE."""

    name: str
    started: int
    switches: list[bytes]
    since: float
    patience: float
    daemons: dict[int, int]
    """The daemons, with what they had used of the processor when it was first seen."""
    holders: dict[str, list[bytes]]
    """Of who waits for a lock outside FUSE: those that could have had it then, with their switches. One of them has it yet."""
    looks: int = 0
    idle: dict[int, int] = field(default_factory=dict)
    """How often each daemon was seen asleep since."""

    def is_stuck(self, family: dict[int, Stat], now: float, *, is_busy: bool) -> bool:
        """Whether it has waited long enough. The daemons are looked at: those that have ended are none any more.

        Args:
            family: the processes.
            now: the time.
            is_busy: whether somebody inside FUSE waits for the processor alone: what daemons do says nothing then.
        """
        self.looks += 1
        answered = True
        for pid, ticks in self.daemons.items():
            if (daemon := family.get(pid)) and daemon.state not in "ZX":  # nor do zombies answer
                self.idle[pid] = self.idle.get(pid, 0) + (daemon.state == "S" and not is_busy)
                answered &= self.idle[pid] >= IDLE_LOOKS or (daemon.ticks - ticks) / TICK >= BUSY_SECONDS
        return answered and self.looks > IDLE_LOOKS and now - self.since >= self.patience


class Watch:
    """Looks at the processes. One is enough for a process that tests: WATCH."""

    def __init__(self) -> None:
        self.looks = 0
        """How often it has looked."""
        self.total = 0
        """How many were found stuck, since it was made, when that was not expected."""
        self.expected: list[str] = []
        """What was found while it was expected."""
        self._found: list[str] = []
        self._is_expected = False
        self._lock = threading.Lock()
        self.sessions: set[int] = set()
        """Sessions whose processes are watched whoever their parents are, or were."""
        self._rescuers: dict[Callable[[str], None], int] = {}
        self._root = os.getpid()
        self._family: dict[int, Stat] = {}
        self._strangers: set[int] = set()
        self._forgotten_at = 0.0
        self._suspects: dict[str, Suspect] = {}
        self._notes: deque[tuple[float, str]] = deque(maxlen=40)
        """What it has seen last, and when."""
        self._serving: list[int] | None = None
        self._holders: dict[str, list[bytes]] | None = None
        self._is_busy: bool | None = None
        """What this look has found out once: for each of thousands of processes in state D it would take minutes."""
        self._reported: set[tuple[str, int]] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to look, unless it does already."""
        with self._lock:
            if not self._thread or not self._thread.is_alive() or self._root != os.getpid():
                self._root = os.getpid()
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()

    def add(self, daemon: int, rescue: Callable[[str], None]) -> None:
        """Knows a daemon from now on. When somebody is stuck, `rescue` is called with the report: let all go that wait for it."""
        self._rescuers[rescue] = daemon

    def remove(self, rescue: Callable[[str], None]) -> None:
        """Ends what `add` has begun."""
        self._rescuers.pop(rescue, None)

    @property
    def has_found(self) -> bool:
        """Whether somebody was stuck since the last time that it was asked for the reports."""
        return bool(self._found)

    def take(self) -> list[str]:
        """What was found since the last time, and was not expected: a report each."""
        found, self._found = self._found, []
        return found

    def check(self) -> None:
        """Fails if somebody was stuck since the last time."""
        if found := self.take():
            raise AssertionError("\n\n".join(found))

    @contextlib.contextmanager
    def expecting(self) -> Iterator[list[str]]:
        """For what is about a limit that is known: who is stuck meanwhile stays so, and the report goes to the list."""
        self.expected, self._is_expected = [], True
        try:
            yield self.expected
        except BaseException as error:
            error.add_note(self.describe())
            raise
        finally:
            self._is_expected = False

    # ------------------------------------------------------------------------------------------ looking

    def _run(self) -> None:
        while True:
            begin = time.thread_time()
            self._look(time.monotonic())
            self.looks += 1
            # By the processor's time: on a busy machine a look takes long, and costs no more.
            time.sleep(max(PAUSE, SHARE * (time.thread_time() - begin)))

    def _see_family(self, now: float) -> None:
        """Finds the processes that are to be watched."""
        if now > self._forgotten_at + FORGET_STRANGERS:
            self._forgotten_at = now
            self._strangers.clear()
        seen: dict[int, Stat] = {}
        try:
            names = os.listdir("/proc")
        except OSError:
            return  # a test lets this process open no more files
        for name in names:
            if name.isdecimal() and (pid := int(name)) not in self._strangers and (stat := stat_of(name)):
                seen[pid] = stat
        family = relatives(seen, self._family, self._root, self.sessions)
        self._family = family
        self._strangers.update(seen.keys() - family.keys())

    def _look(self, now: float) -> None:
        self._see_family(now)
        self._serving = self._holders = self._is_busy = None
        there: set[str] = set()
        stuck: list[str] = []
        for task, stat in self._tasks(self._without_crowds()):
            if stat.state == "D":
                there.add(task)
                if self._is_stuck(task, stat, now):
                    stuck.append(task)
        self._suspects = {task: suspect for task, suspect in self._suspects.items() if task in there}
        stuck = [task for task in stuck if (task, self._suspects[task].started) not in self._reported]
        if stuck := stuck and self._without_those_elsewhere(stuck):
            self._reported |= {(task, self._suspects[task].started) for task in stuck}
            self._tell(stuck, now)

    def _without_crowds(self) -> Mapping[int, Stat]:
        """The processes whose threads this look sees."""
        if self.looks % SELDOM == 0:
            return self._family
        suspected = {int(task.partition("/")[0]) for task in self._suspects}
        return {pid: process for pid, process in self._family.items() if process.threads <= CROWD or pid in suspected}

    def _tasks(self, family: Mapping[int, Stat]) -> Iterator[tuple[str, Stat]]:
        """All tasks of processes that live. Of a process with one thread it is known already how it is."""
        for pid, process in family.items():
            for task in tasks_of(pid, process.threads):
                if stat := process if process.threads == 1 else stat_of(task):
                    yield task, stat

    def _is_stuck(self, task: str, stat: Stat, now: float) -> bool:
        suspect = self._suspects.get(task)
        switches = switches_of(task)
        if suspect and (suspect.started, suspect.switches) == (stat.started, switches) and not self._has_moved(suspect):
            return suspect.is_stuck(self._family, now, is_busy=self._somebody_is_runnable())
        if self._suspects.pop(task, None):
            self._note(now, f"{task} ({stat.name}) is in another wait, or its queue has moved")
        stack = stack_of(task)
        holders = self._with_locks() if LOCKS.match("".join(stack[:1])) and not inside_fuse(stack) else {}
        patience = self._patience(task, stack, holders)
        self._note(now, f"{task} ({stat.name}) in D, patience {patience}: {' < '.join(stack[:4])}")
        if patience:
            daemons = {pid: self._family[pid].ticks for pid in self._daemons()}
            patience = patience if daemons else DOUBT_PATIENCE
            self._suspects[task] = Suspect(stat.name, stat.started, switches, now, patience, daemons, holders)
        return False

    def _without_those_elsewhere(self, tasks: list[str]) -> list[str]:
        """Those that may be in a file system of ours."""
        served = [{number for _, number in connections_of(pid)} for pid in self._daemons()]
        if not all(served):
            return tasks  # of somebody's it is not known
        ours = set[str]().union(*served)
        if ours and all(read(f"{CONNECTIONS}/{number}/waiting").strip() == b"0" for number in ours):
            return []  # none of them is asked anything
        return [task for task in tasks if not ours or connection_of(task, stack_of(task)) in {None, *ours}]

    def _note(self, now: float, words: str) -> None:
        """Remembers what was seen, for `describe`."""
        self._notes.append((now, words))

    def _patience(self, task: str, stack: list[str], holders: Mapping[str, list[bytes]]) -> float:
        """How long a task that is in state D in this stack may be so; 0 if it is nothing of FUSE.

        Args:
            task: that.
            stack: where it is in the kernel, innermost first.
            holders: who may have the lock that it waits for, if it does.
        """
        pid = int(task.partition("/")[0])
        if inside_fuse(stack):
            return DOUBT_PATIENCE if waits_for_disk(stack) else PATIENCE
        if not stack:
            return DOUBT_PATIENCE
        if PAGES.match(stack[0]):
            return DOUBT_PATIENCE if self._has_open(pid) else 0
        return PATIENCE if holders else 0

    def _has_open(self, pid: int) -> bool:
        mounts = fuse_mounts()
        return any(target.startswith(f"{mount}/") for _, target in links_of(pid) for mount in mounts)

    def _with_locks(self) -> dict[str, list[bytes]]:
        """The tasks that wait in FUSE with the lock of an inode, each with its switches: everything but a read has one."""
        if self._holders is None:
            self._holders = {
                task: switches_of(task)
                for pid, process in self._family.items()
                for task in tasks_of(pid, process.threads)
                if inside_fuse(stack := stack_of(task)) and "read_iter" not in "".join(stack)
            }
        return self._holders

    def _has_moved(self, suspect: Suspect) -> bool:
        """Whether who waits for a lock waits behind others by now: none of those that could have had it is where it was."""
        if not suspect.holders:
            return False
        now = self._with_locks()
        return all(now.get(holder) != switches for holder, switches in suspect.holders.items())

    def _somebody_is_runnable(self) -> bool:
        """Whether a task inside FUSE has its answer, and waits for the processor."""
        if self._is_busy is None:
            self._is_busy = any(stat.state == "R" and inside_fuse(stack_of(task)) for task, stat in self._tasks(self._family))
        return self._is_busy

    def _daemons(self) -> list[int]:
        """The processes that serve a FUSE file system: who runs as somebody else may not show what it has open."""
        if self._serving is None:
            known = {*self._rescuers.values()}
            self._serving = [
                pid for pid in self._family if pid in known or any(target == "/dev/fuse" for _, target in links_of(pid))
            ]
        return self._serving

    # ------------------------------------------------------------------------------------------ telling

    def describe(self) -> str:
        """Whom it suspects, and of what it has seen enough: for who has waited in vain for it to find somebody."""
        alive = self._thread is not None and self._thread.is_alive()
        lines = [f"the watch {'looks' if alive else 'has ended'}, {self.looks} looks so far; suspects: {len(self._suspects)}"]
        for task, suspect in [*self._suspects.items()][:20]:
            family = self._family
            states = {pid: family[pid].state if pid in family else "gone" for pid in suspect.daemons}
            seen = f"{suspect.looks} looks, daemons {states}, seen asleep {suspect.idle}, patience {suspect.patience}"
            lines.append(f"  {task} ({suspect.name}) since {time.monotonic() - suspect.since:.1f} s: {seen}")
        for pid, process in sorted(self._family.items()):
            if process.state == "D":
                lines.append(f"  {pid} ({process.name}) in D: {' < '.join(stack_of(f'{pid}/task/{pid}'))}")
        lines += [f"  {time.monotonic() - then:.1f} s ago: {words}" for then, words in [*self._notes]]
        return "\n".join(lines)

    def _tell(self, stuck: list[str], now: float) -> None:
        report = self._report(stuck, now)
        if self._is_expected:
            self.expected.append(report)
            return
        self._found.append(report)
        self.total += len(stuck)
        for pid in self._daemons():
            for link, number in connections_of(pid):
                abort_connection(number, partial(is_connected, pid, link))
        for rescue in [*self._rescuers]:
            rescue(report)

    def _report(self, stuck: list[str], now: float) -> str:
        lines = [f"stuck in state D inside FUSE: {len(stuck)}, while the daemons had nothing to do"]
        for task in stuck:
            suspect = self._suspects[task]
            lines.append(f"  {task} ({suspect.name}), for {now - suspect.since:.1f} s: {' < '.join(stack_of(task))}")
        lines.append("all that are in FUSE or in state D, and the daemons:")
        daemons = self._daemons()
        for pid, process in sorted(self._family.items()):
            for task in tasks_of(pid, process.threads):
                stack, stat = stack_of(task), stat_of(task)
                if stat and (inside_fuse(stack) or stat.state == "D" or pid in daemons):
                    role = ", a daemon" if pid in daemons else ""
                    lines.append(f"  {task} ({stat.name}{role}), {stat.state}: {' < '.join(stack)}")
        if len(lines) > 60:
            lines[60:] = [f"  and {len(lines) - 60} more"]
        return "\n".join(lines)


WATCH = Watch()
"""The one of this process."""
