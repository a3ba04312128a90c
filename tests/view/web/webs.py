"""A `futebus-web` that runs, and what browsers say to it."""

import http.client
import json
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from futebus.view.errands import NOT_ANSWERING

from ...helpers.programs import Start
from ...helpers.waiting import DEADLINE, until

WEB = [sys.executable, "-m", "futebus.commands.web"]


class Web:
    """A `futebus-web` on a free port, ready when it is made. What it says goes to a file.

    Args:
        start: starts it.
        place: where the file is.
        arguments: mountpoints and options.
        is_ready: whether it is waited for.
        command: what is started.
    """

    _count = 0

    def __init__(
        self,
        start: Start,
        place: Path,
        *arguments: str | Path,
        port: int | None = 0,
        is_ready: bool = True,
        command: Sequence[str] = WEB,
    ) -> None:
        Web._count += 1
        self._log = place / f"web{Web._count}.log"
        options = [] if port is None else ["--port", str(port)]
        with self._log.open("w") as log:
            self.process = start(*command, *options, *arguments, stderr=log)
        if is_ready:
            until(lambda: "the page is on" in self.words or self.process.poll() is not None, "it is ready")
            assert "the page is on" in self.words, self.words

    @property
    def words(self) -> str:
        """What it has said."""
        return self._log.read_text()

    @property
    def url(self) -> str:
        """Where the page is, with a slash at the end."""
        found = re.search(r"the page is on (\S+)", self.words)
        assert found
        return found[1]

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    @property
    def token(self) -> str:
        """The one that it has made."""
        found = re.search(r"#token=(\S+)", self.words)
        assert found
        return found[1]

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(self, path: str, headers: dict[str, str] | None = None, method: str = "GET", host: str = "127.0.0.1") -> "Answer":
        """Asks for something, and reads all of the answer."""
        connection = http.client.HTTPConnection(host, self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def stream(self, path: str, headers: dict[str, str] | None = None, **query: str) -> "Events":
        """Asks for events."""
        words = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return Events(self.port, f"{path}?{words}", headers or {})

    def tail(self, channel: str, **query: str) -> "Events":
        """Watches a channel, and has it open. A bus that has very much to do may not answer in time: then it is asked again."""

        def opened() -> Events | None:
            events = self.stream("/tail", self.bearer, channel=channel, **query)
            assert events.status == 200
            told = events.next_of_all()
            if told == ("open", {}):
                return events
            events.close()
            assert told == ("trouble", NOT_ANSWERING), told
            return None

        events = until(opened, f"{channel} is watched")
        assert events
        return events

    def raw(self, data: bytes, host: str = "127.0.0.1") -> socket.socket:
        """A connection on which this was sent."""
        made = socket.create_connection((host, self.port), timeout=DEADLINE)
        made.sendall(data)
        return made

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and sees that it ends as it should."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == 0, self.words
        assert "Traceback" not in self.words, self.words


class Answer:
    """What was answered."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()


class Events:
    """A stream of events."""

    def __init__(self, port: int, path: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        self._left = self._blocks()

    def _blocks(self) -> Iterator[tuple[str, Any]]:
        name = data = ""
        for line in self.answer:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data = text[6:]
            elif not text and name:
                yield name, json.loads(data)
                name = data = ""

    def next(self, name: str) -> Any:
        """The data of the next event of a name."""
        return next(data for each, data in self._left if each == name)

    def next_of_all(self) -> tuple[str, Any]:
        """The next event, whatever it is."""
        return next(self._left)

    def bus(self, number: int = 0) -> Any:
        """A bus as it is told next. What is slow to answer is first told of before it was seen."""
        while (told := self.next("buses")["buses"][number])["trouble"] == "not seen yet":
            pass
        return told

    def clients(self) -> Any:
        """The clients of a channel that has some, as they are told next."""
        while not (told := self.next("clients"))["clients"]:
            pass
        return told

    def bus_when(self, condition: Any, number: int = 0) -> Any:
        """A bus as soon as this is true of it."""
        return until(lambda: (bus := self.bus(number)) and condition(bus) and bus, "it is told")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
