"""Random programs of many processes on a mounted bus; somebody is killed, stopped or interrupted all the time.

In the end everything that any of them has seen is held against the contract: see `evidence`.
"""

import json
import time
from pathlib import Path
from typing import Any

from tests.helpers.mounts import Mount
from tests.helpers.waiting import until

from .evidence import Evidence, sums
from .program import LASTING, MAX_MESSAGE
from .trial import Counts, Show, mounted, programs, silent

OPTIONS = (f"max_message={MAX_MESSAGE}", "max_queue=40", "max_queue_bytes=20000")
SIGNALS = ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGUSR1")


def torture(
    place: Path,
    seed: int,
    seconds: float,
    show: Show = silent,
    *,
    population: int = 24,
    deadline: float = 60.0,
    command: list[str] | None = None,
) -> Counts:
    """One trial.

    Args:
        place: an empty directory.
        seed: of the dice. The system schedules as it likes, so the same seed is not the same trial.
        seconds: for how long.
        show: is told how it goes.
        population: how many random programs run at once.
        deadline: for all to end by themselves, in seconds.
        command: what to mount instead of a futebus.

    Returns:
        Counts of what was done.

    Raises:
        AssertionError: the bus has done what it must not.
    """
    records = place / "records"
    records.mkdir()
    with mounted(place, *OPTIONS, command=command) as bus, programs() as start:
        log = (place / "herd.log").open("w")
        herd = start("herd", bus.path, records, seed, seconds, population, deadline, stderr=log)
        log.close()
        snapshots = _watch(bus, seconds, show)
        assert herd.stdout
        line = herd.stdout.readline()
        assert line, (place / "herd.log").read_text()[-3000:]
        said: dict[str, Any] = json.loads(line)
        assert not said["failures"], "\n".join([*said["failures"][:20], (place / "herd.log").read_text()[-3000:]])
        until(lambda: len(bus.clients()) == len(LASTING), "all have closed")
        show("looking at what all have seen")
        evidence = Evidence(records)
        wrong = evidence.judge()
        assert not wrong, f"{len(wrong)} things are wrong:\n" + "\n".join(wrong[:20])
        _compare(bus, evidence)
        herd.communicate("", timeout=60)
        counts = Counts(evidence.counts)
        counts["signals"] = sum(said["counts"].get(name, 0) for name in SIGNALS)
        counts["kills"] = said["counts"].get("SIGKILL", 0)
        counts["snapshots"] = snapshots
        counts["messages"] = counts.pop("messages accepted")
    return counts


def _watch(bus: Mount, seconds: float, show: Show) -> int:
    """Looks at `_stat` while the herd runs: in each snapshot of it, everything must add up. Returns how many there were."""
    begin = time.monotonic()
    snapshots = 0
    while time.monotonic() < begin + seconds:
        _check_sums(bus)
        snapshots += 1
        show(f"{time.monotonic() - begin:.0f} of {seconds:.0f} s, {len(bus.clients())} clients")
        time.sleep(0.1)
    return snapshots


def _check_sums(bus: Mount) -> None:
    told = bus.told()
    wrong = sums(told["channels"])
    assert not wrong, "\n".join([*wrong, json.dumps(told, indent=1)])


def _compare(bus: Mount, evidence: Evidence) -> None:
    """What the bus has counted, and what its clients have."""
    _check_sums(bus)
    for name in LASTING:
        row = bus.channel(name)
        accepted, read = evidence.bounds(name)
        # The last message is not in the records of its writer; those who were there to read it have it in theirs.
        said, heard = row["messages_in"] - 1, row["messages_out"] - evidence.last_heard(name)
        assert said in accepted, f"{name}: {said} messages in, by the clients {accepted}"
        assert heard in read, f"{name}: {heard} messages out, by the clients {read}"
