"""Channels as files: names, attributes, and what the system calls answer."""

import errno
import mmap
import os
import stat
import subprocess
import sys

import pytest

from ..helpers.mounts import SHOWN, Mount, Mounting, run
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until


def refusal(call: object, *arguments: object) -> str:
    """The name of the errno that a call fails with."""
    try:
        call(*arguments)  # type: ignore[operator]
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "no error"


@pytest.mark.parametrize("letter", ["A", "B"])
def test_a_and_b_channels_are_made_by_any_creating_open_and_stay(bus: Mount, letter: str) -> None:
    path = bus / f"{letter}_x"
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o640))
    assert os.listdir(bus.path) == [*SHOWN, f"{letter}_x"]
    assert stat.filemode(path.stat().st_mode) == "-rw-r-----"
    path.unlink()
    assert os.listdir(bus.path) == SHOWN


@pytest.mark.parametrize("letter", ["U", "S"])
def test_u_and_s_channels_live_as_long_as_their_master(bus: Mount, letter: str) -> None:
    master = os.open(bus / f".{letter}_x", os.O_RDWR | os.O_CREAT)
    assert os.listdir(bus.path) == [*SHOWN, f"{letter}_x"]
    assert not (bus / f".{letter}_x").exists()
    os.close(master)
    until(lambda: os.listdir(bus.path) == SHOWN, "the name is gone")


CREATE = os.O_WRONLY | os.O_CREAT


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("xyz", CREATE, "ENXIO"),
        ("b_log", CREATE, "ENXIO"),
        (".B_log", CREATE, "ENXIO"),
        (".A_log", CREATE, "ENXIO"),
        ("++B_log", CREATE, "ENXIO"),
        ("xyz", os.O_WRONLY, "ENOENT"),
        ("B_none", os.O_WRONLY, "ENOENT"),
        ("U_none", os.O_WRONLY, "ENOENT"),
        (".U_none", os.O_RDWR, "ENOENT"),
        (".U_there", os.O_RDWR, "ENOENT"),
        ("U_none", CREATE, "ESPIPE"),
        ("S_none", CREATE, "ESPIPE"),
        (".U_there", CREATE, "EEXIST"),
        ("B_there", CREATE | os.O_EXCL, "EEXIST"),
        ("U_there", CREATE | os.O_EXCL, "EEXIST"),
        ("_stat", os.O_WRONLY, "ESRCH"),
        ("_stat", os.O_RDWR, "ESRCH"),
        ("_stat", CREATE | os.O_TRUNC, "ESRCH"),
        ("B" * 256, CREATE, "ENAMETOOLONG"),
        ("B" * 255, CREATE, "no error"),
        ("+B_new", CREATE, "no error"),
        ("+.U_new", CREATE, "no error"),
        ("+B_there", os.O_RDONLY, "no error"),
        ("+_stat", os.O_RDONLY, "no error"),
        ("U_there", CREATE | os.O_TRUNC, "no error"),
        ("B_there", os.O_ACCMODE, "no error"),  # neither to read nor to write
    ],
)
def test_what_open_answers(bus: Mount, name: str, flags: int, expected: str) -> None:
    master = os.open(bus / ".U_there", os.O_RDWR | os.O_CREAT)
    bus.touch("B_there")

    def open_and_close() -> None:
        os.close(os.open(bus / name, flags))

    assert refusal(open_and_close) == expected
    os.close(master)


def test_a_bus_holds_nothing_but_channels(bus: Mount) -> None:
    channel = bus.touch("B_x")
    assert refusal(os.mkdir, bus / "B_dir") == "EPERM"
    assert refusal(os.rmdir, bus / "B_x") == "ENOTDIR"
    assert refusal(os.symlink, "target", bus / "B_link") == "EPERM"
    assert refusal(os.link, channel, bus / "B_link") == "EPERM"
    assert refusal(os.rename, channel, bus / "B_y") == "EPERM"
    assert refusal(os.mknod, bus / "B_fifo", stat.S_IFIFO | 0o600) == "EPERM"
    assert refusal(os.unlink, bus / "_stat") == "ENXIO"
    assert refusal(os.unlink, bus / "B_none") == "ENOENT"
    assert refusal(os.setxattr, channel, "user.x", b"1") in ("ENOTSUP", "EOPNOTSUPP")
    assert refusal(os.getxattr, channel, "user.x") in ("ENOTSUP", "EOPNOTSUPP")
    assert refusal(os.listxattr, channel) in ("ENOTSUP", "EOPNOTSUPP")
    assert os.listdir(bus.path) == [*SHOWN, "B_x"]


def test_streams_do_not_seek(bus: Mount) -> None:
    descriptor = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    assert refusal(os.lseek, descriptor, 0, os.SEEK_SET) == "ESPIPE"
    assert refusal(os.lseek, descriptor, 0, os.SEEK_CUR) == "ESPIPE"
    assert refusal(os.pread, descriptor, 1, 0) == "ESPIPE"
    assert refusal(os.pwrite, descriptor, b"x\n", 0) == "ESPIPE"
    os.close(descriptor)


def test_chmod_chown_touch_and_truncate_work_as_on_any_file(bus: Mount) -> None:
    channel = bus.touch("B_x")
    channel.chmod(0o4604)
    os.chown(channel, 12, 34)
    os.utime(channel, ns=(1_000_000_001, 2_000_000_002))
    os.truncate(channel, 4096)
    found = channel.stat()
    assert (found.st_uid, found.st_gid, found.st_size) == (12, 34, 0)
    assert stat.S_IMODE(found.st_mode) == 0o0604  # chown takes set-user-ID away, as everywhere
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    assert found.st_nlink == 1


@pytest.mark.parametrize("how", [">", ">>", "<>", "<"])
def test_opening_a_channel_changes_no_times_of_it(bus: Mount, how: str) -> None:
    channel = bus.touch("B_x")
    os.utime(channel, ns=(1_000_000_001, 2_000_000_002))
    changed = channel.stat().st_ctime_ns
    run("sh", "-c", f"exec 5{how} {channel}")
    found = channel.stat()
    assert (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns) == (1_000_000_001, 2_000_000_002, changed)


def test_a_chmod_stays_while_others_open_with_trunc(mounting: Mounting, start: Start) -> None:
    """The kernel takes set-user-ID away for them, by a mode that it has asked for before."""
    bus = mounting("allow_other")
    channel = bus.touch("B_x")
    channel.chmod(0o4622)
    words = ["sh", "-c", f"echo; while : > {channel}; do :; done"]
    others = [start(*words, user=65534, group=65534, extra_groups=[]) for _ in range(2)]
    for other in others:
        assert other.stdout is not None
        other.stdout.readline()
    for mode in range(3000):
        channel.chmod(0o4622 | (mode & 0o145))
        assert channel.stat().st_mode & 0o777 == 0o622 | (mode & 0o145)
    assert all(other.poll() is None for other in others)


def test_a_chmod_stays_while_the_channels_group_changes(mounting: Mounting, start: Start) -> None:
    bus = mounting("allow_other")
    channel, same = bus.touch("B_x"), bus / "+B_x"  # the kernel lets two names go on at the same time
    words = "import os, sys\nprint(flush=True)\nwhile True: os.chown(sys.argv[1], -1, 65534)"
    other = start(sys.executable, "-c", words, same)
    assert other.stdout is not None
    other.stdout.readline()
    for mode in range(3000):
        channel.chmod(0o4622)
        channel.chmod(0o600 | (mode & 0o044))
        assert channel.stat().st_mode & 0o777 == 0o600 | (mode & 0o044)
    assert other.poll() is None


def test_the_files_owner_is_its_creator_and_its_mode_knows_the_umask(mounting: Mounting) -> None:
    bus = mounting("allow_other")
    run("sh", "-c", f"umask 027; echo > {bus / 'B_x'}", user=65534, group=65534, extra_groups=[])
    found = (bus / "B_x").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65534, 0o640)


def test_times_move_with_messages(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    os.utime(bus / "B_x", ns=(1, 1))
    os.write(writer, b"half")
    assert os.stat(bus / "B_x").st_mtime_ns == 1, "no message yet"
    os.write(writer, b" whole\n")
    assert (bus / "B_x").stat().st_mtime_ns > 1
    assert (bus / "B_x").stat().st_atime_ns == 1
    os.read(reader, 100)
    assert (bus / "B_x").stat().st_atime_ns > 1
    os.close(reader)
    os.close(writer)


def test_every_way_to_see_the_inode_number_agrees_and_it_stays(bus: Mount) -> None:
    channel = bus.touch("B_x")
    number = channel.stat().st_ino
    descriptors = [os.open(channel, os.O_RDWR) for _ in range(3)]
    assert {os.fstat(descriptor).st_ino for descriptor in descriptors} == {number}
    assert channel.stat().st_ino == number
    assert {entry.name: entry.inode() for entry in os.scandir(bus.path)}["B_x"] == number
    listed = run("ls", "-i", bus.path).stdout.split()
    assert listed[listed.index("B_x") - 1] == str(number)
    for descriptor in descriptors:
        os.close(descriptor)
    channel.unlink()
    assert bus.touch("B_x").stat().st_ino != number, "a new channel of the same name is a new channel"


def test_names_are_any_bytes(bus: Mount) -> None:
    name = b"B_\xff\x1b[31m \xc3\xa9\\"
    path = os.path.join(os.fsencode(bus.path), name)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    assert name in os.listdir(os.fsencode(bus.path))
    assert "B_\\xff\\x1b[31m \u00e9\\\\" in bus.stat()
    os.unlink(path)


def test_rm_takes_only_the_name(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    (bus / "B_x").unlink()
    assert os.fstat(reader).st_nlink == 0
    newcomer = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    os.write(writer, b"old\n")
    os.write(newcomer, b"new\n")
    assert os.read(reader, 100) == b"old\n"
    os.set_blocking(reader, False)
    assert refusal(os.read, reader, 100) == "EAGAIN"
    for descriptor in (reader, writer, newcomer):
        os.close(descriptor)


def test_removing_a_name_for_bulk_reading_removes_the_channel(bus: Mount) -> None:
    bus.touch("B_x")
    (bus / "+B_x").unlink()
    assert os.listdir(bus.path) == SHOWN


def test_bulk_reads_many_messages_and_a_plain_read_one(bus: Mount) -> None:
    plain = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    bulk = os.open(bus / "+B_x", os.O_RDONLY)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    os.write(writer, b"one\ntwo\nthree\n")
    assert os.read(plain, 100) == b"one\n"
    assert os.read(bulk, 10) == b"one\ntwo\n"
    assert os.read(bulk, 3) == b"thr"
    assert os.read(bulk, 100) == b"ee\n"
    for descriptor in (plain, bulk, writer):
        os.close(descriptor)


def test_c_programs_read_in_bulk_with_large_buffers(bus: Mount) -> None:
    bus.touch("B_x")
    assert (bus / "B_x").stat().st_blksize == 4096
    assert (bus / "+B_x").stat().st_blksize == 131072
    descriptor = os.open(bus / "+B_x", os.O_RDONLY)
    assert os.fstat(descriptor).st_blksize == 131072
    os.close(descriptor)


def test_a_bus_mounted_for_bulk_reads_so_by_any_name(mounting: Mounting) -> None:
    bus = mounting("bulk")
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    (bus / "B_x").write_text("one\ntwo\n")
    assert os.read(reader, 100) == b"one\ntwo\n"
    os.close(reader)


def test_messages_are_bytes(bus: Mount) -> None:
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    message = bytes(range(10)) + bytes(range(11, 256)) + b"\n"
    (bus / "B_x").write_bytes(message)
    assert os.read(reader, 1000) == message
    os.close(reader)


def test_stat_is_a_snapshot_that_can_be_read_in_pieces(bus: Mount) -> None:
    whole = bus.stat()
    assert whole.startswith("futebus ")
    assert str(bus.path) in whole
    with (bus / "_stat").open("rb", buffering=0) as file:
        bus.touch("B_later")
        pieces = b"".join(iter(lambda: file.read(7), b""))
    assert b"B_later" not in pieces
    assert pieces.decode().splitlines()[1:] == whole.splitlines()[1:]
    assert "B_later" in bus.stat()


def test_the_directory_is_everybodys_and_sticky_and_can_be_changed(mounting: Mounting) -> None:
    bus = mounting()
    assert stat.filemode(bus.path.stat().st_mode) == "drwxrwxrwt"
    os.chmod(bus.path, 0o750)
    assert stat.filemode(bus.path.stat().st_mode) == "drwxr-x---"
    other = mounting("mode=0711", "uid=12", "gid=34")
    found = other.path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o711, 12, 34)


def test_a_full_listing_survives_channels_that_come_and_go(bus: Mount) -> None:
    names = [f"B_{number:04}" for number in range(1500)]
    for name in names:
        bus.touch(name)
    assert os.listdir(bus.path) == [*SHOWN, *names]
    with os.scandir(bus.path) as entries:
        seen = [next(entries).name]
        for name in names[::2]:
            (bus / name).unlink()
        seen += [entry.name for entry in entries]
    assert set(names[1::2]) <= set(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("option", "expected"),
    [("max_channels=2", "ENOSPC"), ("max_clients=2", "ENFILE")],
)
def test_limits_of_the_bus(mounting: Mounting, option: str, expected: str) -> None:
    bus = mounting(option)
    held = [os.open(bus / f"B_{number}", os.O_RDWR | os.O_CREAT) for number in range(2)]

    def one_more() -> None:
        os.close(os.open(bus / "B_more", os.O_RDWR | os.O_CREAT))

    assert refusal(one_more) == expected
    for descriptor in held:
        os.close(descriptor)


def test_a_message_can_be_as_long_as_max_message_and_no_longer(mounting: Mounting) -> None:
    bus = mounting("max_message=10")
    reader = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    assert os.write(writer, b"123456789\n") == 10
    assert os.write(writer, b"ok\n1234567890\n") == 3, "a short count up to the line that is too long"
    assert refusal(os.write, writer, b"1234567890\n") == "EMSGSIZE"
    assert os.write(writer, b"next\n") == 5
    assert [os.read(reader, 100) for _ in range(3)] == [b"123456789\n", b"ok\n", b"next\n"]
    os.close(reader)
    os.close(writer)


def test_what_is_wrong_late_in_one_long_write_is_not_lost(mounting: Mounting) -> None:
    """The kernel splits a write of several megabytes, and makes a short count of an error in a later piece."""
    bus = mounting("max_queue_bytes=64M", "max_queue=1M")
    reader = os.open(bus / "+B_x", os.O_RDONLY | os.O_CREAT)
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_APPEND):
        writer = os.open(bus / "B_x", flags)
        good = b"x" * 99 + b"\n"
        # The long line begins in the first piece, where it could still be one that is allowed, and goes on in the second.
        data = good * 10_400 + b"y" * 300_000 + b"\n" + good
        done = os.write(writer, data)
        assert 1_000_000 < done < len(data)
        assert refusal(os.write, writer, data[done:]) == "EMSGSIZE"
        os.write(writer, b"fresh\n")
        received = b""
        while not received.endswith(b"fresh\n"):
            received += os.read(reader, 1 << 20)
        assert received == good * 10_400 + b"fresh\n"
        os.close(writer)
    os.close(reader)


def test_statfs_tells_how_many_channels_there_can_be(mounting: Mounting) -> None:
    bus = mounting("max_channels=10")
    bus.touch("B_x")
    found = os.statvfs(bus.path)
    assert (found.f_files, found.f_ffree, found.f_namemax) == (10, 9, 255)


def test_fsync_does_no_harm(bus: Mount) -> None:
    writer = os.open(bus / "B_x", os.O_WRONLY | os.O_CREAT)
    os.fsync(writer)
    os.fdatasync(writer)
    os.close(writer)


def test_a_channel_can_be_opened_through_its_descriptor(bus: Mount) -> None:
    """/dev/fd knows the kernel's inode, not the name: the second open of one must work like any other."""
    master = os.open(bus / ".U_x", os.O_RDWR | os.O_CREAT)
    slave = os.open(f"/dev/fd/{master}", os.O_RDWR)
    again = os.open(f"/dev/fd/{slave}", os.O_WRONLY)
    reader = os.open(f"/dev/fd/{again}", os.O_RDONLY)
    assert [row["role"] for row in bus.clients("U_x")] == ["master", "slave", "slave", "slave"]
    os.write(again, b"hello\n")
    os.write(slave, b"too\n")
    assert [os.read(master, 100) for _ in range(2)] == [b"hello\n", b"too\n"]
    os.write(master, b"bye\n")
    assert os.read(reader, 100) == os.read(slave, 100) == b"bye\n"
    for descriptor in (master, slave, again, reader):
        os.close(descriptor)


def test_clients_are_gone_with_their_last_descriptor(bus: Mount) -> None:
    descriptor = os.open(bus / "B_x", os.O_RDONLY | os.O_CREAT)
    copy = os.dup(descriptor)
    os.close(descriptor)
    assert len(bus.clients("B_x")) == 1
    os.close(copy)
    bus.wait_for_clients(0, "B_x")


@pytest.mark.parametrize("letter", ["B", "U"])
def test_racing_opens_of_one_channel_all_succeed(bus: Mount, letter: str) -> None:
    master = os.open(bus / f"{'.' * (letter == 'U')}{letter}_x", os.O_RDONLY | os.O_CREAT)
    channel = bus / f"{letter}_x"
    script = f"""
import os
for _ in range(150):
    os.close(os.open({str(channel)!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
"""
    racers = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(12)]
    assert [racer.communicate(timeout=DEADLINE)[1] for racer in racers] == [""] * 12
    bus.wait_for_clients(1, f"{letter}_x")
    os.close(master)


@pytest.mark.parametrize("more", [b"", b"y" * 4999 + b"\n"])
def test_a_long_read_splits_no_message_and_does_not_wait(mounting: Mounting, more: bytes) -> None:
    """The kernel makes two of it where the memory begins in the middle of a page, if the first was filled."""
    bus = mounting("max_queue=1M,max_queue_bytes=64M")
    reader = os.open(bus / "+B_x", os.O_RDWR | os.O_CREAT)
    writer = os.open(bus / "B_x", os.O_WRONLY)
    size, at = 1 << 20, 48
    lines = b"x" * 15 + b"\n"
    lines *= (size - at) // len(lines)
    for begin in range(0, len(lines), 1 << 16):
        os.write(writer, lines[begin : begin + (1 << 16)])
    if more:
        os.write(writer, more)
    room = memoryview(mmap.mmap(-1, size + 4096))[at : at + size]
    found: list[bytes] = []
    while len(b"".join(found)) < len(lines + more):
        found.append(bytes(room[: os.readv(reader, [room])]))
    assert found == [lines, more] if more else [lines]
    for file in (reader, writer):
        os.close(file)
