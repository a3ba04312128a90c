"""Channels for programs that wait in the call: the plain way. How they wait is in `waiting`."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypedDict, Unpack, overload

from .channel import Mastery, Way, way_to
from .errors import NoClient, is_own
from .messages import Event, Text, What, address_of, addressed, encoded, events, joined, like, opening_of, texts
from .waiting import Waiting

Path = str | os.PathLike[str]


class Reader(Waiting[Text], Generic[Text]):
    """Somebody who listens to a channel. Iterating gives the messages, and ends with the channel."""

    def read(self, timeout: float | None = None) -> Text:
        """The next message.

        Args:
            timeout: how many seconds to wait; None: for ever.

        Raises:
            TimedOut: none has come.
            Ended: none will come any more.
            NoBus: the bus has gone.
        """
        return self._next(timeout)

    def __iter__(self) -> Iterator[Text]:
        return self._each()


class Publisher(Waiting[str]):
    """Somebody who writes to a channel."""

    def __init__(self, way: Way) -> None:
        super().__init__(way, texts(str))
        self._address = address_of(None) if way.name[0] == "A" else b""

    def send(self, *messages: str | bytes, timeout: float | None = None) -> int:
        """Sends messages, in their order.

        Args:
            messages: one line each.
            timeout: how many seconds a master who has no place may be waited for; None: for ever.

        Returns:
            How many were accepted: all of them.

        Raises:
            TimedOut, NoMaster, NoClient, TooLong, NoBus, ClientError: one was not; `accepted` of the error tells how many were
                before it.
            ValueError: one is more than a line. None was sent.
        """
        self.accepted = 0
        return self._send(joined(messages, self._address), timeout, is_to_all=True)


class Slave(Reader[Text]):
    """A slave of a U or S channel: it writes to the master, and hears what the master says. On a B channel, all others."""

    def send(self, *messages: str | bytes, timeout: float | None = None) -> int:
        """Sends messages to the master, as `Publisher.send` does."""
        self.accepted = 0
        return self._send(joined(messages), timeout)


class Collector(Reader[Text], Mastery[Text]):
    """The master of a U channel: it gets what anybody writes, and what it says goes to all slaves that read."""

    def send(self, *messages: str | bytes, timeout: float | None = None) -> int:
        """Sends messages to all slaves, as `Publisher.send` does. It never waits."""
        self.accepted = 0
        return self._send(joined(messages), timeout)


class Peer(Waiting[tuple[int, Text]], Generic[Text]):
    """Somebody on an A channel. Iterating gives the senders' IDs and their messages."""

    def read(self, timeout: float | None = None) -> tuple[int, Text]:
        """The next message and who has sent it, as `Reader.read`."""
        return self._next(timeout)

    def __iter__(self) -> Iterator[tuple[int, Text]]:
        return self._each()

    def send(self, client: int | None, *messages: str | bytes, timeout: float | None = None) -> int:
        """Sends messages to one client, or to all others who read.

        Args:
            client: whose, by its ID; None: everybody's.
            messages: one line each.
            timeout: as for `Publisher.send`.

        Raises:
            NoClient: there is no such client, or it does not read. Otherwise as for `Publisher.send`.
        """
        self.accepted = 0
        return self._send(joined(messages, address_of(client)), timeout, opening_of(client), is_to_all=client is None)


class Service(Waiting[Event[Text]], Mastery[Event[Text]], Generic[Text]):
    """The master of an S channel. Iterating gives the slaves' IDs and what they say."""

    def read(self, timeout: float | None = None) -> tuple[int, Text]:
        """The next message and the slave who has sent it, as `Reader.read`."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            sender, what, text = self._next(None if end is None else end - time.monotonic())
            if what is What.SAID:
                return sender, text

    def __iter__(self) -> Iterator[tuple[int, Text]]:
        return ((sender, text) for sender, what, text in self._each() if what is What.SAID)

    def events(self) -> Iterator[Event[Text]]:
        """As iterating, and who opens and closes the channel too."""
        return self._each()

    def answer(self, client: int, *messages: str | bytes, timeout: float | None = None) -> bool:
        """Sends messages to one slave.

        Args:
            client: whose, by its ID.
            messages: one line each.
            timeout: as for `Publisher.send`.

        Returns:
            Whether it got them. If not, it has left, or does not read: nothing that a service can do anything about. Nobody gets
                an empty one.

        Raises:
            TooLong, NoBus, ClientError: one was refused.
            ValueError: one is more than a line. None was sent.
        """
        self.accepted = 0
        lines = joined(messages, address := address_of(client))
        if len(lines) <= (len(address) + 1) * len(messages):
            return False  # the bus takes empty lines and discards them
        try:
            self._send(lines, timeout, opening_of(client))
        except NoClient as error:
            if not is_own(error):
                raise
            return False
        return True

    def announce(self, *messages: str | bytes, timeout: float | None = None) -> int:
        """Sends messages to all slaves that read, as `Publisher.send` does."""
        self.accepted = 0
        return self._send(joined(messages, address_of(None)), timeout, is_to_all=True)


# ---------------------------------------------------------------------------------------------- the ways in


class Waits(TypedDict, total=False):
    """What all of these functions can be told beside."""

    wait: float
    """How many seconds the bus, the channel or its master may take to be there: 0 at first, `math.inf` for ever."""
    again: bool
    """Whether to open the channel again when bus or master have gone and come back. What was said meanwhile is missed."""
    say: Callable[[str], object]
    """Is told, in one sentence, what is waited for, and when it is over."""


class Creates(Waits, total=False):
    """What functions can be told that create channels."""

    mode: int | None
    """Exactly the permissions of the channel if it is created; None, and otherwise: what the umask leaves of 666."""


@overload
def subscribe(path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Reader[str]: ...
@overload
def subscribe(path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Reader[bytes]: ...
def subscribe(path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Reader[str] | Reader[bytes]:
    """Listens to a B channel, which is created if need be, or as a slave to what the master of a U or S channel says to all.

    >>> with subscribe(bus / "B_log") as log, publisher(bus / "B_log") as other:
    ...     other.send("the disk is nearly full")
    ...     print(log.read(timeout=5))
    1
    the disk is nearly full

    Args:
        path: the channel.
        kind: what messages are to be: `str` or `bytes`.
        how: see `Creates`.

    Raises:
        ClientError: it cannot be opened: `NoBus`, `NoMaster`, `NotAllowed`, `Refused`.
        ValueError: it is no channel, or an A channel: see `join`.
    """
    way = Way(way_to(path, "USB", "subscribe()"), writes=False, creates=True, **how)
    return Reader(way, texts(kind))


def publisher(path: Path, **how: Unpack[Creates]) -> Publisher:
    """Opens a channel to write to it: a slave of a U or S channel, or to all on an A or B channel, which it creates if need be.

    >>> with publisher(bus / "B_log") as log:
    ...     log.send("one", "two", b"three")
    3

    Args:
        path: the channel.
        how: see `Creates`.

    Raises:
        ClientError, ValueError: as for `subscribe`.
    """
    return Publisher(Way(way_to(path, "UASB", "publisher()"), reads=False, creates=True, **how))


def publish(path: Path, *messages: str | bytes, timeout: float | None = None, **how: Unpack[Creates]) -> int:
    """Sends messages to a channel, once: as `publisher` does, and `echo` at a shell.

    >>> publish(bus / "B_log", "the disk is nearly full")
    1

    Args:
        path: the channel.
        messages: one line each.
        timeout: how many seconds a master who has no place may be waited for; None: for ever.
        how: see `Creates`.

    Returns:
        How many were accepted: all of them.

    Raises:
        ClientError, ValueError: as for `subscribe` and `Publisher.send`.
    """
    with publisher(path, **how) as out:
        return out.send(*messages, timeout=timeout)


@overload
def connect(path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Slave[str]: ...
@overload
def connect(path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Slave[bytes]: ...
def connect(path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Slave[str] | Slave[bytes]:
    """Becomes a slave of a U or S channel, or one of those on a B channel, who reads and writes.

    Args:
        path: the channel.
        kind: what messages are to be: `str` or `bytes`.
        how: see `Creates`.

    Raises:
        ClientError, ValueError: as for `subscribe`.
    """
    return Slave(Way(way_to(path, "USB", "connect()"), creates=True, **how), texts(kind))


def call(path: Path, request: Text, timeout: float | None = None, **how: Unpack[Waits]) -> Text:
    """Asks a service one thing.

    >>> import threading
    >>> def work() -> None:
    ...     with serve(bus / "S_upper") as service:
    ...         for sender, text in service:
    ...             service.answer(sender, text.upper())
    >>> threading.Thread(target=work, daemon=True).start()
    >>> call(bus / "S_upper", "hello, world", timeout=5, wait=5)
    'HELLO, WORLD'

    Args:
        path: the S channel.
        request: one line.
        timeout: how many seconds all of it may take once the service is there; None: for ever.
        how: see `Waits`. Another service knows nothing of what this one was asked: `again` has no effect.

    Returns:
        The first line of the answer, a text for a text and bytes for bytes.

    Raises:
        TimedOut: there was no answer in time.
        Ended: the service has gone before it.
        ClientError, ValueError: as for `subscribe` and `Publisher.send`.
    """
    if not encoded(request):
        raise ValueError("a request is a line that is not empty")
    how["again"] = False
    with connect(way_to(path, "S", "call()"), bytes, **how) as slave:
        end = None if timeout is None else time.monotonic() + timeout
        slave.send(request, timeout=timeout)
        return like(request, slave.read(None if end is None else max(end - time.monotonic(), 0)))


@overload
def collect(path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Collector[str]: ...
@overload
def collect(path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Collector[bytes]: ...
def collect(path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Collector[str] | Collector[bytes]:
    """Becomes the master of a U channel, who gets every line that anybody writes to it. The channel is there as long as this is.

    >>> with collect(bus / "U_jobs") as jobs:
    ...     publish(bus / "U_jobs", "job 1", "job 2")
    ...     [jobs.read(), jobs.read()]
    2
    ['job 1', 'job 2']

    Args:
        path: the channel, without a dot in front.
        kind: what messages are to be: `str` or `bytes`.
        how: see `Creates`.

    Raises:
        HasMaster: somebody else is the master.
        ClientError, ValueError: as for `subscribe`.
    """
    return Collector(Way(way_to(path, "U", "collect()"), is_master=True, **how), texts(kind))


@overload
def serve(path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Service[str]: ...
@overload
def serve(path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Service[bytes]: ...
def serve(path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Service[str] | Service[bytes]:
    """Becomes the master of an S channel, who answers what slaves ask. The channel is there as long as this is.

    Args:
        path: the channel, without a dot in front.
        kind: what messages are to be: `str` or `bytes`.
        how: see `Creates`.

    Raises:
        HasMaster: somebody else is the master.
        ClientError, ValueError: as for `subscribe`.
    """
    return Service(Way(way_to(path, "S", "serve()"), is_master=True, **how), events(kind))


@overload
def join(path: Path, kind: type[str] = ..., **how: Unpack[Creates]) -> Peer[str]: ...
@overload
def join(path: Path, kind: type[bytes], **how: Unpack[Creates]) -> Peer[bytes]: ...
def join(path: Path, kind: type[str] | type[bytes] = str, **how: Unpack[Creates]) -> Peer[str] | Peer[bytes]:
    """Joins an A channel, on which each can write to each. It is created if need be.

    >>> with join(bus / "A_chat") as one, join(bus / "A_chat") as two:
    ...     one.send(None, "anybody here?")
    ...     sender, text = two.read()
    ...     two.send(sender, "yes, me")
    ...     print(one.read())
    1
    1
    (2, 'yes, me')

    Args:
        path: the channel.
        kind: what messages are to be: `str` or `bytes`.
        how: see `Creates`.

    Raises:
        ClientError, ValueError: as for `subscribe`.
    """
    return Peer(Way(way_to(path, "A", "join()"), creates=True, **how), addressed(kind))
