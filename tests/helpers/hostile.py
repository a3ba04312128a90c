"""A file system that calls itself a bus and is none: it lies, hangs, has no end, or says that there is something to read.

Who hangs in it is let go when killed: an attacker's would not do that, and nothing in this world would end who hangs there.

It speaks to the kernel by itself (see fuse(4) and linux/fuse.h), as any user may: with pyfuse3 it could not answer an ioctl(2).
"""

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from futebus.core.inquiry import FORM

from .mounts import MNT_DETACH, abort, device_of, unmount
from .processes import stat_of

_LIBC = ctypes.CDLL(None, use_errno=True)

_HEAD = struct.Struct("<IIQQIIIHH")
_ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_BUFFER = 1 << 20 | 4096

_DIRECT, _STREAM = 1, 16

Said = Callable[[int], bytes | int]
"""What a read of so many bytes gets: bytes, or an error number."""


class Hostile:
    """A mounted one. It answers until it is closed.

    Args:
        directory: where it is mounted.
        files: what is in it, by names; may be changed meanwhile.
        owner: the user of whom the mount table says that it is theirs.
    """

    def __init__(self, directory: Path, files: Mapping[bytes, bytes | Said], owner: int = 0) -> None:
        self.path = directory
        self.files = dict(files)
        self.directories: set[bytes] = set()
        self.hangs: set[tuple[str, bytes]] = set()
        """What is never answered: `lookup`, `open`, `read`, and of which file."""
        self.late: dict[bytes, float] = {}
        """How many seconds late it answers who begins to read a file, if that is this process or one that it has started: others
        would have all wait for it."""
        self.most_listed = 0
        """How many names are listed in each of its directories: as long as it is asked for more."""
        self.listed = 0
        """How many were."""
        self.calls: Counter[tuple[str, bytes]] = Counter()
        """What was asked for by this process and those that it has started. Others look at all buses of the machine."""
        self._names = [b"", b""]
        """By node ids; 1 is the directory."""
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        options = f"fd={self._device},rootmode=40000,user_id={owner},group_id=0,allow_other"
        if _LIBC.mount(b"hostile", os.fsencode(directory), b"fuse.futebus", 6, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def detach(self) -> None:
        """As `umount -l`: it is not there any more, and who hangs in it goes on hanging."""
        unmount(self.path, MNT_DETACH)

    def close(self) -> None:
        """Ends it. Who hangs in it is let go."""
        if self._stop >= 0:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
            self._stop = -1
        if device_of(self.path):
            abort(self.path)

    # ------------------------------------------------------------------------------------------ requests

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._device, select.POLLIN)
        try:
            while self._stop not in dict(poll.poll()):
                try:
                    request = os.read(self._device, _BUFFER)
                except OSError as error:
                    if error.errno == errno.ENODEV:
                        return  # unmounted, and nobody has it
                    continue
                _, opcode, unique, node, _, _, thread, *_ = _HEAD.unpack_from(request)
                if opcode == 36:  # INTERRUPT: of whom
                    unique = int.from_bytes(request[_HEAD.size : _HEAD.size + 8], "little")
                answer = self._answer(opcode, node, thread, request[_HEAD.size :])
                if answer is not None:
                    number, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
                    with contextlib.suppress(OSError):  # whoever asked has gone
                        os.write(self._device, _ANSWER.pack(_ANSWER.size + len(data), number, unique) + data)
        finally:
            os.close(self._device)

    def _answer(self, opcode: int, node: int, thread: int, data: bytes) -> bytes | int | None:
        """What is answered to a thread: bytes, an error number, or nothing, for ever."""
        name = self._names[node] if node < len(self._names) else b""
        match opcode:
            case 26:  # INIT
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 20, 1 << 22, 12, 9, 1 << 20, 1, 256, 0, 0)
            case 1:  # LOOKUP
                found = data.rstrip(b"\0")
                if ("lookup", found) in self.hangs:
                    return None
                if found not in self.files and found not in self.directories:
                    return errno.ENOENT
                if found not in self._names[2:]:
                    self._names.append(found)
                number = self._names.index(found, 2)
                return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self._attributes(number, found)
            case 3:  # GETATTR
                return struct.pack("<QII", 0, 0, 0) + self._attributes(node, name)
            case 14:  # OPEN
                self.calls["open", name] += is_ours(thread)
                flags = _DIRECT if isinstance(self.files.get(name), bytes) else _DIRECT | _STREAM
                return None if ("open", name) in self.hangs else struct.pack("<QII", 0, flags, 0)
            case 27:  # OPENDIR
                return struct.pack("<QII", 0, 0, 0)
            case 15:  # READ
                self.calls["read", name] += is_ours(thread)
                return None if ("read", name) in self.hangs else self._read(name, data, thread)
            case 39:  # IOCTL: as a bus answers it
                return struct.pack("<iIII", 0, 0, 0, 0) + FORM.pack(7, b"B", b"p", b"\5", b"\0", 0, 0, 0, 0, 0)
            case 40:  # POLL: there is something to read
                return struct.pack("<II", select.POLLIN, 0)
            case 28:  # READDIR
                return self._list(data)
            case 18 | 25 | 29:  # RELEASE, FLUSH, RELEASEDIR
                return b""
            case 17:  # STATFS
                return bytes(80)
            case 2 | 42:  # FORGET, BATCH_FORGET: have no answer
                return None
            case 36:
                return errno.EINTR
        return errno.ENOSYS

    def _read(self, name: bytes, data: bytes, thread: int) -> bytes | int:
        _, offset, size = struct.unpack_from("<QQI", data)
        if name in self.late and not offset and is_ours(thread):
            time.sleep(self.late[name])
        said = self.files[name]
        return said[offset : offset + size] if isinstance(said, bytes) else said(size)

    def _list(self, data: bytes) -> bytes:
        _, begin, size = struct.unpack_from("<QQI", data)
        end = min(begin + size // 56, self.most_listed)
        self.listed = max(self.listed, end)
        return b"".join(
            struct.pack("<QQII32s", 1000 + place, place + 1, 26, stat.S_IFREG >> 12, b"%020d.index" % place)
            for place in range(begin, end)
        )

    def _attributes(self, number: int, name: bytes) -> bytes:
        kind = stat.S_IFDIR if number == 1 or name in self.directories else stat.S_IFREG
        return _ATTRIBUTES.pack(number, 0, 0, 0, 0, 0, 0, 0, 0, kind | 0o777, 1, 0, 0, 0, 4096, 0)


def is_ours(thread: int) -> bool:
    """Whether a thread belongs to this process or to one that it has started."""
    while not Path(f"/proc/self/task/{thread}").exists():
        process = stat_of(thread)
        if process is None or process.parent == 0:
            return False
        thread = process.parent
    return True


Mislead = Callable[..., Hostile]


@pytest.fixture
def hostile(place: Path) -> Iterator[Mislead]:
    """Mounts such file systems: `hostile(files)`, in a new directory or in one that is given."""
    made: list[Hostile] = []

    def mount(files: Mapping[bytes, bytes | Said], directory: Path | None = None, owner: int = 0) -> Hostile:
        directory = directory or place / f"hostile{len(made)}"
        directory.mkdir(exist_ok=True)
        made.append(Hostile(directory, files, owner))
        return made[-1]

    try:
        yield mount
    finally:
        for each in made:
            each.close()


def lie(*channels: str, command: str = "") -> dict[bytes, bytes | Said]:
    """The files of what calls itself a bus, with these channels.

    Args:
        channels: the names, as JSON has them.
        command: what a client of each is called; empty: there are no clients.
    """
    head = (
        '{"format": "futebus-stat", "version": 1, "futebus": "0", "daemon_pid": 1, "mountpoint": "/x", "taken_at": 1, '
        '"uptime_seconds": 1, "shutting_down": false, "gone": {}, "limits": {"max_message": 1, "max_queue": 1, '
        '"max_queue_bytes": 1, "max_clients": 1, "max_clients_per_user": 1, "max_channels": 1}, "channels": ['
    )
    counts = ", ".join(
        f'"{key}": 0' for key in "uid gid age_seconds messages_in bytes_in copies messages_out bytes_out dropped lost".split()
    )
    lines = [
        f'{{"name": "{name}", "number": {number}, "type": "{name[0]}", "state": "live", "mode": "0666", {counts}, "clients": []}}'
        for number, name in enumerate(channels)
    ]
    text = head + ("\n" + ",\n".join(lines) + "\n" if lines else "") + "]}\n"
    return {b"_stat": b"", b"_stat.json": text.encode(), b"_metrics": b"# EOF\n"}
