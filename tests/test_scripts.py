"""What set-up leaves on a machine, and takes away again."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .helpers.mounts import Mount, hanging, run
from .helpers.users import NOBODY

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


# ---------------------------------------------------------------------------------------------- other people's


def test_what_root_has_made_is_for_root_to_remove(tree: Path) -> None:
    links(tree, "links", "make")
    for path in (tree, tree / ".venv", tree / ".venv" / "bin"):
        os.chown(path, 0, 0)
    environment = {**os.environ, "HOME": str(tree.parent / "home")}
    done = run(tree / "scripts" / "uninstall", env=environment, **NOBODY)
    assert done.returncode == 1
    assert done.stderr == (
        "uninstall: your links are gone; not all else that was made here is yours, and root can remove it by scripts/uninstall\n"
    )
    assert not list((tree.parent / "home").rglob("futebus*"))


def test_what_the_scripts_have_made_goes(tree: Path) -> None:
    for name in (".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "build", "x.egg-info", "futebus/__pycache__"):
        (tree / name).mkdir(parents=True)
    os.chown(tree / "futebus", 65534, 65534)
    links(tree, "uninstall")
    assert sorted(path.name for path in tree.iterdir()) == ["futebus", "man", "scripts"]
    assert not list((tree / "futebus").iterdir())


def test_a_home_that_cannot_be_written_is_told_once(tree: Path) -> None:
    (tree.parent / "home").chmod(0o555)
    local = tree.parent / "home" / ".local"
    assert links(tree, "links", "make") == (
        f"install: note: cannot make links in {local}: "
        f"start the commands as {tree}/.venv/bin/futebus, and read man -l {tree}/man/futebus.1\n"
    )


def test_root_is_told_of_a_python_that_only_root_reaches(tree: Path) -> None:
    private = tree.parent / "private"
    private.mkdir(0o700)
    (private / "python").symlink_to("/bin/true")
    (tree / ".venv" / "bin" / "python").symlink_to(private / "python")
    script = f"mount -t tmpfs none /usr/local; {tree}/scripts/links make"
    said = run("unshare", "--mount", "sh", "-ec", script).stderr
    assert f"note: only root can run them: others cannot reach {tree}/.venv/bin/python, or what it leads to" in said
    assert "PYTHON=/usr/bin/python3 scripts/install" in said
    private.chmod(0o755)
    assert "only root" not in run("unshare", "--mount", "sh", "-ec", script).stderr


# ---------------------------------------------------------------------------------------------- what they are asked


@pytest.mark.parametrize("script", ["install", "run", "test", "check", "bench", "torture", "uninstall"])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_needs_no_environment_and_makes_none(place: Path, script: str, option: str) -> None:
    for name in ("bench", "tests", "pyproject.toml"):
        (place / name).symlink_to(TREE / name)
    for name in ("scripts", "futebus"):  # as in a fresh clone: nothing has been built
        shutil.copytree(TREE / name, place / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = run(place / "scripts" / script, option, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert f"usage: scripts/{script}" in done.stdout + done.stderr
    assert not (place / ".venv").exists()


def test_check_takes_no_arguments() -> None:
    done = run(TREE / "scripts" / "check", "--hlep")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "check: it takes no arguments, and not '--hlep'\n")


# ---------------------------------------------------------------------------------------------- scripts/run

OWN = "; a directory of your own will do: scripts/run ~/bus"


FUTEBUS = """echo "$@"
for mountpoint; do :; done
case " $* " in *" -V "* | *" -f "*) ;; *) touch "$mountpoint/_stat" 2>/dev/null || : ;; esac"""
"""What stands for it: there is a bus then, unless that is not what was asked for, or it has ended already."""


def run_script(tree: Path, mountpoint: Path, *options: str, **user: Any) -> "subprocess.CompletedProcess[str]":
    """Runs scripts/run of a tree in which everything is ready, and `futebus` says what it was given."""
    for name, does in (("scripts/install", 'echo "$@"'), (".venv/bin/futebus", FUTEBUS)):
        (tree / name).write_text(f"#!/bin/sh\n{does}\n")
    return run(tree / "scripts" / "run", mountpoint, *options, env={"PATH": f"{tree.parent}/bin", "HOME": "/"}, **user)


@pytest.fixture
def no_sudo(place: Path) -> None:
    """A PATH with what scripts need, and without sudo."""
    (place / "bin").mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if tool.name not in {"sudo"} and not (place / "bin" / tool.name).exists():
                (place / "bin" / tool.name).symlink_to(tool)


@pytest.mark.usefixtures("no_sudo")
def test_run_installs_what_the_gateways_and_the_views_need(tree: Path) -> None:
    done = run_script(tree, tree.parent / "home" / "bus", **NOBODY)
    assert done.stdout.startswith(f"gateways view\n{tree.parent}/home/bus\n"), done.stderr


@pytest.mark.usefixtures("no_sudo")
@pytest.mark.parametrize(("user", "mode"), [({}, 0o555), (NOBODY, 0o755)])
def test_where_no_bus_is_root_lets_nobody_write(tree: Path, user: dict[str, Any], mode: int) -> None:
    """Others need a directory that they may write to: fusermount3 wants it."""
    mountpoint = tree.parent / "home" / "a" / "bus"
    assert run_script(tree, mountpoint, **user).returncode == 0
    assert stat.S_IMODE(mountpoint.stat().st_mode) == mode
    assert stat.S_IMODE(mountpoint.parent.stat().st_mode) == 0o755
    mountpoint.chmod(0o700)
    assert run_script(tree, mountpoint, **user).returncode == 0
    assert stat.S_IMODE(mountpoint.stat().st_mode) == 0o700, "what is there stays as it is"


@pytest.mark.usefixtures("no_sudo")
def test_a_mount_point_that_cannot_be_made(tree: Path) -> None:
    """It is told before set-up, which takes its time."""
    done = run_script(tree, Path("/nobodys/bus"), **NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"run: cannot make /nobodys/bus: Permission denied{OWN}\n")
    done = run_script(tree, Path("/dev/null/bus"))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "run: cannot make /dev/null/bus: Not a directory\n")
    done = run_script(tree, Path("/dev/null"))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "run: /dev/null is no directory\n")


@pytest.mark.usefixtures("no_sudo")
def test_run_on_a_bus_that_hangs(tree: Path, bus: Mount) -> None:
    with hanging(bus):
        done = run_script(tree, bus.path)
    words = f"run: {bus.path}: what is mounted there does not answer; end its daemon, or unmount it (umount -l)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)


@pytest.mark.usefixtures("no_sudo")
def test_a_mount_point_of_somebody_else(tree: Path) -> None:
    done = run_script(tree, Path("/mnt"), **NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"run: cannot mount on /mnt: it is not yours to write to{OWN}\n",
    )


@pytest.mark.usefixtures("no_sudo")
def test_a_mount_point_of_a_dead_bus_is_taken(tree: Path, bus: Mount) -> None:
    bus.daemon.kill()
    bus.daemon.wait()
    bus.was_killed = True
    assert run_script(tree, bus.path).returncode == 0


@pytest.mark.usefixtures("no_sudo")
def test_what_run_prints_is_for_where_a_link_leads(tree: Path) -> None:
    """fusermount3(1) unmounts nothing by the name of a link."""
    (tree.parent / "home" / "real").mkdir()
    (tree.parent / "home" / "link").symlink_to("real")
    done = run_script(tree, tree.parent / "home" / "link")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"It ends with: fusermount3 -u {tree.parent}/home/real\n")


@pytest.mark.usefixtures("no_sudo")
@pytest.mark.parametrize("option", ["-V", "-f"])
def test_run_tells_of_no_bus_that_is_not_there(tree: Path, option: str) -> None:
    mountpoint = tree.parent / "home" / "bus"
    done = run_script(tree, mountpoint, option, **NOBODY)
    assert (done.returncode, done.stdout) == (0, f"gateways view\n{option} {mountpoint}\n"), done.stderr
