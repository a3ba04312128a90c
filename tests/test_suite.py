"""The suite itself, and what is packed: versions are compared as numbers, nothing is skipped unseen, nothing is left out."""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .helpers.kernel import linux, version
from .helpers.mounts import run

ROOT = Path(__file__).parents[1]


def test_versions_are_numbers() -> None:
    assert version("6.9.0-rc1") < version("6.18.44-fc-v595") < version("6.100") < version("10.0-generic")
    assert linux() > (2, 6)


SKIPS = """
import pytest

@pytest.mark.skip(reason="not today")
def test_marked():
    pass

def test_skips():
    pytest.skip("nor tomorrow")

@pytest.mark.xfail(reason="known")
def test_fails():
    assert False

def test_good():
    pass
"""


OUTCOMES = [([], "1 passed, 2 skipped, 1 xfailed"), (["--no-skips"], "1 failed, 1 passed, 1 xfailed, 1 error")]


@pytest.mark.parametrize(("options", "outcome"), OUTCOMES)
def test_where_nothing_may_be_skipped_a_skip_is_a_failure(place: Path, options: list[str], outcome: str) -> None:
    (place / "test_skips.py").write_text(SKIPS)
    words = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(place), *options]
    done = run(sys.executable, *words, place / "test_skips.py", cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""})
    assert outcome in done.stdout, done.stdout + done.stderr
    if options:
        assert "not today" in done.stdout
        assert "nor tomorrow" in done.stdout


def test_every_manual_page_is_installed_in_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    # What builds is not there in every environment, and is not asked for more than this.
    builder = ModuleType("setuptools")
    vars(builder).update(setup=given.update, Extension=lambda name, **how: name)
    monkeypatch.setitem(sys.modules, "setuptools", builder)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    installed = {page: directory for directory, pages in given["data_files"] for page in pages}
    pages = {f"man/{page.name}": f"share/man/man{page.suffix[1:]}" for page in (ROOT / "man").iterdir()}
    assert len(pages) >= 4
    assert installed == pages
