"""What a recorder says of a stream that soon forgets the names of messages: of several servers, it may store one twice then."""

from pathlib import Path

import pytest

from futebus.nats.stream import Stream, UnderWay

from ..helpers.clusters import Cluster
from ..helpers.mounts import Mount
from ..helpers.programs import Start
from ..helpers.published import ask, wait_for_line
from ..helpers.recorders import Recording
from ..spool.spools import numbered


@pytest.fixture
def cluster(start: Start, place: Path) -> Cluster:
    return Cluster(start, place)


def test_a_cluster_that_soon_forgets_names_is_doubtful(bus: Mount, recording: Recording, cluster: Cluster, place: Path) -> None:
    async def make(stream: Stream) -> None:
        for name, servers, seconds in (("SHORT", 3, 0.1), ("LONG", 3, 120.0), ("ALONE", 1, 0.1)):
            subjects = [name.lower()]
            await stream.jetstream.add_stream(name=name, subjects=subjects, num_replicas=servers, duplicate_window=seconds)

    ask(cluster.url, make)
    for name in ("SHORT", "LONG", "ALONE"):
        recorder = recording(bus / f"U_{name}", "--to", f"{cluster.url}/{name}/{name.lower()}", spool=place / name)
        (bus / f"U_{name}").write_bytes(numbered(0, 10))
        wait_for_line(cluster.url, name.lower(), 10, name)
        recorder.end()
        said = "/SHORT forgets the names of messages after 0.1 seconds (duplicate_window), so it may have lines twice"
        assert recorder.words.count(said) == (name == "SHORT"), recorder.words


def test_a_cluster_gets_nothing_by_another_name_that_it_knows(cluster: Cluster) -> None:
    """The name is all that keeps a second one out while the first is under way."""

    async def work(stream: Stream) -> int:
        await stream.make(["lines.>"], num_replicas=3, max_msgs=3)
        await stream.publish("lines.a", b"x\n", {}, 0, "one")
        for _ in range(3):
            await stream.jetstream.publish("lines.b", b"other\n")
        for _ in range(2):
            with pytest.raises(UnderWay):
                await stream.publish("lines.a", b"x\n", {}, 0, "one")
        return (await stream.state()).last

    assert ask(cluster.url, work) == 4
