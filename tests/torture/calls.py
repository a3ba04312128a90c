"""System calls as they are: Python's own make a call again that a signal has ended, and then nobody sees how it ended."""

import ctypes
import os
import select
import signal

_libc = ctypes.CDLL(None, use_errno=True)
_libc.read.restype = _libc.write.restype = ctypes.c_ssize_t
_libc.read.argtypes = _libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


class _PollDescriptor(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def read(descriptor: int, size: int) -> bytes | int:
    """read(2). Returns the bytes, or the errno, negative."""
    buffer = ctypes.create_string_buffer(size)
    count = _libc.read(descriptor, buffer, size)
    return buffer.raw[:count] if count >= 0 else -ctypes.get_errno()


def write(descriptor: int, data: bytes) -> int:
    """write(2). Returns how many bytes were accepted, or the errno, negative."""
    count: int = _libc.write(descriptor, data, len(data))
    return count if count >= 0 else -ctypes.get_errno()


def poll(descriptor: int, events: int = select.POLLIN, milliseconds: int = -1) -> int:
    """poll(2) of one descriptor. Returns the bits, 0 when the time is over, or the errno, negative."""
    entry = _PollDescriptor(descriptor, events, 0)
    count = _libc.poll(ctypes.byref(entry), ctypes.c_ulong(1), ctypes.c_int(milliseconds))
    return int(entry.revents) if count >= 0 else -ctypes.get_errno()


def open_(path: str, flags: int) -> int:
    """open(2) with mode 0666. Returns the descriptor, or the errno, negative."""
    try:
        return os.open(path, flags, 0o666)
    except OSError as error:
        return -(error.errno or 0)


def die_with_parent() -> None:
    """Has this process killed when its parent ends (PR_SET_PDEATHSIG)."""
    if _libc.prctl(1, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind (PR_SET_CHILD_SUBREAPER)."""
    if _libc.prctl(36, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
