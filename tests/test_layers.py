"""Imports run one way: the core under all, and each room knows only those it stands on. docs/design.md has the picture."""

import ast
from pathlib import Path

import pytest

import futebus

ROOT = Path(futebus.__file__).parent

ROOMS = {
    "core": set[str](),
    "host": {"core"},
    "client": {"core", "host"},
    "fuse": {"core", "host"},
    "spool": {"core", "host"},
    "recorder": {"core", "host", "client", "spool", "nats"},
    "spark": {"core", "host", "client", "nats", "spool", "recorder"},
    "archive": {"core", "host", "client", "nats", "spool", "recorder", "spark"},
    "gateways": {"core", "host", "client"},
    "nats": {"core", "host"},
    "links": {"core", "host", "client", "nats"},
    "view": {"core", "host", "client", "spool"},
    "commands": {"core", "host", "client", "nats", "fuse", "spool", "recorder", "spark", "archive", "gateways", "links", "view"},
}
"""Which rooms each may import of, beside itself."""

LIBRARIES = {
    "client": {"trio"},
    "fuse": {"trio", "pyfuse3"},
    "gateways": {"trio"},
    "nats": {"nats", "nkeys"},
    "view": {"textual", "rich", "trio", "starlette", "hypercorn"},
    "spark": {"pyspark", "pyarrow", "py4j"},
    "archive": {"pyspark", "pyarrow", "py4j"},
}
"""Which libraries beside Python's own."""

FOREIGN = {"trio", "pyfuse3", "pyspark", "pyarrow", "py4j", "textual", "rich", "starlette", "hypercorn", "nats", "nkeys"}


def imports(path: Path) -> set[str]:
    """All modules that a file names, wherever in it, with the whole names of those of futebus."""
    package = ["futebus", *path.relative_to(ROOT).parent.parts]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names} if module == "futebus" or not node.module else {module}
    return names


def test_every_room_is_known() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == ROOMS.keys()
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"], "no module stands in the corridor"


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_imports(room: str) -> None:
    paths = sorted((ROOT / room).glob("**/*.py"))
    assert paths
    for path in paths:
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "futebus" and rest:
                assert rest.split(".")[0] in {room, "__version__"} | ROOMS[room], f"{path.relative_to(ROOT)} imports {name}"
            allowed = FOREIGN if room == "commands" else LIBRARIES.get(room, set())
            assert top not in FOREIGN - allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_commands_import_late() -> None:
    """So that --help is instant: at once they load only how arguments are read, and how they are told to end."""
    for path in (ROOT / "commands").glob("*.py"):
        for node in ast.parse(path.read_bytes()).body:
            for name in [node.module or ""] if isinstance(node, ast.ImportFrom) else []:
                known = ("futebus.commands", "futebus.core", "futebus.host.signals", "arguments")
                assert name.startswith(known) or name.split(".")[0] not in {"futebus", *FOREIGN}, f"{path.name} imports {name}"


@pytest.mark.parametrize("name", ["rooms", "way"])
def test_the_drawings_are_of_this_house(name: str) -> None:
    from . import drawings  # which draws the rooms from what stands here

    assert (ROOT.parent / "docs" / f"{name}.svg").read_text() == getattr(drawings, name)()
