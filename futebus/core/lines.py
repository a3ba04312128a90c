"""Lines in bytes: counted, found and cut, in C (scan.c), since Python takes a nanosecond a byte and more.

Whoever else has to do with lines, spools and Spark's rows, uses these too.
"""

from ._scan import end, lines, nul, split

__all__ = ["end", "lines", "nul", "split"]
