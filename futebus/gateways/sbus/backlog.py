"""What waits for a client that does not read fast enough, and what is done about it.

The one rule: what happens to a message that cannot be sent is the receiver's choice, by the control messages of sbus, "Flood
control". A receiver that has chosen nothing has what the original server has noted for it: soft queue, hard discard. The order is
that of the queue, since sbus promises ordered communication.
"""

import enum
import heapq
from collections import deque


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


class Backlog:
    """The messages that wait for one client, whole packets."""

    __slots__ = ("_heap", "_number", "_order", "_packets", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all."""
        self._order = Order.QUEUE
        self._packets: deque[bytes] = deque()
        """In the order in which they came, unless the order is random."""
        self._heap: list[tuple[int, int, bytes]] = []
        """If it is: less than nothing by the length, the number, the packet."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._packets) + len(self._heap)

    @property
    def order(self) -> Order:
        """Which one is sent first. It can be changed at any time, also for those that wait already."""
        return self._order

    @order.setter
    def order(self, order: Order) -> None:
        self._order = order
        if order is Order.RANDOM:
            packets, self._packets = self._packets, deque()
            for packet in packets:
                self._push(packet)
        elif self._heap:
            heap, self._heap = self._heap, []
            self._packets.extend(packet for _, _, packet in sorted(heap, key=lambda item: item[1]))

    def _push(self, packet: bytes) -> None:
        self._number += 1
        heapq.heappush(self._heap, (-len(packet), self._number, packet))

    def put(self, packet: bytes) -> None:
        """One more waits."""
        self.size += len(packet)
        if self._order is Order.RANDOM:
            self._push(packet)
        else:
            self._packets.append(packet)

    def first(self) -> bytes:
        """The one to be sent first. There must be one."""
        if self._order is Order.RANDOM:
            return self._heap[0][2]
        return self._packets[-1 if self._order is Order.STACK else 0]

    def drop_first(self) -> None:
        """The one that is first has been sent."""
        if self._order is Order.RANDOM:
            packet = heapq.heappop(self._heap)[2]
        elif self._order is Order.STACK:
            packet = self._packets.pop()
        else:
            packet = self._packets.popleft()
        self.size -= len(packet)

    def clear(self) -> None:
        """Nobody wants them any more."""
        self._packets.clear()
        self._heap.clear()
        self.size = 0
