"""Asks the bus what it knows of an open file: the caller's own ID, role, losses and queue. See futebus(7), "Asking the bus"."""

import errno
import fcntl
import os

from ..core.inquiry import FORM, REQUEST, Inquiry, read
from .errors import is_own

__all__ = ["Inquiry", "inquire"]


def inquire(descriptor: int) -> Inquiry:
    """What the bus knows of an open channel.

    Args:
        descriptor: open, for reading, writing, both or (access mode 3) neither.

    Raises:
        OSError: `ENOTTY`: it is no channel of a bus. Otherwise as the bus says: `ENOTCONN` when it is gone.
    """
    try:
        return read(fcntl.ioctl(descriptor, REQUEST, bytes(FORM.size)))
    except ValueError as error:
        if not is_own(error):
            raise
    except OSError as error:
        # Drivers and file systems have several ways to say that they do not know a number.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP) or not is_own(error):
            raise
    raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
