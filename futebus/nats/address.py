"""Where a subject is, `nats://SERVER[,SERVER...]/SUBJECT`, or a stream, `nats://SERVER/STREAM[/SUBJECT]`: read and shown.

The one rule: what is wrong with an address is said before anything is opened, and what is shown has no password.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from .errors import masked

PORT = 4222
"""Where NATS servers listen."""

SCHEMES = ("nats", "tls")

LONGEST_SUBJECT = 1000
"""Bytes. A server takes lines of 4,096 in its protocol, which have more in them."""

LONGEST_STREAM = 255
"""Bytes of a stream's name that a server takes."""

_SERVER = r"(?:[A-Za-z]\w*://)?[^/,]*"
_ADDRESS = re.compile(rf"(?P<servers>[A-Za-z]\w*://[^/,]*(?:,{_SERVER})*)(?:/(?P<subject>.*))?", re.DOTALL)


class Server(NamedTuple):
    """One server of NATS."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = None
    tls_name: str | None = None
    """What its certificate must have, if that is not the host."""

    @property
    def place(self) -> str:
        """Its host and port; an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """Its URL, without user and password."""
        return f"{self.scheme}://{self.place}"


class Address(NamedTuple):
    """A subject, and the servers that have it; without any, they are those of the environment."""

    servers: tuple[Server, ...]
    subject: str

    @property
    def shown(self) -> str:
        """It as a URL, without users and passwords."""
        return f"{shown(self.servers)}/{self.subject}"


class StreamAddress(NamedTuple):
    """A stream, or what one has of a subject, and the servers that have it; without any, they are those of the environment."""

    servers: tuple[Server, ...]
    stream: str
    subject: str | None

    @property
    def shown(self) -> str:
        """It as a URL, without users and passwords."""
        return f"{shown(self.servers)}/{self.stream}" + (f"/{self.subject}" if self.subject is not None else "")


def shown(servers: tuple[Server, ...]) -> str:
    """Servers as a URL, without users and passwords."""
    first, *others = (server.shown for server in servers) if servers else ("nats://",)
    scheme = first.partition("://")[0]
    return ",".join([first, *(other.removeprefix(f"{scheme}://") for other in others)])


def read(text: str) -> Address:
    """Reads the address of a subject.

    Raises:
        ValueError: it is none. The message has no password.
    """
    with _hiding(text):
        found = _ADDRESS.fullmatch(text)
        if not found or found["subject"] is None:
            raise ValueError(f"not nats://SERVER/SUBJECT: {masked(text)!r}")
        return Address(read_servers(found["servers"]), read_subject(found["subject"]))


def read_stream(text: str, *, has_subject: bool | None = None, is_filter: bool = False) -> StreamAddress:
    """Reads the address of a stream.

    Args:
        text: it.
        has_subject: whether it must name a subject; None: it may.
        is_filter: whether that may have wildcards, and so be many subjects.

    Raises:
        ValueError: it is none. The message has no password.
    """
    form = "nats://SERVER/STREAM" + {True: "/SUBJECT", False: "", None: "[/SUBJECT]"}[has_subject]
    with _hiding(text):
        found = _ADDRESS.fullmatch(text)
        if not found or not found["subject"]:
            raise ValueError(f"not {form}: {masked(text)!r}")
        stream, slash, subject = found["subject"].partition("/")
        if has_subject is not None and bool(slash) != has_subject:
            raise ValueError(f"not {form}: {masked(text)!r}")
        servers = read_servers(found["servers"])
        if slash and not subject:
            raise ValueError("a subject is missing: nats://SERVER/STREAM/SUBJECT")
        return StreamAddress(servers, _read_name(stream), read_subject(subject, is_filter=is_filter) if slash else None)


def is_within(subject: str, subjects: Iterable[str]) -> bool:
    """Whether a subject, or all that a filter stands for, is among subjects with wildcards."""
    return any(_covers(wide.split("."), subject.split(".")) for wide in subjects)


def _covers(wide: list[str], narrow: list[str]) -> bool:
    for number, word in enumerate(wide):
        if word == ">":
            return len(narrow) > number
        if number >= len(narrow) or narrow[number] == ">" or (word != "*" and word != narrow[number]):
            return False
    return len(wide) == len(narrow)


def _read_name(text: str) -> str:
    """Reads the name of a stream. Servers make a directory of it."""
    if not text.isascii() or not text.isprintable() or re.search(r"[\s.*>/\\]", text) or not text:
        raise ValueError(f"a stream has a name of ASCII, without blanks, dots, slashes and wildcards: {text!r}")
    if len(text) > LONGEST_STREAM:
        raise ValueError(f"a stream's name has at most {LONGEST_STREAM} bytes, and not {len(text)}")
    return text


@contextlib.contextmanager
def _hiding(text: str) -> Iterator[None]:
    """Of something with a name or a password in it nothing is shown if it is wrong: what is which is not known then."""
    try:
        yield
    except ValueError:
        if "@" not in text:
            raise
        raise ValueError(
            f"not nats://USER:PASSWORD@SERVER/SUBJECT, with %2F, %2C and %40 for / , and @: {masked(text)!r}"
        ) from None


def read_servers(text: str) -> tuple[Server, ...]:
    """Reads `nats://HOST:PORT,HOST:PORT`, as NATS_URL has it. The scheme may stand before each, or before the first alone.

    Returns:
        The servers; none if nothing is behind the scheme.

    Raises:
        ValueError: they are none. The message has no password.
    """
    with _hiding(text):
        return tuple(_servers(text))


def _servers(text: str) -> Iterator[Server]:
    scheme = SCHEMES[0]
    for piece in text.split(","):
        before, separator, rest = piece.strip().rpartition("://")
        if separator:
            scheme = before.lower()
        if scheme not in SCHEMES:
            raise ValueError(f"nats:// or tls://, and not {masked(piece)!r}")
        if rest := rest.removesuffix("/"):
            yield _server(scheme, rest)
        elif "," in text:
            raise ValueError(f"a server is missing between the commas: {masked(text)!r}")


def _server(scheme: str, place: str) -> Server:
    try:
        parts = urlsplit(f"{scheme}://{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"not a host and a port: {masked(place)!r}") from None
    if not host or port == 0 or parts.path or parts.query or parts.fragment or re.search(r"[\s\x00-\x20]", host):
        raise ValueError(f"not a host and a port: {masked(place)!r}")
    user, password = (unquote(word) if word is not None else None for word in _who(parts))
    return Server(scheme, host, PORT if port is None else port, user, password)


def _who(parts: SplitResult) -> tuple[str | None, str | None]:
    return parts.username, parts.password


def read_subject(text: str, *, is_filter: bool = False) -> str:
    """Reads a subject that lines can be said on.

    Args:
        text: it.
        is_filter: whether it may have wildcards: `*` for one word, `>` for one or more at the end.

    Raises:
        ValueError: it is none, or one for listening alone.
    """
    if not text:
        raise ValueError("a subject is missing: nats://SERVER/SUBJECT")
    if "/" in text:
        raise ValueError(f"a subject has dots between its words, and no slash: {text!r}")
    if is_filter:
        words = text.split(".")
        if any(("*" in word or ">" in word) and word not in ("*", ">") for word in words) or ">" in words[:-1]:
            raise ValueError(f"* stands for a word and > for the last ones, and neither within a word: {text!r}")
    elif "*" in text or ">" in text:
        raise ValueError(f"one subject, please, and no wildcard: {text!r}")
    if "@" in text:
        raise ValueError("a subject has no @")
    if text.startswith("$"):
        raise ValueError(f"subjects that begin with $ are the servers' own: {text!r}")
    if text.split(".")[0] == "_INBOX":
        raise ValueError(f"subjects that begin with _INBOX are for answers: {text!r}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a subject is text in UTF-8: {text!r}") from None
    if not text.isprintable() or " " in text or not all(text.split(".")):
        raise ValueError(f"a subject is words with dots between, without blanks: {text!r}")
    if size > LONGEST_SUBJECT:
        raise ValueError(f"a subject has at most {LONGEST_SUBJECT} bytes, and not {size}")
    return text
