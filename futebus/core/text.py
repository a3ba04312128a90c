"""Names, sizes and times as people read them."""

import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator


def escape(name: bytes) -> str:
    r"""A name fit for a terminal: UTF-8 as it is, unprintable characters, stray bytes and `\` as Python escapes."""
    text = name.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return text.translate(_ESCAPES)


def printable(text: str) -> str:
    """Text fit for a terminal and for one line. Paths and names are whatever somebody has called them."""
    if text.isprintable():
        return text
    try:
        name = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, which JSON may have, and no name of a file
        return text.translate(_ESCAPES)
    return escape(name)


def reason(error: OSError) -> str:
    """What has gone wrong, and with which file if it is known. Python's own words begin with a number."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def _escape_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character.isprintable() and character != "\\":
        return character
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    # Not with the codec unicode_escape: that is a module which Python loads when it is first needed, and by then the daemon may
    # be a user who cannot read it. From \x80 to \xff it would also look like a stray byte.
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x1_0000 else f"\\U{number:08x}"


_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


class _Escapes(dict[int, str]):
    """How characters are written, by their numbers, for `str.translate`: what was asked for once need not be worked out again."""

    def __missing__(self, number: int) -> str:
        written = _escape_character(chr(number))
        if len(self) < _KEPT:
            self[number] = written
        return written


_KEPT = 4096
"""How many characters are remembered."""

_ESCAPES = _Escapes()


def clipped(text: str, most: int) -> str:
    """A text, or its beginning and `…` if it is longer than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def size(count: int) -> str:
    """Bytes: `0`, `17`, `1.5K`, `4.0M`."""
    if count < 1024:
        return str(count)
    value = float(count)
    for unit in "KMGT":
        value /= 1024
        if value < 999.5:
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    return f"{value:.0f}T"


def counted(number: int, what: str, form: str = "") -> str:
    """So many of something: `1 line`, `1000 lines`; with the form `,`, `1,000 lines`."""
    return f"{number:{form}} {what}{'s' * (number != 1)}"


def spanned(first: int, stop: int, what: str = "line") -> str:
    """Which of a sequence: `line 5`, `lines 5 to 9`.

    Args:
        first: the number of the first of them.
        stop: the number behind the last.
        what: they are.
    """
    return f"{what} {first}" if stop - first == 1 else f"{what}s {first} to {stop - 1}"


def removed(first: int, stop: int, shown: str, what: str = "line") -> str:
    """That some of a sequence are not there any more: `lines 5 to 9 of B_log have been removed`.

    Args:
        first: the number of the first of them.
        stop: the number behind the last.
        shown: whose they were, for people.
        what: they were.
    """
    return f"{spanned(first, stop, what)} of {shown} {'has' if stop - first == 1 else 'have'} been removed"


def are(number: int) -> str:
    """The verb for so many of something: `is`, `are`."""
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    """The verb for so many of something: `was`, `were`."""
    return "was" if number == 1 else "were"


def unlogged(number: int) -> str:
    """How many lines a log lacks: `3 lines were not logged`."""
    return f"{counted(number, 'line')} {were(number)} not logged"


def duration(nanoseconds: int) -> str:
    """A time span: `0.3s`, `12s`, `3m12s`, `5h02m`, `3d04h`."""
    seconds = max(nanoseconds, 0) / 1e9
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole // 60 % 60:02}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02}h"


def progress(done: int, total: int, seconds: float, what: str) -> str:
    """How far long work has come: `[######--------------]  30 %, 30 of 100 lines, 15/s, 5s left`.

    Args:
        done: how much.
        total: of how much.
        seconds: for how long it has been at work.
        what: one of which there are so many.
    """
    part = min(done / total, 1.0) if total > 0 else 1.0
    rate = done / seconds if seconds > 0 else 0.0
    filled = int(part * BAR)
    words = (
        f"[{'#' * filled}{'-' * (BAR - filled)}] {int(part * 100):3} %, {done:,} of {counted(total, what, ',')}, {rate:,.0f}/s"
    )
    return f"{words}, {duration(round(max(total - done, 0) / rate * 1e9))} left" if rate else words


BAR = 20
"""Characters of the bar."""

SLICE = 25
"""How many rows of a table are worked on at a time, at most."""

SLICE_CHARACTERS = 20_000
"""How many characters of a table are written at a time, about. A name may have a thousand."""


def columns(text: str) -> int:
    """How many columns of a terminal a printable text takes: two for each wide character, none for what stands on another one."""
    return len(text) if text.isascii() else sum(map(_WIDTHS.__getitem__, text))


class _Widths(dict[str, int]):
    """How many columns characters take: what was asked for once need not be looked up again."""

    def __missing__(self, character: str) -> int:
        is_mark = unicodedata.category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff"
        width = 0 if is_mark else 1 + (unicodedata.east_asian_width(character) in "WF")
        if len(self) < _KEPT:
            self[character] = width
        return width


_WIDTHS = _Widths()


def _widest(texts: Iterable[str]) -> int:
    known = [*texts]
    return max(map(len if "".join(known).isascii() else columns, known))


def table(heads: list[str], rows: Iterable[tuple[str, ...]], right: str) -> Iterator[str]:
    """Aligned columns, one line a row, two spaces between. The cells are printable.

    A long table takes a while, so it comes in pieces, some of them empty: between two a caller can do something else.

    Args:
        heads: the column heads; those named in `right` (separated by spaces) are aligned to the right.
        rows: the cells.
        right: see `heads`.
    """
    # Tuples: of those that hold nothing but texts, the garbage collection lets go when it has seen them once.
    lines = deque([tuple(heads)])
    widths = [len(head) for head in heads]
    new: list[tuple[str, ...]] = []

    def measure() -> list[int]:
        return [max(width, _widest(column)) for width, column in zip(widths, zip(*new, strict=True), strict=True)]

    for row in rows:
        new.append(row)
        if len(new) == SLICE:
            widths = measure()
            lines.extend(new)
            new.clear()
            yield ""
    if new:
        widths = measure()
        lines.extend(new)
    slice_ = max(1, min(SLICE, SLICE_CHARACTERS // sum(widths)))
    falls = [head in right.split() for head in heads]

    def form_for(spare: Iterable[int]) -> str:
        return "  ".join(f"{{:{'>' if each else '<'}{width}}}" for each, width in zip(falls, spare, strict=True))

    form = form_for(widths)

    def line(cells: tuple[str, ...]) -> str:
        if "".join(cells).isascii():
            return form.format(*cells)
        # A format counts characters.
        return form_for(width + len(cell) - columns(cell) for width, cell in zip(widths, cells, strict=True)).format(*cells)

    # What is written is let go at once: in the end, that of thousands would take too long.
    while lines:
        yield "".join(line(lines.popleft()).rstrip() + "\n" for _ in range(min(slice_, len(lines))))
