"""What all processes of a trial have seen, held against what futebus(7) allows.

The only knowledge of a bus in here is its contract. A message tells who wrote it where, and to whom, so each can be judged where
it arrives; what a killed process did last is unknown, and both outcomes are allowed.
"""

import errno
import graphlib
import math
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.helpers.mounts import Row

from . import record
from .program import END, LASTING
from .record import text_of

Writer = tuple[str, str]
"""A process and an open file description of it."""
Message = tuple[str, str, int]
"""A writer, and which of its messages."""

CONTROL = re.compile(rb"\{([0-9a-f]+):([oc])\}")
STAMPED = re.compile(rb"\{([0-9a-f]+)\}(.*)", re.DOTALL)

OPEN_ERRORS = {errno.ENOENT, errno.ESPIPE, errno.EEXIST}
WRITE_ERRORS = {errno.EAGAIN, errno.EINTR, errno.ESRCH, errno.ENODEV, errno.EFAULT, errno.EMSGSIZE}
READ_ERRORS = {errno.EAGAIN, errno.EINTR}


@dataclass
class File:
    """An open file description."""

    where: str
    name: str
    flags: int
    asked_at: int
    """When its open(2) was begun."""
    number: int = 0
    """Of the channel: `st_ino`."""
    is_shared: bool = False

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.name.lstrip("+.")

    @property
    def letter(self) -> str:
        """The channel's type."""
        return self.channel[0]

    @property
    def is_master(self) -> bool:
        """Whether it is its channel's master."""
        return self.name.removeprefix("+").startswith(".")

    @property
    def bulk(self) -> bool:
        """Whether a read may return several messages."""
        return self.name.startswith("+")


@dataclass
class Composed:
    """A message that a process meant to write, by its record."""

    message: Message
    left: int
    is_bad: bool


@dataclass
class Read:
    """What a process got from one description, and how."""

    lines: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    was_cut: bool = False
    """Whether the process died in a read: it may have taken more."""


class Evidence:
    """All records of a trial."""

    def __init__(self, records: Path) -> None:
        self.files: dict[str, File] = {}
        self.accepted: dict[Message, float] = {}
        """When write(2) had said so."""
        self.unknown: set[Message] = set()
        self.reads: dict[Writer, Read] = {}
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        paths = sorted(records.iterdir())
        for path in paths:
            self._note_files(path)
        for path in paths:
            self._note_calls(path)
        self.counts["processes"] = len(paths)
        self.counts["messages accepted"] = len(self.accepted)

    def _note_files(self, path: Path) -> None:
        mine: set[str] = set()
        for what, when, *details in record.read(path):
            if what == "open":
                where, name, flags = details
                self.files[where] = File(where, name, flags, when)
            elif what == "opened":
                where, error, number = details
                self.counts["opens"] += 1
                if error:
                    self._expect(error in OPEN_ERRORS, f"{path.name} opened {self.files[where].name}: errno {error}")
                else:
                    self.files[where].number = number
                    mine.add(where)
            elif what == "close":
                mine.discard(details[0])
            elif what == "fork":
                for where in mine:
                    self.files[where].is_shared = True
            elif what == "wrong":
                self.wrong.append(details[0])

    def _expect(self, is_so: bool, words: str) -> None:
        if not is_so:
            self.wrong.append(words)

    # ------------------------------------------------------------------------------------------ one process

    def _note_calls(self, path: Path) -> None:
        who = path.name
        pending: dict[str, deque[Composed]] = {}
        call: tuple[str, str, int] | None = None
        for what, when, *details in record.read(path):
            if what == "compose":
                where, number, size, is_bad = details
                pending.setdefault(where, deque()).append(Composed((who, where, number), size, is_bad))
            elif what in ("write", "read"):
                call = (what, *details)
            elif what == "wrote":
                where, result = details
                assert call
                self._note_write(where, pending[where], call[2], result, when)
                call = None
            elif what == "got":
                where, result = details
                assert call
                self._note_read(who, where, call[2], result)
                call = None
            elif what == "fork":
                pending.clear()
            elif what == "end":
                self.counts["processes that ended by themselves"] += 1
        if call and call[0] == "write":
            _, where, size = call
            for composed in pending[where]:
                if composed.left > size:
                    break
                size -= composed.left
                self.unknown.add(composed.message)
        elif call:
            self.reads.setdefault((who, call[1]), Read()).was_cut = True

    def _note_write(self, where: str, pending: deque[Composed], size: int, result: int, when: int) -> None:
        self.counts["writes"] += 1
        file = self.files[where]
        if result < 0:
            composed = pending[0]
            self._expect(-result in WRITE_ERRORS, f"{where} wrote: errno {-result}")
            if -result in (errno.EAGAIN, errno.EINTR):
                self.counts["calls ended by a signal"] += -result == errno.EINTR
                self._expect(file.letter in "US" and not file.is_master, f"{where} had to wait to write to {file.name}")
                return
            pending.popleft()
            if -result in (errno.EMSGSIZE, errno.EFAULT) and not file.is_shared:
                self._expect(composed.is_bad, f"{composed.message} was refused: errno {-result}")
            self.counts["messages refused"] += 1
            return
        self._expect(0 < result <= size, f"{where} wrote {result} of {size} bytes")
        while result:
            composed = pending[0]
            if composed.left > result:
                composed.left -= result
                return
            result -= composed.left
            pending.popleft()
            self._expect(not composed.is_bad, f"{composed.message} was accepted, and should not have been")
            self.accepted[composed.message] = when

    def _note_read(self, who: str, where: str, size: int, result: bytes | int) -> None:
        self.counts["reads"] += 1
        file = self.files[where]
        if isinstance(result, int):
            self.counts["calls ended by a signal"] += -result == errno.EINTR
            self._expect(-result in READ_ERRORS, f"{who} read {where}: errno {-result}")
            return
        if not result:
            is_slave = file.letter in "US" and not file.is_master
            self._expect(is_slave, f"{who} read {where} of {file.name} to an end of file")
            return
        self._expect(len(result) <= size, f"{who} read more than {size} bytes of {where}")
        if file.bulk:
            whole = result.endswith(b"\n") or b"\n" not in result
            self._expect(whole, f"{who} read a message in two pieces behind others: {where}")
        else:
            self._expect(b"\n" not in result[:-1], f"{who} read several messages at once: {where}")
        read = self.reads.setdefault((who, where), Read())
        *lines, read.rest = (read.rest + result).split(b"\n")
        read.lines += lines
        self.counts["messages read"] += len(lines)

    # ------------------------------------------------------------------------------------------ all of them

    def judge(self) -> list[str]:
        """Looks at every message that anybody has read.

        Returns:
            What is wrong, in words.
        """
        heard: dict[str, Counter[Message]] = {}
        ids: dict[tuple[int, str], set[str]] = {}
        owners: dict[str, set[str]] = {}
        order: dict[int, list[list[Message]]] = {}
        for (who, where), read in self.reads.items():
            file = self.files[where]
            last: dict[Writer, int] = {}
            sequence: list[Message] = []
            for message, to, stamp in self._messages(who, file, read):
                self._judge_one(file, message, to)
                heard.setdefault(where, Counter())[message] += 1
                number = message[2]
                self._expect(last.get(message[:2], -1) <= number, f"{where} got {message} out of order")
                last[message[:2]] = number
                sequence.append(message)
                for name, client in ((stamp, message[1]), (to if to not in "*-" else "", where)):
                    if name:
                        ids.setdefault((file.number, f"{int(name, 16):x}"), set()).add(client)
                        owners.setdefault(client, set()).add(f"{int(name, 16):x}")
            order.setdefault(file.number, []).append(sequence)
        for where, messages in heard.items():
            for message, count in messages.items():
                self._expect(count == 1, f"{where} got {message} {count} times")
        for (number, name), clients in ids.items():
            self._expect(len(clients) == 1, f"channel {number}: messages for or from {{{name}}} are of {sorted(clients)}")
        for client, names in owners.items():
            self._expect(len(names) == 1, f"{client} is known as {sorted(names)}")
        self._judge_masters(heard)
        self._judge_order(order)
        return self.wrong

    def _messages(self, who: str, file: File, read: Read) -> Iterator[tuple[Message, str, str]]:
        """The messages that a process has read: who wrote which, to whom, and what ID the bus says that it came from."""
        told: dict[bytes, list[str]] = {}
        for line in read.lines:
            if control := CONTROL.fullmatch(line):
                self._expect(file.letter == "S" and file.is_master, f"{file.where} got the control message {line!r}")
                told.setdefault(control[1], []).append(control[2].decode())
                continue
            stamp, text, told_of = "", line, list[str]()
            if file.letter == "A" or (file.letter == "S" and file.is_master):
                match = STAMPED.fullmatch(line)
                if not match:
                    self.wrong.append(f"{file.where} got a message without its sender: {line[:80]!r}")
                    continue
                stamp, text = match[1].decode(), match[2]
                if file.letter == "S":
                    told_of = told.setdefault(match[1], [])
            if text == END:
                continue
            if file.letter == "S" and file.is_master:
                told_of.append("m")
            try:
                writer, where, number, to, size, _ = text.split(b" ", 5)
                message = (writer.decode(), where.decode(), int(number))
                is_true = text == text_of(*message, to.decode(), int(size))
            except ValueError:
                is_true = False
            if is_true:
                yield message, to.decode(), stamp
            else:
                self.wrong.append(f"{who} got what nobody has written, from {file.name}: {line[:200]!r}")
        if not file.is_shared:
            for name, what in told.items():
                ordered = re.fullmatch("om*c?", "".join(what))
                self._expect(bool(ordered), f"{file.where}: {{{name.decode()}}} was told of as {''.join(what)[:99]}")

    def _judge_one(self, file: File, message: Message, to: str) -> None:
        writer = self.files[message[1]]
        if message not in self.accepted and message not in self.unknown:
            self.wrong.append(f"{file.where} got {message}, which was not accepted")
        self._expect(writer.number == file.number, f"{file.where} got {message} from another channel")
        self._expect(writer is not file or (file.letter == "A" and to != "*"), f"{file.where} got its own {message}")
        self._expect(file.letter in "AB" or writer.is_master is not file.is_master, f"{file.where} got {message} from its like")
        self._expect(file.asked_at < self.accepted.get(message, math.inf), f"{file.where} got {message} from before its time")

    def _judge_masters(self, heard: dict[str, Counter[Message]]) -> None:
        """A master that lives gets everything."""
        masters: dict[int, list[str]] = {}
        for file in self.files.values():
            if file.number and file.is_master:
                masters.setdefault(file.number, []).append(file.where)
        for number, clients in masters.items():
            self._expect(len(clients) == 1, f"channel {number} has the masters {clients}")
        for file in list(self.files.values()):
            if not (file.is_master and file.channel in LASTING):
                continue
            got = heard.get(file.where, Counter())
            due = [message for message in self.accepted if self.files[message[1]].number == file.number]
            due = [message for message in due if message[1] != file.where]
            lost = [message for message in due if message not in got]
            self.counts["messages to masters that live"] += len(due)
            self.counts["lost"] += len(lost)
            self._expect(not lost, f"{file.name} has lost {len(lost)} messages, the first of them {lost[:1]}")

    def _judge_order(self, order: dict[int, list[list[Message]]]) -> None:
        """There is one order of the messages of a channel in which all have read them."""
        for number, sequences in order.items():
            graph: graphlib.TopologicalSorter[Message] = graphlib.TopologicalSorter()
            for sequence in sequences:
                for before, after in pairwise(sequence):
                    graph.add(after, before)
            try:
                graph.prepare()
            except graphlib.CycleError as error:
                self.wrong.append(f"channel {number}: readers disagree on the order of {error.args[1][:4]}")

    # ------------------------------------------------------------------------------------------ _stat

    def bounds(self, channel: str) -> tuple[range, range]:
        """What `_stat` may say of a channel that lasts, if nothing that was accepted or read is forgotten: IN and OUT.

        Messages that say END are not among them.
        """
        of_channel = {where for where, file in self.files.items() if file.channel == channel and file.number}
        accepted = sum(message[1] in of_channel for message in self.accepted)
        unknown = sum(message[1] in of_channel for message in self.unknown)
        reads = [read for (_, where), read in self.reads.items() if where in of_channel]
        begun = sum(len([line for line in read.lines if not line.endswith(END)]) + bool(read.rest) for read in reads)
        more = 10**9 if any(read.was_cut for read in reads) else 0
        return range(accepted, accepted + unknown + 1), range(begun, begun + more + 1)

    def last_heard(self, channel: str) -> int:
        """How many have read the last message of a channel, the one that says END."""
        return sum(
            line.endswith(END)
            for (_, where), read in self.reads.items()
            if self.files[where].channel == channel
            for line in read.lines
        )


def sums(channels: list[Row]) -> list[str]:
    """Checks one snapshot of `_stat.json`: every copy of a message is somewhere, once, and nobody waits who need not.

    Returns:
        What is wrong, in words.
    """
    wrong = []
    for channel in channels:
        name, waiting = channel["name"], 0
        for client in channel["clients"]:
            waiting += client["rlist_messages"]
            if client["waits"] == "read" and client["rlist_messages"]:
                wrong.append(f"{name}: client {client['id']} waits in read, and {client['rlist_messages']} messages are there")
        gone = channel["messages_out"] + channel["dropped"] + channel["lost"]
        if channel["copies"] != gone + waiting:
            wrong.append(f"{name}: {channel['copies']} copies, of which {gone} are gone and {waiting} wait")
    return wrong
