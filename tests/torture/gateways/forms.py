"""How a message looks where it is said: on a socket of each gateway, and on its channel.

What honest peers say begins with a word that nobody else says, so that others can say what they like beside it. These forms are
written down here once more, from the manual pages: what the gateways themselves know of them is not used.
"""

import random
import re
from typing import Protocol

END = b"END"
"""The last text that everybody hears."""

ASKED = b"ASKED"
"""Begins what is said to see that the gateway works. It is not judged with the rest."""

HONEST = b"honest"

ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r", b"\0": b"\\0"}
ODD = b".\n\\n\t\0\\\r"
"""Behind each text where any byte may be in it: everything that has to be escaped on a channel."""


class Form(Protocol):
    """A message in one place. A unit is a packet, or a line without its newline."""

    def wrap(self, text: bytes, number: int) -> bytes:
        """What is sent to say a text."""

    def unwrap(self, unit: bytes) -> bytes | None:
        """The text of a unit; None if it is not said by an honest peer."""

    def greeting(self, who: str, dice: random.Random) -> list[bytes]:
        """What is sent first, to be told everything. Without any, that needs no words."""

    def probe(self, who: str) -> bytes:
        """What has an answer, behind all that came before it."""

    def is_answer(self, unit: bytes, who: str) -> bool:
        """Whether that is the answer to the greeting or the probe."""


class Tmb:
    """Lines of the Text Message Bus."""

    def wrap(self, text: bytes, number: int) -> bytes:
        return b":%s/%d %s.\n" % (HONEST, number % 4, text)

    def unwrap(self, unit: bytes) -> bytes | None:
        if not unit.startswith(b":%s/" % HONEST):
            return None
        return unit.partition(b" ")[2].removesuffix(b".")

    def greeting(self, who: str, dice: random.Random) -> list[bytes]:
        return [
            b"%s 1 %s\n"
            % (dice.choice((b"s", b"subscribe")), dice.choice((b"b honest/", b"r ^honest/[0-3]$", b"c onest", b"r .")))
        ]

    def probe(self, who: str) -> bytes:
        return b"s 2 is %s\n" % who.encode()

    def is_answer(self, unit: bytes, who: str) -> bool:
        return unit.startswith(b"ok subscribed ")


class SbusPackets:
    """Packets of sbus."""

    def wrap(self, text: bytes, number: int) -> bytes:
        return b"MSG %s/%d\0%s%s" % (HONEST, number % 4, text, ODD)

    def unwrap(self, unit: bytes) -> bytes | None:
        key, _, payload = unit.partition(b"\0")
        if not key.startswith(b"MSG %s/" % HONEST):
            return None
        return payload.removesuffix(ODD) if payload.endswith(ODD) else payload

    def greeting(self, who: str, dice: random.Random) -> list[bytes]:
        return [b"SUB " + dice.choice((b"", b"honest/", b"honest/*", b"*/")), self.probe(who)]

    def probe(self, who: str) -> bytes:
        return b"CMSG !/cred/whoami"

    def is_answer(self, unit: bytes, who: str) -> bool:
        return unit.startswith(b"CMSG !/cred/whoami\0")


class SbusLines(SbusPackets):
    """The same as lines of a channel."""

    def wrap(self, text: bytes, number: int) -> bytes:
        key, _, payload = super().wrap(text, number).removeprefix(b"MSG ").partition(b"\0")
        return b"%s\t%s\n" % (key, re.sub(rb"[\\\t\n\r\0]", lambda found: ESCAPES[found[0]], payload))

    def unwrap(self, unit: bytes) -> bytes | None:
        key, _, payload = unit.partition(b"\t")
        back = {escape: byte for byte, escape in ESCAPES.items()}
        payload = re.sub(rb"\\[\\tnr0]", lambda found: back[found[0]], payload)
        return super().unwrap(b"MSG %s\0%s" % (key, payload))


class Plain:
    """Lines of ubus, which are the same on a channel."""

    def wrap(self, text: bytes, number: int) -> bytes:
        return b"%s %s\n" % (HONEST, text)

    def unwrap(self, unit: bytes) -> bytes | None:
        return unit.removeprefix(HONEST + b" ") if unit.startswith(HONEST + b" ") else None

    def greeting(self, who: str, dice: random.Random) -> list[bytes]:
        return []

    def probe(self, who: str) -> bytes:
        return b"hello from %s\n" % who.encode()

    def is_answer(self, unit: bytes, who: str) -> bool:
        return unit == self.probe(who)[:-1]


class Script(Plain):
    """Lines of ubus that a script hands on. Whoever connects is known to it when it has heard him."""

    def greeting(self, who: str, dice: random.Random) -> list[bytes]:
        return [self.probe(who)]
