"""Who a consumer belongs to.

The one rule: it stands in the consumer's description: who reads it, in which process, and a word for each time that it is made.
When it was made tells nothing: servers say a little later another time than at first (2.9.10), and clocks step.
"""

import contextlib
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from nats.js.api import ConsumerInfo

REMEMBERED = 128
"""How many consumers an owner remembers that he has made or removed."""


@dataclass
class Owner:
    """Who reads a consumer, for as long as the process runs."""

    name: str
    """In one word. The next process has the same, and so has who was given a copy of what this one knows."""
    process: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """In one word, and nobody else's."""
    past: set[str] = field(default_factory=set)
    """Other processes of that name whose consumers, not known before, were removed here. Who makes another one runs beside us."""
    known: list[str] = field(default_factory=list)
    """Consumers, by short words, that this owner has made, or tried to, or removed. Nobody else goes on with these, unless he has
    been given what this one knows; a server that was restored may have one of them again."""
    handed: dict[str, int] = field(default_factory=dict)
    """Of some of them, how many messages they may have handed out to us, which is noted before they are asked; or how many it is
    known that they had handed out."""
    keep: Callable[[], object] = lambda: None
    """Is called when something of that has changed."""
    rename: Callable[[], str] = field(default=lambda: uuid.uuid4().hex)
    """Is called to have another name, for who takes over: who has been given what this one knows, and runs, is to see it."""

    def describe(self) -> str:
        """The description of a consumer that is made now."""
        return f"{self.name} {self.process} {uuid.uuid4().hex[:8]}"

    def note(self, description: str | None, handed: int | None = None) -> None:
        """Knows a consumer from now on, by its description: one that no other has, or may get. Of others, nothing is kept.

        Args:
            description: its.
            handed: how many messages of it are known here, if there may be more; None: as many as before.
        """
        words, word = (description or "").split(" "), _word_of(description)
        if len(words) == 3 or words[0] == self.name:
            self.known[:] = [*(old for old in self.known if old != word), word][-REMEMBERED:]
            if handed is not None:
                self.handed[word] = handed
            for old in self.handed.keys() - {*self.known}:
                del self.handed[old]
            self.keep()

    def removed(self, info: ConsumerInfo) -> None:
        """Notes that a consumer was removed here."""
        name, process = owner_of(info)
        if name == self.name and process != self.process and not self.knows(info):
            self.past.add(process)
        self.note(info.config.description)

    def forget(self, description: str | None) -> None:
        """Does not know it any more."""
        with contextlib.suppress(ValueError):
            self.known.remove(_word_of(description))
            self.keep()

    def hand(self, description: str, count: int) -> None:
        """Notes how many messages the last one may have handed out when it is asked for more."""
        word = _word_of(description)
        self.handed[word] = count  # it is never not there
        for old in self.handed.keys() - {word}:
            del self.handed[old]
        self.keep()

    def knows(self, info: ConsumerInfo) -> bool:
        """Whether a consumer is known."""
        return _word_of(info.config.description) in self.known

    def knows_all_of(self, info: ConsumerInfo) -> bool:
        """Whether nobody else has gone on with one that is known."""
        handed = self.handed.get(_word_of(info.config.description))
        return self.knows(info) and (handed is None or not info.ack_floor or info.ack_floor.consumer_seq <= handed)


def owner_of(info: ConsumerInfo) -> tuple[str, str]:
    """Who reads a consumer, and in which process. "" is a name, too: nobody's who makes them here."""
    name, process, *_ = *(info.config.description or "").split(" ", 2), ""
    return name, process


def _word_of(description: str | None) -> str:
    """A short word for a consumer, by its description."""
    return hashlib.sha256((description or "").encode(errors="surrogatepass")).hexdigest()[:16]
