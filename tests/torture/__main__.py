"""The command scripts/torture."""

import argparse
import itertools
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.helpers.watching import WATCH

Play = Callable[[Path, Callable[[str], None]], Counter[str]]
"""What a trial does in an empty directory. It tells how it goes."""

D_STATES = "D states"
"""Tasks that were stuck inside FUSE: see `tests/helpers/watching.py`."""


def show(words: str) -> None:
    """Shows how it goes, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Tortures for as long as it is told to. Returns 0 if nothing was lost, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="scripts/torture", description="Kills everybody all the time, and looks at every line.")
    parser.add_argument(
        "what", nargs="?", choices=["bus", "gateways", "hosts", "spark"], default="bus", help="what to torture (bus)"
    )
    parser.add_argument("rounds", nargs="?", type=int, help="how many rounds, of gateways and hosts, whatever --minutes says")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long (10); what has begun then is ended")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the first trial; the next have the numbers behind it"
    )
    given = parser.parse_args()
    if given.rounds is not None and given.what not in ("gateways", "hosts"):
        parser.error(f"{given.what} has no rounds: --minutes, please")
    if given.rounds is not None:
        in_rounds = {"gateways": torture_gateways, "hosts": torture_hosts}
        return in_rounds[given.what](given.minutes, given.seed, given.rounds)
    tortures = {"bus": torture_bus, "gateways": torture_gateways, "hosts": torture_hosts, "spark": torture_spark}
    return tortures[given.what](given.minutes, given.seed)


def torture_bus(minutes: float, seed: int) -> int:
    """One trial of the bus after the other: the random programs, then the others in turn."""
    from .trials import TRIALS, programs

    harder = min(1.0, minutes / 10)

    def trials() -> Iterator[tuple[str, Play]]:
        for number in itertools.count(seed):
            yield f"random programs, seed {number}", lambda place, show, number=number: programs(place, number, 15 * harder, show)  # type: ignore[misc]
            for name, trial in TRIALS.items():
                scale = max(trial.short, trial.long * harder)
                yield name, lambda place, show, trial=trial, scale=scale: trial.run(place, scale, show)  # type: ignore[misc]

    return in_turn(trials(), minutes, "trials", least=1 + len(TRIALS))


def torture_gateways(minutes: float, seed: int, rounds_: int | None = None) -> int:
    """One round with a gateway after the other. The seed says which gateway it is, and what is done to it."""
    from .gateways.harms import pair_of, play

    seconds = max(2.5, 5 * min(1.0, minutes / 10))

    def rounds() -> Iterator[tuple[str, Play]]:
        for number in itertools.count(seed):
            name, harm = pair_of(number)
            yield (
                f"{name}, {harm}, seed {number}",
                lambda place, show, name=name, harm=harm, number=number: play(place, name, harm, number, seconds, show),  # type: ignore[misc]
            )

    return in_turn(rounds(), minutes, "rounds", count=rounds_)


def torture_hosts(minutes: float, seed: int, rounds_: int | None = None) -> int:
    """One round with several hosts after the other. The seed says what is there, and what is done to it."""
    from .hosts.rounds import pair_of, play

    seconds = max(3.0, 10 * min(1.0, minutes / 10))

    def rounds() -> Iterator[tuple[str, Play]]:
        for number in itertools.count(seed):
            kind, harm = pair_of(number)
            yield (
                f"{kind}, {harm}, seed {number}",
                lambda place, show, kind=kind, harm=harm, number=number: play(place, kind, harm, number, seconds, show),  # type: ignore[misc]
            )

    return in_turn(rounds(), minutes, "rounds", count=rounds_)


def in_turn(trials: Iterator[tuple[str, Play]], minutes: float, what: str, *, least: int = 1, count: int | None = None) -> int:
    """One trial after the other, while there is time.

    Args:
        trials: what each is called, and what it does.
        minutes: for how long.
        what: what they are called together.
        least: how many are done, however long that takes.
        count: how many are done, whatever else is said.

    Returns:
        0 if nothing was lost, 1 otherwise.
    """
    begin = time.monotonic()
    total: Counter[str] = Counter({D_STATES: 0})
    failed = 0
    for words, play in trials:
        done = total[what] + failed
        if done == count or (count is None and done >= least and time.monotonic() > begin + minutes * 60):
            break
        place = Path(tempfile.mkdtemp(prefix="futebus-torture-"))
        show(words)
        started = time.monotonic()
        try:
            counts = play(place, lambda how, words=words: show(f"{words}: {how}"))  # type: ignore[misc]
            WATCH.check()
        except Exception as error:
            show("")
            where = "".join(traceback.format_exception(error)[-4:]) if not str(error) else error
            print("\n".join([f"{words}: FAILED: {where}", *WATCH.take(), f"what is left is in {place}"]), flush=True)
            failed += 1
            continue
        shutil.rmtree(place)
        show("")
        print(f"{words}: {describe(counts)} ({time.monotonic() - started:.0f} s)", flush=True)
        for each in [each for each in counts if each.startswith("KiB")]:
            del counts[each]
        total.update(counts)
        total[what] += 1
    total[D_STATES] = WATCH.total
    print(f"in all, in {(time.monotonic() - begin) / 60:.0f} minutes: {describe(total)}; failed: {failed}; lost: {total['lost']}")
    return int(bool(failed or total["lost"] or total[D_STATES]))


def describe(counts: Counter[str]) -> str:
    """Counts in words."""
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()) if what != "lost")


def torture_spark(minutes: float, seed: int) -> int:
    """One crash trial of Spark after the other, with a recorder and without."""
    from .spark import HARMS, SOFT, Verdict, torture

    end = time.monotonic() + minutes * 60
    total, trials = Verdict(), 0
    while time.monotonic() < end:
        has_recorder, is_hard = trials % 2 == 0, trials % 4 >= 2
        place = Path(tempfile.mkdtemp(prefix="futebus-torture-"))
        words = f"trial {trials + 1}, seed {seed}, {'a recorder' if has_recorder else 'the query'} drains"
        words += ", the bus dies too, the disk gets full" if is_hard else ""
        try:
            verdict = torture(
                place,
                seed,
                has_recorder,
                60,
                lambda how, words=words: show(f"{words}: {how}"),  # type: ignore[misc]
                harms=HARMS if is_hard else SOFT,
            )
        except AssertionError as error:
            show("")
            print(f"{words}: FAILED: {error}\nwhat is left is in {place}")
            return 1
        shutil.rmtree(place)
        show("")
        print(f"{words}: {verdict}", flush=True)
        total.kills.update(verdict.kills)
        total.accepted += verdict.accepted
        total.archived += verdict.archived
        total.lost += verdict.lost
        total.announced += verdict.announced
        total.at_risk += verdict.at_risk
        seed += 1
        trials += 1
    print(f"{trials} trials: {total}; {D_STATES}: {WATCH.total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
