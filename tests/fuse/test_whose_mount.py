"""Numbers of a mount are given to the next one as soon as they are free. A bus that was unmounted leaves that one alone."""

import ctypes
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from futebus.host.mounted import mounted_on

from ..helpers.mounts import Mount, Mounting, hanging
from ..helpers.waiting import DEADLINE

_LIBC = ctypes.CDLL(None, use_errno=True)

TRIES = 20
"""How often a test begins anew because other processes have got the numbers."""


def unmount(directory: Path) -> None:
    """Unmounts a file system that nobody uses. umount(8) would ask it first."""
    if _LIBC.umount2(os.fsencode(directory), 0):
        raise OSError(ctypes.get_errno(), "umount2")


def with_numbers(mounting: Mounting, bus: Mount, *options: str) -> Mount | None:
    """Unmounts a bus whose daemon is stopped, and mounts another one in its place.

    Returns:
        The other; None if none gets the same numbers.
    """
    before = mounted_on(str(bus.path))
    assert before
    unmount(bus.path)
    for _ in range(3):
        other = mounting(*options, at=bus.path)
        there = mounted_on(str(bus.path))
        assert there
        if (there.id, there.device) == (before.id, before.device):
            return other
        other.unmount()
    return None


@pytest.mark.parametrize("is_hung", [False, True], ids=["which serves", "which hangs"])
@pytest.mark.parametrize("is_told", [False, True], ids=["", "also told to end"])
@pytest.mark.parametrize("options", [[], ["allow_other", "user=nobody"]], ids=["root", "nobody"])
def test_a_bus_that_was_unmounted_leaves_the_next_one_alone(
    mounting: Mounting, options: list[str], is_told: bool, is_hung: bool
) -> None:
    for _ in range(TRIES):
        bus = mounting(*options)
        with hanging(bus):
            other = with_numbers(mounting, bus, *options)
            if is_told:
                bus.daemon.send_signal(signal.SIGTERM)
            if other and is_hung:
                other.daemon.send_signal(signal.SIGSTOP)
        with ExitStack() as stack:
            if other and is_hung:
                stack.callback(other.daemon.send_signal, signal.SIGCONT)
            assert bus.daemon.wait(DEADLINE) == 0, bus.words
            bus.let_be()
            assert "cut" not in bus.words
        if other:
            break
    else:
        raise AssertionError("others have had the numbers each time")
    assert other.stat()
    other.unmount()
