"""What hooks.c offers."""

from array import array
from collections.abc import Callable

BUILT_WITH: str
RUNNING: str

class Request:
    """A read or write that the kernel waits for. Answer it once."""

    def data(self, data: bytes, /) -> None: ...
    def written(self, count: int, /) -> None: ...
    def error(self, errno: int, /) -> None: ...

def install(
    *,
    read: Callable[[Request, int, int, int, int], bytes | int | None],
    write: Callable[[Request, int, bytes, int, int, int], int | None],
    interrupt: Callable[[Request], None],
    inquire: Callable[[int], bytes | None],
    shut: Callable[[int], int],
) -> None:
    """Names the callables that serve the next session.

    Args:
        read: gets the request, the file handle, how many bytes are asked for, the file offset and the flags of the open file
            as they are now. Returns the bytes, a negative errno, or None and answers the request later.
        write: the same with the bytes written in place of their number, and the thread that writes (0: one that we know nothing
            of). Returns how many were accepted, a negative errno, or None and answers the request later.
        interrupt: gets a request that is to be answered later and whose caller got a signal.
        inquire: gets a file handle. Returns what the ioctl(2) of `core.inquiry` tells of it; None if it is no channel.
        shut: gets a file handle, whose ioctl(2) is `core.inquiry.SHUT`. Returns 0, or an errno.

    """

def reached() -> bool:
    """Whether the session made since `install` goes through the hooks."""

def requests() -> int:
    """How many `Request`s there are: those that wait, if nothing is left over."""

def is_waited_for() -> bool:
    """Whether the kernel has a request that has not been read yet."""

def drained() -> int:
    """How often all requests that the kernel had were read: when it grows, those that there were before have been."""

def is_connected() -> bool:
    """Whether the kernel has not cut the connection. As long as it has not, our file system is there, and has its numbers."""

def hurry(is_hurried: bool, /) -> None:
    """Says whether there is something to do besides requests: then nobody lingers for the next one."""

def prune(numbers: array[int], /) -> int:
    """Asks the kernel to forget nodes (type code `Q`) that nobody has open.

    Returns:
        0, or an errno: Linux knows this from 6.18 on.
    """

def lengthen(number: int, size: int, /) -> int:
    """Has the kernel take a node for so many bytes long. Nobody may have it open: the kernel could wait for us meanwhile.

    Returns:
        0, or an errno.
    """

def outdate(number: int, /) -> int:
    """Has the kernel show the answers to what it has asked so far of a node's attributes, and go on by those that it knew before.

    Returns:
        0, or an errno.
    """

def watch_memory(told: Callable[[bool], None], /) -> None:
    """Names who is told when memory gets short (True), and when it is so no more. While it is, writes get `EIO`."""

def has_room(size: int, /) -> bool:
    """Whether there is memory for so many bytes, beside a reserve. What is asked for adds up to the next look."""

def listen(told: Callable[[bytes], None] | None, /) -> None:
    """Names who gets what libfuse would print on stderr. None: it does print it."""
