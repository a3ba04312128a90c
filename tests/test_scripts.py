"""What set-up leaves on a machine, and takes away again."""

import os
import shutil
from pathlib import Path

import pytest

from .helpers.mounts import run

TREE = Path(__file__).parents[1]
COMMANDS = ("futebus", "futebus-id")


@pytest.fixture
def tree(place: Path) -> Path:
    """As much of a tree with futebus installed as the links need, with a home beside it."""
    copy = place / "tree"
    (copy / ".venv" / "bin").mkdir(parents=True)
    for name in COMMANDS:
        (copy / ".venv" / "bin" / name).write_text("#!/bin/sh\necho it runs\n")
        (copy / ".venv" / "bin" / name).chmod(0o755)
    shutil.copytree(TREE / "scripts", copy / "scripts")
    shutil.copytree(TREE / "man", copy / "man")
    (place / "home").mkdir()
    for path in (copy, *copy.rglob("*"), place / "home"):
        os.chown(path, 65534, 65534)
    return copy


def links(tree: Path, script: str, *arguments: str) -> str:
    """What a script says that an ordinary user runs."""
    environment = {**os.environ, "HOME": str(tree.parent / "home"), "PATH": "/usr/bin:/bin"}
    done = run(tree / "scripts" / script, *arguments, env=environment, user=65534, group=65534, extra_groups=[])
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_commands_and_manual_pages_are_reachable_until_they_are_uninstalled(tree: Path) -> None:
    local = tree.parent / "home" / ".local"
    said = links(tree, "links", "make")
    assert f"the commands are in {local}/bin" in said
    assert f"note: {local}/bin is not in PATH" in said
    assert run(local / "bin" / "futebus").stdout == "it runs\n"
    assert (local / "share/man/man7/futebus.7").read_text() == (TREE / "man" / "futebus.7").read_text()
    assert links(tree, "links", "make") == "", "nothing is new"
    links(tree, "uninstall")
    assert [path for path in local.rglob("*") if not path.is_dir()] == []
    assert not (tree / ".venv").exists()


def test_links_whose_tree_is_gone_go_too(tree: Path) -> None:
    links(tree, "links", "make")
    shutil.rmtree(tree / ".venv")
    (tree / "man" / "futebus.7").unlink()
    links(tree, "uninstall")
    assert [path for path in (tree.parent / "home").rglob("*") if path.is_symlink()] == []


def test_a_path_of_cd_leads_nowhere_else(tree: Path) -> None:
    """`CDPATH` is a convenience of shells in which people type; some export it."""
    other = tree.parent / "other"
    for directory in ("scripts", ".venv", "build"):
        (other / directory).mkdir(parents=True)
    environment = {"CDPATH": str(other)}
    done = run(
        "sh", "-c", "cd tree && scripts/uninstall", cwd=tree.parent, env={**os.environ, **environment}, user=65534, group=65534
    )
    assert done.returncode == 0, done.stderr
    assert not (tree / ".venv").exists()
    assert (other / ".venv").exists()
    assert (other / "build").exists()


def test_what_is_somebody_elses_stays(tree: Path) -> None:
    place = tree.parent / "home" / ".local" / "bin"
    place.mkdir(parents=True)
    for path in (place, *place.parents[:1]):
        os.chown(path, 65534, 65534)
    (place / "futebus").write_text("mine\n")
    (place / "futebus-id").symlink_to("/elsewhere/.venv/bin/futebus-id")
    assert f"note: {place}/futebus is something else, and stays" in links(tree, "links", "make")
    assert (place / "futebus").read_text() == "mine\n"
    assert (place / "futebus-id").readlink() == tree / ".venv/bin/futebus-id", "a tree that was there before"
    (place / "futebus-id").unlink()
    (place / "futebus-id").symlink_to("/elsewhere/.venv/bin/futebus-id")
    assert "note: they led to /elsewhere before; /elsewhere/scripts/install has them lead there again" in links(
        tree, "links", "make"
    )
    links(tree, "uninstall")
    assert [path.name for path in place.iterdir()] == ["futebus"]


@pytest.mark.parametrize("wrong", ["", "-V", "-o"])
def test_the_mount_point_comes_first(wrong: str) -> None:
    done = run(TREE / "scripts" / "run", wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"run: first the mount point, and not '{wrong}'; options come behind it\n"


def test_root_has_them_for_everybody(tree: Path) -> None:
    script = f"""
        mount -t tmpfs none /usr/local
        {tree}/scripts/links make
        PATH=/usr/local/bin:$PATH futebus
        find /usr/local -type l | wc -l
        {tree}/scripts/links remove
        find /usr/local -type l | wc -l
        """
    done = run("unshare", "--mount", "sh", "-ec", script)
    pages = len(list((TREE / "man").glob("*.[1-9]")))
    assert done.stdout.split("\n")[:3] == ["it runs", str(len(COMMANDS) + pages), "0"], done.stderr
