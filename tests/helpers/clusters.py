"""Three servers of NATS that are one cluster, each of which can be killed and started again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from .nats import Server
from .ports import free_port
from .programs import Start
from .waiting import until


class Cluster:
    """Servers that keep streams together.

    Args:
        start: starts programs.
        place: for their files.
    """

    def __init__(self, start: Start, place: Path) -> None:
        # They must know each other's ports before they begin.
        ports = [free_port() for _ in range(3)]
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
        self.servers: list[Server] = []
        for number, port in enumerate(ports):
            directory = place / f"cluster{number}"
            directory.mkdir()
            configuration = (
                f'server_name: server{number}\nhttp: "127.0.0.1:-1"\njetstream {{ store_dir: "{directory}" }}\n'
                f'cluster {{ name: three, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
            )
            self.servers.append(Server(start, directory, configuration))
        self.wait()

    @property
    def url(self) -> str:
        """The URL of all of them."""
        return ",".join(server.url for server in self.servers)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        """A client of any of them, closed also if it cannot connect: else it would be found open by another test, some time."""
        client = Client()
        try:
            await client.connect([server.url for server in self.servers], allow_reconnect=False, connect_timeout=2)
            yield client
        finally:
            await client.close()

    def wait(self) -> None:
        """Waits until they have found each other, and can make streams that all have."""

        async def is_whole() -> bool:
            with contextlib.suppress(Exception):
                async with self._client() as client:
                    jetstream = client.jetstream(timeout=2)
                    await jetstream.add_stream(name="PROBE", subjects=["probe"], num_replicas=3)
                    return await jetstream.delete_stream("PROBE")
            return False

        until(lambda: asyncio.run(is_whole()), "the cluster is whole")

    def leader(self, stream: str) -> Server:
        """Who leads a stream."""

        async def ask() -> Any:
            with contextlib.suppress(Exception):
                async with self._client() as client:
                    return (await client.jetstream(timeout=2).stream_info(stream)).cluster
            return None

        def found() -> str:
            cluster = asyncio.run(ask())
            return cluster.leader if cluster is not None else ""

        return self.servers[int(until(found, "the stream has a leader").removeprefix("server"))]


Clustering = Callable[[], Cluster]


@pytest.fixture
def cluster(start: Start, place: Path) -> Cluster:
    """Three servers that keep streams together."""
    return Cluster(start, place)
