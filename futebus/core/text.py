"""Names, sizes and times as people read them."""


def escape(name: bytes) -> str:
    r"""A name fit for a terminal: UTF-8 as it is, unprintable characters, stray bytes and `\` as Python escapes."""
    return "".join(_escape_character(character) for character in name.decode("utf-8", "surrogateescape"))


def _escape_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode("ascii")


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


def duration(nanoseconds: int) -> str:
    """A time span: `0s`, `0.3s`, `12s`, `3m12s`, `5h02m`, `3d04h`."""
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


def table(heads: list[str], rows: list[list[str]], right: str) -> str:
    """Aligned columns, one line a row, two spaces between.

    Args:
        heads: the column heads; those named in `right` (separated by spaces) are aligned to the right.
        rows: the cells.
        right: see `heads`.

    """
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    to_right = [head in right.split() for head in heads]
    lines = [
        "  ".join(
            cell.rjust(width) if turn else cell.ljust(width) for cell, width, turn in zip(row, widths, to_right, strict=True)
        )
        for row in [heads, *rows]
    ]
    return "".join(line.rstrip() + "\n" for line in lines)
