"""Directories that a bus is not mounted on, and those that let nobody write where no bus is."""

import os
import sys
from pathlib import Path

import pytest

from ..helpers.mounts import FUTEBUS, Mount, bash, run
from ..helpers.users import BECOME, MOUNTER, NOBODY


@pytest.mark.parametrize("name", ["/", "//", "/..", "LINK"])
def test_the_root_directory_is_none(place: Path, name: str) -> None:
    link = place / "link"
    link.symlink_to("/")
    given = str(link) if name == "LINK" else name
    # In a namespace of its own, so that nothing is hidden if it is mounted after all.
    done = run("unshare", "--mount", "timeout", "-s", "KILL", "20", *FUTEBUS, "-f", given)
    assert done.returncode == 1
    assert done.stderr == f"futebus: {given}: this is the root directory, and a bus would hide everything below it\n"


@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_root_mounts_where_nobody_else_may_write(place: Path, mode: int) -> None:
    directory = place / "bus"
    directory.mkdir(mode)

    def publish() -> int:
        return bash(f"echo hi >> {directory}/B_log", **NOBODY).returncode

    assert publish() != 0, "no bus, and no file in its place"
    bus = Mount(directory, place / "log", "allow_other")
    try:
        (bus / "B_log").touch()
        (bus / "B_log").chmod(0o666)
        assert publish() == 0
        bus.unmount()
    finally:
        bus.discard()
    assert publish() != 0
    assert list(directory.iterdir()) == []


def test_others_can_mount_only_where_they_may_write(place: Path, fuse_for_everybody: Path) -> None:
    directory = place / "bus"
    directory.mkdir(0o555)
    os.chown(directory, 65534, 65534)
    refused = run(sys.executable, "-c", BECOME + MOUNTER, directory)
    assert refused.returncode == 1
    assert f"user has no write access to mountpoint {directory}" in refused.stderr
    assert refused.stderr.count("\n") == 1
