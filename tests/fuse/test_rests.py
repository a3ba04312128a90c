"""Which requests are pieces of one write(2), and what is known of a thread of which another may come."""

import os
import subprocess
from pathlib import Path

import pytest

from futebus.core.bus import Bus
from futebus.core.client import Access, Client, Owner, Piece
from futebus.fuse.files import SPLIT_PIECE, OpenChannel
from futebus.fuse.rests import Rests, _is_elsewhere

from ..helpers.programs import Start
from ..helpers.waiting import until

ONE, OTHER = 11, 12
LONG = 1 << 20


@pytest.fixture
def client() -> Client:
    made, _ = Bus().create(b"B_x", Access(reads=True, writes=True), Owner(0, 0, 1), 0o644, 0)
    return made


@pytest.mark.parametrize(
    ("caller", "size", "flags", "piece"),
    [
        (ONE, LONG, 0, Piece(ONE, 0, may_go_on=True)),
        (ONE, SPLIT_PIECE, os.O_NONBLOCK, Piece(ONE, 0, may_go_on=True)),
        (ONE, SPLIT_PIECE - 1, 0, None),
        (ONE, LONG, os.O_APPEND, None),
        (0, LONG, 0, None),
    ],
)
def test_what_may_be_a_piece(client: Client, caller: int, size: int, flags: int, piece: Piece | None) -> None:
    """Not where the kernel lets nobody come between; nor of threads that are not told apart."""
    assert Rests.piece(client, caller, 0, size, flags) == piece


def test_a_piece_goes_on_whatever_others_have_begun(client: Client) -> None:
    """So that what is wrong with it is told again, and what is left of a line that is too long is none."""
    file = OpenChannel(client, 1)
    bus = Bus()
    assert not file.continues_write(0, LONG, 0, ONE)
    bus.write(client, b"x" * 10, 0, "one", piece=Piece(ONE, LONG - 10, may_go_on=True))
    assert client.rest
    assert not file.continues_write(0, 5, 0, OTHER)
    assert file.continues_write(LONG, 5, 0, ONE)


def test_what_a_thread_does(start: Start) -> None:
    busy, asleep = start("sh", "-c", "while :; do :; done"), start("sleep", "1000")
    until(lambda: Path(f"/proc/{asleep.pid}/comm").read_text() == "sleep\n", "it sleeps")
    until(lambda: _is_elsewhere(asleep.pid), "it is seen")
    assert not _is_elsewhere(busy.pid)
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert _is_elsewhere(gone.pid)
