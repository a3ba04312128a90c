"""Draws docs/rooms.svg and docs/way.svg: `python -m tests.drawings`, from the project's root.

The rooms' arrows are those that the code has.
"""

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from .test_layers import ROOMS, ROOT, imports

HERE = Path(__file__).parents[1] / "docs"
STYLE = """
<style>
text { font: 13px sans-serif; fill: #222 } .name { font: bold 15px monospace } .small { font-size: 12px; fill: #555 }
rect { fill: #f4f6fa; stroke: #567; rx: 6 } .kernel { fill: #eee; stroke: #999 } .disk { fill: #fdf6e3; stroke: #a85 }
path { fill: none; stroke: #567; stroke-width: 1.5; marker-end: url(#tip) } .back { stroke-dasharray: 5 4 }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 L8 4 L0 8 z" style="fill:#567;stroke:none;marker-end:none"/></marker></defs>
"""


class Box(NamedTuple):
    """A box with a name and a line or two below it; x and y are of its left upper corner."""

    x: int
    y: int
    name: str
    lines: tuple[str, ...]
    style: str = ""
    width: int = 210
    height: int = 64

    def svg(self) -> str:
        """The box as SVG."""
        words = [f'<text class="name" x="{self.x + 10}" y="{self.y + 22}">{escape(self.name)}</text>']
        words += [
            f'<text class="small" x="{self.x + 10}" y="{self.y + 40 + 16 * number}">{escape(line)}</text>'
            for number, line in enumerate(self.lines)
        ]
        return (
            f'<rect class="{self.style}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"/>{"".join(words)}'
        )


def arrow(one: Box, other: Box, note: str = "", style: str = "") -> str:
    """An arrow from one box to another, from the sides that face each other."""
    ax, ay = one.x + one.width // 2, one.y + one.height // 2
    bx, by = other.x + other.width // 2, other.y + other.height // 2
    if other.width > 2 * one.width:
        bx = ax  # straight down to one that lies below all
    if abs(by - ay) * (one.width + other.width) > abs(bx - ax) * (one.height + other.height):
        down = by > ay
        start, end = (ax, one.y + one.height * down), (bx, other.y + other.height * (not down))
        middle = (start[1] + end[1]) // 2
        path = f"M{start[0]} {start[1]} C{start[0]} {middle} {end[0]} {middle} {end[0]} {end[1]}"
    else:
        right = bx > ax
        start, end = (one.x + one.width * right, ay), (other.x + other.width * (not right), by)
        path = f"M{start[0]} {start[1]} L{end[0]} {end[1]}"
    x, y = (start[0] + end[0]) // 2 + 8, (start[1] + end[1]) // 2 - 4
    return f'<path class="{style}" d="{path}"/>' + (f'<text class="small" x="{x}" y="{y}">{escape(note)}</text>' if note else "")


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """A whole file."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE.strip(), *parts, "</svg>", ""])


def rooms() -> str:
    """Who imports of whom. That all use host, and commands all, is said and not drawn."""
    boxes = {
        "commands": Box(40, 20, "commands", ("one module a command;", "uses all, is used by none"), width=900),
        "archive": Box(290, 130, "archive", ("channels as Parquet files,", "figures on a channel")),
        "spark": Box(290, 235, "spark", ("the format: source/, sink/",)),
        "recorder": Box(290, 340, "recorder", ("a channel's way into a spool",)),
        "gateways": Box(40, 340, "gateways", ("one module a protocol:", "TMB, sbus, ubus")),
        "view": Box(40, 235, "view", ("what people see of a bus:", "top, web")),
        "links": Box(730, 235, "links", ("channels over NATS",)),
        "nats": Box(730, 340, "nats", ("servers, streams of lines",)),
        "client": Box(40, 460, "client", ("a channel as a program", "sees it")),
        "spool": Box(290, 460, "spool", ("lines on disk, numbered",)),
        "fuse": Box(520, 460, "fuse", ("the bus as a directory;", "pyfuse3, hooks.c")),
        "host": Box(730, 460, "host", ("what the machine offers;", "for all but the core")),
        "core": Box(40, 570, "core", ("the bus itself: no I/O, no clock, no threads; scan.c",), width=900),
    }
    assert boxes.keys() == ROOMS.keys()
    parts = [box.svg() for box in boxes.values()]
    used = {
        room: {
            name.split(".")[1] for path in (ROOT / room).glob("**/*.py") for name in imports(path) if name.startswith("futebus.")
        }
        & boxes.keys() - {room}
        for room in boxes.keys() - {"commands"}
    }
    for room, others in sorted(used.items()):
        shown = others - {"host"} if room != "host" else others
        # What a room uses by way of another is not drawn again.
        parts += [arrow(boxes[room], boxes[each]) for each in sorted(shown) if not any(each in used[way] for way in shown)]
    return picture(980, 655, "The rooms of futebus, and which imports of which", parts)


def way() -> str:
    """What becomes of a line that somebody writes."""
    writer = Box(20, 20, "write(2)", ("echo hello > B_log",), "kernel")
    kernel = Box(280, 20, "kernel, FUSE", ("a WRITE request",), "kernel")
    hooks = Box(540, 20, "fuse/hooks.c", ("takes it out of libfuse",))
    calls = Box(540, 130, "fuse/waiting.py", ("Calls.write: parks, answers,", "goes on"))
    bus = Box(540, 250, "core/bus.py", ("Bus.write (writes.py): a table", "tells who gets it (kinds.py)"))
    cut = Box(280, 250, "core/framing.py", ("WriteBuffer: bytes become", "runs of whole lines"))
    mailbox = Box(540, 370, "core/mailbox.py", ("one for each reader: bounded;", "runs are shared"))
    answer = Box(280, 130, "fuse/waiting.py", ("answers the READ that waits",))
    reader = Box(20, 130, "read(2)", ("cat B_log",), "kernel")
    drain = Box(280, 370, "recorder/drain.py", ("readv(2) into the mapped", "pages of a segment"))
    spool = Box(20, 370, "spool/last.py", ("a mark: up to here, so many", "lines, at this time"), "disk")
    stream = Box(20, 490, "spark/source/stream.py", ("latestOffset: as far as", "there are marks"))
    parts_ = Box(280, 490, "…/source/partitions.py", ("which bytes of which", "segments, for each task"))
    arrow_ = Box(540, 490, "spark/source/arrow.py", ("lines become record batches:", "rows of Spark"))
    boxes = [writer, kernel, hooks, calls, bus, cut, mailbox, answer, reader, drain, spool, stream, parts_, arrow_]
    links = [
        arrow(writer, kernel),
        arrow(kernel, hooks),
        arrow(hooks, calls),
        arrow(calls, bus),
        arrow(bus, cut),
        arrow(cut, bus, style="back"),
        arrow(bus, mailbox, "put"),
        arrow(calls, answer, style="back"),
        arrow(answer, reader),
        arrow(mailbox, drain),
        arrow(drain, spool),
        arrow(spool, stream),
        arrow(stream, parts_),
        arrow(parts_, arrow_),
    ]
    return picture(
        770, 575, "The way of a line: to a reader, into a spool, into a row of Spark", [box.svg() for box in boxes] + links
    )


if __name__ == "__main__":
    (HERE / "rooms.svg").write_text(rooms())
    (HERE / "way.svg").write_text(way())
