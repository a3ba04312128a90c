"""Publishers of staged lines are killed, and the next one goes on: nothing is lost, and nothing is sent twice unsaid.

Publishers run in children of a helper, which is this module run as a program. It imports what they need once, so that hundreds of
them can be started and killed.
"""

import itertools
import json
import operator
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

import futebus.spark
from futebus.spark.sink.publishing import publish
from futebus.spark.sink.staging import stage

from ...helpers.mounts import Mount, Mounting
from ...helpers.waiting import until

if TYPE_CHECKING:
    from ...helpers.collectors import Collect, Collector

WATCHED = str(Path(futebus.spark.__file__).parent)

Lines = list[tuple[str, str]]
"""Channels, each with a line for it."""


# ---------------------------------------------------------------------------------------------- the helper


def attempt(directory: Path, bus: Path, batch: int, lines: Lines) -> Callable[[], None]:
    """What Spark does with a batch: tasks stage it in two partitions, then it is committed. The commit is returned."""
    half = len(lines) // 2
    segments = [
        segment
        for partition, part in enumerate((lines[:half], lines[half:]))
        for segment in stage(directory, batch, partition, joined(part))
    ]
    return lambda: publish(directory, bus, batch, segments)


def joined(lines: Lines) -> Iterator[tuple[str, bytes]]:
    """Blocks of the lines that go to the same channel one after the other."""
    for channel, group in itertools.groupby(lines, operator.itemgetter(0)):
        yield channel, "".join(f"{line}\n" for _, line in group).encode()


def in_child(run: Callable[[], None], end: Callable[[int], None] = lambda child: None) -> tuple[int, str]:
    """Runs something in a child, and `end` here. Returns the child's wait status, and what it wrote to stderr."""
    said, say = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(say, 2)
        status = 1
        try:
            run()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(status)
    os.close(say)
    end(child)
    with open(said, "rb") as file:
        text = file.read().decode()
    return os.waitpid(child, 0)[1], text


def killed_at(step: int, run: Callable[[], None]) -> Callable[[], None]:
    """`run`, killed when it is about to execute the line of code of this number, of those that belong to the sink."""

    def traced() -> None:
        left = step

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(WATCHED):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        run()
        sys.settrace(None)

    return traced


def kill_at_each_step(directory: Path, bus: Path) -> None:
    """Kills the first publisher of batch N at step N. The batch is run again then, with other lines. Prints what that said."""
    for batch in range(100_000):
        lines = [("U_a", f"{batch}:first:{number}:{'x' * 70_000}") for number in range(2)]
        first = attempt(directory, bus, batch, [*lines, ("U_b", f"{batch}:first:2:")])
        status, _ = in_child(killed_at(batch, first))
        again = attempt(directory, bus, batch, [(channel, f"{batch}:second:{n}:") for n, channel in enumerate(["U_a", "U_b"])])
        end, said = in_child(again)
        print(json.dumps([status, end, said]), flush=True)
        if status == 0:
            return


def kill_at_random(directory: Path, bus: Path, number: int) -> None:
    """Kills publishers of a few batches with a signal, soon after they have begun. Prints what they said."""
    choose = random.Random(number)
    for batch in range(2):
        lines = [("U_a", f"{batch}:{line:036}") for line in range(40_000)]
        status, longest = -1, 0.002
        while status != 0:

            def end(child: int, longest: float = longest) -> None:
                # By then it publishes, or is about to begin, or has done all, on slow machines as on fast ones.
                time.sleep(choose.uniform(0, longest))
                os.kill(child, number)

            status, said = in_child(attempt(directory, bus, batch, lines), end)
            longest *= 1.3
            print(json.dumps([status, 0, said]), flush=True)


# ---------------------------------------------------------------------------------------------- the tests


def run_helper(*arguments: object) -> list[tuple[int, int, str]]:
    """Runs the helper to its end. Returns what it has printed."""
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    root = Path(__file__).parents[3]
    helper = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=270, check=False)
    assert helper.returncode == 0, helper.stderr
    return [tuple(json.loads(line)) for line in helper.stdout.splitlines()]


def announced(said: str) -> int:
    """How many lines a publisher says that it sends again."""
    return sum(int(count) for count in re.findall(r"U_.: (\d+) lines? (?:is|are) sent again", said))


def test_killed_before_each_line_of_code(bus: Mount, collect: "Collect", tmp_path: Path) -> None:
    channels = {name: collect(bus / f".{name}") for name in ("U_a", "U_b")}
    outcomes = run_helper("kill_at_each_step", tmp_path / "query", bus.path)
    assert [end for _, end, _ in outcomes] == [0] * len(outcomes)
    assert [os.WTERMSIG(status) for status, _, _ in outcomes] == [signal.SIGKILL] * (len(outcomes) - 1) + [0]
    found = {name: by_batch(channel) for name, channel in channels.items()}
    firsts = doubts = doubles = 0
    for batch, (_, _, said) in enumerate(outcomes):
        first, second = found["U_a"][batch], found["U_b"][batch]
        if first[0].startswith("second"):
            # Killed before the batch was begun: it is what it was the second time.
            assert (first, second) == (["second:0:"], ["second:1:"])
            assert not firsts
            assert not said
            continue
        firsts += 1
        doubts += announced(said)
        extra = len(first) + len(second) - 3
        assert 0 <= extra <= announced(said)
        doubles += extra
        assert [line[:8] for line in dict.fromkeys(first)] == ["first:0:", "first:1:"]
        assert first == sorted(first)
        assert set(second) == {"first:2:"}
    # Of three blocks, in each of which there are steps before and after the write that leave a doubt, and many that do not.
    assert 0 < doubles < doubts < firsts
    assert os.listdir(tmp_path / "query") == ["journal"]


def by_batch(channel: "Collector") -> dict[int, list[str]]:
    """The lines that have come, without the number of their batch in front, by that number."""
    found: dict[int, list[str]] = {}
    for line in channel.settled().decode().splitlines():
        batch, _, rest = line.partition(":")
        found.setdefault(int(batch), []).append(rest)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_at_random(number: signal.Signals, mounting: Mounting, collect: "Collect", tmp_path: Path) -> None:
    bus = mounting("max_queue_bytes=32K")
    channel = collect(bus / ".U_a")
    outcomes = run_helper("kill_at_random", tmp_path / "query", bus.path, int(number))
    assert {status for status, _, _ in outcomes} == {0, number}
    lines = channel.settled().decode().splitlines()
    expected = [f"{batch}:{line:036}" for batch in range(2) for line in range(40_000)]
    assert list(dict.fromkeys(lines)) == expected
    doubtful = sum(announced(said) for _, _, said in outcomes)
    assert len(lines) - len(expected) <= doubtful
    if number != signal.SIGKILL:
        assert not doubtful
    assert os.listdir(tmp_path / "query") == ["journal"]


def test_ended_while_it_waits_for_the_master(mounting: Mounting, collect: "Collect", tmp_path: Path) -> None:
    bus = mounting("max_queue=4")
    channel = collect(bus / ".U_a", at_once=False)
    publisher = attempt(tmp_path, bus.path, 0, [("U_a", str(number)) for number in range(10)])

    def end(child: int) -> None:
        until_it_waits(child)
        os.kill(child, signal.SIGTERM)

    status, said = in_child(publisher, end)
    assert (os.WTERMSIG(status), said) == (signal.SIGTERM, "")
    channel.start()
    assert in_child(publisher) == (0, "")
    assert channel.settled().decode().split() == [str(number) for number in range(10)]


def test_killed_within_a_line(mounting: Mounting, collect: "Collect", tmp_path: Path) -> None:
    # The kernel brings a long line in pieces. The first ones are accepted, the last one must wait, as there is no place.
    bus = mounting("max_message=4M,max_queue_bytes=4M")
    channel = collect(bus / ".U_a", at_once=False)
    publisher = attempt(tmp_path, bus.path, 0, [("U_a", letter * 3_000_000) for letter in "ab"])

    def end(child: int) -> None:
        until_it_waits(child)
        os.kill(child, signal.SIGKILL)

    assert os.WTERMSIG(in_child(publisher, end)[0]) == signal.SIGKILL
    assert bus.clients("U_a", role="slave") == []
    channel.start()
    assert in_child(publisher) == (0, "")
    assert channel.settled() == b"a" * 3_000_000 + b"\n" + b"b" * 3_000_000 + b"\n"


def until_it_waits(child: int) -> None:
    """Waits until a process waits in poll(2)."""
    numbers = {"7", "271", "73"}  # poll and ppoll of x86-64, ppoll of arm64
    until(lambda: Path(f"/proc/{child}/syscall").read_text().split()[0] in numbers, "it polls")


if __name__ == "__main__":
    directory, bus_path, *rest = sys.argv[2:]
    if sys.argv[1] == "kill_at_each_step":
        kill_at_each_step(Path(directory), Path(bus_path))
    else:
        kill_at_random(Path(directory), Path(bus_path), int(rest[0]))
