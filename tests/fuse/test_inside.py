"""What the daemon keeps: `_stat` counts it, and nothing of it is left when those are gone for whom it was kept."""

import os
from pathlib import Path

from ..helpers.kernel import linux
from ..helpers.mounts import Mount, unused
from ..helpers.waiting import until


def test_what_comes_with_clients_goes_with_them(bus: Mount) -> None:
    before = unused(bus)
    both = os.open(bus / "A_x", os.O_RDWR | os.O_CREAT)
    listing = os.open(bus.path, os.O_RDONLY)
    until(lambda: [bus.inside()[what] for what in ("open files", "nodes", "listings")] == [1, 1, 1], "it keeps these")
    os.close(listing)
    os.close(both)
    os.unlink(bus / "A_x")
    until(lambda: bus.inside() == before, "all is as before")


def test_names_that_are_used_once_do_not_pile_up(bus: Mount) -> None:
    before = unused(bus)
    for number in range(300):
        os.close(os.open(bus / f".U_answers.{number}", os.O_RDWR | os.O_CREAT))
    if linux() < (6, 18):  # it cannot be asked to forget them, and does when memory is short
        Path("/proc/sys/vm/drop_caches").write_text("2")
    until(lambda: bus.inside() == before, "all is as before")
