"""Figures as few characters show them: numbers, curves and bars."""

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def number(value: float) -> str:
    """How many, in four characters at most: `0`, `0.3`, `12`, `9.5k`, `120k`, `1.2M`."""
    if value < 9.95:
        return f"{value:.1f}" if value and value != round(value) else f"{value:.0f}"
    for unit in ("", "k", "M", "G", "T"):
        if value < 9.95:
            return f"{value:.1f}{unit}"
        if value < 999.5:
            return f"{value:.0f}{unit}"
        value /= 1000
    return "many"


def curve(values: Sequence[float], width: int) -> str:
    """The last values, the newest to the right; the highest of them is the full height."""
    last = values[-width:]
    most = max(last, default=0.0)
    drawn = "".join(BLOCKS[_height(value, most)] for value in last)
    return drawn.rjust(width)


def _height(value: float, most: float) -> int:
    # What is more than nothing is seen.
    return max(round(value / most * 8), 1) if value > 0 else 0


def bar(share: float, width: int) -> str:
    """A bar that is so full: 1 is the whole width. What is more than nothing is seen."""
    eighths = max(round(share * width * 8), 1) if share > 0 else 0
    return ("█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")).ljust(width)
