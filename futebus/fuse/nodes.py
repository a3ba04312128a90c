"""Node ids: every open file gets a kernel inode of its own.

A write holds its inode's lock in the kernel while it is in user space, and `rm` and `open(O_TRUNC)` take that lock too. Were
a channel one inode, one blocked writer would stop all of them, beyond the reach of signals. So a look-up is answered with a
node id that no open file has. It need not be a new one each time: until somebody opens it, all look-ups may share it.
"""

import itertools
from collections.abc import Iterator

from futebus.core.channel import Channel

ROOT = 1
STAT = 2
_FIRST = 1 << 32
"""Node ids of channels begin here, so that none is ever mistaken for the number of a channel."""


_SENT_BACK_MAX = 4096
"""How many threads are remembered: each comes back at once or, if it was killed, never."""


class AlreadyOpen(Exception):
    """Somebody else has opened the node since it was looked up: the kernel must look the name up again (`ESTALE`)."""


class Node:
    """What the kernel knows by one node id: a channel, and how it will be read when it is opened."""

    __slots__ = ("bulk", "channel", "lookups", "number", "opens")

    def __init__(self, number: int, channel: Channel, bulk: bool) -> None:
        self.number = number
        self.channel = channel
        self.bulk = bulk
        self.lookups = 0
        """How often it was handed to the kernel, less how often the kernel forgot it."""
        self.opens = 0
        """Open file descriptions."""


class Nodes:
    """The nodes of a mount. A number is never used for two."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._spare: dict[tuple[int, bool], Node] = {}
        self._numbers: Iterator[int] = itertools.count(_FIRST)
        self._sent_back: dict[int, None] = {}
        """Threads that were told to look again, the oldest first."""

    def __len__(self) -> int:
        """How many nodes the kernel knows, the directory and `_stat` not among them."""
        return len(self._nodes)

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def offer(self, channel: Channel, bulk: bool, thread: int) -> Node:
        """The node to answer a look-up with: one that nobody has open. Counts as a look-up.

        A thread that was sent back gets one of its own: the kernel looks a name up again once, and no more.
        """
        key = channel.number, bulk
        node = self._spare.get(key)
        if node is None or thread in self._sent_back:
            number = next(self._numbers)
            node = self._nodes[number] = Node(number, channel, bulk)
            if thread not in self._sent_back:
                self._spare[key] = node
        node.lookups += 1
        return node

    def open(self, node: Node, thread: int) -> None:
        """Notes that a thread opens a node.

        Raises:
            AlreadyOpen: it is open already. When the thread comes again, it did not get here by name but by /dev/fd or
                /proc/PID/fd, which knows no other node: then it is let in.

        """
        was_sent_back = thread in self._sent_back
        if node.opens and not was_sent_back:
            self._sent_back[thread] = None
            if len(self._sent_back) > _SENT_BACK_MAX:
                del self._sent_back[next(iter(self._sent_back))]
            raise AlreadyOpen
        if was_sent_back:
            del self._sent_back[thread]
        node.opens += 1
        key = node.channel.number, node.bulk
        if self._spare.get(key) is node:
            del self._spare[key]

    def close(self, node: Node) -> None:
        """Notes that an open file description is gone. With its last one a node can be offered again."""
        node.opens -= 1
        if node.opens:
            return
        if not node.lookups:
            self._nodes.pop(node.number, None)
        else:
            self._spare.setdefault((node.channel.number, node.bulk), node)

    def forget(self, number: int, count: int) -> None:
        """The kernel gives back `count` look-ups of a node."""
        node = self._nodes.get(number)
        if node is None:
            return
        node.lookups -= count
        if node.lookups <= 0 and not node.opens:
            del self._nodes[number]
            key = node.channel.number, node.bulk
            if self._spare.get(key) is node:
                del self._spare[key]
