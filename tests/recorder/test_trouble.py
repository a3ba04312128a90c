"""What a recorder says of a stream that does not take its lines."""

import threading

from futebus.nats.stream import Stream
from futebus.recorder.target import read_note

from ..helpers.mounts import Mount
from ..helpers.nats import Server
from ..helpers.published import ask, lines_in, messages, proxied, wait_for_line
from ..helpers.recorders import Recording, kill
from ..helpers.waiting import until
from ..spool.spools import numbered


def test_a_stream_that_is_full_is_not_there_again(bus: Mount, recording: Recording, keeping: Server) -> None:
    """It is reached each time that it is tried, and takes nothing."""

    async def make(stream: Stream) -> None:
        await stream.make(["lines"], max_msgs=1, discard="new")

    async def widen(stream: Stream) -> None:
        config = (await stream.jetstream.stream_info("LINES")).config
        config.max_msgs = 100
        await stream.jetstream.update_stream(config)

    ask(keeping.url, make)
    with proxied(keeping) as network:
        url = f"nats://127.0.0.1:{network.port}/LINES"
        recorder = recording(bus / "U_x", "--to", f"{url}/lines")
        (bus / "U_x").write_bytes(numbered(0, 10))
        wait_for_line(keeping.url, "lines", 10)
        (bus / "U_x").write_bytes(numbered(10, 20))
        recorder.wait_for(f"lines: nats://127.0.0.1:{network.port}: maximum messages exceeded; 10 lines (")
        before = network.connections
        until(lambda: network.connections >= before + 3, "it is tried again")
        assert "there again" not in recorder.words
        assert recorder.words.count("maximum messages exceeded") == 1
        assert (note := read_note(recorder.spool))
        assert "maximum messages exceeded" in note.trouble
        ask(keeping.url, widen)
        recorder.wait_for(f"{url}/lines is there again; 10 lines (")
        until(lambda: (note := read_note(recorder.spool)) is not None and not note.trouble, "the note says so, too")
        recorder.end()
    assert lines_in(messages(keeping.url)) == numbered(0, 20)


def test_it_is_there_again_when_nothing_is_left(bus: Mount, recording: Recording, keeping: Server) -> None:
    recorder = recording(bus / "U_x", "--to", f"{keeping.url}/LINES/lines")
    (bus / "U_x").write_bytes(numbered(0, 10))
    until(lambda: (note := read_note(recorder.spool)) and note.next == 10, "it knows that the stream has them")
    keeping.kill()
    recorder.wait_for(f"lines: {keeping.url}")
    keeping.begin()
    recorder.wait_for(f"{keeping.url}/LINES/lines is there again\n")
    assert " kept for it" not in recorder.words
    # What another publisher, since killed, has noted is no trouble for ever.
    kill(recorder.publisher())
    (bus / "U_x").write_bytes(numbered(10, 20))
    wait_for_line(keeping.url, "lines", 20)
    recorder.end()
    assert (note := read_note(recorder.spool))
    assert not note.trouble


def test_a_connection_that_ends_before_the_stream_is_known_is_not_waited_for(
    bus: Mount, recording: Recording, keeping: Server
) -> None:
    ask(keeping.url, lambda stream: stream.make(["lines"]))
    with proxied(keeping) as network:
        network.holds = b"stream_info_response"

        def cut() -> None:
            until(lambda: network.is_holding, "it is told what the stream has")
            network.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        recorder = recording(bus / "U_x", "--to", f"nats://127.0.0.1:{network.port}/LINES/lines")
        cutting.join()
        network.mend()
        (bus / "U_x").write_bytes(numbered(0, 10))
        wait_for_line(keeping.url, "lines", 10)
        recorder.end()
    assert "does not answer" not in recorder.words
