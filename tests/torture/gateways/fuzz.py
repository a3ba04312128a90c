"""What strangers send: valid and invalid inputs of each gateway. None of it looks like what honest peers say."""

import random
from collections.abc import Callable

LONG = 300_000
"""Bytes that are more than a line may have, of any gateway and of a bus."""

BIGGEST_PACKET = 409_600

STRINGS: tuple[bytes, ...] = (
    b"",
    b".",
    b"/a",
    b"a/b/",
    b"*",
    b"*/*/",
    b"fuzz/",
    b"!/cred/",
    b"!/cred////x",
    b"!/cred/0/0/1/x",
    b"(",
    b"[a-",
    b"x{1000}",
)
STRINGS += (b"\\pL{50}", b"(a*)*b", b"\xff\xfe", b"\0", b"x" * 255, b"x" * 300, b"*/" * 40, b"-1", b"\t", b"'; --")
WORDS = (b"subscribe", b"s", b"sub", b"unsubscribe", b"u", b"help", b"h", b"SUBSCRIBE", b"lost", b"ok", b"", b"quit")
MATCHES = (b"is", b"i", b"begins-with", b"b", b"ends-with", b"e", b"contains", b"c", b"regexp", b"r", b"re", b"x", b"")
CONTROLS: tuple[bytes, ...] = (b"blocking/soft/queue", b"blocking/soft/discard", b"blocking/soft/block", b"blocking/soft/error")
CONTROLS += (b"blocking/hard/discard", b"blocking/hard/block", b"blocking/hard/error", b"order/queue", b"order/stack")
CONTROLS += (b"order/random", b"echo/off", b"echo/on", b"!/cred/whoami", b"", b"nonsense", b"\xff")


def noise(dice: random.Random, most: int = 60) -> bytes:
    """Any bytes but newlines."""
    return dice.randbytes(dice.randrange(most)).replace(b"\n", b"")


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The same with a few bytes changed, removed or put in."""
    made = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(made) + 1)
        made[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
    return bytes(made)


def tmb(dice: random.Random) -> bytes:
    """A line for the Text Message Bus, or some bytes."""
    what = dice.random()
    ident = dice.choice((b"1", b"2", b"3", b"x" * 64, b"x" * 65, b"%d" % dice.randrange(100)))
    string = dice.choice(STRINGS).replace(b"\n", b"")
    if what < 0.4:
        line = b" ".join((dice.choice(WORDS), ident, dice.choice(MATCHES), string))
    elif what < 0.7:
        line = b":fuzz/%s %s" % (noise(dice, 10), noise(dice))
    elif what < 0.8:
        line = dice.choice((b": x", b":", b":" + b"c" * 256 + b" x", b":\t", b":fuzz\0\r", b"\r", b"", b" ", b"s" * 1000))
    elif what < 0.82:
        line = b":fuzz " + b"x" * dice.choice((65_000, 65_536, LONG))
    else:
        line = noise(dice)
    line = mutated(line, dice) if dice.random() < 0.2 else line
    return line + dice.choice((b"\n", b"\n", b"\n", b"\r\n", b""))


def sbus(dice: random.Random) -> bytes:
    """A packet of sbus, or none."""
    what = dice.random()
    string = dice.choice(STRINGS)
    if what < 0.25:
        packet = dice.choice((b"SUB ", b"UNSUB ")) + string
    elif what < 0.6:
        packet = b"MSG fuzz/%s\0%s" % (string, noise(dice) + b"\n" * dice.randrange(3))
    elif what < 0.75:
        packet = b"CMSG " + dice.choice(CONTROLS) + dice.choice((b"", b"\0", b"\0x"))
    elif what < 0.78:
        packet = b"MSG fuzz/big\0".ljust(dice.choice((BIGGEST_PACKET, BIGGEST_PACKET - 1, 200_000)), b"\n")
    elif what < 0.8:
        packet = dice.choice((b"", b"MSG", b"MSG ", b"MSG no end", b"SUB", b"msg x\0", b"MSG !/secret\0x", b"X" * 500_000))
    else:
        packet = noise(dice)
    return mutated(packet, dice) if dice.random() < 0.1 else packet


def ubus(dice: random.Random) -> bytes:
    """A line for ubus, or some bytes."""
    what = dice.random()
    if what < 0.3:
        line = b"\t".join(dice.choice(STRINGS).replace(b"\n", b"") for _ in range(dice.randrange(4)))
    elif what < 0.5:
        line = dice.choice(
            (b"", b"\a22\twords", b"\a", b"\ax\t", b"\x01reserved", b"\x1b{\v\x1b}", b"\x1b[\v" * 50, b"\x1bx", b"\v")
        )
    elif what < 0.52:
        line = b"fuzz " + b"x" * dice.choice((255_990, 262_143, LONG))
    else:
        line = b"fuzz " + noise(dice)
    line = mutated(line, dice) if dice.random() < 0.2 else line
    return line + dice.choice((b"\n", b"\n", b"\n\n", b"\r\n", b""))


def script(dice: random.Random) -> bytes:
    """A line for the standard input of `futebus-ubus`. The bus that honest peers are connected to is never named."""
    ident = dice.choice((b"x", b"y", b"", b"\xff", b"x" * 200))
    client = dice.choice((b"*", b"", b"1", b"2", b"99999999999999999999", b"-1", b"\0"))
    name = dice.choice((b"/nowhere/x", b"", b".", b"/", b"\x1bx", b"\x1b[\v\x1b]", b"\0", b"y" * 200, b"/dev/null"))
    command = dice.choice((b"w", b"d", b"u", b"b", b"k", b"i", b"W", b"", b"ww", noise(dice, 5)))
    parts = [command, ident, dice.choice((client, name)), noise(dice)][: dice.randrange(1, 5)]
    if len(parts) > 1 and parts[1] == b"1":
        parts[1] = b"x"
    return b"\t".join(parts).replace(b"\n", b"") + b"\n"


def on_a_channel(dice: random.Random) -> bytes:
    """A line that somebody says on the channel that a gateway is joined to."""
    lines: tuple[bytes, ...] = (
        b"fuzz/a\tb",
        b"fuzz/\\0\tx",
        b"!/cred/whoami\tx",
        b"fuzz\\",
        b"\t",
        b":fuzz x",
        b": x",
        b":" + b"c" * 300,
        b"\a22\tx",
    )
    lines += (
        b"\0",
        b"fuzz\t" + b"\\n" * 100_000,
        b"fuzz/big\t" + b"x" * 262_000,
        noise(dice),
        noise(dice),
        noise(dice),
        b"s 1 r .",
    )
    line = dice.choice(lines)
    return (mutated(line, dice).replace(b"\n", b"") if dice.random() < 0.3 else line) + b"\n"


INPUTS: dict[str, Callable[[random.Random], bytes]] = {"tmb": tmb, "sbus": sbus, "ubus": ubus}
"""By the first word of the name of a kind."""
