"""What an open file tells of itself: ioctl(2) on a channel, and `futebus-id`."""

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from futebus.client.inquire import inquire
from futebus.client.shut import shut
from futebus.core.inquiry import FORM, REQUEST
from futebus.core.kinds import Role
from tests.helpers.mounts import Mount, Mounting, bash, run
from tests.helpers.waiting import DEADLINE, until

ID = [sys.executable, "-m", "futebus.commands.id"]


def test_a_client_knows_its_own_number_and_role(bus: Mount) -> None:
    master = os.open(bus / ".S_up", os.O_RDWR | os.O_CREAT)
    slave = os.open(bus / "+S_up", os.O_RDONLY)
    told = inquire(master)
    assert (told.id, told.letter, told.role, told.reads, told.writes, told.bulk) == (1, "S", Role.MASTER, True, True, False)
    told = inquire(slave)
    assert (told.id, told.letter, told.role, told.reads, told.writes, told.bulk) == (2, "S", Role.SLAVE, True, False, True)
    assert (told.has_ended, told.is_removed, told.is_shut) == (False, False, False)
    shut(master)
    told = inquire(slave)
    assert (told.has_ended, told.is_removed, told.is_shut) == (False, True, True)
    os.close(master)
    until(lambda: inquire(slave).has_ended, "the slave hears that its master has gone")
    assert inquire(slave).is_removed
    os.close(slave)
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    (bus / "U_x").unlink()
    told = inquire(master)
    assert (told.has_ended, told.is_removed, told.is_shut) == (False, True, False)
    os.close(master)


def test_it_counts_what_waits_what_was_read_and_what_was_dropped(mounting: Mounting) -> None:
    bus = mounting("max_queue=4")
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    os.write(writer, b"one\ntwo\n")
    assert os.read(reader, 2) == b"on"
    told = inquire(reader)
    assert (told.queued, told.queued_bytes, told.received, told.dropped) == (1, 6, 1, 0)
    os.write(writer, b"abc\n" * 10)
    told = inquire(reader)
    assert (told.queued, told.dropped) == (4, 7)
    assert inquire(writer).sent == 12
    os.close(reader)
    os.close(writer)


def test_names_forge_nothing(bus: Mount) -> None:
    """A reader of `_stat` took the rest of such a name for the columns of another channel."""
    forged = os.open(bus.path / f"B_log 1 peer {os.getpid()} 0 x r- 0 0 0 0 0 0 777 ", os.O_RDONLY | os.O_CREAT)
    reader = os.open(bus / "B_log", os.O_RDONLY | os.O_CREAT)
    assert inquire(reader).dropped == inquire(forged).dropped == 0
    os.close(reader)
    os.close(forged)


@pytest.mark.parametrize("what", ["directory", "_stat", "file", "pipe", "null"])
def test_what_is_no_channel_says_so(bus: Mount, tmp_path: Path, what: str) -> None:
    read, write = os.pipe()
    paths = {"directory": bus.path, "_stat": bus / "_stat", "file": tmp_path / "file", "null": Path(os.devnull)}
    (tmp_path / "file").touch()
    descriptor = read if what == "pipe" else os.open(paths[what], os.O_RDONLY)
    with pytest.raises(OSError, match=os.strerror(errno.ENOTTY)):
        inquire(descriptor)
    for each in {descriptor, read, write}:
        os.close(each)


def test_other_numbers_are_refused(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    for number in (REQUEST + 1, REQUEST & ~(FORM.size << 16) | 8 << 16, REQUEST ^ 0xC000_0000):
        with pytest.raises(OSError, match=f"{os.strerror(errno.ENOTTY)}|{os.strerror(errno.EINVAL)}"):
            fcntl.ioctl(reader, number, bytes(FORM.size))
    assert inquire(reader).id == 1
    os.close(reader)


def test_a_file_that_neither_reads_nor_writes_can_ask(bus: Mount) -> None:
    bus.touch("B_x")
    descriptor = os.open(bus / "B_x", os.O_ACCMODE)  # Linux: for ioctl(2) only
    told = inquire(descriptor)
    assert (told.reads, told.writes, told.role) == (False, False, Role.PEER)
    os.close(descriptor)


def test_it_can_be_asked_while_a_read_and_a_write_wait(mounting: Mounting) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    asked = bash(
        f"""exec 3<>{bus.path}/U_x; cat <&3 & {{ echo 1; echo 2; echo 3; }} >&3 &
        until grep -q 'U_x .* write ' {bus.path}/_stat; do :; done
        timeout {DEADLINE:.0f} {" ".join(ID)} <&3; kill -9 $(jobs -p)"""
    )
    assert asked.stdout == "2\n", asked
    os.close(master)


def test_the_shell_can_ask(bus: Mount) -> None:
    told = bash(f"exec 3<>{bus.path}/A_chat 4<>{bus.path}/A_chat; {' '.join(ID)} <&4; {' '.join(ID)} -v <&3")
    assert told.stdout.splitlines() == [
        "2", "id=1", "type=A", "role=peer", "access=rw", "channel=live", "dropped=0", "sent=0", "received=0", "queued=0",
        "queued_bytes=0",
    ]  # fmt: skip
    assert told.returncode == 0


def test_the_shell_is_told_what_is_wrong() -> None:
    told = run(*ID)
    assert told.returncode == 1
    assert told.stderr == "futebus-id: standard input is no channel of a bus (Inappropriate ioctl for device): futebus-id <&3\n"
    assert run(*ID, "x").returncode == 2
    assert run(*ID, "--help").stdout.startswith("usage: futebus-id")
