"""Streams in which a recorder does not publish: they would not keep what it does."""

from pathlib import Path

from nats.js.api import StreamSource

from futebus.nats.stream import Stream

from ..helpers.mounts import Mount, run
from ..helpers.nats import Server
from ..helpers.published import ask
from ..helpers.recorders import PATIENT


def test_streams_that_are_of_no_use(bus: Mount, keeping: Server, place: Path) -> None:
    async def work(stream: Stream) -> None:
        await stream.make(["lines.a", "lines.b"])
        await stream.jetstream.add_stream(name="MEMORY", subjects=["memory"], storage="memory")
        await stream.jetstream.add_stream(name="INTEREST", subjects=["interest"], retention="interest")
        await stream.jetstream.add_stream(name="QUEUE", subjects=["queue"], retention="workqueue")
        await stream.jetstream.add_stream(name="SILENT", subjects=["silent"], no_ack=True)
        await stream.jetstream.add_stream(name="MIRROR", mirror=StreamSource(name="LINES"))
        await stream.jetstream.add_stream(name="SEALED", subjects=["sealed"])
        await stream.jetstream.update_stream(name="SEALED", subjects=["sealed"], sealed=True)

    ask(keeping.url, work)
    for words, said in {
        "LINES/lines": "LINES does not listen to lines, but to lines.a and lines.b: nats stream edit LINES --subjects",
        "OTHER/lines.a": "OTHER cannot be made: subjects overlap with an existing stream",
        "MEMORY/memory": "MEMORY is kept in memory, and is lost with its servers: one with file storage is needed",
        "INTEREST/interest": "INTEREST drops what has been read, or what nobody waits for (retention interest): one with",
        "QUEUE/queue": "QUEUE drops what has been read, or what nobody waits for (retention workqueue): one with",
        "SILENT/silent": "SILENT acknowledges nothing (no_ack), so nobody knows what it has",
        "MIRROR/lines.a": "MIRROR is a mirror of the stream LINES, and takes nothing else: publish in that one",
        "SEALED/sealed": "SEALED is sealed, and takes nothing any more",
        "LINES/lines.a --stream-replicas 3": "LINES is on 1 of 3 servers that are wanted",
    }.items():
        to, *more = words.split(" ")
        done = run(*PATIENT, "--to", f"{keeping.url}/{to}", *more, bus / "U_x", place / "spool")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert said in done.stderr
