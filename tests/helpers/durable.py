"""What is brought to the disk."""

import os

import pytest


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is synced from now on, which it is all the same."""
    found: list[str] = []
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    return found
