"""A bare pyfuse3 file system: one file, handlers that return a constant. What pyfuse3 itself costs per request.

usage: bare_pyfuse3.py MOUNTPOINT
"""

import errno
import os
import stat
import sys

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileHandleT, FileInfo, FileNameT, FlagT, FUSEError, InodeT, RequestContext

NAME = b"line"
LINE = b"ping\n"


class Bare(pyfuse3.Operations):
    """One file, `line`: every read gives the same line, every write succeeds."""

    async def getattr(self, inode: InodeT, ctx: RequestContext) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o755 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o666
        return entry

    async def lookup(self, parent_inode: InodeT, name: FileNameT, ctx: RequestContext) -> EntryAttributes:
        if name != NAME:
            raise FUSEError(errno.ENOENT)
        return await self.getattr(2, ctx)

    async def setattr(self, inode: InodeT, *_: object) -> EntryAttributes:
        return await self.getattr(inode, RequestContext())

    async def open(self, inode: InodeT, flags: FlagT, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=inode, direct_io=True, keep_cache=False, nonseekable=True)

    async def read(self, fh: FileHandleT, off: int, size: int) -> bytes:
        return LINE

    async def write(self, fh: FileHandleT, off: int, buf: bytes) -> int:
        return len(buf)


def main() -> None:
    pyfuse3.init(Bare(), sys.argv[1], {"default_permissions", "fsname=bare", "subtype=bare"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    os.chdir("/")
    main()
