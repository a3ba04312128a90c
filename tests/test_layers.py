"""Imports run one way: the core under all, the recorder and Spark beside FUSE. docs/design.md has the picture."""

import ast
from pathlib import Path

import pytest

import futebus

ROOT = Path(futebus.__file__).parent
OUTSIDE = {
    "inquire": set[str](),
    "entry": {"inquire"},
    "spool": set[str](),
    "drain": {"spool", "entry", "inquire"},
    "draining": {"spool", "drain"},
    "spark": {"spool", "drain", "commands", "entry", "inquire"},
}
"""What else of futebus these may import, beside the core and the package itself."""
FOREIGN = ("trio", "pyfuse3")


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
            names |= {module} if node.module else {f"{module}.{alias.name}" for alias in node.names}
    return names


def files(part: str) -> list[Path]:
    return sorted((ROOT / part).glob("**/*.py")) if (ROOT / part).is_dir() else [ROOT / f"{part}.py"]


@pytest.mark.parametrize("part", OUTSIDE)
def test_what_recorder_and_spark_import(part: str) -> None:
    allowed = {"core", part} | OUTSIDE[part]
    for path in files(part):
        for name in imports(path):
            assert name.partition(".")[0] not in FOREIGN, f"{path.name} imports {name}"
            if name.startswith("futebus."):
                assert name.split(".")[1] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("part", ["commands", "record", "holder", "service", "replay"])
def test_the_recorder_does_without_fuse_and_spark(part: str) -> None:
    for path in files(part):
        for name in imports(path):
            assert name.split(".")[0] not in (*FOREIGN, "pyspark", "pyarrow"), f"{path.name} imports {name}"
            assert not name.startswith(("futebus.fuse", "futebus.spark")), f"{path.name} imports {name}"


def test_fuse_knows_neither() -> None:
    for path in files("fuse"):
        assert not [name for name in imports(path) if name.startswith(("futebus.spark", "futebus.spool", "futebus.drain"))]
