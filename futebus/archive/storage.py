"""Files of an archive, on whatever storage Spark knows.

The one rule: everything goes through Hadoop's FileSystem, in the JVM. On a local disk it is made durable, which Hadoop leaves to
others, and directories can change places.

Names are relative to the directory of the archive.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..host.durable import sync
from ..spark.telling import Sentence

_META = frozenset("{}[]*?\\")
"""What makes a pattern of a path."""

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class ArchiveError(Sentence, RuntimeError):
    """What is wrong with an archive, in one sentence."""


class StorageError(ArchiveError):
    """What the storage could not do, in one sentence. It may later."""


class File(NamedTuple):
    """A file of the archive."""

    name: str
    size: int
    """In bytes."""


class Storage:
    """The directory of an archive.

    Args:
        spark: whose JVM and configuration to use.
        root: an absolute path, or a URI such as `s3a://bucket/archive`.

    Raises:
        ArchiveError: Spark does not know such storage.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # Hadoop's FileSystem has no other way into Python
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        try:
            self._files = self._root.getFileSystem(
                # A copy: Spark sends the session's own to its tasks, and cannot while a file system adds to it.
                context._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
            )
            self._root = self._files.makeQualified(self._root)
        except (Py4JJavaError, PySparkException) as error:
            raise ArchiveError(f"{root}: {_reason(error)}") from None
        uri = self._root.toUri()
        self._prefix = uri.getPath().rstrip("/") + "/"
        self.local: Path | None = None
        """The directory, if it is one of this host."""
        if uri.getScheme() == "file":
            self.local = Path(uri.getPath())
            # Otherwise there is a `.name.crc` beside each file.
            self._files.setWriteChecksum(False)

    def __str__(self) -> str:
        return str(self.local or self._root.toString())

    def url(self, name: str) -> str:
        """What Spark calls a file or directory: nothing in it is escaped, since Spark would take escapes for the name's own."""
        return str(self._path(name).toString())

    def parquet(self, spark: SparkSession, schema: str | StructType, *names: str, is_partitioned: bool = False) -> DataFrame:
        """The rows of directories of files.

        Args:
            spark: reads them.
            schema: their columns; with `is_partitioned`, those too that directories below the archive's own are called after.
            names: the directories, few.
            is_partitioned: whether there are such columns.
        """
        # Spark's own word for paths that are no patterns. Escapes would not do: Hadoop has no patterns with a colon in them.
        read = spark.read.option("__globPaths__", "false").schema(schema)
        if is_partitioned:
            read = read.option("basePath", str(self._root.toString()))
        urls = [*map(self.url, names)]
        if any(not _META.isdisjoint(url) for url in urls):
            # Of several that look like patterns, it would read each as often as there are such.
            return reduce(DataFrame.unionByName, map(read.parquet, urls))
        return read.parquet(*urls)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def exists(self, name: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._files.exists(self._path(name)))

    def files(self, name: str, *, is_deep: bool = False) -> list[File]:
        """The files of a directory, by name; with `is_deep`, those of the directories in it too. None if it is not there."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            rest = self._listing(name, is_deep)
            while rest.hasNext():
                status = rest.next()
                path = status.getPath().toUri().getPath()
                found.append(File(path.removeprefix(self._prefix), int(status.getLen())))
        return sorted(found)

    def _listing(self, name: str, is_deep: bool) -> Any:
        try:
            return self._files.listFiles(self._path(name), is_deep)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                raise FileNotFoundError(name) from None
            raise StorageError(f"{self}/{name}: {_reason(error)}") from None

    def read(self, name: str) -> str:
        """The text of a file."""
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Makes a file. It is there with all its text, or not at all."""
        draft = f"{name}.new"
        stream = self._files.create(self._path(draft), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.sync([draft])
        self.move(draft, name)
        self.sync([name.rpartition("/")[0]])

    def make_directory(self, name: str) -> None:
        """Makes a directory, and those above it."""
        try:
            self._files.mkdirs(self._path(name))
        except Py4JJavaError as error:
            raise StorageError(f"{self}/{name}: {_reason(error)}") from None

    def move(self, source: str, target: str) -> None:
        """Gives a file another name.

        Raises:
            StorageError: it cannot be done.
        """
        old, new = self._path(source), self._path(target)
        # Where renaming is copying, an earlier attempt may have got as far as this.
        if not self._files.rename(old, new) and not (self._files.delete(new, False) and self._files.rename(old, new)):
            raise StorageError(f"{self}: {source} cannot be renamed to {target}")

    def remove(self, name: str) -> None:
        """Removes a file, or a directory with all that is in it, if it is there."""
        self._files.delete(self._path(name), True)

    def sync(self, names: Iterable[str]) -> None:
        """Has files and directories on the disk before it returns, where that can be asked for."""
        if self.local is not None:
            for name in names:
                sync(self.local / name)

    def exchange(self, one: str, other: str) -> bool:
        """Has two directories change places in one step, so that nobody sees both or none of them.

        Returns:
            Whether it was done. Only Linux's own file systems can do it, and not all of them.
        """
        if self.local is None:
            return False
        try:
            rename = ctypes.CDLL(None, use_errno=True).renameat2
        except AttributeError:  # another libc
            return False
        paths = [os.fsencode(self.local / name) for name in (one, other)]
        if not rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE):
            return True
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            return False
        raise StorageError(f"{self}: {one} cannot be replaced: {os.strerror(number)}")

    def link(self, source: str, target: str) -> None:
        """Gives a file of a local disk a second name."""
        assert self.local is not None
        os.link(self.local / source, self.local / target)


def _reason(error: Py4JJavaError | PySparkException) -> str:
    if isinstance(error, PySparkException):
        return str(error).splitlines()[0]
    return str(error.java_exception.getMessage() or error.java_exception.toString()).splitlines()[0]
