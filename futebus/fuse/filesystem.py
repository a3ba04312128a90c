"""The bus as pyfuse3.Operations: node ids and handles become core calls, bus errors become errno numbers.

Reads and writes do not come here: see `waiting`. No handler ever waits, so one task serves them all.
"""

import errno
import logging
import os
import select
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Never

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileHandleT,
    FileInfo,
    FileNameT,
    FlagT,
    FUSEError,
    InodeT,
    ModeT,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
)

from futebus.core import kinds
from futebus.core.bus import Bus
from futebus.core.channel import Channel
from futebus.core.client import Access, Client, Effects
from futebus.core.errors import BusError, Forbidden, NobodyReads, NoSuchName, TooManyForUser
from futebus.core.kinds import Role
from futebus.core.limits import MAX_NAME
from futebus.host.logs import tell

from . import _hooks, nodes
from .answers import answered, described
from .attributes import BLOCK, Attributes, Root
from .callers import may_open, owner
from .files import OpenChannel, OpenStat
from .listings import FIRST_FILE, Listings, check_room
from .nodes import Node, Nodes, StatFile
from .turns import Insisted
from .waiting import Calls

log = logging.getLogger(__name__)

MAX_STATS_PER_USER = 16
"""Open files of `_stat` and its like of one user other than root. Of a bus with as many clients and channels as it has by
default, with the longest names, each holds 16 MB, but for those that were opened at the same time, which share it."""

OPEN_BYTES = 8192
"""What an open channel costs, when nothing waits in it; about twice that."""

_ACCESS = {
    os.O_RDONLY: Access(True, False),
    os.O_WRONLY: Access(False, True),
    os.O_RDWR: Access(True, True),
    os.O_ACCMODE: Access(False, False),  # Linux: for ioctl(2) only
}
_MODE_BITS = 0o7777


class Directory(pyfuse3.Operations):
    """A bus as a directory.

    Args:
        bus: the bus.
        calls: its open files.
        mode: the directory's permission bits.
        uid: its owner.
        gid: its group.
        is_shared: whether other users than its mounter can get in.
        take_stat: has the text made of a file that shows the bus, with what `counts` tells.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(
        self,
        bus: Bus,
        calls: Calls,
        *,
        mode: int,
        uid: int,
        gid: int,
        is_shared: bool,
        take_stat: Callable[[OpenStat, Callable[[], Mapping[str, int]]], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__()
        self._bus = bus
        self._calls = calls
        self._root = Root(mode, uid, gid, bus.started_at, bus.started_at, bus.started_at)
        self._attributes = Attributes(bus, self._root, is_shared=is_shared)
        self._take_stat = take_stat
        self._clock = clock
        self._listings = Listings(bus)
        self.nodes = Nodes(_hooks.prune, _hooks.lengthen, _hooks.outdate)
        self._insisted = Insisted()
        self.was_used = False
        """Whether somebody has asked for a name in it, or for all: who serves it does not, when he looks whether it is there."""

    def described(self, call: str, arguments: Sequence[object]) -> str:
        """A call as the log names it: see `answers.described`."""
        return described(call, arguments, self.nodes)

    # ------------------------------------------------------------------------------------------ attributes

    @answered
    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        # Not settled: the kernel asks on its way to a lock too, for the permission bits.
        if inode == nodes.ROOT:
            return self._attributes.of_root()
        node = self.nodes[inode]
        return self._attributes.of(node, self.nodes.size_shown(node, ctx.pid))

    @answered
    async def setattr(
        self, inode: InodeT, attr: EntryAttributes, fields: SetattrFields, fh: FileHandleT | None, ctx: RequestContext
    ) -> EntryAttributes:
        # The kernel checks whether the caller may do this (default_permissions). A size is not taken: `>` needs that it works.
        self.nodes.settle(ctx.pid)
        node = None if inode == nodes.ROOT else self.nodes[inode]
        file = node.file if node else self._root
        if isinstance(file, StatFile):
            raise FUSEError(errno.EPERM)
        if isinstance(file, Channel):
            self._bus.keep(file)
        # For an open file the kernel may go by an owner whom the channel had when it was opened.
        if ctx.uid not in (0, file.uid):
            # These bits the kernel may take away for whoever writes.
            harmless = {file.mode & ~bits for bits in (0, stat.S_ISUID, stat.S_ISGID, stat.S_ISUID | stat.S_ISGID)}
            changes_mode = fields.update_mode and not fields.update_size and attr.st_mode & _MODE_BITS not in harmless
            if changes_mode or fields.update_uid or fields.update_gid or fields.update_ctime:  # see `mark_times` of hooks.c
                raise Forbidden("it belongs to somebody else")
            # Whose groups nobody knows, since he is of another PID namespace, is believed.
            touches = fields.update_mtime and not fields.update_size and not fields.update_mode
            if touches and ctx.pid and not may_open(ctx, file, Access(False, True)):
                raise FUSEError(errno.EACCES)
        if fields.update_mode and (fields.update_size or fields.update_uid or fields.update_gid):
            # The kernel takes these bits away for `>` and chown. The others are as it knew them, and may have been changed since.
            file.mode &= attr.st_mode | ~(stat.S_ISUID | stat.S_ISGID)
        elif fields.update_mode:
            # Who changes a mode begins with the one that is shown (`chmod g-w`): what that hides would be lost.
            hidden = stat.S_ISVTX if file is self._root and self._attributes.hides_sticky() else 0
            file.mode = attr.st_mode & _MODE_BITS | hidden
        if fields.update_uid:
            file.uid = attr.st_uid
        if fields.update_gid:
            file.gid = attr.st_gid
        if fields.update_atime:
            file.atime = attr.st_atime_ns
        if fields.update_mtime:
            file.mtime = attr.st_mtime_ns
        if fields.update_mode or not fields.update_size:  # `>` alone changes nothing
            file.ctime = self._clock()
        if node is None:
            return self._attributes.of_root()
        self.nodes.change(node)
        # Nobody sees this size. The kernel takes it over in any case, also if somebody has opened the node since then.
        return self._attributes.of(node, nodes.OPEN_SIZE)

    @answered
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        limits = self._bus.limits
        data = StatvfsData()
        data.f_bsize = data.f_frsize = BLOCK
        data.f_files = limits.max_channels
        data.f_ffree = data.f_favail = max(limits.max_channels - len(self._bus.channels), 0)
        data.f_namemax = MAX_NAME
        return data

    # ------------------------------------------------------------------------------------------ names

    @answered
    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        self.was_used = True
        if parent_inode != nodes.ROOT:
            raise FUSEError(errno.ENOTDIR)
        if name in (b".", b".."):
            return self._attributes.of_root()
        if shown := nodes.STAT_FILES.get(name.removeprefix(b"+")):
            return self._attributes.of_entry(self.nodes.offer(shown, bulk=False, thread=ctx.pid, user=ctx.uid))
        try:
            channel, bulk = self._bus.look_up(name)
        except NoSuchName as error:  # by far the commonest refusal: not worth a log line
            raise FUSEError(error.errno) from None
        self._check_held(ctx.uid)
        return self._attributes.of_entry(self.nodes.offer(channel, bulk, ctx.pid, ctx.uid))

    async def forget(self, inode_list: Sequence[tuple[InodeT, int]]) -> None:
        # Nobody waits for an answer, and of an error pyfuse3 would end.
        for number, count in inode_list:
            self._insisted.do(partial(self.nodes.forget, number, count))

    @answered
    async def unlink(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> None:
        self.nodes.settle(ctx.pid)
        if name.removeprefix(b"+") in kinds.SHOWN:
            raise FUSEError(errno.ENXIO)
        channel, _ = self._bus.look_up(name)
        if self._root.mode & stat.S_ISVTX and ctx.uid not in (0, channel.uid, self._root.uid):
            raise Forbidden("it belongs to somebody else, and the directory is sticky")
        self._bus.unlink(name, self._clock())
        self.nodes.lose_name(channel)
        self.nodes.prune()

    @answered
    async def opendir(self, inode: InodeT, ctx: RequestContext) -> FileHandleT:
        self.was_used = True
        return FileHandleT(self._listings.open(ctx.uid))

    @answered
    async def readdir(self, fh: FileHandleT, start_id: int, token: ReaddirToken) -> None:
        for index, name in self._listings.names(fh, start_id):
            node = None
            if index < FIRST_FILE:
                entry = self._attributes.of_root()
            else:
                file = nodes.STAT_FILES.get(name) or self._bus.channels.get(name)
                if file is None:
                    continue
                node = self.nodes.offer(file, bulk=False, thread=None, user=self._listings.user(fh))
                entry = self._attributes.of_entry(node)
            if not pyfuse3.readdir_reply(token, name, entry, index + 1):
                if node is not None:
                    self.nodes.forget(node.number, 1)
                break

    @answered
    async def releasedir(self, fh: FileHandleT) -> None:
        self._listings.close(fh)

    # ------------------------------------------------------------------------------------------ open files

    @answered
    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        access = _ACCESS[flags & os.O_ACCMODE]
        node = self.nodes[inode]
        channel = node.file
        if isinstance(channel, StatFile) and access.writes:
            raise NobodyReads(f"{channel.name.decode()} is read-only")
        if not isinstance(channel, StatFile):  # what goes on can be seen all the same
            # In open(2) of a 64-bit program there is O_LARGEFILE. The kernel opens a file also to ask for its attributes, which
            # file_getattr(2) lets everybody do who knows its name.
            if not flags and not may_open(ctx, channel, access):
                raise FUSEError(errno.EACCES)
            _check_memory()
            if channel.is_shut and self.nodes.send_back(ctx.pid):
                # Its master has ended it since it was looked up. There may be another, or ENOENT or ESPIPE is the answer.
                raise FUSEError(errno.ESTALE)
        self.nodes.open(node, ctx.pid, access.writes)
        try:
            if isinstance(channel, StatFile):
                return self._open_stat(channel, node, ctx)
            client, effects = self._bus.open(channel, access, owner(ctx), self._clock(), bulk=node.bulk)
            with self._undoing(client, effects):
                return _stream(self._calls.add(OpenChannel(client, node.number)))
        except BaseException:
            self.nodes.close(node, access.writes)
            raise

    @contextmanager
    def _undoing(self, client: Client, effects: Effects) -> Iterator[None]:
        """Takes back an open if there is an error inside: the kernel will not close what it has never seen opened."""
        try:
            yield
        except BaseException:
            self._calls.settle(effects, client.owner.uid)
            self._calls.settle(self._bus.close(client, self._clock()), client.owner.uid)
            raise
        self._calls.settle(effects, client.owner.uid)

    def _open_stat(self, shown: StatFile, node: Node, ctx: RequestContext) -> FileInfo:
        check_room((file.uid for file in self._calls.stats), ctx.uid, MAX_STATS_PER_USER, "_stat files")
        file = OpenStat(shown.name, ctx.uid, node.number)
        self._take_stat(file, self.counts)
        return FileInfo(fh=self._calls.add(file), direct_io=True, keep_cache=False)

    def counts(self) -> dict[str, int]:
        """`Calls.counts`, and the same of what is kept here."""
        self.nodes.prune(everything=True)
        tasks = trio.lowlevel.current_statistics().tasks_living
        return {**self._calls.counts(), "nodes": len(self.nodes), "listings": len(self._listings), "tasks": tasks}

    @answered
    async def create(
        self, parent_inode: InodeT, name: FileNameT, mode: ModeT, flags: FlagT, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        _check_memory()
        access = _ACCESS[flags & os.O_ACCMODE]
        self._check_overtaken(name, access, ctx)
        who = owner(ctx)
        if self._root.mode & stat.S_ISGID:
            who = who._replace(gid=self._root.gid)
        self._check_held(who.uid)
        client, effects = self._bus.create(name, access, who, mode & _MODE_BITS, self._clock(), exclusive=bool(flags & os.O_EXCL))
        with self._undoing(client, effects):
            node = self.nodes.offer(client.channel, client.bulk, ctx.pid, ctx.uid)
            try:
                self.nodes.open(node, ctx.pid, access.writes)
                try:
                    # The size that an open node has is in them.
                    attributes = self._attributes.of_entry(node)
                    return _stream(self._calls.add(OpenChannel(client, node.number))), attributes
                except BaseException:
                    self.nodes.close(node, access.writes)
                    raise
            except BaseException:
                self.nodes.forget(node.number, 1)
                raise

    def _check_held(self, user: int) -> None:
        """Channels that are removed and closed cost as much as open ones, if somebody is in them by open(O_PATH)."""
        if user and self.nodes.held_by(user) >= self._bus.limits.max_clients_per_user:
            raise TooManyForUser("the user holds too many channels that are removed and closed")

    def _check_overtaken(self, name: bytes, access: Access, ctx: RequestContext) -> None:
        """The kernel asks to create what somebody has created since it looked: then it has checked no permission bits."""
        try:
            channel, _ = self._bus.look_up(name)
        except BusError:
            return
        if not may_open(ctx, channel, access):
            tell(log, logging.DEBUG, lambda: f"{self.described('create', (name, ctx))}: refused: its permission bits")
            raise FUSEError(errno.EACCES)

    @answered
    async def release(self, fh: FileHandleT) -> None:
        file = self._calls[fh]
        self._insisted.do(partial(self._calls.remove, fh))
        writes = isinstance(file, OpenChannel) and file.client.access.writes
        self._insisted.do(partial(self.nodes.close, self.nodes[file.node], writes))
        if isinstance(file, OpenChannel):
            channel = file.client.channel
            if channel.is_dead and file.client.role is Role.MASTER:
                self.nodes.lose_name(channel)
            if not channel.is_named:
                self.nodes.prune()

    @answered
    async def poll(self, inode: InodeT, fh: FileHandleT, poll_handle: pyfuse3.PollHandle | None, ctx: RequestContext) -> int:
        file = self._calls[fh]
        if isinstance(file, OpenStat):
            return select.POLLIN | select.POLLRDNORM
        ready = self._bus.poll(file.client, arm=poll_handle is not None)
        if poll_handle is not None:
            file.poll_handle = poll_handle
        return (
            (select.POLLIN | select.POLLRDNORM) * ready.readable
            | select.POLLHUP * ready.hung_up
            | (select.POLLOUT | select.POLLWRNORM) * ready.writable
            | select.POLLERR * ready.broken
        )

    def shut(self, fh: int) -> int:
        """Serves an IOCTL request: see `_hooks.install`."""
        file = self._calls[fh]
        if isinstance(file, OpenStat):
            return errno.ENOTTY
        if not (number := self._calls.shut(file.client)):
            self.nodes.lose_name(file.client.channel)
            self.nodes.prune()
        return number

    # ------------------------------------------------------------------------------------------ what a bus has not

    async def mknod(self, parent_inode: InodeT, name: FileNameT, mode: ModeT, rdev: int, ctx: RequestContext) -> Never:
        self._refuse("mknod", name, ctx)

    async def mkdir(self, parent_inode: InodeT, name: FileNameT, mode: ModeT, ctx: RequestContext) -> Never:
        self._refuse("mkdir", name, ctx)

    async def rmdir(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> Never:
        self._refuse("rmdir", name, ctx)

    async def symlink(self, parent_inode: InodeT, name: FileNameT, target: FileNameT, ctx: RequestContext) -> Never:
        self._refuse("symlink", name, ctx)

    async def rename(
        self,
        parent_inode_old: InodeT,
        name_old: FileNameT,
        parent_inode_new: InodeT,
        name_new: FileNameT,
        flags: FlagT,
        ctx: RequestContext,
    ) -> Never:
        self._refuse("rename", name_old, ctx)

    async def link(self, inode: InodeT, new_parent_inode: InodeT, new_name: FileNameT, ctx: RequestContext) -> Never:
        self._refuse("link", new_name, ctx)

    def _refuse(self, call: str, name: bytes, ctx: RequestContext) -> Never:
        tell(log, logging.DEBUG, lambda: f"{self.described(call, (name, ctx))}: refused: a bus holds channels only")
        raise FUSEError(errno.EPERM)


def _check_memory() -> None:
    """Refuses to open anything while there is none to spare."""
    if not _hooks.has_room(OPEN_BYTES):
        raise FUSEError(errno.EIO)


def _stream(handle: int) -> FileInfo:
    """The answer to an open of a channel; `nonseekable` marks it as a stream for hooks.c."""
    return FileInfo(fh=handle, direct_io=True, keep_cache=False, nonseekable=True)
