"""Recipes of README and `examples/`, with workers that are killed: no task is lost."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, run
from ..helpers.programs import Start
from ..helpers.waiting import DEADLINE, until

TREE = Path(__file__).parents[2]

JOB = """#!/bin/sh
echo "begin $1 $$" >> begun
while [ -e hold ]; do sleep 0.02; done
echo "$1" >> done
"""

WORKER = """
exec 3<>"$1"
echo ready >&3
while IFS= read -r task <&3; do
    echo "begin $task $$" >> begun
    while [ -e hold ]; do sleep 0.02; done
    echo "$task" >> done
    echo ready >&3
done
"""


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def numbers(count: int) -> list[str]:
    return [f"number {number}" for number in range(count)]


def test_a_queue_whose_workers_share_the_master(bus: Mount, place: Path, start: Start) -> None:
    [recipe] = re.findall(r"```bash\n(exec 3<>/mnt/bus/\.U_jobs\n.*?)```", (TREE / "README.md").read_text(), re.DOTALL)
    (place / "job").write_text(JOB)
    (place / "job").chmod(0o755)
    (place / "hold").touch()
    script = recipe.replace("/mnt/bus", str(bus.path)).replace("sleep 1", "sleep 0.05")
    start("bash", "-c", f"{script}\nexec 3>&-; wait", cwd=place)
    until((bus / "U_jobs").exists, "there is a master")
    jobs = numbers(20)
    for job in jobs:
        (bus / "U_jobs").write_text(f"{job}\n")
    until(lambda: len(lines_of(place / "begun")) == 3, "all three have something to do")
    os.kill(int(lines_of(place / "begun")[0].split()[-1]), signal.SIGKILL)
    (place / "hold").unlink()
    until(lambda: len(lines_of(place / "done")) >= len(jobs), "all is done")
    assert sorted(lines_of(place / "done")) == sorted(jobs), "each once; the one that was killed had not done it"


@pytest.mark.parametrize("first", ["set -m", ""])
def test_a_script_that_ends_the_queue(bus: Mount, place: Path, start: Start, first: str) -> None:
    [recipe] = re.findall(r"```bash\n(exec 3<>/mnt/bus/\.U_jobs\n.*?)```", (TREE / "README.md").read_text(), re.DOTALL)
    [(ending, wanted)] = re.findall(
        r"^`(kill .+?)` ends it at a prompt\. A script wants `(.+?)` first", (TREE / "README.md").read_text(), re.MULTILINE
    )
    assert wanted == "set -m"
    script = "\n".join([first, recipe.replace("/mnt/bus", str(bus.path)), "read", ending])
    process = start("bash", "-c", script, cwd=place)
    until(lambda: len(bus.clients("U_jobs", waits="read")) == 1, "a worker waits")
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait(DEADLINE)  # a dd that is left has its pipes open
    if first:
        until(lambda: not (bus / "U_jobs").exists(), "nobody is the master any more")
    else:
        assert bus.clients("U_jobs", role="master"), "what dd has open"


def test_a_dispatcher_whose_workers_are_killed(bus: Mount, place: Path, start: Start) -> None:
    dispatcher = start(sys.executable, TREE / "examples" / "dispatcher.py", bus / "S_tasks")
    until((bus / "S_tasks").exists, "there is a dispatcher")
    (place / "hold").touch()
    workers = [start("bash", "-c", WORKER, "worker", bus / "S_tasks", cwd=place) for _ in range(3)]
    tasks = numbers(20)
    for task in tasks:
        (bus / "S_tasks").write_text(f"task: {task}\n")
    until(lambda: len(lines_of(place / "begun")) == 3, "all three have something to do")
    workers[0].kill()
    workers.append(start("bash", "-c", WORKER, "worker", bus / "S_tasks", cwd=place))
    until(lambda: len(lines_of(place / "begun")) == 4, "the new one has what the killed one had")
    first, *_, last = lines_of(place / "begun")
    (place / "hold").unlink()
    until(lambda: len(lines_of(place / "done")) >= len(tasks), "all is done")
    assert sorted(lines_of(place / "done")) == sorted(tasks)
    assert {line.split()[-1] for line in (first, last)} <= {str(worker.pid) for worker in workers}
    dispatcher.send_signal(signal.SIGINT)
    assert dispatcher.wait(DEADLINE) == 0
    assert dispatcher.communicate() == (f"tasks written to {bus / 'S_tasks'} are handed out from now on\n", "")


def test_a_worker_who_is_ready_twice_gets_one_task_and_takes_none_along(bus: Mount, place: Path, start: Start) -> None:
    dispatcher = start(sys.executable, TREE / "examples" / "dispatcher.py", bus / "S_tasks")
    until((bus / "S_tasks").exists, "there is a dispatcher")
    hasty = os.open(bus / "S_tasks", os.O_RDWR)
    os.write(hasty, b"ready\nready\n")
    (bus / "S_tasks").write_text("task: one\ntask: two\n")
    assert os.read(hasty, 4096) == b"one\n"
    os.close(hasty)
    process = start("bash", "-c", WORKER, "worker", bus / "S_tasks", cwd=place)
    until(lambda: len(lines_of(place / "done")) >= 2, "both are done")
    assert sorted(lines_of(place / "done")) == ["one", "two"]
    process.kill()
    dispatcher.send_signal(signal.SIGINT)
    assert dispatcher.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("bus0", "bus0: no channel has this name; its first letter is U, A, S or B"),
        ("bus0/B_log", "bus0/B_log: serve() wants a channel of type S, and this is B"),
        ("S_tasks", "no bus is mounted on "),
    ],
)
def test_a_dispatcher_for_what_is_no_service(bus: Mount, place: Path, channel: str, words: str) -> None:
    done = run(sys.executable, TREE / "examples" / "dispatcher.py", place / channel)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("dispatcher.py: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(place.glob("*S_tasks"))
