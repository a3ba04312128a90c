"""Nothing is loaded late: the daemon may have become a user who cannot read Python's library."""

import errno
import os
import shutil
import signal
import sys
import sysconfig
from pathlib import Path

import pytest

import futebus

from ..helpers.mounts import Mount, Mounting, bash
from ..helpers.programs import Start
from ..helpers.users import ANN
from ..helpers.waiting import until

ODD = [b"B\x01", b"B\xff", "B\x85\u202e\U000e0001".encode(), b"B \\ %s \n"]
"""Names that are escaped, each in its way."""

SICK = """
import logging, os, sys, threading, warnings
from futebus.commands.futebus import main
def fail(original):
    def call(self, client, data, *arguments, **keywords):
        if b"boom" in data:
            try:
                raise OSError(5, "first")
            except OSError:
                raise ExceptionGroup("b\\xf6\\u20ac\\udcff\\x01", [KeyError("x"), RuntimeError("boom" * 100)])
        if b"unraisable" in data:
            return object(), None
        if b"warn" in data:
            warnings.warn("a warning")
        return original(self, client, data, *arguments, **keywords)
    return call
"""

AUDITED = (
    SICK
    + """
def note(event, arguments):
    if event == "import" and os.getuid() and arguments[0]:
        os.write(2, b"LATE " + arguments[0].encode() + b"\\n")
import futebus.fuse.mount
from futebus.core import bus
bus.Bus.write = fail(bus.Bus.write)
sys.addaudithook(note)
sys.exit(main(sys.argv[1:]))
"""
)


def use_everything(bus: Mount) -> None:
    """All that a daemon does sometimes, and what it does when it is ill."""
    held = []
    for name in ODD:
        path = os.fsencode(bus.path) + b"/" + name
        held.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
        with pytest.raises(FileExistsError):
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    for wrong in (b"/nothing", b"/S_\x01", b"/U_\xff"):
        with pytest.raises(OSError, match=r".*"):
            os.open(os.fsencode(bus.path) + wrong, os.O_WRONLY | os.O_CREAT)
    assert "B\\x01" in bus.stat()
    assert (
        bash(f"ls -la {bus.path} > /dev/null; echo hi > {bus / 'B_ann'}; cat {bus / '_stat'} > /dev/null", **ANN).returncode == 0
    )
    for words in (b"boom\n", b"unraisable\n", b"warn\n"):
        try:
            os.write(held[0], words)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    master = os.open(bus / ".U_\x01", os.O_RDWR | os.O_CREAT)
    (bus / "U_\x01").write_text("unread\n")
    os.close(master)
    until(lambda: "1 messages unread" in bus.words, "the master's end is told")
    for descriptor in held:
        os.close(descriptor)
    assert "B\\xff" in bus.stat()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_loaded_once_root_is_given_up(mounting: Mounting, number: signal.Signals) -> None:
    bus = mounting("allow_other", "user=nobody", command=[sys.executable, "-c", AUDITED, "-d"])
    bus.expects_errors = True
    use_everything(bus)
    bus.daemon.send_signal(number)
    bus.close()
    assert "RuntimeError: boom" in bus.words
    assert [line for line in bus.words.splitlines() if line.startswith("LATE")] == []


def test_it_serves_from_a_library_that_it_cannot_read(place: Path, mounting: Mounting) -> None:
    """All of Python, copied to where only root can read it."""
    private = place / "private"
    library = private / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(
        sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns("test", "site-packages", "__pycache__", "idlelib")
    )
    site = private / "site"
    shutil.copytree(Path(futebus.__file__).parent, site / "futebus")
    for name in ("trio", "pyfuse3", "attr", "attrs", "outcome", "sniffio", "sortedcontainers", "idna"):
        import importlib.util

        found = importlib.util.find_spec(name)
        if found and found.origin:
            shutil.copytree(Path(found.origin).parent, site / name, ignore=shutil.ignore_patterns("tests", "_tests"))
    private.chmod(0o700)
    code = AUDITED.replace("import logging,", "import logging, traceback,", 1)
    bus = mounting(
        "allow_other",
        "user=nobody",
        command=[sys.executable, "-S", "-P", "-c", code, "-d"],
        env={**os.environ, "PYTHONHOME": str(private), "PYTHONPATH": str(site)},
    )
    bus.expects_errors = True
    use_everything(bus)
    assert bash(f"ls {private}", **ANN).returncode != 0
    bus.daemon.send_signal(signal.SIGTERM)
    bus.close()
    assert "RuntimeError: boom" in bus.words
    assert str(private) in bus.words, "it did run from there"


def test_a_name_that_is_escaped_floods_no_log(mounting: Mounting, start: Start) -> None:
    """An error that anybody can cause as often as they like is told as often as a log can take it."""
    bus = mounting(command=[sys.executable, "-c", AUDITED])
    bus.expects_errors = True
    writer = os.open(bus / "B_x", os.O_RDWR | os.O_CREAT)
    for _ in range(1000):
        with pytest.raises(OSError, match="Input/output"):
            os.write(writer, b"boom\n")
    os.close(writer)
    bus.unmount()
    assert 10 < bus.words.count("internal error in write") <= 100
    bus.was_killed = True
