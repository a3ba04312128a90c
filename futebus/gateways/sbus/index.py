"""Who has subscribed to what a key matches, found without looking at every pattern.

The one rule: `find` finds exactly those of whose patterns one matches by `keys.matches`, in time that the patterns' number does
not set. Patterns stand in a tree by what is between their slashes. Those for secret messages stand in a tree of their own, so
that no `*` and no empty pattern of anybody leads there.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from .keys import SECRET

Holder = TypeVar("Holder")

LEVELS = 32
"""How deep the tree is. Keys and patterns may have more slashes; what is behind is compared as it is, so that a pattern of a
hundred thousand slashes is no tree of as many levels. So a `*` cannot stand there."""

REMEMBERED_KEYS = 4096
"""Of how many keys it is remembered who gets them. Programs use few keys, and again and again."""

REMEMBERED_HOLDERS = 65536
"""How many receivers these have in all: half a megabyte."""

REMEMBERED_LENGTH = 256
"""The longest of these keys, in bytes."""

Crowd = dict[Holder, int]
"""Who has subscribed to one pattern, and how often."""


class TooDeep(ValueError):
    """A pattern has a `*` so far down that the index cannot have it."""


class Starred(Generic[Holder]):
    """What stands behind a `*`, by the bytes before it: those of `a*` are found for `abc`."""

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        self._by_length: dict[int, dict[bytes, Holder]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_length)

    def get(self, start: bytes) -> Holder | None:
        """What stands behind the `*` after exactly these bytes."""
        return self._by_length.get(len(start), {}).get(start)

    def add(self, start: bytes, what: Holder) -> Holder:
        """Puts something behind the `*` after these bytes."""
        return self._by_length.setdefault(len(start), {}).setdefault(start, what)

    def remove(self, start: bytes) -> None:
        """Takes away what is behind the `*` after these bytes."""
        starts = self._by_length[len(start)]
        del starts[start]
        if not starts:
            del self._by_length[len(start)]

    def find(self, part: bytes) -> Iterator[tuple[int, Holder]]:
        """What stands behind each `*` for which this can be, and how many bytes of it are before the `*`."""
        for length, starts in self._by_length.items():
            if length <= len(part):
                found = starts.get(part[:length])
                if found is not None:
                    yield length, found


class Node(Generic[Holder]):
    """A place in the tree: some parts of a pattern, each with its `/`."""

    __slots__ = ("below", "children", "deep", "ends", "star_children", "star_ends")

    def __init__(self) -> None:
        self.below: Crowd[Holder] = {}
        """Whose pattern ends here, with the `/`."""
        self.ends: dict[bytes, Crowd[Holder]] = {}
        """Whose pattern ends with one more part."""
        self.star_ends: Starred[Crowd[Holder]] | None = None
        self.children: dict[bytes, Node[Holder]] = {}
        self.star_children: Starred[Node[Holder]] | None = None
        self.deep: dict[bytes, Crowd[Holder]] | None = None
        """Whose pattern goes on below the deepest level, to a `/`."""

    def __bool__(self) -> bool:
        return bool(self.below or self.ends or self.star_ends or self.children or self.star_children or self.deep)


class Tree(Generic[Holder]):
    """Patterns, and who has subscribed to them."""

    def __init__(self) -> None:
        self._root: Node[Holder] = Node()

    def find(self, key: bytes) -> set[Holder]:
        """Who has subscribed to a pattern that matches."""
        parts = key.split(b"/", LEVELS)
        last = len(parts) - 1
        found: set[Holder] = set()
        places = [(self._root, 0)]
        while places:
            node, level = places.pop()
            found.update(node.below)
            part = parts[level]
            if level == last:
                found.update(node.ends.get(part, ()))
                if node.star_ends:
                    for length, crowd in node.star_ends.find(part):
                        if length < len(part):  # at the end of a key a * does not stand for nothing
                            found.update(crowd)
                if node.deep:
                    for start, crowd in node.deep.items():
                        if part.startswith(start):
                            found.update(crowd)
                continue
            child = node.children.get(part)
            if child is not None:
                places.append((child, level + 1))
            if node.star_children:
                places.extend((child, level + 1) for _, child in node.star_children.find(part))
        return found

    def add(self, pattern: bytes, holder: Holder) -> None:
        """Notes a subscription. One that is noted twice is there until it is removed twice.

        Raises:
            TooDeep: the pattern has a `*` behind so many slashes.
        """
        parts = self._parts(pattern)
        if parts is not None:
            node = self._root
            for part in parts[:-1]:
                node = self._child(node, part)
            crowd = self._crowd(node, parts)
            crowd[holder] = crowd.get(holder, 0) + 1

    def remove(self, pattern: bytes, holder: Holder) -> None:
        """Removes one subscription of those that were added."""
        parts = self._parts(pattern)
        if parts is None:
            return
        way = [self._root]
        for part in parts[:-1]:
            way.append(self._child(way[-1], part))
        crowd = self._crowd(way[-1], parts)
        crowd[holder] -= 1
        if crowd[holder]:
            return
        del crowd[holder]
        if not crowd:
            self._forget(way, parts)

    @staticmethod
    def _parts(pattern: bytes) -> list[bytes] | None:
        """What is between the slashes; None if nothing can match: behind a `*` there is only a `/` or the end."""
        parts = pattern.split(b"/", LEVELS)
        if len(parts) > LEVELS and b"*" in parts[-1]:
            raise TooDeep
        for number, part in enumerate(parts):
            star = part.find(b"*")
            if star < 0:
                continue
            if part[star:].strip(b"*") or (number == len(parts) - 1 and len(part) > star + 1):
                return None  # of two at the end the second has nothing left to stand for
            parts[number] = part[: star + 1]
        return parts

    def _child(self, node: Node[Holder], part: bytes) -> Node[Holder]:
        if not part.endswith(b"*"):
            child = node.children.get(part)
            if child is None:
                child = node.children[part] = Node()
            return child
        node.star_children = Starred() if node.star_children is None else node.star_children
        found = node.star_children.get(part[:-1])
        return node.star_children.add(part[:-1], Node()) if found is None else found

    def _crowd(self, node: Node[Holder], parts: list[bytes]) -> Crowd[Holder]:
        part = parts[-1]
        if len(parts) > LEVELS and part.endswith(b"/"):
            node.deep = {} if node.deep is None else node.deep
            return node.deep.setdefault(part, {})
        if not part:
            return node.below
        if not part.endswith(b"*"):
            return node.ends.setdefault(part, {})
        node.star_ends = Starred() if node.star_ends is None else node.star_ends
        return node.star_ends.add(part[:-1], {})

    @staticmethod
    def _forget(way: list[Node[Holder]], parts: list[bytes]) -> None:
        """Takes away what is empty, from its end to the root."""
        node, part = way[-1], parts[-1]
        if len(parts) > LEVELS and part.endswith(b"/"):
            assert node.deep is not None
            del node.deep[part]
        elif part.endswith(b"*"):
            assert node.star_ends is not None
            node.star_ends.remove(part[:-1])
        elif part:
            del node.ends[part]
        for level in range(len(way) - 2, -1, -1):
            if way[level + 1]:
                break
            part, node = parts[level], way[level]
            if part.endswith(b"*"):
                assert node.star_children is not None
                node.star_children.remove(part[:-1])
            else:
                del node.children[part]


class Index(Generic[Holder]):
    """All subscriptions: an ordinary tree, and one of secrets."""

    def __init__(self) -> None:
        self._ordinary: Tree[Holder] = Tree()
        self._secret: Tree[Holder] = Tree()
        self._remembered: dict[bytes, tuple[Holder, ...]] = {}
        self._holders = 0

    def _tree(self, pattern: bytes) -> Tree[Holder]:
        return self._secret if pattern.startswith(SECRET) else self._ordinary

    def find(self, key: bytes) -> tuple[Holder, ...]:
        """Who gets a message with this key, each once."""
        found = self._remembered.get(key)
        if found is None:
            found = tuple(self._tree(key).find(key))
            if len(key) <= REMEMBERED_LENGTH and len(found) <= REMEMBERED_HOLDERS:
                if len(self._remembered) >= REMEMBERED_KEYS or self._holders + len(found) > REMEMBERED_HOLDERS:
                    self._forget()
                self._remembered[key] = found
                self._holders += len(found)
        return found

    def add(self, pattern: bytes, holder: Holder) -> None:
        """Notes a subscription, as `Tree.add`. A pattern for secrets has been looked at: see `keys.admitted`."""
        self._tree(pattern).add(pattern, holder)
        self._forget()

    def remove(self, pattern: bytes, holder: Holder) -> None:
        """Removes one subscription of those that were added."""
        self._tree(pattern).remove(pattern, holder)
        self._forget()

    def _forget(self) -> None:
        self._remembered.clear()
        self._holders = 0
