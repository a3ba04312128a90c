"""What a consumer tells with each message that it hands out, in the subject that the message is confirmed on.

The one rule: who publishes chooses headers and data, and only a server such a subject. So what a server says is told by it from
what anybody says.
"""

from typing import NamedTuple

PREFIX = "$JS.ACK."
"""What it begins with; an account that has the stream from another one may know it by another name."""

WORDS = 9
"""So many words it has, at least."""


class Handed(NamedTuple):
    """How a message was handed out."""

    reply: str
    """The subject that it is confirmed on."""
    sequence: int
    """Its number in the stream."""
    consumer_sequence: int
    """How many messages the consumer had handed out with it; one that came again counts each time."""
    time: int
    """When the server got it, in nanoseconds since the epoch."""
    pending: int
    """How many more the consumer had for us."""


def read(reply: str) -> Handed:
    """What such a subject tells.

    Raises:
        ValueError: it is another one.
    """
    words = reply.split(".")
    if len(words) < WORDS:
        raise ValueError(reply)
    # Later servers put two words more in the middle, and one behind.
    sequence, consumer_sequence, time, pending = map(int, words[5:9] if len(words) == WORDS else words[7:11])
    return Handed(reply, sequence, consumer_sequence, time, pending)
