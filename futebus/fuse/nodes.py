"""Node ids: a slave that writes gets a kernel inode of its own.

A write holds its inode's lock in the kernel for as long as it is in user space, and `rm` and `open(O_TRUNC)` take that lock
too, beyond the reach of signals. Were a channel one inode, one slave that waits for the master would stop all other writers and
whoever wants to remove the channel. So such a slave gets a node id that no other one has: a look-up is answered with one that
can still be had. Nobody else ever waits in a write (reading takes no lock), so all others share: were each open to have a node
of its own, a thousand processes that open a channel at once would invalidate each other's look-ups without end.
"""

import errno
import itertools
import logging
import os
from array import array
from collections.abc import Callable, Iterator

from futebus.core.channel import Channel

log = logging.getLogger(__name__)

ROOT = 1
STAT = 2
_FIRST = 1 << 32
"""Node ids of channels begin here, so that none is ever mistaken for the number of a channel."""


_SENT_BACK_MAX = 4096
"""How many threads are remembered: each comes back at once or, if it was killed, never."""

_USELESS_MIN = 32
"""How many nodes of channels without a name are left to the kernel before it is asked to forget them."""


class AlreadyTaken(Exception):
    """Another slave writes by this node since it was looked up: the kernel must look the name up again (`ESTALE`)."""


class Node:
    """What the kernel knows by one node id: a channel, and how it will be read when it is opened."""

    __slots__ = ("bulk", "channel", "lookups", "number", "opens", "writers")

    def __init__(self, number: int, channel: Channel, bulk: bool) -> None:
        self.number = number
        self.channel = channel
        self.bulk = bulk
        self.lookups = 0
        """How often it was handed to the kernel, less how often the kernel forgot it."""
        self.opens = 0
        """Open file descriptions."""
        self.writers = 0
        """Those among them that may come to wait in a write: one, but for /dev/fd."""


class Nodes:
    """The nodes of a mount. A number is never used for two.

    Args:
        ask: asks the kernel to forget nodes, and returns an errno: see `_hooks.prune`.
    """

    def __init__(self, ask: "Callable[[array[int]], int]") -> None:
        self._nodes: dict[int, Node] = {}
        self._spare: dict[tuple[int, bool], Node] = {}
        self._numbers: Iterator[int] = itertools.count(_FIRST)
        self._sent_back: dict[int, None] = {}
        """Threads that were told to look again, the oldest first."""
        self._of: dict[int, dict[int, Node]] = {}
        """By the numbers of channels."""
        self._useless: dict[int, bool] = {}
        """Nodes of channels without a name that nobody has open. The kernel keeps the last node that it knew by a name for as
        long as memory is plenty, and with it we the channel: with names that are used once, such as `U_answers.1234`, for ever.
        True for those that it was asked to forget, and has not yet."""
        self._asked = 0
        """How many these are."""
        self._ask = ask
        self._can_prune = True

    def __len__(self) -> int:
        """How many nodes the kernel knows, the directory and `_stat` not among them."""
        return len(self._nodes)

    def channel_of(self, number: int) -> Channel | None:
        """The channel that a node is of, if the kernel knows such a node."""
        node = self._nodes.get(number)
        return node.channel if node else None

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def offer(self, channel: Channel, bulk: bool, thread: int) -> Node:
        """The node to answer a look-up with: one by which no slave writes. Counts as a look-up.

        A thread that was sent back gets one of its own: the kernel looks a name up again once, and no more.
        """
        key = channel.number, bulk
        node = self._spare.get(key)
        if node is None or thread in self._sent_back:
            number = next(self._numbers)
            node = self._nodes[number] = Node(number, channel, bulk)
            self._of.setdefault(channel.number, {})[number] = node
            if thread not in self._sent_back:
                self._spare[key] = node
        node.lookups += 1
        return node

    def open(self, node: Node, thread: int, may_wait: bool) -> None:
        """Notes that a thread opens a node; `may_wait` if to write as a slave.

        Raises:
            AlreadyTaken: a slave writes by it already. When the thread comes again, it did not get here by name but by /dev/fd
                or /proc/PID/fd, which knows no other node: then it is let in.
        """
        if may_wait:
            was_sent_back = thread in self._sent_back
            if node.writers and not was_sent_back:
                self._sent_back[thread] = None
                if len(self._sent_back) > _SENT_BACK_MAX:
                    del self._sent_back[next(iter(self._sent_back))]
                raise AlreadyTaken
            if was_sent_back:
                del self._sent_back[thread]
            node.writers += 1
            self._unspare(node)
        node.opens += 1

    def close(self, node: Node, may_wait: bool) -> None:
        """Notes that an open file description is gone, which was opened with this `may_wait`."""
        node.opens -= 1
        node.writers -= may_wait
        if not node.opens and not node.lookups:
            self._drop(node)
            return
        if not node.writers:
            self._spare.setdefault((node.channel.number, node.bulk), node)
        if not node.opens and not node.channel.is_named:
            self._useless.setdefault(node.number, False)

    def _unspare(self, node: Node) -> None:
        key = node.channel.number, node.bulk
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
        self._asked -= self._useless.pop(node.number, False)
        self._unspare(node)
        siblings = self._of[node.channel.number]
        del siblings[node.number]
        if not siblings:
            del self._of[node.channel.number]

    def lose_name(self, channel: Channel) -> None:
        """Notes that a channel has no name any more: nobody will look it up."""
        for node in self._of.get(channel.number, {}).values():
            if not node.opens:
                self._useless.setdefault(node.number, False)

    def prune(self, *, everything: bool = False) -> None:
        """Has the kernel forget what nobody can find any more, if that is enough to be worth it, or if `everything` is wanted.

        A kernel before Linux 6.18 cannot. It forgets by itself, when memory is short.
        """
        # Some may be in use yet, by an open(O_PATH) say: they are offered again with as many others.
        if not self._can_prune or len(self._useless) < (1 if everything else 2 * self._asked + _USELESS_MIN):
            return
        self._useless = dict.fromkeys(self._useless, True)
        self._asked = len(self._useless)
        if error := self._ask(array("Q", [number for number in self._useless if not self._nodes[number].opens])):
            self._can_prune = error != errno.EINVAL
            log.debug("the kernel forgets nothing: %s", os.strerror(error))
