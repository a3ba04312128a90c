"""What a peer wants to hear: its subscriptions, and whether a category meets one of them.

The one rule: a category is looked at once, and what that costs is bounded whatever a stranger has subscribed to. Regular
expressions are RE2's, whose time is linear; their size is limited, and so is the category's.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import re2

from .lines import Block

MAX_STRING = 255
"""Bytes of a subscription's string: no category is longer."""

MAX_INSTRUCTIONS = 2000
"""RE2 instructions of all regular expressions of a peer together. With a category of 255 bytes these take five milliseconds at
worst; `.` has about ten, `^/(upper|lower)/` thirty, a class of Unicode such as `\\pL` a few hundred."""

REGEXP_BYTES = 256 * 1024
"""Memory that RE2 may use for one regular expression."""

CACHED = 1024
"""Categories of which it is remembered whether they are wanted. Past that it begins anew: a peer costs 300 KiB by this at
most."""

EVERYTHING = frozenset({b".", b".*", b".+", b"^", b"$", b"^.", b"^.*", b"^.*$", b"^.+", b"^.+$", b".*$", b".+$"})
"""Regular expressions that every category matches. It is not worth looking."""


class NotPossible(Exception):
    """Why there can be no such subscription, in one line."""


class Subscription(NamedTuple):
    """One wish of a peer."""

    kind: str
    string: bytes
    instructions: int
    """How big the regular expression is; 0 if it is none."""
    meets: Callable[[bytes], bool]
    """Whether a category is wanted."""

    @property
    def is_for_all(self) -> bool:
        """Whether every category is wanted."""
        return self.kind != "is" and (not self.string or (self.kind == "regexp" and self.string in EVERYTHING))


def _regexp(string: bytes) -> Subscription:
    options = re2.Options()
    options.log_errors = False  # on stderr, by C++
    options.never_capture = True
    options.max_mem = REGEXP_BYTES
    try:
        compiled = re2.compile(string, options)
    except re2.error as error:
        words = error.args[0] if error.args else "unknown"
        text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
        raise NotPossible(f"no regular expression: {text}") from None
    search = compiled.search
    size = compiled.programsize + compiled.reverseprogramsize
    return Subscription("regexp", string, size, lambda category: search(category) is not None)


KINDS: dict[str, Callable[[bytes], Subscription]] = {
    "regexp": _regexp,
    "begins-with": lambda string: Subscription("begins-with", string, 0, lambda category: category.startswith(string)),
    "ends-with": lambda string: Subscription("ends-with", string, 0, lambda category: category.endswith(string)),
    "contains": lambda string: Subscription("contains", string, 0, lambda category: string in category),
    "is": lambda string: Subscription("is", string, 0, string.__eq__),
}
"""The kinds of subscriptions, by their names in the protocol."""


class Wishes:
    """The subscriptions of a peer at one moment. Never changes: messages that came before are sorted by what was wanted then.

    Args:
        subscriptions: all of them.
    """

    def __init__(self, subscriptions: tuple[Subscription, ...] = ()) -> None:
        self.are_none = not subscriptions
        self.are_all = any(each.is_for_all for each in subscriptions)
        # Who compares least is asked first.
        self._meets = [each.meets for each in sorted(subscriptions, key=lambda each: each.instructions)]
        self._known: dict[bytes, bool] = {}

    def select(self, block: Block) -> Iterator[bytes | None]:
        """The messages of a block that are wanted.

        Gives:
            None after each bit of work, so that the caller can do something else in between; then the messages.
        """
        if self.are_all or self.are_none:
            yield block.data if self.are_all else b""
            return
        wanted = set()
        known = self._known
        for category in block.distinct:
            is_wanted = known.get(category)
            if is_wanted is None:
                is_wanted = any(meets(category) for meets in self._meets)
                if len(known) >= CACHED:
                    known.clear()
                known[category] = is_wanted
                yield None
            if is_wanted:
                wanted.add(category)
        if len(wanted) == len(block.distinct):
            yield block.data
        elif not wanted:
            yield b""
        else:
            lines = [line for line, category in zip(block.lines, block.categories, strict=True) if category in wanted]
            lines.append(b"")
            yield b"\n".join(lines)


class Subscriptions:
    """The subscriptions of a peer.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self.wishes = Wishes()
        """All of them, as they are now."""
        self._most = most
        self._by_id: dict[bytes, Subscription] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, id_: bytes, kind: str, string: bytes) -> None:
        """Subscribes. A subscription of the same ID is replaced.

        Raises:
            NotPossible: it is no regular expression, or there are too many.
        """
        if len(string) > MAX_STRING:
            raise NotPossible(f"no category has more than {MAX_STRING} bytes")
        others = {key: each for key, each in self._by_id.items() if key != id_}
        if len(others) >= self._most:
            raise NotPossible(f"a peer has at most {self._most} subscriptions")
        made = KINDS[kind](string)
        if made.instructions + sum(each.instructions for each in others.values()) > MAX_INSTRUCTIONS:
            raise NotPossible("this regular expression is too big, or all of yours together")
        self._by_id[id_] = made
        self.wishes = Wishes(tuple(self._by_id.values()))

    def remove(self, id_: bytes) -> bool:
        """Ends a subscription. Returns whether there was one."""
        if self._by_id.pop(id_, None) is None:
            return False
        self.wishes = Wishes(tuple(self._by_id.values()))
        return True
