"""Addresses: `{5}`, `{*}`, and the control messages `{5:o}` and `{5:c}` that a service's master gets."""

import re

from .errors import BadAddress
from .framing import Run

_ADDRESS = re.compile(rb"\{(?:\*|([0-9A-Fa-f]+))\}")


def split(message: bytes) -> tuple[int | None, bytes]:
    r"""Takes the address off a message.

    Args:
        message: one whole message, its `\n` included.

    Returns:
        The client ID that it names, None for `{*}`, and the rest of the message behind the address, `\n` included. The ID is
        whatever number was written: whether a client has it is for the channel to say.

    Raises:
        BadAddress: the message does not begin with `{HEX}` or `{*}`.
    """
    match = _ADDRESS.match(message)
    if match is None:
        raise BadAddress
    digits = match[1]
    return (None if digits is None else int(digits, 16)), message[match.end() :]


def split_run(run: Run) -> tuple[int | None, bytes] | None:
    """Takes the address off messages that all begin with the same, to the letter, and have a text behind it.

    Returns:
        What `split` returns, with the texts of all messages; None if they are not like that.

    Raises:
        BadAddress: the first message does not begin with an address.
    """
    data, messages = run
    match = _ADDRESS.match(data)
    if match is None:
        raise BadAddress
    text, start = match[0], match.end()
    if data.count(b"\n" + text) != messages - 1 or data.startswith(b"\n", start) or b"\n" + text + b"\n" in data:
        return None
    digits = match[1]
    return (None if digits is None else int(digits, 16)), data[start:].replace(b"\n" + text, b"\n")


def sender(client_id: int) -> bytes:
    """The prefix that tells who sent a message: `{1a}`, lower case, no leading zeros."""
    return b"{%x}" % client_id


def opened(client_id: int) -> bytes:
    """The control message that a service's master gets when a slave opens the channel."""
    return b"{%x:o}\n" % client_id


def closed(client_id: int) -> bytes:
    """The control message that a service's master gets when a slave has closed the channel."""
    return b"{%x:c}\n" % client_id
