"""What is in an archive, while others write it."""

from pathlib import Path

import pyarrow.parquet


def files(archive: Path) -> list[str]:
    """The files that readers see. Those that several hosts have written have sums beside them."""
    return sorted(map(str, archive.glob("channel=*/date=*/hour=*/[!._]*.parquet")))


def count_lines(archive: Path) -> int:
    """How many lines they have."""
    return sum(pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in files(archive))
