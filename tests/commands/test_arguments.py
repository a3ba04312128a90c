"""How the commands take their arguments, and what they say in one line when that cannot be."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from futebus.commands import arguments

from ..helpers.mounts import run

COMMANDS = ("futebus", "archive", "id", "record", "sbus", "tmb", "ubus")


def command(name: str) -> list[str]:
    return [sys.executable, "-m", f"futebus.commands.{name}"]


def called(name: str) -> str:
    return name if name == "futebus" else f"futebus-{name}"


@pytest.mark.parametrize("option", ["--help", "-V"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_that_cannot_be_written_is_a_failure(name: str, option: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command(name), option], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{called(name)}: standard output: No space left on device\n")


@pytest.mark.parametrize("option", ["--help", "-V"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_that_nobody_reads_is_none(name: str, option: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([*command(name), option], stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_without_standard_output_goes_to_who_complains(name: str) -> None:
    done = run("sh", "-c", 'exec "$@" --help >&-', "sh", *command(name))
    assert done.returncode == 0
    assert f"usage: {called(name)} " in done.stderr


@pytest.mark.parametrize("name", ["archive", "id", "link", "record", "tmb", "ubus", "web"])
def test_an_option_that_there_is_not_is_to_blame_and_not_what_is_missing_beside_it(name: str) -> None:
    done = run(*command(name), "--frob")
    assert (done.returncode, done.stderr) == (2, f"futebus-{name}: unrecognized arguments: --frob (see futebus-{name} --help)\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tmb", ["", "-q"]),
        ("link", ["", "nats://h/x"]),
        ("record", ["", "spool"]),
        ("record", ["B_x", ""]),
        ("archive", ["", "archive"]),
        ("sbus", ["--channel", ""]),
        ("ubus", ["expose", "", "x.signal"]),
    ],
)
def test_what_is_empty_is_not_the_working_directory(name: str, words: list[str]) -> None:
    done = run(*command(name), *words)
    assert done.returncode == 2
    assert "the empty string is no path" in done.stderr


def test_who_is_to_blame_is_the_option_and_not_what_is_beside_it() -> None:
    for name, given, words in (
        ("tmb", ["-x", "1", "/bus/B_x"], "unrecognized arguments: -x"),
        ("tmb", ["/bus/B_x", "/bus/B_y"], "unrecognized arguments: /bus/B_y"),
        ("tmb", ["-p", "4711", "/bus/B_x"], "argument -p/--port: it is --listen that takes the port: -l :4711"),
        ("web", ["--frob", "/bus"], "unrecognized arguments: --frob"),
        ("sbus", ["-f", ""], "unrecognized arguments: ''"),
        ("link", ["nats://h/x", "/bus/B_x"], "first the channel, and then the URLs"),
    ):
        done = run(*command(name), *given)
        assert (done.returncode, done.stderr) == (2, f"futebus-{name}: {words} (see futebus-{name} --help)\n")


ENDLESS = "1" * 5000
"""More digits than Python reads."""


@pytest.mark.parametrize(
    ("name", "given", "status", "words"),
    [
        ("futebus", ["-o", f"user={ENDLESS}", "/bus"], 1, f"option 'user={ENDLESS}': no such user"),
        ("futebus", ["-o", f"uid={ENDLESS}", "/bus"], 1, f"option 'uid={ENDLESS}': no such ID"),
        ("record", ["--print", "x", "--from", ENDLESS], 2, "argument --from: not the number of a line"),
        ("sbus", ["-u", ENDLESS], 2, f"there is no user {ENDLESS}"),
        ("tmb", ["-l", f":{ENDLESS}", "/bus/B_x"], 2, f"argument -l/--listen: not an address and a port: ':{ENDLESS}'"),
        ("web", ["-p", ENDLESS], 2, f"argument -p/--port: not a port: '{ENDLESS}'"),
    ],
    ids=["user", "uid", "line", "client", "address", "port"],
)
def test_a_number_that_is_too_long_to_be_read_is_no_number(name: str, given: list[str], status: int, words: str) -> None:
    done = run(*command(name), *given)
    assert done.stderr.startswith(f"{called(name)}: {words}")
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)


@pytest.mark.parametrize("name", ["archive", "sbus"])
def test_help_has_all_units_that_are_taken(name: str) -> None:
    words = " ".join(run(*command(name), "--help").stdout.split())
    assert re.search(r"TIME (may end )?in s, m, h or d[.;]", words)
    assert re.search(r"SIZE (may end )?in K, M, G or T\b", words)
    page = (Path(__file__).parents[2] / "man" / f"futebus-{name}.1").read_text()
    assert "s, m, h or d." in page


def test_a_complaint_that_nobody_reads_changes_no_status() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([*command("futebus"), "--frob"], stderr=full, check=False).returncode == 2


PATHS = [
    ("futebus", ["."], "."),
    ("archive", ["B_x", "archive"], "archive"),
    ("archive", ["--pattern", ".*", "bus", "/archive"], "bus"),
    ("archive", ["--stats", "B_s", "/bus/B_x", "/archive"], "B_s"),
    ("record", ["B_x", "spool"], "B_x"),
    ("sbus", ["-f", "--channel", "B_x"], "B_x"),
    ("sbus", ["-p", "pid", "-a", "SOCKET"], "pid"),
    ("tmb", ["B_x"], "B_x"),
    ("ubus", ["expose", "B_x", "/x.signal"], "B_x"),
    ("ubus", ["connect", "./x.signal"], "./x.signal"),
]


@pytest.mark.parametrize(("name", "given", "wrong"), PATHS)
def test_a_working_directory_that_has_been_removed(name: str, given: list[str], wrong: str, place: Path) -> None:
    (place / "gone").mkdir()
    script = 'cd gone; rmdir "$PWD"; exec "$@"'
    given = [word.replace("SOCKET", str(place / "socket")) for word in given]
    done = run("sh", "-c", script, "sh", *command(name), *given, cwd=place)
    words = "the working directory, where it begins, has been removed"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{called(name)}: {wrong}: {words}\n")
    assert not list(place.iterdir())


def test_what_is_missing_is_got_by_the_script_of_the_tree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Path(__file__).parents[2]
    assert arguments.missing("futebus-x", "it is missing", "gateways", "google-re2") == 1
    assert capsys.readouterr().err == f"futebus-x: it is missing: {tree}/scripts/install gateways\n"
    monkeypatch.setattr(Path, "exists", lambda path: False)  # installed without a tree
    arguments.missing("futebus-x", "it is missing", "gateways", "google-re2")
    assert capsys.readouterr().err == f"futebus-x: it is missing: {sys.executable} -m pip install google-re2\n"


@pytest.mark.parametrize(("name", "given", "module"), [("tmb", ["B_x"], "re2"), ("archive", ["B_x", "/x"], "py4j")])
def test_it_is_said_of_what_a_command_needs(place: Path, name: str, given: list[str], module: str) -> None:
    hidden = f"import sys; sys.modules[{module!r}] = None; from futebus.commands import {name}; sys.exit({name}.main({given!r}))"
    done = run(sys.executable, "-c", hidden)
    assert done.returncode == 1
    extra = "gateways" if name == "tmb" else "spark"
    assert done.stderr.endswith(f"scripts/install {extra}\n"), done.stderr
    assert done.stderr.count("\n") == 1


def test_the_name_of_a_channel_is_none_that_is_open() -> None:
    done = run(*command("id"), "/mnt/bus/A_chat")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "futebus-id: it asks about what is open, and not about a name: exec 3<>/mnt/bus/A_chat; futebus-id <&3"
    )
    assert done.stderr.count("\n") == 1
    assert "exec 3<>''; " in run(*command("id"), "").stderr
    assert "exec 3<>'/mnt/a bus/A_chat'; " in run(*command("id"), "/mnt/a bus/A_chat").stderr


@pytest.mark.parametrize(
    ("name", "words", "option"),
    [
        ("record", ["--to", "nats://h/S/a", "U_x", "spool", "--to", "nats://h/T/b"], "--to"),
        ("record", ["--sync", "0", "--sync", "1s", "U_x", "spool"], "--sync"),
        ("record", ["--print", "one", "--print", "two"], "--print"),
        ("link", ["--deliver", "nats://h/S/a", "--deliver", "nats://h/S/b", "U_x"], "--deliver"),
        ("link", ["--mode", "600", "B_x", "nats://h/a", "--mode", "622"], "--mode"),
        ("archive", ["--every", "1s", "--every", "2s", "B_x", "archive"], "--every"),
        ("tmb", ["--mode", "600", "B_x", "--mode", "622"], "--mode"),
    ],
)
def test_an_option_that_has_one_value_is_given_once(place: Path, name: str, words: list[str], option: str) -> None:
    done = run(*command(name), *words, cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert re.match(rf"futebus-{name}: argument [^:]*{option}\b[^:]*: given twice; once, please \(see ", done.stderr), done.stderr
    assert not list(place.iterdir())


def test_an_option_of_which_several_count_is_given_as_often_as_one_likes() -> None:
    command = arguments.Parser(prog="x")
    command.add_argument("-a", action="append")
    command.add_argument("-b")
    command.add_argument("names", nargs="*")
    for _ in range(2):  # what was given to one run is nothing to the next
        found = command.parse_args(["-a", "1", "one", "-b", "2", "-a", "3", "two"])
        assert (found.a, found.b, found.names) == (["1", "3"], "2", ["one", "two"])
