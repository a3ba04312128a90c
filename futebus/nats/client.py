"""nats-py's client, with some manners more, and with fewer copies.

The one rule: what it does is nats-py's, and how a message gets in and out is ours. It says nothing in the clear where TLS is
wanted: nats-py would do so if the server had no TLS. It reads nothing more from a server while nobody has place for it, and waits
for no message of any length that a server says it has. Headers that cannot be read, which anybody may send, do not end its
reading. And when that ends for whatever reason, the connection does so too: nobody would hear anything from it any more.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import PING_PROTO, PONG_PROTO
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import Parser as NatsParser

from .transport import Direct, Extent, Payload

READ_BYTES = 512 << 10
"""What is taken from a connection at once."""

KEPT_BYTES = 16 << 20
"""Whoever handles so much at a time keeps the memory for it: otherwise the system gets it back, and clears it anew each time."""

LEAST_BYTES = 64 << 10
"""For less room than that it is not asked for more."""

MOST_KEPT = 8 << 20
"""A buffer that was made longer than that for a message is not kept for the next one."""

MOST_IN_TURN = 500
"""So many messages are handled before others have a turn."""

MOST_MESSAGE = 65 << 20
"""Bytes of a message from a server, with its headers: no server takes more than 64 MiB."""

MOST_ANSWERS = 1000
"""So many PINGs are answered to a server that does not read the answers."""

DISCOVERED = 64
"""How many servers of a cluster are remembered that nobody has named."""

MOST_ASIDE = 100
"""How often a server may say something else than that it is ready."""

LEAVE_SECONDS = 1.0
"""How long tasks that are cancelled may take to end."""

LARGE_BYTES = 16 << 10
"""A message of so many bytes is not copied once more to be sent."""

SIGN_BYTES = 8 << 10
"""So many bytes that come or go while something is waited for say that it is on its way. Fewer may be signs of life alone."""

MOST_BEHIND = 64 << 20
"""Nothing that is waited for is behind more bytes than these: a server that has as many for a connection closes it."""

LOOK_SECONDS = 0.25
"""How often it is looked whether anything comes or goes. It is so much longer ago, at most, than one sees."""

OVERSLEPT_SECONDS = 1.0
"""Who looks so much later than he wanted to was stopped, or the machine stood still. What has come meanwhile is not read yet."""

SOON_SECONDS = 1.0
"""Within that time all is done, as a rule, and nobody looks. What is sent for it is given to the transport then, too."""

MOST_SECONDS = 1800.0
"""Nor is anything waited for so long: what comes all the time may be something else."""

FOREVER = 1e9
"""Seconds that nats-py waits, where it is not what ends the waiting."""

T = TypeVar("T")

Take = Callable[[bytes, bytes, dict[str, str], bytes], object]
"""Is given a message: its subject, where to answer, its headers, the rest."""


_SPACE = re.compile(rb"[ \t]+")
"""What is between the words of a line. Others that Python takes for it may be in a subject."""


class Parser(NatsParser):
    """What comes from a server, message by message: nats-py's, from a buffer of its own that is filled from outside."""

    def reset(self) -> None:
        """Begins anew."""
        super().reset()
        self._buffer = bytearray(READ_BYTES)
        self._start = self._stop = 0
        self._needed = 0
        """How many bytes that begin at `_start` the message has that is under way, if that is known."""

    def room(self) -> memoryview:
        """Where what comes next is to be put; see `took`."""
        left = self._stop - self._start
        if not left:
            self._start = self._stop = 0
        if len(self._buffer) < self._needed or (not left and len(self._buffer) > MOST_KEPT):
            other = bytearray(self._needed + READ_BYTES)
            other[:left] = self._buffer[self._start : self._stop]
            self._buffer, self._start, self._stop = other, 0, left
        elif self._start and (len(self._buffer) - self._stop < LEAST_BYTES or len(self._buffer) - self._start < self._needed):
            self._buffer[:left] = self._buffer[self._start : self._stop]
            self._start, self._stop = 0, left
        return memoryview(self._buffer)[self._stop :]

    async def took(self, count: int) -> None:
        """So many bytes have come, and are there.

        Raises:
            ProtocolError: no server of NATS says that.
        """
        self._stop += count
        done = 0
        while self._start < self._stop and await self._next():
            done += 1
            if not done % MOST_IN_TURN:
                await asyncio.sleep(0)

    async def _next(self) -> bool:
        """Handles what comes first. Returns False if not all of it is there."""
        end = self._buffer.find(b"\r\n", self._start, self._stop)
        if end < 0:
            if self._stop - self._start >= READ_BYTES:
                raise nats.errors.ProtocolError
            return False
        line = bytes(memoryview(self._buffer)[self._start : end])
        if not line.startswith((b"MSG ", b"HMSG ")):
            self._start = end + 2
            await self.parse(line + b"\r\n")
            if self.buf:
                raise nats.errors.ProtocolError
            return True
        operation, *words = _SPACE.split(line)
        has_headers = operation == b"HMSG"
        numbers = [words[1], *words[-1 - has_headers :]] if len(words) in (3 + has_headers, 4 + has_headers) else []
        if not numbers or not all(number.isdigit() and len(number) < 20 for number in numbers):
            raise nats.errors.ProtocolError
        sid, head, size = int(numbers[0]), int(numbers[1]) if has_headers else 0, int(numbers[-1])
        if not head <= size <= MOST_MESSAGE:
            raise nats.errors.ProtocolError
        body, behind = end + 2, end + 4 + size
        self._needed = behind - self._start
        if behind > self._stop:
            return False
        with memoryview(self._buffer) as view:
            headers, data = bytes(view[body : body + head]), bytes(view[body + head : body + size])
        if self._buffer[behind - 2 : behind] != b"\r\n":
            raise nats.errors.ProtocolError
        self._start, self._needed = behind, 0
        reply = words[2] if len(words) == 4 + has_headers else b""
        await self.nc._process_msg(sid, words[0], reply, data, headers or None)
        return True


class Movement:
    """Whether bytes come and go, of those that an answer is behind: what is to be sent later says nothing of it.

    Args:
        transport: of what connection. What an answer is behind has been given to it.
    """

    def __init__(self, transport: Direct) -> None:
        self._transport = transport
        self._last = transport.carried()[0] + transport.under_way
        self._before = self._now()

    def _now(self) -> int:
        went, came = self._transport.carried()
        return min(went, self._last) + came

    def goes_on(self) -> bool:
        """Whether many have come or gone since that was last so, or since this was made."""
        now = self._now()
        if now < self._before + SIGN_BYTES:
            return False
        self._before = now
        return True

    def may_go_on(self, pause: float, passed: float) -> bool:
        """Whether it does, or nobody knows: who stood still himself has not read what came meanwhile.

        Args:
            pause: in how many seconds he wanted to look, who asks.
            passed: how many have passed.
        """
        return self.goes_on() or passed > pause + OVERSLEPT_SECONDS


class Greeting(Direct):
    """A connection whose server may say what it was not asked for, while nats-py waits for a certain answer: see `readline`."""

    def __init__(self, client: "Client") -> None:
        super().__init__()
        self._client = client
        self._was_greeted = False

    async def readline(self) -> bytes:
        """The next line of those that a server and a client introduce themselves with.

        A server that waits for more than two seconds for a client, which stands still for example, asks whether it is there.
        Of other servers it may tell at any time. That it does so again and again is no server's way.
        """
        for _ in range(MOST_ASIDE):
            line = await super().readline()
            if not self._was_greeted or not line.startswith((b"PING\r", b"INFO ")):
                break
            await self._client._parser.parse(line)
            if self._client._parser.buf:
                raise nats.errors.ProtocolError
        self._was_greeted = True
        return line


class Client(NatsClient):
    """nats-py's, as said above."""

    def __init__(self) -> None:
        super().__init__()
        _keep_memory()
        self._transport: Direct = Greeting(self)
        self._parser = self._ps = Parser(self)
        self.wants_tls = False
        self.ready: Callable[[], Awaitable[object]] | None = None
        """Waits until there is place for a message."""
        self._takers: dict[int, Take] = {}
        self.handled = 0
        """The bytes of the message that is just handled, as a server counts those that it was asked for."""
        self._answered = 0
        """How many PINGs, since it last had nothing to send."""
        self._ending: asyncio.Task[None] | None = None
        """Closes it, when one could not send."""

    async def leave(self) -> None:
        """Ends it without a word. Nothing of it is left, whatever nats-py has done of that."""
        self._transport.abort()
        tasks = [self._reading_task, self._ping_interval_task, self._flusher_task, self._ending]
        tasks += [subscription._wait_for_msgs_task for subscription in self._subs.values()]
        left = {task for task in tasks if task is not None and task is not asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LEAVE_SECONDS)

    # ------------------------------------------------------------------------------------------ patience

    def movement(self) -> Movement:
        """Tells from now on whether bytes come and go."""
        return Movement(self._transport)

    async def patiently(self, work: Awaitable[T], seconds: float) -> T:
        """Waits for something that a server must do within some seconds, or a slow line with it for longer.

        Raises:
            TimeoutError: it is not done, and nothing comes or goes any more that it could be behind.
        """
        doing = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        soon, latest = min(SOON_SECONDS, seconds), loop.time() + MOST_SECONDS
        try:
            if (await asyncio.wait([doing], timeout=soon))[0]:
                return doing.result()
            movement, most = self.movement(), self._transport.carried()[1] + MOST_BEHIND
            quiet, looked = soon, loop.time()
            while not (await asyncio.wait([doing], timeout=(pause := min(LOOK_SECONDS, seconds - quiet))))[0]:
                passed, looked = loop.time() - looked, loop.time()
                quiet = 0.0 if movement.may_go_on(pause, passed) else quiet + passed
                if quiet >= seconds or looked > latest or self._transport.carried()[1] > most:
                    raise TimeoutError
            return doing.result()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait([doing])

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - it is nats-py's
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """As nats-py's, patiently."""
        try:
            return await self.patiently(super().request(subject, payload, FOREVER, old_style, headers), timeout)
        except TimeoutError:
            raise nats.errors.TimeoutError from None

    async def flush(self, timeout: float = 10) -> None:  # noqa: ASYNC109
        """As nats-py's, patiently."""
        try:
            await self.patiently(super().flush(FOREVER), timeout)  # type: ignore[arg-type]
        except TimeoutError:
            raise nats.errors.FlushTimeoutError from None

    async def _ping_interval(self) -> None:
        movement = self.movement()
        while True:
            await asyncio.sleep(self.options["ping_interval"])
            if not self._pings_outstanding:
                movement = self.movement()
            elif movement.goes_on():
                continue  # the answer is behind that
            self._pings_outstanding += 1
            if self._pings_outstanding > self.options["max_outstanding_pings"]:
                await self._process_op_err(nats.errors.StaleConnectionError())
                return
            await self._send_ping()

    # ------------------------------------------------------------------------------------------ what comes

    async def listen(self, subject: str, take: Take) -> Subscription:
        """Subscribes to a subject, and has each message handled as it comes, and not in a task. `take` takes no time."""
        number = self._sid + 1
        self._takers[number] = take  # messages may come before we are told that it has this number
        try:
            return await self.subscribe(subject)
        except BaseException:
            self._takers.pop(number, None)
            raise

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None) -> Any:
        # A server takes any bytes for a subject, where nats-py expects text.
        return super()._build_message(sid, subject.decode(errors="replace").encode(), reply, data, headers)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if self.ready:
            await self.ready()
        self.handled = len(subject) + len(reply) + len(headers or b"") + len(data)
        if sid not in self._takers or sid not in self._subs:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type] # it may be None
            return
        told = await self._process_headers(headers)
        try:
            self._takers[sid](subject, reply, told or {}, data)
        except Exception as error:
            await self._error_cb(error)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._takers.pop(sid, None)

    async def _init_request_sub(self) -> None:
        number = self._sid + 1

        def take(subject: bytes, reply: bytes, headers: dict[str, str], data: bytes) -> None:
            asked = self._resp_map.get(subject[len(self._resp_sub_prefix or b"") :].decode(errors="replace"))
            if asked and not asked.done():
                asked.set_result(self._build_message(number, subject, reply, data, headers or None))

        self._takers[number] = take
        await super()._init_request_sub()

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if not headers:
            return None
        if (plain := read_headers(headers)) is not None:
            return plain
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except Exception:  # it expects text of a server where anybody's bytes are
            return None
        return found

    async def _read_loop(self) -> None:
        try:
            while not self.is_closed:
                count = await self._transport.receive(self._parser.room())
                if not count and not self.is_closed:
                    await self._error_cb(nats.errors.UnexpectedEOF())
                    await self._process_op_err(nats.errors.UnexpectedEOF())
                await self._parser.took(count)
        except asyncio.CancelledError:
            pass
        except OSError as error:
            await self._process_op_err(error)
        except Exception:
            await self._process_op_err(nats.errors.ProtocolError())

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.wants_tls and not info.get("tls_required") and not info.get("tls_available"):
            raise nats.errors.Error("nats: no tls")
        if initial_connection and self.wants_tls:
            info["tls_required"] = True
        told = info.get("connect_urls")
        if isinstance(told, list):  # nats-py compares each with all that it was ever told
            info["connect_urls"] = told[: max(DISCOVERED - len(self._server_pool), 0)]
        await super()._process_info(info, initial_connection)

    # ------------------------------------------------------------------------------------------ what is sent

    async def _send_publish(
        self, subject: str, reply: str, payload: Payload, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        block = write_headers(headers) if headers and payload_size >= LARGE_BYTES else None
        if block is None:
            small = payload.read() if isinstance(payload, Extent) else payload
            await super()._send_publish(subject, reply, small, payload_size, headers)
            return
        command = f"HPUB {subject} {reply} {len(block)} {len(block) + payload_size}\r\n".encode() + block
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        self._pending += [command, payload, b"\r\n"]  # type: ignore[list-item] # whoever sends it knows extents
        self._pending_data_size += len(command) + payload_size + 2
        await self._flush_pending(force_flush=True)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        """Sends what waits, at once, and waits until the system has it if that is much."""
        if not self.is_connected:
            return
        pending, self._pending, self._pending_data_size = self._pending, [], 0
        try:
            self._transport.writelines(pending)
            if force_flush or self._transport.unsent > self._max_pending_size:
                await self._transport.drain()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Closes it, in a task of its own: whoever could not send may be cancelled meanwhile."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._process_op_err(error))

    async def _process_op_err(self, e: Exception) -> None:
        if isinstance(e, nats.errors.StaleConnectionError):
            self._transport.abort()  # nobody is there to say farewell to
        await super()._process_op_err(e)

    async def _flusher(self) -> None:
        """Has nothing to do. While it has not ended, nats-py waits for the answers to what it asks."""
        await asyncio.get_running_loop().create_future()

    async def _send_ping(self, future: "asyncio.Future[Any] | None" = None) -> None:
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        self._write(PING_PROTO)

    async def _process_ping(self) -> None:
        if not self._transport.unsent:
            self._answered = 0
        if self._answered < MOST_ANSWERS:
            self._answered += 1
            self._write(PONG_PROTO)

    def _write(self, words: bytes) -> None:
        """Sends that, and does not wait until it is sent: who reads must go on."""
        try:
            self._transport.write(words)
        except OSError as error:
            self._fail(error)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # nobody waits for it any more
            self._pongs.pop(0)
            self._pongs_received += 1
            self._pings_outstanding = 0
        else:
            await super()._process_pong()

    async def sent(self) -> None:
        """Waits until the system has all that was published.

        Raises:
            OSError: it does not take it.
        """
        await self._transport.drain()


@functools.cache  # once
def _keep_memory() -> None:
    """malloc(3) keeps twice as much as the largest piece that it has given back to the system. This one nobody touches."""
    with contextlib.suppress(MemoryError):
        bytes(KEPT_BYTES)


def read_headers(headers: bytes) -> dict[str, str] | None:
    """The headers of a message, as nats-py reads them; None if they are not as one usually writes them: it is slow."""
    try:
        first, *lines, last, empty = headers.decode("ascii").split("\r\n")
    except ValueError:
        return None
    if first != "NATS/1.0" or last or empty:
        return None
    found = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if not colon or not name.replace("-", "").isalnum() or value != value.strip():
            return None
        found[name] = value
    return found


def write_headers(headers: Mapping[str, str]) -> bytes | None:
    """The headers of a message, as nats-py writes them; None if they are not such as we have."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    block = "".join(["NATS/1.0\r\n", *lines, "\r\n"])
    is_ours = block.isascii() and block.count("\r") == block.count("\n") == len(lines) + 2
    return block.encode() if is_ours and all(value == value.strip() for value in headers.values()) else None
