"""What a peer may tell the server: subscribe, unsubscribe, help, each word in any abbreviation that means one thing.

The one rule: each command has an answer, which never begins with a colon and shows nothing that a terminal would obey.
"""

from typing import NamedTuple

from ...core.text import escape
from .subscriptions import KINDS

MAX_ID = 64
"""Bytes of a subscription's ID: enough for any number, and for a UUID. It is kept and shown."""

_SHOWN = 60
"""Bytes of what a peer has sent that are shown to it."""

HELP = """\
help A message is a line such as
help   :/upper/shape square
help that is a colon, a category, a blank, and text. Who has subscribed to the category gets it.
help Commands, whose words may be abbreviated (s 1 r .):
help   subscribe ID is STRING           the category is STRING
help   subscribe ID begins-with STRING  it begins so
help   subscribe ID ends-with STRING    it ends so
help   subscribe ID contains STRING     it has this in it
help   subscribe ID regexp STRING       it matches the regular expression (RE2) somewhere
help   unsubscribe ID
help   help
help An ID is a word of your choice. Answers begin with ok, error, lost or help.
"""
"""The answer to `help`."""


class CommandError(Exception):
    """What is wrong with a command, in one line."""


class Subscribe(NamedTuple):
    """To hear of categories."""

    id: bytes
    kind: str
    string: bytes


class Unsubscribe(NamedTuple):
    """Not to hear of them any more."""

    id: bytes


class Help(NamedTuple):
    """To be told what there is."""


Command = Subscribe | Unsubscribe | Help

_VERBS = ("subscribe", "unsubscribe", "help")


def shown(data: bytes) -> str:
    """What a peer has sent, fit for its terminal and for one line."""
    return escape(data[:_SHOWN]) + "..." * (len(data) > _SHOWN)


def parse(line: bytes) -> Command:
    r"""Reads a line that is no peer message.

    Args:
        line: with or without its `\n`.

    Raises:
        CommandError: it is no command.
    """
    if line.startswith(b":"):
        # Only these two make a line with a colon none.
        blank = not line[1:2].strip()
        raise CommandError("no blank may follow the colon: a message is :CATEGORY TEXT" if blank else "the category is too long")
    # No more words than one too many: a line of a thousand blanks is no list of a thousand words.
    words = line.split(None, 4)
    if not words:
        raise CommandError("no command; try help")
    verb = _meant(words[0], _VERBS, "command")
    if verb == "help":
        _expect(words, 1, 1, "help")
        return Help()
    if verb == "unsubscribe":
        _expect(words, 2, 2, "unsubscribe ID")
        return Unsubscribe(_checked_id(words[1]))
    form = "subscribe ID regexp|begins-with|ends-with|contains|is STRING"
    _expect(words, 3, 4, form)
    kind = _meant(words[2], tuple(KINDS), "kind of match")
    string = words[3] if len(words) > 3 else b""
    if kind == "is" and not string:
        raise CommandError("no category is empty: subscribe ID is STRING")
    return Subscribe(_checked_id(words[1]), kind, string)


def _meant(word: bytes, words: tuple[str, ...], what: str) -> str:
    """The one of the words that an abbreviation stands for."""
    found = [each for each in words if each.encode().startswith(word)]
    if len(found) != 1:
        raise CommandError(f"there is no {what} {shown(word)}: {', '.join(words)}")
    return found[0]


def _expect(words: list[bytes], least: int, most: int, form: str) -> None:
    if not least <= len(words) <= most:
        raise CommandError(f"it goes: {form}" + ", and no STRING has a blank, since no category has" * (len(words) > 4))


def _checked_id(word: bytes) -> bytes:
    if len(word) > MAX_ID:
        raise CommandError(f"an ID has at most {MAX_ID} bytes")
    return word
