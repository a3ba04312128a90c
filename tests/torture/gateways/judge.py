"""What all peers of a round have said and heard, held against the manual pages of the gateways."""

import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .. import record
from ..record import text_of
from .forms import ASKED, END

Where = tuple[str, str]
"""A process and a connection of it."""
Message = tuple[str, str, int]


@dataclass
class Rules:
    """What has happened in a round, and so what may have become of messages."""

    is_sbus: bool = False
    has_channel: bool = False
    deaths: int = 0
    """How often the bus has gone."""
    crashes: int = 0
    """How often by `kill -9`: what was being written then may have been accepted or not, and then is written again."""
    kills: int = 0
    """How many peers and gateways were killed."""
    losers: frozenset[str] = frozenset()
    """Peers that did not read, and may have lost messages, which are counted."""
    dismissed: frozenset[str] = frozenset()
    """Peers whose connections may have been ended by the gateway."""
    tells_losses: bool = False
    """Whether who has lost messages is told how many."""
    uncarried: int = 0
    """Messages that the gateway says it has not carried over."""


@dataclass
class Spoken:
    """What was said by one connection."""

    sends: list[tuple[int, int, int]] = field(default_factory=list)
    """The time before each burst, its first number and how many it has."""
    accepted: int = 0

    @property
    def sent(self) -> int:
        """How many messages were said, or begun to."""
        return self.sends[-1][1] + self.sends[-1][2] if self.sends else 0

    def first_after(self, when: int) -> int:
        """The first message that was said after a time."""
        return next((first for at, first, _ in self.sends if at > when), self.sent)


@dataclass
class Peer:
    """One connection of an honest peer."""

    where: Where
    side: str
    ready: int
    """When it heard everything."""
    spoken: Spoken = field(default_factory=Spoken)
    heard: list[Message] = field(default_factory=list)
    over: str = ""
    lost: int = 0
    """Messages that it was told it has lost."""
    lost_perhaps: int = 0
    """And those that it may have."""


class Evidence:
    """All records of a round."""

    def __init__(self, records: Path, rules: Rules) -> None:
        self.rules = rules
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.peers: dict[Where, Peer] = {}
        self.missing = 0
        """Messages that peers have lost which did not read."""
        self._asked: list[tuple[int, list[Message]]] = []
        """What services were asked, and when."""
        self._texts: dict[bytes, Message | None] = {}
        for path in sorted(records.iterdir()):
            self._read(path)

    def _expect(self, is_so: bool, words: str) -> None:
        if not is_so:
            self.wrong.append(words)

    def _read(self, path: Path) -> None:
        who = path.name
        peer: Peer | None = None
        for what, when, *details in record.read(path):
            if what == "session":
                peer = self.peers[(who, details[0])] = Peer((who, details[0]), details[1], when)
            elif what == "count":
                self.counts[details[0]] += details[1]
            elif what == "wrong":
                self.wrong.append(details[0])
            elif what == "asked":
                self._asked.append((when, list(self._messages(f"the service {who}", filter(is_honest, details[1])))))
            elif peer:
                self._note(peer, what, when, details)

    def _note(self, peer: Peer, what: str, when: int, details: list[object]) -> None:
        value = details[1]
        if what == "send":
            assert isinstance(value, int)
            assert isinstance(details[2], int)
            peer.spoken.sends.append((when, value, details[2]))
        elif what == "accepted":
            assert isinstance(value, int)
            peer.spoken.accepted = value
        elif what == "got":
            assert isinstance(value, list)
            peer.heard += self._messages(" ".join(peer.where), value)
        elif what == "over":
            peer.over = str(value)
        elif what == "lost":
            assert isinstance(value, int)
            assert isinstance(details[2], int)
            peer.lost, peer.lost_perhaps = value, details[2]

    def _messages(self, who: str, texts: Iterable[bytes]) -> Iterator[Message]:
        for text in texts:
            if text == END or text.removeprefix(b"honest ").startswith(ASKED):
                continue
            if text not in self._texts:
                self._texts[text] = _parsed(text.removeprefix(b"honest "))
            message = self._texts[text]
            if message is None:
                self.wrong.append(f"{who} got what nobody has said: {text[:100]!r}")
            else:
                yield message

    # ------------------------------------------------------------------------------------------ all of them

    def judge(self) -> list[str]:
        """Looks at every message. Returns what is wrong, in words."""
        for peer in self.peers.values():
            own = [number for who, where, number in peer.heard if (who, where) == peer.where]
            peer.spoken.accepted = max([peer.spoken.accepted, *(number + 1 for number in own)])
        for peer in self.peers.values():
            self._judge_peer(peer)
        self._judge_order()
        self._judge_service()
        self.counts["messages"] = sum(peer.spoken.accepted for peer in self.peers.values()) + self.counts["answers"]
        self.counts["messages heard"] = sum(len(peer.heard) for peer in self.peers.values())
        self.counts["honest connections"] = len(self.peers)
        return self.wrong

    def _judge_peer(self, peer: Peer) -> None:
        rules, name = self.rules, " ".join(peer.where)
        is_loser = peer.where[0] in rules.losers
        if not (rules.kills or rules.deaths or peer.where[0] in rules.dismissed):
            self._expect(peer.over == "own", f"{name} was cut off")
        numbers: dict[Where, list[int]] = {}
        for who, session, number in peer.heard:
            numbers.setdefault((who, session), []).append(number)
        for stranger in numbers.keys() - self.peers.keys():
            self.wrong.append(f"{name} got messages of {stranger}, who is not there")
        missing = 0
        for where, source in self.peers.items():
            if (where == peer.where and peer.side == "bus") or not (source.spoken.accepted or where in numbers):
                continue
            heard = numbers.get(where, [])
            self._expect(not heard or heard[-1] < source.spoken.sent, f"{name} got of {where} what was not said yet")
            if is_loser:
                backs = sum(after <= before for before, after in pairwise(heard))
                self._expect(not backs, f"{name} got messages of {where} twice or out of order: {heard[-20:]}")
                due = source.spoken.accepted - source.spoken.first_after(peer.ready)
                missing += due - len(heard) if peer.over == "own" else 0
            else:
                self._judge_source(peer, source, heard)
        if is_loser:
            self.missing += missing
            if rules.tells_losses and peer.over == "own":
                most = peer.lost + peer.lost_perhaps
                self._expect(
                    peer.lost <= missing <= most, f"{name} was told of {peer.lost} to {most} messages, and has lost {missing}"
                )

    def _judge_source(self, peer: Peer, source: Peer, heard: list[int]) -> None:
        """What a peer that reads has heard of another one."""
        rules, name = self.rules, f"{' '.join(peer.where)} of {' '.join(source.where)}"
        by_bus = rules.has_channel and not (rules.is_sbus and peer.side == source.side == "gateway")
        breaks = rules.deaths if by_bus and peer.side == "gateway" else 0
        backs = [(before, after) for before, after in pairwise(heard) if after <= before]
        gaps = [(before, after) for before, after in pairwise(heard) if after > before + 1]
        kinds = "twice" if len({*heard}) < len(heard) else "out of order"
        self._expect(len(backs) <= min(breaks, rules.crashes), f"{name}: got messages {kinds}: {backs[:5]}")
        missing = sum(after - before - 1 for before, after in gaps)
        # What an sbus cannot bring to its channel it counts.
        is_counted = rules.is_sbus and source.side == "gateway" and peer.side == "bus" and missing <= rules.uncarried
        if len(gaps) > breaks and not is_counted:
            self.wrong.append(f"{name}: {missing} messages are missing: {gaps[:5]}")
            self.counts["lost"] += missing
        self.counts["heard again after the bus was killed"] += len(backs)
        due, accepted = source.spoken.first_after(peer.ready), source.spoken.accepted
        if by_bus and rules.deaths and source.over != "own":
            return  # what the bus had of it has gone with the bus
        if heard and not (by_bus and rules.deaths):
            self._expect(heard[0] <= due, f"{name}: got {heard[0]} first, and {due} was due")
            self.counts["lost"] += max(heard[0] - due, 0)
        if peer.over == "own" and due < accepted and not (rules.is_sbus and by_bus and rules.kills and source.over != "own"):
            last = heard[-1] if heard else due - 1
            self._expect(last >= accepted - 1, f"{name}: got no message behind {last}, and {accepted} were accepted")
            self.counts["lost"] += max(accepted - 1 - last, 0)

    def _judge_order(self) -> None:
        """There is one order in which all have heard all messages. Clients of an sbus have theirs, and the channel has its."""
        if self.rules.deaths:
            return
        sides: dict[str, list[list[Message]]] = {}
        for peer in self.peers.values():
            sides.setdefault(peer.side if self.rules.is_sbus else "", []).append(peer.heard)
        for sequences in sides.values():
            graph: graphlib.TopologicalSorter[Message] = graphlib.TopologicalSorter()
            for sequence in sequences:
                for before, after in pairwise(sequence):
                    if before != after:
                        graph.add(after, before)
            try:
                graph.prepare()
            except graphlib.CycleError as error:
                self.wrong.append(f"peers disagree on the order of {error.args[1][:4]}")

    def _judge_service(self) -> None:
        """A service is asked each thing once, and by each connection in the order of what it has said."""
        last: dict[Where, int] = {}
        for _, messages in sorted(self._asked):
            for who, where, number in messages:
                is_later = last.get((who, where), -1) < number
                self._expect(
                    is_later or bool(self.rules.crashes), f"the service was asked again, or too late: {who} {where} {number}"
                )
                last[(who, where)] = max(number, last.get((who, where), -1))


def is_honest(text: bytes) -> bool:
    """Whether a service was asked this by an honest peer."""
    return text.startswith(b"honest ")


def _parsed(text: bytes) -> Message | None:
    try:
        who, where, number, to, size, _ = text.split(b" ", 5)
        message = (who.decode(), where.decode(), int(number))
        is_true = text == text_of(*message, to.decode(), int(size))
    except ValueError:
        return None
    return message if is_true else None
