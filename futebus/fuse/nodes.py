"""Node ids: whoever opens a channel gets a kernel inode that nobody has open, and who writes has it alone.

A write holds its inode's lock in the kernel for as long as it is in user space, and `rm`, `open(O_TRUNC)` and `chmod` take that
lock too, beyond the reach of signals; `rm` with the whole directory in its hands. Were a channel one inode, one slave that
waits for the master would stop the master itself, all other writers, and whoever wants to remove anything. So a look-up is
answered with a node that nobody has open. Two who have found the same one at once can both have it if they only read, which
takes no lock. Otherwise the second is told to look again (`ESTALE`, which the kernel does by itself), and so is the first if
somebody else has found the node and not said yet what for: it may be an `rm` that is about to take the lock.

Processes that write by one open file description (`{ a & b & } > U_jobs`) share its inode. They can do so at the same time if the
inode is longer than what they write: see `OPEN_SIZE`.
"""

import errno
import itertools
import logging
import os
from array import array
from collections.abc import Callable, Iterator

from futebus.core import kinds
from futebus.core.channel import Channel

log = logging.getLogger(__name__)

ROOT = 1
_FIRST = 1 << 32
"""Node ids of channels begin here, so that none is ever mistaken for the number of a channel."""


FOREIGN = 0
"""What the kernel calls all threads of PID namespaces that the daemon knows nothing of."""

_THREADS_MAX = 4096
"""How many threads are remembered that were sent back, or have looked up a name: each comes soon or, if it was killed, never."""

OPEN_SIZE = 1 << 20
"""Bytes that the kernel takes an open file for. It lets a write exclude all others of its inode if that goes past the end, and no
write(2) reaches the bus in pieces longer than this. Before the end it asks us when somebody wants pages of the file, sendfile(2)
say, and learns that they cannot be had; behind the end it says that the file has ended."""

_USELESS_MIN = 32
"""How many nodes of channels without a name are left to the kernel before it is asked to forget them."""

_ASKED_AT_ONCE = 256
"""How many it is asked to forget at once, at most: a tenth of a millisecond's worth."""


class AlreadyTaken(Exception):
    """Somebody else has found this node too: the kernel must look the name up again (`ESTALE`)."""


class StatFile:
    """`_stat` or its like, as far as it is like a channel here. Who has it open has an inode of it too: see `Nodes.open`."""

    is_named = True

    def __init__(self, name: bytes, number: int) -> None:
        self.name = name
        self.number = number


STAT_FILES = {name: StatFile(name, number) for number, name in enumerate(kinds.SHOWN, ROOT + 1)}


def _permissions(file: Channel | StatFile) -> tuple[int, int, int]:
    """Mode, owner and group. Those of `_stat` never tell anything."""
    return (file.mode, file.uid, file.gid) if isinstance(file, Channel) else (0, 0, 0)


class Node:
    """What the kernel knows by one node id: a channel or `_stat`, and how it will be read when it is opened."""

    __slots__ = ("bulk", "file", "lookups", "number", "opens", "permissions", "seekers", "user", "was_refused", "writers")

    def __init__(self, number: int, file: Channel | StatFile, bulk: bool, user: int) -> None:
        self.number = number
        self.file = file
        self.bulk = bulk
        self.user = user
        """Who has found it, and is charged for it if he does not let it go."""
        self.lookups = 0
        """How often it was handed to the kernel, less how often the kernel forgot it."""
        self.opens = 0
        """Open file descriptions."""
        self.writers = 0
        """Those among them that write: one, but for /dev/fd."""
        self.permissions: tuple[int, int, int] | None = _permissions(file)
        """Mode, owner and group that the kernel has for it; None if that is not certain: see `Nodes.size_shown`."""
        self.was_refused = False
        """Whether a FOREIGN thread was told to look again: it comes again if it cannot."""
        self.seekers: set[int] = set()
        """Threads that have found it by its name and not said yet what for."""


class Nodes:
    """The nodes of a mount. A number is never used for two.

    Args:
        ask: asks the kernel to forget nodes, and returns an errno: see `_hooks.prune`.
        lengthen: sets a node's size in the kernel, and returns an errno: see `_hooks.lengthen`.
        outdate: has the kernel not believe what it is told of a node in answer to what it has asked, and returns an errno: see
            `_hooks.outdate`.
    """

    def __init__(
        self, ask: "Callable[[array[int]], int]", lengthen: Callable[[int, int], int], outdate: Callable[[int], int]
    ) -> None:
        self._nodes: dict[int, Node] = {}
        self._spare: dict[tuple[int, bool, int], Node] = {}
        self._numbers: Iterator[int] = itertools.count(_FIRST)
        self._sent_back: dict[int, None] = {}
        """Threads that were told to look again, the oldest first."""
        self._sought: dict[int, Node] = {}
        """What threads have found and not said yet what for, the oldest first."""
        self._of: dict[int, dict[int, Node]] = {}
        """By the numbers of channels."""
        self._useless: dict[int, Node] = {}
        """Nodes of channels without a name that nobody has open. The kernel keeps the last node that it knew by a name for as
        long as memory is plenty, and with it we the channel: with names that are used once, `U_answers.1234` say, for ever."""
        self._asked: dict[int, Node] = {}
        """Those among them that it was asked to forget and has not yet, the one that was asked for longest ago first. Somebody
        may be in them by open(O_PATH)."""
        self._held_by: dict[int, int] = {}
        """How many of these each user has found."""
        self._ask = ask
        self._lengthen = lengthen
        self._outdate = outdate
        self._can_prune = True

    def __len__(self) -> int:
        """How many nodes the kernel knows, the directory, `_stat` and its like not among them."""
        return len(self._nodes) - sum(len(self._of.get(file.number, ())) for file in STAT_FILES.values())

    def file_of(self, number: int) -> Channel | StatFile | None:
        """The channel that a node is of, or `_stat`, if the kernel knows such a node."""
        node = self._nodes.get(number)
        return node.file if node else None

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def offer(self, file: Channel | StatFile, bulk: bool, thread: int | None, user: int) -> Node:
        """The node to answer a look-up with: one that nobody has open, and no other user has found. Counts as a look-up.

        Args:
            file: what was looked up.
            bulk: whether it will be read in bulk.
            user: who looks it up.
            thread: who looks it up. One that was sent back gets a node of its own: the kernel looks a name up again once, and no
                more. So does FOREIGN, which may be anybody. None lists the directory, and does nothing with what it finds.
        """
        key = file.number, bulk, user
        node = self._spare.get(key)
        wants_own = thread == FOREIGN or thread in self._sent_back
        if node is not None and node.permissions != _permissions(file):
            self._unspare(node)
            node = None
        if node is None or wants_own:
            number = next(self._numbers)
            node = self._nodes[number] = Node(number, file, bulk, user)
            self._of.setdefault(file.number, {})[number] = node
            if not wants_own:
                self._spare[key] = node
        node.lookups += 1
        if thread:
            self.settle(thread)
            node.seekers.add(thread)
            self._sought[thread] = node
            if len(self._sought) > _THREADS_MAX:
                self.settle(next(iter(self._sought)))
        return node

    def settle(self, thread: int) -> None:
        """A thread has done something else than a look-up: what it has found, it will not lock any more."""
        node = self._sought.pop(thread, None)
        if node is not None:
            node.seekers.discard(thread)

    def open(self, node: Node, thread: int, writes: bool) -> None:
        """Notes that a thread opens a node; `writes` if to write.

        Raises:
            AlreadyTaken: it is to write, and is not alone. When the thread comes again, it did not get here by name but by
                /dev/fd or /proc/PID/fd, which knows no other node: then it is let in.
        """
        self.settle(thread)
        if writes and thread == FOREIGN:
            if node.opens and not node.was_refused:
                node.was_refused = True
                raise AlreadyTaken
            node.writers += 1
        elif writes:
            was_sent_back = thread in self._sent_back
            if (node.opens or node.seekers) and not was_sent_back:
                self.send_back(thread)
                # Whoever has found it may never say what for. The next to look up the name should not be sent back too.
                self._unspare(node)
                raise AlreadyTaken
            if was_sent_back:
                del self._sent_back[thread]
            node.writers += 1
        self._unspare(node)
        self._mark_useful(node)
        if not node.opens:
            self._disbelieve(node)  # what others are being told of it, who have asked before
            if (error := self._lengthen(node.number, OPEN_SIZE)) and error != errno.ENOENT:
                log.debug("the kernel takes no size: %s", os.strerror(error))
        node.opens += 1

    def size_shown(self, node: Node, thread: int) -> int:
        """The size of a node to be shown to a thread that asks. To be called when it is answered with all that the node is now.

        Who has it open for reading only is shown 0: he reads until the end of file. Believed by the kernel, that would be the
        end of file for sendfile(2) and io_submit(2), also if somebody else had asked: one that has found the node before it was
        opened. So it is told not to believe it. But permissions that are not those it has must be believed: then its size is
        shown as it is.
        """
        if isinstance(node.file, StatFile):
            # It has an end, and can be read from there, as tail(1) does if it has a size for the kernel that it does not show.
            if node.opens and thread in node.seekers:
                self._disbelieve(node)
            return 0
        if node.permissions != _permissions(node.file):
            node.permissions = None  # nobody knows which answer gets there last
        if node.writers or (node.opens and node.permissions is None):
            return OPEN_SIZE
        if node.opens:
            self._disbelieve(node)
        return 0

    def _disbelieve(self, node: Node) -> None:
        if (error := self._outdate(node.number)) and error != errno.ENOENT:
            log.debug("the kernel believes a size of 0: %s", os.strerror(error))

    def change(self, node: Node) -> None:
        """Notes that the kernel has had a channel changed by this node, and knows what it is now."""
        node.permissions = _permissions(node.file)

    def send_back(self, thread: int) -> bool:
        """Notes that a thread is to look again. Returns whether that is of use: not if it does so already, or is FOREIGN."""
        if thread == FOREIGN or self._sent_back.pop(thread, self) is None:
            return False
        self._sent_back[thread] = None
        if len(self._sent_back) > _THREADS_MAX:
            del self._sent_back[next(iter(self._sent_back))]
        return True

    def close(self, node: Node, writes: bool) -> None:
        """Notes that an open file description is gone, which was opened with this `writes`."""
        node.opens -= 1
        node.writers -= writes
        if node.opens:
            return
        if not node.lookups:
            self._drop(node)
            return
        if node.file.is_named:
            self._spare.setdefault((node.file.number, node.bulk, node.user), node)
        else:
            self._mark_useless(node)

    def _unspare(self, node: Node) -> None:
        key = node.file.number, node.bulk, node.user
        if self._spare.get(key) is node:
            del self._spare[key]

    def forget(self, number: int, count: int) -> None:
        """The kernel gives back `count` look-ups of a node."""
        node = self._nodes.get(number)
        if node is None:
            return
        node.lookups -= count
        if node.lookups <= 0 and not node.opens:
            self._drop(node)

    def _drop(self, node: Node) -> None:
        del self._nodes[node.number]
        for thread in node.seekers:
            del self._sought[thread]
        self._mark_useful(node)
        self._unspare(node)
        siblings = self._of[node.file.number]
        del siblings[node.number]
        if not siblings:
            del self._of[node.file.number]

    def lose_name(self, channel: Channel) -> None:
        """Notes that a channel has no name any more: nobody will look it up."""
        for node in self._of.get(channel.number, {}).values():
            self._unspare(node)
            if not node.opens:
                self._mark_useless(node)

    def _mark_useless(self, node: Node) -> None:
        if node.number not in self._asked:
            self._useless[node.number] = node

    def _mark_useful(self, node: Node) -> None:
        self._useless.pop(node.number, None)
        if self._asked.pop(node.number, None):
            user = node.user
            self._held_by[user] -= 1
            if not self._held_by[user]:
                del self._held_by[user]

    def held_by(self, user: int) -> int:
        """How many nodes that a user has found, of channels without a name, the kernel does not forget when asked."""
        return self._held_by.get(user, 0) if self._can_prune else 0

    def prune(self, *, everything: bool = False) -> None:
        """Has the kernel forget what nobody can find any more, if that is enough to be worth it, or if `everything` is wanted.

        A kernel before Linux 6.18 cannot. It forgets by itself, when memory is short.
        """
        if not self._can_prune or len(self._useless) < (0 if everything else _USELESS_MIN):
            return
        batch = list(itertools.islice(self._useless.values(), _ASKED_AT_ONCE))
        if everything:
            # Some were in use when it was asked, and need not be any more. They have their turn again.
            batch += itertools.islice(self._asked.values(), _ASKED_AT_ONCE - len(batch))
        if not batch:
            return
        for node in batch:
            self._mark_useful(node)
            self._asked[node.number] = node
            user = node.user
            self._held_by[user] = self._held_by.get(user, 0) + 1
        if error := self._ask(array("Q", [node.number for node in batch])):
            self._can_prune = error != errno.EINVAL
            log.debug("the kernel forgets nothing: %s", os.strerror(error))
