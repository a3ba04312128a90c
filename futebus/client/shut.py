"""Ends a channel from its master's side, without losing a line: see futebus(7), "Ending a channel"."""

import fcntl

from ..core.inquiry import SHUT


def shut(descriptor: int) -> None:
    """Takes no more messages: who opens or writes to the channel finds no master. What was accepted can be read, then it ends.

    Args:
        descriptor: of its master.

    Raises:
        OSError: `EPERM`: of somebody else. `ENOTTY`, `EINVAL`: it is no channel, or of a bus that does not know this yet.
            Otherwise as the bus says: `ENOTCONN` when it is gone.
    """
    fcntl.ioctl(descriptor, SHUT)
