"""One exception tree: everything the bus refuses, each with the errno that a program sees for it."""

import errno
from typing import ClassVar


class BusError(Exception):
    """The bus refuses a call. `errno` is what the caller of the system call gets, the text is for people."""

    errno: ClassVar[int]

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or (type(self).__doc__ or "").strip().rstrip("."))


class NoSuchName(BusError):
    """there is no such channel."""

    errno = errno.ENOENT


class NameTooLong(BusError):
    """the name is longer than 255 bytes."""

    errno = errno.ENAMETOOLONG


class NoChannelType(BusError):
    """the name begins with none of U, A, S and B, or belongs to no channel."""

    errno = errno.ENXIO


class Forbidden(BusError):
    """a bus holds channels only, and _stat is made by the bus."""

    errno = errno.EPERM


class NoMaster(BusError):
    """the channel has no master."""

    errno = errno.ESPIPE


class AlreadyThere(BusError):
    """the channel is there already, or has a master."""

    errno = errno.EEXIST


class NobodyReads(BusError):
    """whoever the message is for is gone or does not read."""

    errno = errno.ESRCH


class NoSuchClient(BusError):
    """no client of the channel has this ID."""

    errno = errno.ENODEV


class BadAddress(BusError):
    """the message does not begin with an address: {ID} or {*}."""

    errno = errno.EFAULT


class MessageTooLong(BusError):
    """the message is longer than max_message."""

    errno = errno.EMSGSIZE


class WouldBlock(BusError):
    """the call would have to wait."""

    errno = errno.EAGAIN


class NotOpenForThis(BusError):
    """the client was not opened for this."""

    errno = errno.EBADF


class TooManyClients(BusError):
    """the bus has max_clients clients."""

    errno = errno.ENFILE


class TooManyForUser(BusError):
    """the user has max_clients_per_user clients, or the master has not read a flood of opens and closes."""

    errno = errno.EUSERS


class TooManyChannels(BusError):
    """the bus has max_channels channels."""

    errno = errno.ENOSPC


class ShuttingDown(BusError):
    """the bus is being unmounted."""

    errno = errno.ESHUTDOWN


class Broken(BusError):
    """something is wrong inside the bus, or there is no memory."""

    errno = errno.EIO
