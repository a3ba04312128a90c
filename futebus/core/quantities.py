"""How people write quantities: sizes, time spans, permissions. One way for arguments, mount options and Spark's options."""

import math
import re

MOST_DIGITS = 20
"""Of a number: what is longer is none that anything here has."""

MOST_ID = (1 << 32) - 2
"""Of users and groups: the one behind it, -1, stands for none."""

MOST_PORT = 65535
"""Of TCP."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Of time spans, in seconds."""

MOST_SECONDS = 100 * 366 * 86400
"""The longest time span that is taken: a century. What waits, counts nanoseconds or knows a calendar cannot take any number."""


def count(text: str) -> int:
    """Reads a number from 1 on.

    Raises:
        ValueError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text)):
        raise ValueError(f"not a number from 1 on: {text!r}")
    return int(text)


def natural(text: str, most: int) -> int | None:
    """Reads a plain number from 0 to `most`, a port or the ID of a user for example. None if it is none."""
    # Its length first: what has thousands of digits Python refuses to read.
    if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) <= most:
        return int(text)
    return None


def size(text: str) -> int:
    """Reads a number of bytes, `64M`, `64mb`: K, M, G and T are 1024 and its powers.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,20})\s*([KMGT]?)B?", text, re.IGNORECASE | re.ASCII)
    if not found:
        raise ValueError(f"not a number (K, M, G and T may follow): {text!r}")
    return int(found[1]) << (10 * " KMGT".index(found[2].upper() or " "))


def amount(text: str) -> int:
    """Reads a number of things, `64K`: as a size, but what is no bytes has no `B`.

    Raises:
        ValueError: it is none.
    """
    if text[-1:] in ("B", "b"):
        raise ValueError(f"it is no size in bytes: {text!r}")
    return size(text)


def seconds(text: str) -> float:
    """Reads a time span, `90`, `1.5m`, `30d`. Returns seconds, from 0 to `MOST_SECONDS`.

    Raises:
        ValueError: it is none.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        span = float(number) * UNITS[unit]
    except ValueError:
        span = math.nan
    if not 0 <= span < math.inf:
        raise ValueError(f"not a time span (s, m, h and d may follow): {text!r}")
    if span > MOST_SECONDS:
        raise ValueError(f"longer than a century: {text!r}")
    return span


def octal(text: str, most: int) -> int:
    """Reads permissions as chmod(1) has them, `622`, up to `most`.

    Raises:
        ValueError: they are none.
    """
    if not re.fullmatch(r"0|[0-7]{3,5}", text, re.ASCII) or int(text, 8) > most:
        raise ValueError(f"not an octal mode such as {'1777' if most > 0o777 else '622'}: {text!r}")
    return int(text, 8)
