"""All rounds of the hosts: what there is, and which harm is done."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from ..trial import Counts, Show, silent
from .grounds import Round
from .kept import Kept
from .live import Live, Ring
from .spread import Spread

KINDS: dict[str, type[Kept | Live | Spread]] = {"kept": Kept, "live": Live, "ring": Ring, "spread": Spread}
"""Each kind of round."""

Harms = list[Callable[[], None]]


def _server(this: Round) -> Harms:
    return [this.no_server, this.no_answer]


def _network(this: Round) -> Harms:
    return [this.no_network]


def _kills(this: Round) -> Harms:
    return [this.part_dies, this.delivery_dies] if isinstance(this, Kept) else [this.link_dies]  # type: ignore[attr-defined]


def _buses(this: Round) -> Harms:
    return [this.source_dies if isinstance(this, Kept) else this.bus_dies]  # type: ignore[attr-defined]


def _all(this: Round) -> Harms:
    if isinstance(this, Spread):
        parts = [this.part_dies, this.source_dies, this.recorder_cut_off]
        spark = [
            this.worker_dies,
            this.worker_cut_off,
            this.executor_dies,
            this.driver_dies,
            this.driver_cut_off,
            this.master_dies,
        ]
        return [this.with_a_server(harm) for harm in (*parts, *spark)]
    return [*_server(this), *_network(this), *_kills(this), *_buses(this)]


HARMS: dict[str, Callable[[Round], Harms]] = {
    "kills": _kills,
    "server": _server,
    "network": _network,
    "buses": _buses,
    "all": _all,
}
"""By their names."""

PAIRS = [
    *(("kept", harm) for harm in HARMS),
    ("spread", "all"),
    *((kind, harm) for kind in ("live", "ring") for harm in ("kills", "server", "network", "buses")),
]
"""Of what is live, one sort of harm at a time: a link that has just begun does not know lines that a server has not confirmed."""


def pair_of(seed: int) -> tuple[str, str]:
    """The kind and the harm of a round. So many rounds in a row as there are pairs have each of them once."""
    return random.Random(seed // len(PAIRS)).sample(PAIRS, len(PAIRS))[seed % len(PAIRS)]


def play(
    place: Path, kind: str, harm: str, seed: int, seconds: float, show: Show = silent, *, prefix: list[str] | None = None
) -> Counts:
    """Plays one round.

    Args:
        place: an empty directory.
        kind: what there is.
        harm: what is done.
        seed: of the dice. The system schedules as it likes, so the same seed is not the same round.
        seconds: for how long; what comes before and after is not counted.
        show: is told how it goes.
        prefix: a module that is run in the place of links and recorders.

    Raises:
        AssertionError: lines are lost without a word, come twice, or are not what was written.
    """
    os.environ.setdefault("LC_ALL", "C")
    with KINDS[kind](place, seed, seconds, show, prefix) as this:
        this.begin()
        this.harm(HARMS[harm](this))
        counts = this.finish()
        this.unmount()
    return counts
