"""A client of NATS made with nats-py, as a program: `read PORT` writes what comes to standard output; `write PORT` sends lines.

It sends the lines of each file that is named on its standard input, as a link does: runs of whole lines, up to `RUN` bytes a
message. A line that begins with `=` is sent itself, without that.
"""

import asyncio
import os
import sys
from collections.abc import Iterator

import nats
from nats.aio.msg import Msg

SUBJECT = "bench"
RUN = 1 << 20
"""Bytes of a message, at most: what a server takes, and one read of a bus brings."""


def runs(lines: bytes, most: int) -> Iterator[bytes]:
    """Cuts lines into runs."""
    start = 0
    while start < len(lines):
        stop = len(lines) if len(lines) - start <= most else lines.rfind(b"\n", start, start + most) + 1
        yield lines[start:stop]
        start = stop


async def read(port: str) -> None:
    """Writes all that comes to the standard output."""

    async def write(message: Msg) -> None:
        data = message.data
        while data:
            data = data[os.write(1, data) :]

    client = await nats.connect(f"nats://127.0.0.1:{port}")
    await client.subscribe(SUBJECT, cb=write, pending_bytes_limit=0, pending_msgs_limit=0)
    await asyncio.sleep(1e6)


async def write(port: str) -> None:
    """Sends what the standard input names."""
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    loop = asyncio.get_running_loop()
    while words := await loop.run_in_executor(None, sys.stdin.readline):
        if words.startswith("="):
            await client.publish(SUBJECT, words[1:].encode())
        else:
            with open(words.rstrip("\n"), "rb") as file:  # noqa: ASYNC230, PTH123 - it has nothing else to do
                for run in runs(file.read(), RUN):
                    await client.publish(SUBJECT, run)
        await client.flush()


if __name__ == "__main__":
    asyncio.run({"read": read, "write": write}[sys.argv[1]](sys.argv[2]))
