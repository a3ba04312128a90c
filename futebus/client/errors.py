"""What can go wrong on a bus, as errors that are also the OSError of the system call, each told in one sentence.

The one rule: the number is the system's. Who knows errno numbers from the shell or from C finds the same ones here.
"""

import errno
import os
import re

from ..core.kinds import has_master
from ..core.text import printable
from ..host.mounted import NoBus as NoBusThere

_SHOWN = 60
"""Bytes of a message that are shown when it is refused."""

_ADDRESS = re.compile(rb"\{([0-9A-Fa-f]+)\}")


class ClientError(OSError):
    """A bus has refused something, or is not there. The text is one sentence that a terminal can show.

    Args:
        number: the system's number of the error.
        words: the sentence.
    """

    accepted = 0
    """Of the messages that were to be sent with one call: how many the bus has accepted before this."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(number, words)

    def __str__(self) -> str:
        return printable(str(self.strerror))


class NoBus(ClientError):
    """No bus is mounted there, or it has gone. `ENOENT`, `ENOTDIR`, `ENOTCONN`, `ECONNABORTED`, `ESHUTDOWN`."""


class NoChannel(ClientError):
    """There is no such channel. `ENOENT`."""


class NoMaster(ClientError):
    """The U or S channel has no master that reads. `ENOENT` on opening, `ESRCH` on sending."""


class HasMaster(ClientError):
    """The U or S channel has a master already. `EEXIST`."""


class NoClient(ClientError):
    """The client that a message is for is not on the channel, `ENODEV`, or does not read, `ESRCH`."""


class TooLong(ClientError):
    """A message is longer than the bus takes (its option `max_message`). `EMSGSIZE`."""


class NoAddress(ClientError):
    """A message for an A channel, or of the master of an S channel, does not say for whom it is. `EFAULT`."""


class NotAllowed(ClientError, PermissionError):
    """Somebody else's channel or bus, which does not let this user do that. `EACCES`, `EPERM`."""


class Refused(ClientError):
    """A limit is reached: of clients (`ENFILE`, `EUSERS`), channels (`ENOSPC`) or open files (`EMFILE`)."""


class TimedOut(ClientError, TimeoutError):
    """What was waited for has not come in time. `ETIMEDOUT`."""


class Ended(ClientError, EOFError):
    """Nothing more will come: the master of the channel has closed or shut it, or the bus is going. `EPIPE`."""


class NotOpen(ValueError):
    """A call on a channel that is not open. To callers it is a `ValueError`, as with files."""


def is_own(error: BaseException, *others: str) -> bool:
    """Whether a call of this package has raised an error, and not somebody else's code which ran in the middle of that.

    The handler of a signal may raise what it likes, and also what a call on a channel would raise.

    Args:
        error: that.
        others: how the names of modules begin that have been called, too.
    """
    trace, own = error.__traceback__, (*_OWN, *others) if others else _OWN
    while trace and trace.tb_frame.f_globals.get("__name__", "").startswith(own):
        trace = trace.tb_next
    return trace is None


_OWN = (__name__.partition(".")[0] + ".", "contextlib", "pathlib")
"""How the names of modules begin that may be seen below a call of this package."""

GONE = frozenset({errno.ESHUTDOWN, errno.ENOTCONN, errno.ECONNABORTED})
"""What calls fail with when the bus is going, or has gone."""

_LIMITS = {
    errno.ENFILE: "the bus has too many clients",
    errno.EUSERS: "this user has too many clients on the bus",
    errno.ENOSPC: "the bus has too many channels",
    errno.EMFILE: "this process has too many open files",
}


def absent(error: NoBusThere) -> ClientError:
    """The error for a bus that was not found."""
    if error.number in (errno.EACCES, errno.EPERM):
        return NotAllowed(error.number, str(error))
    if error.number in (errno.EMFILE, errno.ENFILE):
        return Refused(error.number, str(error))
    return NoBus(error.number or errno.ENOENT, str(error))


def not_opened(path: str, name: str, error: OSError, *, creates: bool) -> ClientError:
    """The error for a channel that could not be opened.

    Args:
        path: the channel, as the caller knows it.
        name: of the channel.
        error: what the system said.
        creates: whether it was to be created if it was not there.
    """
    number = error.errno or errno.EIO
    if number in (errno.EACCES, errno.EPERM):
        return NotAllowed(number, f"{path}: {os.strerror(number)}")
    if number == errno.ENAMETOOLONG:
        return ClientError(number, f"{path}: {os.strerror(number)}")
    if number == errno.EEXIST:
        return HasMaster(number, f"{path} has a master already")
    if number in (errno.ENOENT, errno.ESPIPE) and not creates:
        return NoMaster(number, f"{path} has no master") if has_master(name) else NoChannel(number, f"there is no channel {path}")
    if number in _LIMITS:
        return Refused(number, f"{path}: {_LIMITS[number]}")
    if number in GONE or number == errno.ENOENT:  # the directory itself is not there any more
        return NoBus(number, f"{path}: the bus is being unmounted or is gone")
    return ClientError(number, f"{path} cannot be opened: {os.strerror(number)}")


def not_read(path: str, error: OSError) -> ClientError:
    """The error for a channel that could not be read."""
    number = error.errno or errno.EIO
    if number in GONE or number == errno.ENODEV:
        return NoBus(number, f"{path}: the bus is gone ({os.strerror(number)})")
    return ClientError(number, f"{path} cannot be read: {os.strerror(number)}")


def not_sent(path: str, name: str, error: OSError, lines: bytes, start: int, *, is_master: bool) -> ClientError:
    r"""The error for a message that was refused.

    Args:
        path: the channel, as the caller knows it.
        name: of the channel.
        error: what the system said.
        lines: what was to be written, whole messages, each with its `\n`.
        start: up to where it was accepted.
        is_master: whether the sender is the channel's master.
    """
    number = error.errno or errno.EIO
    # Short counts end where a message does, except within one that the kernel brings in several pieces (over 1 MiB).
    begin = lines.rfind(b"\n", 0, start) + 1
    end = lines.find(b"\n", start) + 1 or len(lines)
    shown = repr(lines[begin : min(end, begin + _SHOWN)].removesuffix(b"\n").decode("utf-8", "backslashreplace"))
    refused: ClientError
    if number == errno.EMSGSIZE:
        refused = TooLong(number, f"{path}: a message of {end - begin} bytes is longer than the bus takes (max_message): {shown}")
    elif number == errno.EFAULT:
        refused = NoAddress(number, f"{path}: a message has no address, {{ID}} or {{*}}, in front: {shown}")
    elif number in (errno.ENODEV, errno.ESRCH):
        if has_master(name) and not is_master:
            refused = NoMaster(number, f"{path} has no master any more that reads")
        else:
            address = _ADDRESS.match(lines, begin)
            client = f"client {address[0].decode()}" if address else "the client addressed"
            why = "is not on the channel" if number == errno.ENODEV else "does not read"
            refused = NoClient(number, f"{path}: {client} {why}: {shown}")
    elif number in GONE:
        refused = NoBus(number, f"{path}: the bus is being unmounted or is gone")
    else:
        refused = ClientError(number, f"{path} cannot be written to: {os.strerror(number)}")
    refused.accepted = lines.count(b"\n", 0, start)
    return refused
