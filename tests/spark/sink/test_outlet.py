"""A channel that lines are written to: what is refused is told in one sentence, and what was sent before it is sent."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.client.channel import BLOCK, end_of_block
from futebus.spark.sink.outlet import Outlet, Outlets, SinkError

from ...helpers.collectors import Collect
from ...helpers.descriptors import descriptors
from ...helpers.mounts import Mount, Mounting, run
from ...helpers.waiting import until


@contextlib.contextmanager
def refused(sentence: str) -> Iterator[None]:
    with pytest.raises(SinkError, match=f"^{re.escape(sentence)}$"):
        yield


@contextlib.contextmanager
def opened(bus: Mount, name: str) -> Iterator[Outlet]:
    with Outlets(bus.path) as outlets:
        yield outlets[name]


def test_what_is_refused_is_told_in_one_line_whatever_the_name_is(bus: Mount) -> None:
    with refused(rf"{bus.path}/U_\x1b[2J\n\xff has no master"), opened(bus, "U_\x1b[2J\n\udcff"):
        pass


@pytest.mark.parametrize("name", ["U_jobs", "S_upper"])
def test_no_master(name: str, bus: Mount) -> None:
    before = descriptors()
    with refused(f"{bus / name} has no master"), opened(bus, name):
        pass
    assert descriptors() == before


def test_no_bus(bus: Mount, place: Path) -> None:
    bus.unmount()
    with refused(f"no bus is mounted on {bus.path}"), opened(bus, "B_log"):
        pass
    assert not (bus / "B_log").exists()


@pytest.mark.parametrize("name", ["B_log", "A_chat"])
def test_a_bus_that_goes_while_its_channel_is_opened(name: str, bus: Mount) -> None:
    """What opens the channel is stopped right before its open(2), and the bus unmounted in that moment."""
    code = f"""
import subprocess, sys
from futebus.spark.sink.outlet import Outlet, SinkError
from pathlib import Path
def look(event, given):
    if event == "open" and str(given[0]).endswith({name!r}):
        subprocess.run(["umount", "-l", {str(bus.path)!r}], check=True)
sys.addaudithook(look)
try:
    outlet = Outlet(Path({str(bus.path)!r}), {name!r})
    outlet.put(b"{{*}}line\\n")
except SinkError as error:
    print(error)
"""
    done = run(sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: bus.daemon.poll() is not None, "the daemon has ended")
    assert list(bus.path.iterdir()) == []
    assert done.stdout == f"{bus / name}: the bus is being unmounted or is gone\n"


def test_the_bus_is_full(mounting: Mounting) -> None:
    bus = mounting("max_channels=1")
    bus.touch("B_0")
    with refused(f"{bus / 'B_1'}: the bus has too many channels"), opened(bus, "B_1"):
        pass


def test_a_line_that_is_too_long(mounting: Mounting, collect: Collect) -> None:
    bus = mounting("max_message=1K")
    channel = collect(bus / "B_log")
    good, long = b"x" * 1023 + b"\n", b"y" * 1024 + b"\n"
    shown = "y" * 60
    with opened(bus, "B_log") as outlet:
        with refused(f"{bus / 'B_log'}: a message of 1025 bytes is longer than the bus takes (max_message): '{shown}'"):
            outlet.put(good * 300 + long + good)
        outlet.put(b"end\n")
    assert channel.lines(301) == ["x" * 1023] * 300 + ["end"]


def test_addresses_that_lead_nowhere(bus: Mount, collect: Collect) -> None:
    reader = collect(bus / "A_chat")
    silent = os.open(bus / "A_chat", os.O_WRONLY)
    with opened(bus, "A_chat") as outlet:
        with refused(
            f"{bus / 'A_chat'}: a message has no address, {{ID}} or {{*}}, in front: 'hello'; "
            "it can also be in a column `address`"
        ):
            outlet.put(b"{1}a\nhello\n{1}b\n")
        with refused(f"{bus / 'A_chat'}: client {{7f}} is not on the channel: '{{7f}}hello'"):
            outlet.put(b"{1}c\n{7f}hello\n")
        with refused(f"{bus / 'A_chat'}: client {{2}} does not read: '{{2}}hello'"):
            outlet.put(b"{2}hello\n")
    os.close(silent)
    assert reader.lines(2) == ["{3}a", "{3}c"]


def test_a_master_that_leaves(mounting: Mounting) -> None:
    bus = mounting("max_queue=4")
    master = os.open(bus / ".U_jobs", os.O_RDWR | os.O_CREAT)
    with opened(bus, "U_jobs") as outlet:
        outlet.put(b"a\n" * 4)
        os.close(master)
        with refused(f"{bus / 'U_jobs'} has no master any more that reads"):
            outlet.put(b"a\n")


def test_a_bus_that_goes(bus: Mount) -> None:
    bus.touch("B_log")
    with opened(bus, "B_log") as outlet:
        bus.unmount()
        with refused(f"{bus / 'B_log'}: the bus is being unmounted or is gone"):
            outlet.put(b"a\n")


def test_a_channel_of_somebody_else(mounting: Mounting) -> None:
    bus = mounting("allow_other")
    bus.touch("B_log").chmod(0o600)
    # In a child: who has given up being root does not get it back.
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setuid(65534)
            with refused(f"{bus / 'B_log'}: Permission denied"), opened(bus, "B_log"):
                pass
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_lines_longer_than_the_kernel_brings_at_once(mounting: Mounting, collect: Collect) -> None:
    bus = mounting("max_message=4M,max_queue_bytes=4M")
    master = collect(bus / ".U_jobs")
    lines = [bytes([65 + number]) * (3_000_000 - number) + b"\n" for number in range(4)]
    with opened(bus, "U_jobs") as outlet:
        outlet.put(b"".join(lines))
    assert master.lines(4) == [line[:-1].decode() for line in lines]


def test_without_waiting(mounting: Mounting, collect: Collect) -> None:
    bus = mounting("max_queue=4")
    master = collect(bus / ".U_jobs", at_once=False)
    with Outlets(bus.path, may_block=False) as outlets:
        outlet = outlets["U_jobs"]
        lines = b"".join(b"%d\n" % number for number in range(10))
        assert outlet.offer(lines, 0) == 8
        assert outlet.offer(lines, 8) == 0
        master.start()
        sent = 8
        while sent < len(lines):
            outlet.wait()
            sent += outlet.offer(lines, sent)
        assert outlets["U_jobs"] is outlet
    assert master.lines(10) == [str(number) for number in range(10)]


def test_blocks_end_where_lines_do() -> None:
    line = b"x" * 999 + b"\n"
    assert end_of_block(line * 3, 0) == 3000
    assert end_of_block(line * 200, 0) == 131_000
    assert end_of_block(line * 200, 131_000) == 200_000
    assert end_of_block(line + b"x" * BLOCK + b"\n" + line, 0) == 1000
    assert end_of_block(line + b"x" * BLOCK + b"\n" + line, 1000) == 1000 + BLOCK + 1
    assert end_of_block(b"x" * (BLOCK - 1) + b"\n" + line, 0) == BLOCK
