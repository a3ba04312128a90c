"""Standard input and output of a program of trio, whatever they are: pipes, files, sockets, terminals, channels.

The one rule: nobody who has the same open file finds it changed. Its flags are shared with the shell, so they are left alone.
"""

import codecs
import errno
import os
import re
import socket
import stat

import trio

READ_BYTES = 128 * 1024
"""How much one read asks for: less than the shortest limit of a call."""

_SHORT = {"\x00": "\\0", "\a": "\\a", "\b": "\\b", "\v": "\\v", "\f": "\\f", "\r": "\\r", "\x1b": "\\e"}
"""How control characters are shown: as the ubus specification writes them."""

_PLAIN = re.compile(r"[\t\n -~]*")


def _reopened(descriptor: int, flags: int) -> int | None:
    """An open file of its own for what a pipe or a terminal is, which does not block; None where that cannot be had."""
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISFIFO(kind) and not (stat.S_ISCHR(kind) and os.isatty(descriptor)):
        return None
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # another user's terminal
        return None


class _Stream:
    def __init__(self, descriptor: int, flags: int) -> None:
        self._socket: socket.socket | None = None
        own = _reopened(descriptor, flags)
        self._file = descriptor if own is None else own
        self._is_own = own is not None
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))


class Input(_Stream):
    """Standard input."""

    def __init__(self, descriptor: int = 0) -> None:
        super().__init__(descriptor, os.O_RDONLY)

    async def read(self) -> bytes:
        """What comes next. Nothing at the end, which a connection that has broken is too."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._file)
            except PermissionError:  # a file is always ready, and epoll(7) does not know it
                await trio.lowlevel.checkpoint()
            try:
                if self._socket:
                    return self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
                return os.read(self._file, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in (errno.ECONNRESET, errno.EIO):  # EIO: the terminal has gone
                    return b""
                raise OSError(error.errno, f"standard input: {error.strerror}") from None


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


class Output(_Stream):
    """Standard output. What a terminal would take for commands is shown there, and nothing but that is changed.

    Args:
        descriptor: where to write.
    """

    def __init__(self, descriptor: int = 1) -> None:
        super().__init__(descriptor, os.O_WRONLY)
        self._turns = trio.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape") if os.isatty(descriptor) else None

    async def write(self, data: bytes) -> None:
        """Writes all of it, and waits for that. Others' words come before or behind it.

        Raises:
            OutputClosed: nobody reads it any more.
        """
        async with self._turns:
            rest = memoryview(shown(self._decoder.decode(data)).encode() if self._decoder else data)
            while rest:
                try:
                    rest = rest[await self._write(rest) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._file)
                except OSError as error:
                    if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EIO):
                        raise OutputClosed from None
                    raise OSError(error.errno, f"standard output: {error.strerror}") from None

    async def _write(self, data: memoryview) -> int:
        if self._socket:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        if self._is_own:
            return os.write(self._file, data)
        # It may wait, and only a thread can.
        return await trio.to_thread.run_sync(os.write, self._file, data, abandon_on_cancel=True)


def shown(text: str) -> str:
    r"""Text as a terminal may have it: tabs and newlines as they are, and other control characters as `\e`, `\v`, `\x01`."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(each if each in "\t\n" or each.isprintable() else _shown(each) for each in text)


def _shown(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return _SHORT.get(character) or (f"\\x{ord(character):02x}" if character < "\x80" else f"\\u{ord(character):04x}")
