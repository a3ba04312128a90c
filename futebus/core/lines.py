"""Lines in bytes: counted, found and cut, in C (scan.c), since Python takes a nanosecond a byte and more.

Whoever else has to do with lines, spools and Spark's rows, uses these too.
"""

try:
    from ._scan import end, lines, nul, split, split_all
except ImportError as error:
    raise ImportError(f"this futebus has not been built; in its tree, scripts/install does that ({error})") from None

__all__ = ["end", "lines", "nul", "split", "split_all"]
