"""The bus as its contract tells it, in lists and dicts: slow, obvious, and with nothing of the real one but its errors.

Every call does what the real one of that name does and raises the same errors. `finished` collects how waiting calls end.
"""

from futebus.core.errors import (
    AlreadyThere,
    BadAddress,
    BusError,
    Forbidden,
    MessageTooLong,
    NobodyReads,
    NoMaster,
    NoSuchClient,
    NoSuchName,
    NotOpenForThis,
    ShuttingDown,
    TooManyChannels,
    TooManyClients,
    TooManyForUser,
    WouldBlock,
)

from .records import LAST_ID, Ending, Message, NaiveChannel, NaiveClient, Rules, Token

HEX = "0123456789abcdefABCDEF"


def split_address(message: bytes) -> tuple[str, bytes]:
    """The address of a message, `*` or an ID without leading zeros, and what it is of."""
    if message[:1] != b"{" or b"}" not in message:
        raise BadAddress
    inside, text = message[1:].split(b"}", 1)
    if inside == b"*":
        return "*", text
    if not inside or any(chr(byte) not in HEX for byte in inside):
        raise BadAddress
    return inside.decode().lower().lstrip("0") or "0", text


class NaiveBus:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.names: dict[bytes, NaiveChannel] = {}
        self.channels: list[NaiveChannel] = []
        self.clients: list[NaiveClient] = []
        self.is_down = False
        self.finished: list[tuple[Token, Ending]] = []
        self.now = 0
        self.taken: dict[Token, bytes] = {}
        """What the reads that waited have really got from the call being made."""

    # ------------------------------------------------------------------------------------------ opening

    def refusals(self, name: bytes, uid: int, exclusive: bool) -> set[type[BusError]]:
        """What is wrong with an open. If it is more than one thing, the contract does not say which is told."""
        as_master = name.lstrip(b"+").startswith(b".")
        channel = self.names.get(name.lstrip(b"+."))
        if self.is_down:
            return {ShuttingDown}
        wrong: set[type[BusError]] = set()
        if len(self.clients) >= self.rules.max_clients:
            wrong.add(TooManyClients)
        if uid != 0 and sum(client.uid == uid for client in self.clients) >= self.rules.max_clients_per_user:
            wrong.add(TooManyForUser)
        if channel is None:
            if len(self.names) >= self.rules.max_channels:
                wrong.add(TooManyChannels)
            if name.lstrip(b"+")[:1] in (b"U", b"S"):
                wrong.add(NoMaster)
        elif as_master or exclusive:
            wrong.add(AlreadyThere)
        return wrong

    def create(self, key: int, name: bytes, reads: bool, writes: bool, uid: int) -> NaiveClient:
        """An open that nothing is wrong with."""
        bulk = name.startswith(b"+")
        plain = name.lstrip(b"+.")
        channel = self.names.get(plain)
        if channel is None:
            channel = NaiveChannel(plain, len(self.channels), self.now, self.now)
            self.channels.append(channel)
            self.names[plain] = channel
            role = "master" if channel.letter in "US" else "peer"
        else:
            role = "slave" if channel.letter in "US" else "peer"
        channel.last_id = channel.last_id % LAST_ID + 1
        while any(client.id == channel.last_id for client in channel.clients):
            channel.last_id = channel.last_id % LAST_ID + 1
        client = NaiveClient(key, channel, channel.last_id, role, reads, writes, bulk or self.rules.bulk, uid)
        channel.clients.append(client)
        self.clients.append(client)
        if role == "slave":
            self.tell_service(channel, f"{{{client.id:x}:o}}\n")
        return client

    def tell_service(self, channel: NaiveChannel, text: str) -> None:
        master = channel.master
        if channel.letter == "S" and master is not None and master.reads and not channel.is_shut:
            self.arrive(master, Message(text.encode(), is_control=True))

    def unlink(self, name: bytes) -> None:
        channel = self.names.pop(name.lstrip(b"+"), None)
        if channel is None:
            raise NoSuchName
        channel.is_named = False

    def close(self, client: NaiveClient) -> None:
        channel = client.channel
        channel.clients.remove(client)
        self.clients.remove(client)
        if client in channel.blocked:
            channel.blocked.remove(client)
        for message in client.rlist:
            if message.is_control:
                channel.lost_controls += 1
            else:
                channel.lost += 1
        if client.role == "master":
            channel.is_shut = channel.is_dead = True
            if channel.is_named:
                self.unlink(channel.name)
            self.fail_blocked(channel, NobodyReads)
            self.end_reads(channel)
        elif client.role == "slave":
            self.tell_service(channel, f"{{{client.id:x}:c}}\n")
            self.admit(channel)

    def shut(self, client: NaiveClient) -> None:
        if client.role != "master":
            raise Forbidden
        channel = client.channel
        if channel.is_named:
            self.unlink(channel.name)
        if not channel.is_shut:
            channel.is_shut = True
            self.fail_blocked(channel, NobodyReads)
            if not client.has_something:
                self.finished += [(token, b"") for token, _, _ in client.reading]
                client.reading = []

    def fail_blocked(self, channel: NaiveChannel, error: type[BusError]) -> None:
        for client in channel.blocked:
            assert client.writing
            token, _, _, taken = client.writing
            self.finished.append((token, taken or error))
            client.writing = None
            client.wbuf = b""
        channel.blocked = []

    def end_reads(self, channel: NaiveChannel) -> None:
        for client in channel.clients:
            self.finished += [(token, b"") for token, _, _ in client.reading]
            client.reading = []

    def shut_down(self) -> None:
        self.is_down = True
        for channel in self.channels:
            self.fail_blocked(channel, ShuttingDown)
            self.end_reads(channel)

    # ------------------------------------------------------------------------------------------ writing

    def write(self, client: NaiveClient, data: bytes, token: Token | None) -> int | None:
        if not client.writes:
            raise NotOpenForThis
        if self.is_down:
            client.wbuf = b""
            raise ShuttingDown
        master = client.channel.master
        if client.role == "slave" and (master is None or not master.reads or client.channel.is_shut):
            client.wbuf = b""
            raise NobodyReads
        taken, must_wait = self.take_lines(client, data, 0, is_next=False)
        if must_wait and token is not None:
            client.writing = (token, data, self.now, taken)
            client.channel.blocked.append(client)
            return None
        if must_wait and not taken:
            raise WouldBlock
        return taken

    def take_lines(self, client: NaiveClient, data: bytes, start: int, *, is_next: bool) -> tuple[int, bool]:
        """Up to where bytes are accepted, and whether the next line must wait. Raises what is wrong with the first line."""
        position = start
        try:
            while position < len(data):
                end = data.find(b"\n", position) + 1
                if not end:
                    if len(client.wbuf) + len(data) - position >= self.rules.max_message:
                        raise MessageTooLong
                    client.wbuf += data[position:]
                    return len(data), False
                line = client.wbuf + data[position:end]
                if len(line) > self.rules.max_message:
                    raise MessageTooLong
                if line != b"\n" and not self.route(client, line, is_next):
                    return position, True
                client.wbuf = b""
                position = end
        except BusError:
            if position == start:
                client.wbuf = b""
                raise
        return position, False

    def route(self, client: NaiveClient, line: bytes, is_next: bool) -> bool:
        """Whether a line is accepted; else it must wait. Raises what is wrong with it."""
        match client.channel.letter, client.role:
            case "U", "slave":
                return self.to_master(client, line, b"", is_next)
            case "S", "slave":
                return self.to_master(client, line, b"{%x}" % client.id, is_next)
            case ("A", _) | ("S", "master"):
                self.to_address(client, line)
            case _:
                self.to_all(client, line)
                self.count(client, line)
        return True

    def count(self, client: NaiveClient, line: bytes) -> None:
        client.sent += 1
        client.channel.messages_in += 1
        client.channel.bytes_in += len(line)
        client.channel.mtime = self.now

    def to_all(self, sender: NaiveClient, message: bytes) -> None:
        for reader in sender.channel.clients:
            if reader.reads and reader is not sender and reader.role != "master":
                self.arrive(reader, Message(message))

    def to_address(self, sender: NaiveClient, line: bytes) -> None:
        address, text = split_address(line)
        message = b"{%x}" % sender.id + text if sender.channel.letter == "A" else text
        if address == "*":
            if message != b"\n":
                self.to_all(sender, message)
        else:
            receivers = [client for client in sender.channel.clients if f"{client.id:x}" == address and client.role != "master"]
            if not receivers:
                raise NoSuchClient
            if not receivers[0].reads:
                raise NobodyReads
            if message != b"\n":
                self.arrive(receivers[0], Message(message))
        if message != b"\n":
            self.count(sender, line)

    def to_master(self, sender: NaiveClient, line: bytes, prefix: bytes, is_next: bool) -> bool:
        channel = sender.channel
        master = channel.master
        assert master is not None
        message = Message(prefix + line)
        if (channel.blocked and not is_next) or not self.fits(master, len(message.data)):
            sender.wants = len(message.data)
            sender.was_told = False
            return False
        if sender.wants and not self.fits(master, sender.wants):
            sender.overtaken = min(sender.wants, sender.overtaken or sender.wants)
        sender.wants = 0
        self.count(sender, line)
        self.arrive(master, message)
        return True

    def fits(self, client: NaiveClient, size: int) -> bool:
        """Whether a message finds a place behind those that wait; where none does, any does."""
        waiting = [len(message.data) for message in client.counted]
        return not waiting or (len(waiting) < self.rules.max_queue and sum(waiting) + size <= self.rules.max_queue_bytes)

    def arrive(self, client: NaiveClient, message: Message) -> None:
        client.rlist.append(message)
        client.channel.copies += 1
        while client.reading and client.has_something:
            self.serve(client)
        if client.role != "master":
            while len(client.rlist) > 1 and (
                len(client.rlist) > self.rules.max_queue
                or sum(len(message.data) for message in client.rlist) > self.rules.max_queue_bytes
            ):
                del client.rlist[0]
                client.dropped += 1
                client.channel.dropped += 1

    def serve(self, client: NaiveClient) -> None:
        """Hands something to the read that has waited longest.

        A bulk read may end with the first message that comes, or take more that the same call brings: the contract does not
        say, so that it takes here what it really has taken, if that can be.
        """
        token, size, _ = client.reading[0]
        room = size - len(client.collected)
        assert not client.collected or len(client.rlist[0].data) <= room, "a bulk read took more than fits"
        client.collected += self.take(client, room)
        taken = self.taken.get(token, b"")
        if client.bulk and not client.rbuf and len(taken) > len(client.collected) and taken.startswith(client.collected):
            return
        self.finished.append((token, client.collected))
        client.reading.pop(0)
        client.collected = b""

    # ------------------------------------------------------------------------------------------ reading

    def take(self, client: NaiveClient, size: int) -> bytes:
        channel = client.channel
        taken: list[Message] = []
        if client.rbuf:
            piece, client.rbuf = client.rbuf[:size], client.rbuf[size:]
        else:
            taken.append(client.rlist.pop(0))
            piece = taken[0].data
            if len(piece) > size:
                piece, client.rbuf = piece[:size], piece[size:]
            elif client.bulk:
                while client.rlist and len(piece) + len(client.rlist[0].data) <= size:
                    taken.append(client.rlist.pop(0))
                    piece += taken[-1].data
        client.received += len(taken)
        channel.messages_out += len(taken)
        channel.bytes_out += len(piece)
        channel.atime = self.now
        return piece

    def read(self, client: NaiveClient, size: int, token: Token | None) -> bytes | None:
        if not client.reads:
            raise NotOpenForThis
        if not client.has_something:
            if self.is_over(client):
                return b""
            if token is None:
                raise WouldBlock
            client.reading.append((token, size, self.now))
            return None
        piece = self.take(client, size)
        if client.role == "master":
            self.admit(client.channel)
        return piece

    def admit(self, channel: NaiveChannel) -> None:
        """Lets in who waits to write to the master: in turn, each as far as there is place."""
        while channel.blocked:
            client = channel.blocked[0]
            assert client.writing
            token, data, since, before = client.writing
            try:
                taken, must_wait = self.take_lines(client, data, before, is_next=True)
            except BusError:
                assert before, "the first line was looked at when it came"
                taken, must_wait = before, False
            if must_wait and taken == before:
                break
            channel.blocked.pop(0)
            if must_wait:
                client.writing = (token, data, since, taken)
                channel.blocked.append(client)
            else:
                client.writing = None
                self.finished.append((token, taken))

    def cancel(self, token: Token) -> int | None:
        """How many bytes were accepted of a call that waits; None if no such call waits."""
        for client in self.clients:
            if client.writing and client.writing[0] == token:
                taken = client.writing[3]
                client.writing = None
                client.channel.blocked.remove(client)
                self.admit(client.channel)
                return taken
            for waiting in client.reading:
                if waiting[0] == token:
                    client.reading.remove(waiting)
                    return 0
        return None

    # ------------------------------------------------------------------------------------------ readiness

    def is_over(self, client: NaiveClient) -> bool:
        """Whether no message will come for it any more."""
        return client.channel.is_dead or self.is_down or (client.role == "master" and client.channel.is_shut)

    def refuses(self, client: NaiveClient) -> bool:
        """Whether what it writes has nowhere to go."""
        return client.channel.is_dead or self.is_down or (client.role == "slave" and client.channel.is_shut)

    def readiness(self, client: NaiveClient) -> tuple[bool, bool, bool | None, bool]:
        """Readable, hung up, writable, broken. None where the contract does not say."""
        is_over, refuses = self.is_over(client), self.refuses(client)
        return (
            client.reads and (client.has_something or is_over),
            client.reads and is_over and not client.has_something,
            client.writes and (refuses or self.is_writable(client)),
            client.writes and refuses,
        )

    def is_owed(self, client: NaiveClient) -> bool:
        """Whether there is place now for a message that a shorter one had overtaken."""
        if not client.overtaken or not self.is_writable(client):
            return False
        master = client.channel.master
        return master is None or not master.reads or self.fits(master, client.overtaken)

    def is_writable(self, client: NaiveClient) -> bool | None:
        if client.writing:
            return False
        master = client.channel.master
        if client.role != "slave" or master is None or not master.reads:
            return True
        if client.channel.blocked or not self.fits(master, 1):
            return False
        if not client.wants or self.fits(master, client.wants):
            return True
        return None if client.was_told else False
