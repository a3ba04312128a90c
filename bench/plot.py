"""Draws two pictures of a run, as SVG."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .figures import Row


def draw(rows: Sequence[Row], directory: Path) -> None:
    """Draws what can be drawn of these rows: bulk.svg, round-trip.svg. Says so if there is no matplotlib."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("svg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print("nothing is drawn: matplotlib is not installed")
        return
    # The same picture for the same figures, and text that stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "futebus", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10})
    directory.mkdir(parents=True, exist_ok=True)
    for row, picture in ((row, PICTURES[row.key]) for row in rows if row.key in PICTURES and row.figures):
        figure = picture(pyplot, row)
        figure.savefig(directory / f"{row.key}.svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        pyplot.close(figure)


def bulk(pyplot: Any, row: Row) -> Any:
    """Groups of bars: a group for each system, a bar for each number of readers, the spread over the rounds on top."""
    systems = list(dict.fromkeys(figure.name.rpartition(", ")[0] for figure in row.figures))
    sizes = list(dict.fromkeys(figure.name.rpartition(", ")[2] for figure in row.figures))
    shades = ["#9ecae1", "#4292c6", "#084594"]
    width = 0.8 / len(sizes)
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for index, size in enumerate(sizes):
        found = [(place, row.find(f"{system}, {size}")) for place, system in enumerate(systems)]
        bars = [(place + (index - (len(sizes) - 1) / 2) * width, one) for place, one in found if one]
        medians = [one.median for _, one in bars]
        spread = [[one.median - min(one.values) for _, one in bars], [max(one.values) - one.median for _, one in bars]]
        axes.bar([place for place, _ in bars], medians, width * 0.92, yerr=spread, capsize=2, label=size, color=shades[index % 3])
    axes.set_yscale("log")
    axes.set_xticks(range(len(systems)), systems)
    axes.set_ylabel("lines delivered per second, all readers (log scale)")
    axes.set_title("100-byte lines in bulk, one writer: more is better")
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_ylim(bottom=1e4)
    figure.legend(loc="outside lower center", ncols=len(sizes), frameon=False)
    return figure


def round_trip(pyplot: Any, row: Row) -> Any:
    """A bar for each system, with its figure beside it."""
    figure, axes = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    names = [one.name for one in row.figures]
    medians = [one.median for one in row.figures]
    spread = [[one.median - min(one.values) for one in row.figures], [max(one.values) - one.median for one in row.figures]]
    colours = ["#084594" if name == "futebus" else "#9ecae1" for name in names]
    bars = axes.barh(names, medians, xerr=spread, capsize=2, color=colours)
    axes.bar_label(bars, labels=[f"{value:.0f} µs" for value in medians], padding=6)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.set_xlabel("round trip in microseconds")
    axes.set_title("A 5-byte line and its answer, between two processes: less is better")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    return figure


PICTURES = {"bulk": bulk, "round-trip": round_trip}
