"""The bus at one moment, as a frozen record, and three ways to write it down: for people, for programs, and as metrics.

Whoever has the record asks nobody else: each way is a function of it, and of what the daemon knows of itself and of processes.
"""

from .metrics import as_metrics
from .people import for_people
from .programs import for_programs
from .record import BusStat, ChannelStat, ClientStat, Daemon
from .taking import Taking, TakingFailed, take

__all__ = [
    "BusStat",
    "ChannelStat",
    "ClientStat",
    "Daemon",
    "Taking",
    "TakingFailed",
    "as_metrics",
    "for_people",
    "for_programs",
    "take",
]
