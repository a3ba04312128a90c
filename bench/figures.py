"""What a measurement is, and how it looks: a row is a table of figures, a figure one value from every round."""

import math
import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One thing measured.

    Attributes:
        name: What was measured, unique in its row.
        unit: The unit of the values.
        values: One from every round, at least one.
        details: More columns of the table: their heads, and what stands there.
    """

    name: str
    unit: str
    values: list[float]
    details: dict[str, str] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Row:
    """One row of the benchmark: figures that belong side by side.

    Attributes:
        key: How the command line calls it.
        title: What the figures are of.
        figures: In the order of the table.
        notes: What one must know to read them, what was skipped.
    """

    key: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def find(self, name: str) -> Figure | None:
        """The figure of that name, if it was measured."""
        return next((figure for figure in self.figures if figure.name == name), None)


def number(value: float) -> str:
    """Three digits, which is more than what is measured deserves."""
    if value == 0:
        return "0"
    places = 2 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(0, places)}f}"


def table(rows: list[list[str]]) -> str:
    """Lines up columns: the first to the left, the others to the right; the first row is the head."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def render(row: Row) -> str:
    """The row as text."""
    heads = list(dict.fromkeys(head for figure in row.figures for head in figure.details))
    cells = [[row.key, "median", "min", "max", "unit", *heads]]
    for figure in row.figures:
        spread = [number(value) for value in (figure.median, min(figure.values), max(figure.values))]
        cells.append([f"  {figure.name}", *spread, figure.unit, *(figure.details.get(head, "") for head in heads)])
    notes = [f"  {note}" for note in row.notes]
    return "\n".join([row.title, *([table(cells)] if row.figures else []), *notes])


def as_json(row: Row) -> dict[str, object]:
    """The row for json.dumps."""
    figures = [
        {
            "name": figure.name,
            "unit": figure.unit,
            "median": figure.median,
            "min": min(figure.values),
            "max": max(figure.values),
            "values": figure.values,
            **({"details": figure.details} if figure.details else {}),
        }
        for figure in row.figures
    ]
    return {"title": row.title, "figures": figures, "notes": row.notes}


def ratio(one: Figure, other: Figure) -> float:
    """How many times `other` `one` is: the median over the rounds, so that what slows a whole round down cancels out."""
    if len(one.values) == len(other.values):
        return statistics.median(a / b for a, b in zip(one.values, other.values, strict=True))
    return one.median / other.median
