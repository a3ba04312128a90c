"""Servers of NATS that really run, and outsiders: clients of NATS that know nothing of a bus."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from .mounts import run
from .ports import free_port
from .programs import Start, stopped
from .waiting import DEADLINE, until

SERVER = shutil.which("nats-server", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") or "nats-server"

T = TypeVar("T")

HEALTHY = """
import http.client, sys, time
said, end = "", time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    asked = http.client.HTTPConnection(sys.argv[1], timeout=10)
    try:
        asked.request("GET", "/healthz")
        answer = asked.getresponse()
        if answer.status == 200:
            sys.exit()
        said = answer.read().decode()
    except OSError as error:
        said = str(error)
    finally:
        asked.close()
    time.sleep(0.01)
sys.exit(said)
"""
"""Waits until the server that has this monitor is healthy. It is run where the server is: others may not see the monitor."""


class Server:
    """A nats-server on a free port of this machine, which it has again when it is started again.

    Args:
        start: starts it.
        place: for its files.
        configuration: lines of a configuration.
        scheme: of its URL.
        address: where it listens, of this machine or of the host that `start` starts it on.
        port: where it listens, if that must be known before.
    """

    def __init__(
        self,
        start: Start,
        place: Path,
        configuration: str = "",
        scheme: str = "nats",
        address: str = "127.0.0.1",
        port: int | None = None,
    ) -> None:
        self._start = start
        self._place, self._store = place, place / "jetstream"
        self._configuration = place / "nats.conf"
        self._configuration.write_text(configuration)
        self._scheme = scheme
        self._address = address
        self.port = port or free_port()
        self.begin()

    def configure(self, old: str, new: str) -> None:
        """Changes its configuration, which it reads when it begins, and when it gets a SIGHUP."""
        self._configuration.write_text(self._configuration.read_text().replace(old, new))

    def begin(self) -> None:
        """Starts it, and waits until it can be connected to."""
        words = ["-a", self._address, "-p", str(self.port), "-c", self._configuration, "--ports_file_dir", self._place]
        with (self._place / "nats.log").open("a") as log:
            self.process = self._start(SERVER, *words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        file = self._place / f"nats-server_{self.process.pid}.ports"

        def told() -> Any:
            assert self.process.poll() is None, (self._place / "nats.log").read_text()
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads(file.read_text())
            return None

        ports = until(told, "the server listens")
        self.port, *_ = (int(url.rpartition(":")[2]) for url in ports["nats"])
        self.cluster = ports.get("cluster", [""])[0].replace("nats://", "nats-route://")
        """Where other servers of its cluster find it, if it is one of them."""
        self._monitor = ports.get("monitoring", [""])[0]

    @property
    def url(self) -> str:
        """Its URL, without a subject."""
        return f"{self._scheme}://{self._address}:{self.port}"

    def __truediv__(self, subject: str) -> str:
        """The URL of a subject."""
        return f"{self.url}/{subject}"

    def as_user(self, who: str) -> str:
        """Its URL for `USER:PASSWORD`."""
        return f"{self._scheme}://{who}@{self._address}:{self.port}"

    def wait_until_current(self) -> None:
        """Waits until it has what it missed of the streams that it keeps with others.

        Until then they must not fail: what one alone has is not there without it. Its configuration has a monitor: `http`.
        """
        asking = self._start(sys.executable, "-c", HEALTHY, self._monitor.removeprefix("http://"), str(DEADLINE))
        said = asking.communicate()
        assert asking.returncode == 0, f"the server does not get what it missed: {said}"

    def kept_floor(self) -> int:
        """Up to which message the only consumer it has was confirmed, as that stands on its disk (2.9).

        It gets there a little later than it is told, and who ends the server just then may have it forgotten.
        """
        numbers = [0]
        for state in self._states():
            numbers, shift = [0], 0
            for byte in state.read_bytes()[2:]:  # behind its version: numbers, seven bits in a byte, the lowest first
                numbers[-1] |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    numbers, shift = [*numbers, 0], 0
        return numbers[1] if len(numbers) > 1 else 0

    def kill(self) -> None:
        """Kills it, outright."""
        self.process.kill()
        self.process.wait()

    @contextlib.contextmanager
    def losing(self, *, is_copied_live: bool = False) -> Iterator[None]:
        """What it keeps of streams meanwhile is gone then, as if it had lost its power.

        Args:
            is_copied_live: whether that is copied while it runs. Else it is started again: what it has been told it has on its
                disk then, and some it says in another way than before.
        """
        kept = self.copied(is_copied_live=is_copied_live)
        yield
        self.take_back(kept)

    def copied(self, *, is_copied_live: bool = False) -> Path:
        """Makes a copy of what it keeps, and returns where; see `losing`."""
        if not is_copied_live:
            self.restart()
        kept = self._place / f"kept{len([*self._place.glob('kept*')])}"
        shutil.copytree(self._store, kept)
        return kept

    def take_back(self, kept: Path) -> None:
        """Kills it, and starts it with what it had kept then."""
        self.kill()
        shutil.rmtree(self._store)
        kept.rename(self._store)
        self.begin()

    def restart(self) -> None:
        """Ends it, and starts it again. What stood on its disk of its consumers does so then.

        When it ends, 2.9 writes that anew, and does not wait until it has: it may leave an empty file, and has forgotten all.
        """
        kept = {state: state.read_bytes() for state in self._states()}
        self.process.terminate()
        self.process.wait()
        for state in self._states():
            if not state.stat().st_size:
                state.write_bytes(kept.get(state, b""))
        self.begin()

    def _states(self) -> Iterator[Path]:
        """The files in which it keeps how far its consumers have come."""
        return self._store.glob("**/obs/*/o.dat")

    def hanging(self) -> contextlib.AbstractContextManager[None]:
        """It hangs meanwhile."""
        return stopped(self.process)


Serving = Callable[..., Server]


@pytest.fixture
def serving(start: Start, place: Path) -> Serving:
    """Starts servers: `serving("max_payload: 1000")`; those that keep streams: `serving(jetstream=True)`."""
    count = 0

    def serve(configuration: str = "", *, jetstream: bool = False, **how: Any) -> Server:
        nonlocal count
        count += 1
        directory = place / f"nats{count}"
        directory.mkdir()
        if jetstream:
            configuration += f'\njetstream {{ store_dir: "{directory}" }}\n'
        return Server(start, directory, configuration, **how)

    return serve


@pytest.fixture
def keeping(serving: Serving) -> Server:
    """A server with JetStream."""
    return serving(jetstream=True)


@pytest.fixture
def nats(serving: Serving) -> Server:
    """A server as it is without a configuration."""
    return serving()


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority `ca.pem`, and certificates that it has signed, with keys: `server`, `client`, and `named` of localhost."""
    place = tmp_path_factory.mktemp("papers")
    script = """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem \\
            -subj /CN=ca -days 9 -addext keyUsage=critical,keyCertSign,cRLSign
        for who in server client named; do
            name=IP:127.0.0.1
            [ $who != named ] || name=DNS:localhost
            openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout $who.key -subj /CN=$who -out $who.csr
            printf "subjectAltName=$name\nauthorityKeyIdentifier=keyid" > ext
            openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $who.pem -days 9 -extfile ext
        done
    """
    done = run("sh", "-ec", script, cwd=place)
    assert done.returncode == 0, done.stderr
    return place


def tls(papers: Path, *more: str, who: str = "server") -> str:
    """The configuration of a server that speaks TLS."""
    return "\n".join([f'tls {{ cert_file: "{papers}/{who}.pem"', f'key_file: "{papers}/{who}.key"', *more, "}"])


async def arrived(client: Client) -> None:
    """Waits until the server has got all that a client of nats-py has sent.

    The ping of its `flush` goes ahead of what waits to be sent; that of a second one does not.
    """
    for _ in range(2):
        await client.flush()


class Outsider:
    """A client of NATS. What comes on a subject it keeps, with headers."""

    def __init__(self, url: str, subject: str = "", **how: Any) -> None:
        self.messages: list[Msg] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = self._do(nats_py.connect(url, allow_reconnect=False, **{"connect_timeout": int(DEADLINE), **how}))
        if subject:
            self._do(self._client.subscribe(subject, cb=self._keep))
        self._do(arrived(self._client))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    async def _keep(self, message: Msg) -> None:
        self.messages.append(message)

    def say(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Sends a message. The server has it when this returns."""
        self._do(self._client.publish(subject, payload, headers=dict(headers) if headers else None))
        self._do(arrived(self._client))

    def number(self) -> str:
        """Which line of a channel the last message begins with."""
        return (self.messages[-1].headers or {})["Futebus-Line"]

    @property
    def data(self) -> bytes:
        """All that has come, without headers."""
        return b"".join(message.data for message in list(self.messages))

    def wait_for(self, data: bytes) -> None:
        """Waits until this has come, and nothing else."""
        until(lambda: len(self.data) >= len(data), f"{data!r} comes, and not {self.data!r}")
        assert self.data == data

    def close(self) -> None:
        """Leaves."""
        with contextlib.suppress(Exception):  # the server may be gone
            self._do(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Listening = Callable[..., Outsider]


@pytest.fixture
def listening() -> Iterator[Listening]:
    """Makes outsiders: `listening(url, subject)`."""
    with contextlib.ExitStack() as stack:

        def listen(*words: str, **how: Any) -> Outsider:
            outsider = Outsider(*words, **how)
            stack.callback(outsider.close)
            return outsider

        yield listen
