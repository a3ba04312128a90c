"""Up to where a stream is still the one that was delivered.

The one rule: a number is not a message. A server that loses its power may lose its last ones and give their numbers to others. So
the time at which the server got a message tells, too, whether it is the one that was written.
"""

from ..nats.stream import State, Stream
from .progress import Reached


async def agreed(stream: Stream, state: State, reached: Reached) -> int:
    """The number of the last message that the stream has of those that have been written.

    If the last that was written is gone, or another one, it is the last that is not younger than that was.

    Raises:
        NatsError: as for `Stream`.
    """
    if not reached.time or reached.sequence < state.first:
        return min(reached.sequence, state.last)
    if reached.sequence <= state.last:
        found = await stream.stored(reached.sequence)
        if found is None or found[0] != reached.sequence or found[1] == reached.time:
            return reached.sequence
    low, high = state.first, min(state.last + 1, reached.sequence)
    while low < high:
        middle = (low + high) // 2
        found = await stream.stored(middle)
        if found is None or found[1] > reached.time:
            high = middle
        else:
            low = found[0] + 1
    return min(low, high) - 1
