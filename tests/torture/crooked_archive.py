"""What an archive must not be, to see that the trials of Spark notice: one line of one of its files is changed."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Change = Callable[[pa.Table], pa.Table]


def loses(table: pa.Table) -> pa.Table:
    """The line in the middle is not there."""
    middle = len(table) // 2
    return pa.concat_tables([table.slice(0, middle), table.slice(middle + 1)])


def doubles(table: pa.Table) -> pa.Table:
    """It is there twice."""
    middle = len(table) // 2
    return pa.concat_tables([table.slice(0, middle + 1), table.slice(middle)])


def doubles_under_another_number(table: pa.Table) -> pa.Table:
    """Its text is there twice, and another one's is not."""
    values = table["value"].to_pylist()
    values[-1] = values[0]
    return _with(table, values)


def alters(table: pa.Table) -> pa.Table:
    """It has another text."""
    values = table["value"].to_pylist()
    values[len(values) // 2] += "x"
    return _with(table, values)


def overtakes(table: pa.Table) -> pa.Table:
    """The first line of a writer has changed places with the last one."""
    values = table["value"].to_pylist()
    own = [place for place, value in enumerate(values) if value.split()[0] == values[0].split()[0]]
    values[own[0]], values[own[-1]] = values[own[-1]], values[own[0]]
    return _with(table, values)


def _with(table: pa.Table, values: list[str]) -> pa.Table:
    where = table.schema.get_field_index("value")
    return table.set_column(where, table.schema.field(where), pa.array(values, table.schema.field(where).type))


WAYS: dict[str, tuple[Change, str]] = {
    "loses": (loses, "the spool has had as many"),
    "doubles": (doubles, "in the archive twice"),
    "doubles under another number": (doubles_under_another_number, "in the archive twice"),
    "alters": (alters, "nobody has written"),
    "overtakes": (overtakes, "out of order"),
}
"""How, and what a trial must say of it."""


@contextlib.contextmanager
def changed(archive: Path, change: Change) -> Iterator[None]:
    """The largest file of an archive is changed, and is as before in the end."""
    file = max(archive.glob("channel=*/date=*/hour=*/[!._]*.parquet"), key=lambda path: path.stat().st_size)
    before = file.read_bytes()
    pq.write_table(change(pq.ParquetFile(file).read()), file)
    try:
        yield
    finally:
        file.write_bytes(before)
