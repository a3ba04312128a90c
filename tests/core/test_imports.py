"""The core stands alone: no I/O, no clock, no threads, and nothing but the standard library."""

import ast
import sys
from pathlib import Path

import pytest

import futebus.core

MODULES = sorted(Path(futebus.core.__file__).parent.glob("*.py"))

FORBIDDEN = {
    "asyncio", "concurrent", "fcntl", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip


def imported(path: Path) -> set[str]:
    """The modules that a file names, those of its own package left out."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level != 1:
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_what_the_core_imports(path: Path) -> None:
    for name in imported(path):
        top = name.partition(".")[0]
        assert top in sys.stdlib_module_names, f"{name} is not of the standard library"
        assert top not in FORBIDDEN, f"{name} touches the world outside"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_core_reads_and_writes_nothing(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "exec", "eval", "__import__"}
