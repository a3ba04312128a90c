"""Other processes of this host, by the numbers that they have left in files."""

import os

ENDED = (b"Z", b"X")
"""What proc(5) calls a process that has ended, and whose parent has not asked how."""

_MOST_BYTES = 1024


def told_of(pid: int, what: str) -> bytes:
    """What proc(5) tells of a process, or a thread, in one line. Nothing if there is none, or that is not told."""
    try:
        file = os.open(f"/proc/{pid}/{what}", os.O_RDONLY | os.O_CLOEXEC)  # a third of what a file object takes
    except OSError:  # /proc may show everybody only what is his own
        return b""
    try:
        return os.read(file, _MOST_BYTES)
    except OSError:  # it has gone meanwhile
        return b""
    finally:
        os.close(file)


def state_of(pid: int) -> bytes:
    """The letter of what a process, or a thread, does. Nothing if there is none, or that is not told."""
    return told_of(pid, "stat").rpartition(b")")[2][1:2]  # bytes: a process may be called anything


def is_alive(pid: int) -> bool:
    """Whether there is such a process, or thread. One that has ended, and whose parent has not asked how, is none."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return state_of(pid) not in ENDED


def in_words(signed: bytes) -> str:
    """Who has what a process has signed with its number, for people.

    Args:
        signed: what stands there. Who signed may have ended, and a child of his, or who has not signed, has it now.
    """
    number = signed.strip()
    return f"process {number.decode()}" if number.isdigit() and int(number) and is_alive(int(number)) else "another process"
