"""What waits for a client that does not read fast enough, and what is done about it.

The one rule: what happens to a message that cannot be sent is the receiver's choice, by the control messages of sbus, "Flood
control". A receiver that has chosen nothing has what the original server has noted for it: soft queue, hard discard. The order is
that of the queue, since sbus promises ordered communication.
"""

import enum
import heapq
from collections import deque

SPARE = 64
"""So many packets that have gone are kept, and as many as wait, before a container is cleared of them."""


class Soft(enum.Enum):
    """What becomes of a message that the socket has no place for."""

    QUEUE = "queue"
    DISCARD = "discard"
    BLOCK = "block"
    """It is kept, and its sender is not heard until it is sent."""
    ERROR = "error"
    """The client that does not read is dismissed."""


class Hard(enum.Enum):
    """What becomes of a message that the queue has no place for."""

    DISCARD = "discard"
    BLOCK = "block"
    ERROR = "error"


class Order(enum.Enum):
    """Which message of those that wait is sent first."""

    QUEUE = "queue"
    """The oldest."""
    STACK = "stack"
    """The newest."""
    RANDOM = "random"
    """The longest, and of these the oldest: memory gets free as fast as it can."""


class _Entry:
    """A packet that waits."""

    __slots__ = ("is_gone", "packet")

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.is_gone = False
        """Whether it has been sent, in another order than that of the container it is still in."""


class Backlog:
    """The messages that wait for one client, whole packets.

    The order can be changed as often as somebody likes, so that costs nothing: once there is a second container, for the random
    order, both have all packets until nothing waits any more.
    """

    __slots__ = ("_count", "_entries", "_heap", "_number", "order", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all."""
        self.order = Order.QUEUE
        """Which one is sent first. It can be changed at any time, also for those that wait already."""
        self._count = 0
        self._entries: deque[_Entry] = deque()
        """In the order in which they came, with some that have gone."""
        self._heap: list[tuple[int, int, _Entry]] = []
        """If the order has been random: less than nothing by the length, the number, and the packet."""
        self._number = 0

    def __len__(self) -> int:
        return self._count

    def put(self, packet: bytes) -> None:
        """One more waits."""
        entry = _Entry(packet)
        self.size += len(packet)
        self._count += 1
        self._entries.append(entry)
        if self._heap:
            self._number += 1
            heapq.heappush(self._heap, (-len(packet), self._number, entry))

    def first(self) -> bytes:
        """The one to be sent first. There must be one."""
        return self._first().packet

    def _first(self) -> _Entry:
        if self.order is Order.RANDOM:
            heap = self._heap
            if not heap:
                heap.extend((-len(each.packet), number, each) for number, each in enumerate(self._entries) if not each.is_gone)
                heapq.heapify(heap)
                self._number = len(self._entries)
            while heap[0][2].is_gone:
                heapq.heappop(heap)
            return heap[0][2]
        entries = self._entries
        at = -1 if self.order is Order.STACK else 0
        while entries[at].is_gone:
            del entries[at]
        return entries[at]

    def drop_first(self) -> None:
        """The one that is first has been sent."""
        entry = self._first()
        entry.is_gone = True
        self.size -= len(entry.packet)
        self._count -= 1
        entry.packet = b""
        if not self._count:
            self.clear()
        elif max(len(self._entries), len(self._heap)) > 2 * self._count + SPARE:
            self._entries = deque(each for each in self._entries if not each.is_gone)
            self._heap = [item for item in self._heap if not item[2].is_gone]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        """Nobody wants them any more."""
        self._entries.clear()
        self._heap.clear()
        self.size = self._count = 0
